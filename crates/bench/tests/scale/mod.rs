//! What one change of a pool map costs a large system: bytes, and time of the processor where the control service is and at each engine.
//!
//! A tenth of the largest system by default; `AZEKURA_LONG` measures up to a thousand engines of sixteen targets. `AZEKURA_PLOT`
//! and `AZEKURA_SPREAD_PLOT` name files for the plots that `docs/cluster.md` has.

use bench::svg::{Lines, Series};
use control::{EmbeddedCatalog, Service, SessionId, Targets};
use futures_executor::block_on;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};
use types::{Durability, Rank, Result, TargetId};
use uuid::Uuid;
use wire::control::{ControlReply, ControlRequest as R, JoinInfo};
use wire::map::{EngineInfo, PoolMap};
use wire::obj::{AdminOp, AdminReply, Request};

const TARGETS_PER_ENGINE: u32 = 16;

/// Targets that are there by number only; the first of them keeps its map.
#[derive(Default)]
struct Crowd {
    orders: Cell<u64>,
    bytes: Cell<u64>,
    map: RefCell<Option<PoolMap>>,
    /// What the first target took to decode the last map and to take it.
    taken_in: Cell<Duration>,
    /// The network, where there is one: a clock, how long a message and its answer take, and from which target on there is no answer
    /// in that time, but none after this one.
    network: RefCell<Option<Network>>,
    /// When the last map came to a target that answers.
    last_at: Cell<Duration>,
}

#[derive(Clone)]
struct Network {
    env: env::Env,
    round_trip: Duration,
    /// So many targets in the middle do not answer; whoever asks waits for ten seconds.
    mute: std::ops::Range<u32>,
}

/// How long an engine waits for another one.
const MUTE_TIME: Duration = Duration::from_secs(10);

impl Targets for Crowd {
    fn order(&self, target: TargetId, op: AdminOp) -> LocalBoxFuture<'_, Result<AdminReply>> {
        let is_map = matches!(op, AdminOp::SetMap(_) | AdminOp::ChangeMap(_));
        // As the engine sends it, sums included.
        let body = wire::encode(&Request::Admin { term: 7, op });
        let header = wire::Header::new(wire::Kind::Request, 1, &body, 0).encode();
        if is_map {
            self.orders.set(self.orders.get() + 1);
            self.bytes.set(self.bytes.get() + (header.len() + body.len()) as u64);
        }
        let begun = Instant::now();
        if is_map && target == TargetId(0) {
            let Ok(Request::Admin { op, .. }) = wire::decode::<Request<'_>>(&body) else {
                panic!()
            };
            let mut held = self.map.borrow_mut();
            let newer = match op {
                AdminOp::SetMap(map) => map,
                AdminOp::ChangeMap(change) => held.as_ref().unwrap().changed(&change).unwrap(),
                _ => unreachable!("maps only"),
            };
            held.replace(newer);
            self.taken_in.set(begun.elapsed());
        }
        let network = self.network.borrow().clone();
        let arrived = async move {
            let Some(Network { env, round_trip, mute }) = network else {
                return Ok(AdminReply::default());
            };
            if mute.contains(&target.0) {
                env.sleep(MUTE_TIME).await;
                return Err(types::Error::bare(types::Code::TimedOut));
            }
            env.sleep(round_trip / 2).await;
            self.last_at.set(self.last_at.get().max(env.now()));
            env.sleep(round_trip / 2).await;
            Ok(AdminReply::default())
        };
        arrived.boxed_local()
    }

    fn pause(&self) -> LocalBoxFuture<'_, ()> {
        std::future::ready(()).boxed_local()
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn until(&self, _: Duration) -> LocalBoxFuture<'_, ()> {
        std::future::ready(()).boxed_local()
    }

    fn here(&self) -> Option<Rank> {
        None
    }

    fn reachable(&self, _: Rank) -> bool {
        true
    }
}

/// What was measured of a system of so many engines.
struct Costs {
    engines: u32,
    targets: u64,
    map_bytes: usize,
    /// To all targets together.
    first_bytes: u64,
    change_bytes: u64,
    change_orders: u64,
    /// Of the processor, where the control service is.
    leader: Duration,
    /// Of the processor, at each target.
    target: Duration,
    /// Until all targets have it: by the clock of a network whose round trip takes [`ROUND_TRIP`].
    spread: Duration,
    /// The same while those of an engine give no answer, for all others.
    spread_beside_mute: Duration,
    /// Rounds until all engines have it by asking one another, if so many in a hundred were told.
    rounds: Vec<(u32, u32)>,
}

/// Between two machines of a large system, with the work of both.
const ROUND_TRIP: Duration = Duration::from_micros(500);

fn plot(all: &[Costs]) -> String {
    let line = |name: &str, bytes: &dyn Fn(&Costs) -> u64| Series {
        name: name.to_string(),
        points: all.iter().map(|c| (f64::from(c.engines), bytes(c) as f64 / 1024.0)).collect(),
    };
    let series = vec![
        line("the whole map", &|c| c.map_bytes as u64),
        line("what has changed", &|c| c.change_bytes / c.targets),
    ];
    Lines {
        title: "What a target is told when an engine is down".to_string(),
        x_label: "Engines, of 16 targets each".to_string(),
        y_label: "KiB".to_string(),
        series,
    }
    .svg()
}

fn spread_plot(all: &[Costs]) -> String {
    let line = |name: &str, seconds: &dyn Fn(&Costs) -> f64| Series {
        name: name.to_string(),
        points: all.iter().map(|c| (f64::from(c.engines), seconds(c))).collect(),
    };
    let asking = |nth: usize| move |costs: &Costs| f64::from(costs.rounds[nth].1);
    let series = vec![
        line("told by the engine that leads", &|c| (c.spread + c.leader).as_secs_f64()),
        line("1 % has missed it, and asks", &asking(0)),
        line("half have missed it, and ask", &asking(2)),
        line("90 % have missed it, and ask", &asking(3)),
    ];
    Lines {
        title: "Until every engine has a new map".to_string(),
        x_label: "Engines, of 16 targets each".to_string(),
        y_label: "seconds".to_string(),
        series,
    }
    .svg()
}

fn measure(engines: u32) -> Costs {
    let crowd = Crowd::default();
    let catalog = EmbeddedCatalog::in_memory().unwrap();
    let next = Cell::new(1u64);
    let random = move || {
        next.set(next.get() + 1);
        types::hash::mix(next.get())
    };
    let service = Service::new(Box::new(catalog), Rc::new(|| 1), Rc::new(random));
    let run = |request: R| block_on(service.handle(SessionId(1), request, &crowd)).unwrap();
    for at in 0..engines {
        let info = EngineInfo {
            rank: Rank(0),
            tcp: format!("storage{at:04}.example.org:7710"),
            unix: "/var/lib/azekura/engine0/engine.sock".into(),
            host: Uuid::from_u128(at.into()).to_string(),
            domain: vec![
                format!("row{}", at / 100),
                format!("rack{}", at / 10),
                format!("host{at}"),
            ],
        };
        let target_count = TARGETS_PER_ENGINE;
        let engine = Uuid::from_u128(1 + u128::from(at));
        run(R::Join(JoinInfo { engine, info, target_count, start: 1, system: None }));
    }
    let made = run(R::PoolCreate {
        placement: types::PlacementRule::default(),
        label: "large".into(),
        bytes: u64::from(engines) << 40,
        scm_percent: 10,
        durability: Durability::Wal,
        targets: Vec::new(),
    });
    let ControlReply::Pool(pool) = made else { panic!("no pool") };
    let silent =
        |rank| block_on(service.engine_is_silent(Rank(rank), "gone", true, &crowd)).unwrap();
    let first_bytes = crowd.bytes.replace(0);
    crowd.orders.set(0);
    let begun = Instant::now();
    silent(engines / 2);
    let leader = begun.elapsed();
    let map = crowd.map.borrow().clone().unwrap();
    assert_eq!(map.version, pool.map.version + 1);
    let down = map.targets.iter().filter(|target| target.reason.is_some()).count();
    assert_eq!(down as u32, TARGETS_PER_ENGINE);
    let (change_bytes, change_orders) = (crowd.bytes.get(), crowd.orders.get());
    // The same over a network, with its own clock.
    let world = env::SimWorld::new(1);
    let over_network = |rank: u32, mute: std::ops::Range<u32>| {
        let env = world.node("leader");
        let network = Network { env: env.clone(), round_trip: ROUND_TRIP, mute };
        crowd.network.replace(Some(network));
        crowd.last_at.set(Duration::ZERO);
        let begun = env.now();
        let silent = service.engine_is_silent(Rank(rank), "gone", true, &crowd);
        world.block_on(silent).unwrap();
        crowd.last_at.get() - begun
    };
    let spread = over_network(engines / 3, 0..0);
    let first_mute = engines / 4 * TARGETS_PER_ENGINE;
    let spread_beside_mute = over_network(engines / 5, first_mute..first_mute + TARGETS_PER_ENGINE);
    let rounds = [99, 90, 50, 10].map(|told| (told, rounds_of_asking(&map, told))).to_vec();
    Costs {
        engines,
        targets: map.targets.len() as u64,
        map_bytes: wire::encode(&map).len(),
        first_bytes,
        change_bytes,
        change_orders,
        leader,
        target: crowd.taken_in.get(),
        spread,
        spread_beside_mute,
        rounds,
    }
}

/// Rounds in which each engine asks one other, until all know what so many in a hundred were told.
fn rounds_of_asking(map: &PoolMap, told_percent: u32) -> u32 {
    let count = map.engines.len();
    let mut knows: Vec<bool> = (0..count)
        .map(|at| types::hash::mix2(7, at as u64) % 100 < u64::from(told_percent))
        .collect();
    // One at least, and not all.
    (knows[0], knows[count - 1]) = (true, false);
    for round in 0.. {
        if knows.iter().all(|knows| *knows) {
            return round;
        }
        assert!(round < 1000, "{told_percent} %: it does not reach everybody");
        let asks = |at: usize| {
            let other = map.asked_in_round(round.into(), map.engines[at].rank).unwrap();
            assert_ne!(other.rank, map.engines[at].rank);
            knows[at] || knows[map.engines.binary_search_by_key(&other.rank, |e| e.rank).unwrap()]
        };
        knows = (0..count).map(asks).collect();
    }
    unreachable!("it has come to an end before")
}

#[test]
fn a_change_of_a_large_map_costs_little() {
    let is_long = std::env::var_os("AZEKURA_LONG").is_some();
    let sizes: &[u32] = if is_long { &[10, 30, 100, 300, 1000] } else { &[10, 100] };
    let all: Vec<Costs> = sizes.iter().map(|engines| measure(*engines)).collect();
    if let Some(path) = std::env::var_os("AZEKURA_PLOT") {
        std::fs::write(path, plot(&all)).unwrap();
    }
    if let Some(path) = std::env::var_os("AZEKURA_SPREAD_PLOT") {
        std::fs::write(path, spread_plot(&all)).unwrap();
    }
    let mut last: Option<&Costs> = None;
    for (engines, costs) in sizes.iter().zip(&all) {
        println!(
            "{engines} engines, {} targets: a map of {} bytes, first told with {} bytes to all; one change {} bytes to all, \
             {:?} for the service and {:?} at a target",
            costs.targets,
            costs.map_bytes,
            costs.first_bytes,
            costs.change_bytes,
            costs.leader,
            costs.target
        );
        println!(
            "{engines} engines: with all targets after {:?} over a network of {ROUND_TRIP:?} there and back, beside one that is mute \
             {:?}; rounds of asking by percent told: {:?}",
            costs.spread, costs.spread_beside_mute, costs.rounds
        );
        // Virtual time: who gives no answer keeps nobody else waiting.
        assert!(
            costs.spread_beside_mute < Duration::from_secs(1),
            "{:?}",
            costs.spread_beside_mute
        );
        assert_eq!(costs.targets, u64::from(engines * TARGETS_PER_ENGINE));
        assert_eq!(costs.change_orders, costs.targets, "each target is told once");
        // What one target is told does not grow with the system.
        let each = costs.change_bytes / costs.targets;
        assert!(each < 1000, "{each} bytes");
        if let Some(last) = last {
            let before = last.change_bytes / last.targets;
            assert!(each < before * 2, "{before}, then {each} bytes");
        }
        last = Some(costs);
    }
}
