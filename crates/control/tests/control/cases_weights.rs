//! Weights of targets by what was measured of them: the property `placement`.

use crate::fake::{GIB, System, label};
use futures_executor::block_on;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Code, Durability, PlacementRule, Rank, TargetId};
use wire::control::{ControlReply, ControlRequest as R, PoolInfo, Reweighed, Subject, TargetAim};
use wire::measure::{MeasureAsk, Measures, Network, Past, Speed, Standing};

fn wanted(name: &str, placement: PlacementRule, durability: Durability, targets: &[u32]) -> R {
    R::PoolCreate {
        label: name.into(),
        bytes: GIB,
        scm_percent: 10,
        durability,
        placement,
        targets: targets.iter().copied().map(TargetId).collect(),
    }
}

fn made(system: &System, request: R) -> PoolInfo {
    match system.run(request).unwrap() {
        ControlReply::Pool(pool) => pool,
        _ => panic!("not a pool"),
    }
}

fn weights(pool: &PoolInfo) -> Vec<u32> {
    pool.map.placements.last().unwrap().weights.iter().map(|(_, weight)| *weight).collect()
}

fn give_room(system: &System, free: &[u64]) {
    for (id, &free_bytes) in (0..).zip(free) {
        let standing = Standing { free_bytes, ..Standing::default() };
        system.targets.standings.borrow_mut().insert(TargetId(id), standing);
    }
}

#[test]
fn targets_are_weighed_by_room_or_by_room_and_speed() {
    let system = System::new(2);
    give_room(&system, &[GIB, GIB, GIB, 3 * GIB]);
    let wal = Durability::Wal;
    let equal = made(&system, wanted("equal", PlacementRule::Equal, wal, &[]));
    assert_eq!(weights(&equal), [65_536; 4]);
    let capacity = made(&system, wanted("capacity", PlacementRule::Capacity, wal, &[]));
    assert_eq!((weights(&capacity)[0], weights(&capacity)[3]), (43_690, 131_072));
    assert!(system.targets.standings.borrow().values().all(|of| of.measures.is_none()));
    // Those that are not measured yet are; the first is twelve times as fast as the others.
    let score = made(&system, wanted("score", PlacementRule::Score, wal, &[]));
    assert_eq!(score.placement, PlacementRule::Score);
    let got = weights(&score);
    let near = |a: u32, b: u32| a.abs_diff(b) <= 2;
    assert!(near(got[0], 12 * got[1]) || got[0] / got[1] == 12, "{got:?}");
    assert!(near(got[3], 3 * got[1]), "{got:?}");
    assert_eq!(got.iter().sum::<u32>() / 65_536, 3, "the norm on average, rounded down");
    // In memory devices do not count.
    let memory = made(&system, wanted("m", PlacementRule::Score, Durability::Memory, &[]));
    assert_eq!(weights(&memory), [65_536; 4]);
}

#[test]
fn what_was_measured_later_changes_no_pool_by_itself() {
    let system = System::new(2);
    give_room(&system, &[GIB; 4]);
    let request = wanted("tank", PlacementRule::Score, Durability::Wal, &[0, 1]);
    let before = made(&system, request);
    let ask = MeasureAsk { bytes: 1, step_ms_max: 1, once: false };
    let measure = R::TargetMeasure { target: TargetId(1), ask: Some(ask) };
    let ControlReply::Standing(standing) = system.run(measure).unwrap() else {
        panic!("not how a target stands")
    };
    assert_eq!(standing.measures.unwrap().read.kb_s, 200_000);
    give_room(&system, &[GIB, 9 * GIB, GIB, GIB]);
    let ControlReply::Pool(now) = system.run(R::PoolQuery(label("tank"))).unwrap() else {
        panic!("not a pool")
    };
    assert_eq!(now.map.placements, before.map.placements);
    // Those that are taken in begin a placement epoch, with weights of that moment for all.
    let extended = made(&system, R::PoolExtend { pool: label("tank"), targets: Vec::new() });
    assert_eq!(extended.map.placements[0], before.map.placements[0]);
    let of = weights(&extended);
    assert_eq!(of.len(), 4);
    assert!(of[0] > of[1] && of[1] > of[2] && of[2] == of[3], "{of:?}");
}

#[test]
fn what_cannot_be_weighed_makes_no_pool() {
    let system = System::new(2);
    for rule in [PlacementRule::Capacity, PlacementRule::Score] {
        let full = wanted("tank", rule, Durability::Wal, &[]);
        assert_eq!(system.fails(full.clone(), "free room"), Code::NoSpace);
        system.targets.broken.borrow_mut().insert(TargetId(2));
        system.fails(full, "target 2");
        system.targets.broken.borrow_mut().clear();
    }
    assert!(system.pools().is_empty());
}

fn set(system: &System, props: &[(&str, &str)]) {
    let props = props.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    system.run(R::SetProps { subject: Subject::Pool(label("tank")), props }).unwrap();
}

fn reweigh(system: &System, is_trial: bool) -> Reweighed {
    match system.run(R::PoolReweigh { pool: label("tank"), is_trial }).unwrap() {
        ControlReply::Reweighed(reweighed) => reweighed,
        _ => panic!("not shares"),
    }
}

/// How a target stands: what is free, what the pool has there, and how fast it is.
fn stands(system: &System, target: u32, free_bytes: u64, used_bytes: u64, kb_s: u64) {
    let speed = Speed { kb_s, kb_s_min: kb_s, kb_s_max: kb_s };
    let measures = Some(Measures { read: speed, write: speed, ..Measures::default() });
    let standing = Standing { free_bytes, measures, used_bytes, network: None, clients: None };
    system.targets.standings.borrow_mut().insert(TargetId(target), standing);
}

fn pool_now(system: &System) -> PoolInfo {
    system.pools()[0].clone()
}

#[test]
fn an_administrator_has_targets_weighed_again() {
    let system = System::new(2);
    (0..4).for_each(|id| stands(&system, id, GIB, 0, 1000));
    let before = made(&system, wanted("tank", PlacementRule::Score, Durability::Wal, &[]));
    assert_eq!(weights(&before), [65_536; 4]);
    assert!(!reweigh(&system, false).is_news, "nothing has changed");
    // What the pool has there itself makes no target worth less: it may move.
    (0..4).for_each(|id| stands(&system, id, GIB - (64 << 20), 64 << 20, 1000));
    assert!(!reweigh(&system, false).is_news);
    // One decays.
    stands(&system, 3, GIB - (64 << 20), 64 << 20, 100);
    let trial = reweigh(&system, true);
    assert!(trial.is_news);
    assert_eq!(pool_now(&system).map, before.map, "a trial changes nothing");
    let done = reweigh(&system, false);
    assert_eq!(done, trial);
    let map = pool_now(&system).map;
    assert_eq!(map.placements.len(), 2);
    assert_eq!(map.placements[0], before.map.placements[0], "older objects stay");
    let then: Vec<(TargetId, u32)> =
        done.shares.iter().map(|share| (share.target, share.then)).collect();
    assert_eq!(map.placements[1].weights, then);
    assert_eq!(then[0].1 / then[3].1, 10);
    assert_eq!((map.balanced, pool_now(&system).balance_wanted), (0, 0), "nothing moves yet");
    assert!(!reweigh(&system, false).is_news, "asked again");
    // By another rule.
    set(&system, &[("placement", "equal")]);
    assert!(reweigh(&system, false).is_news);
    assert_eq!(pool_now(&system).map.placements[2].weights, before.map.placements[0].weights);
}

/// The one target that is fast has no room for what it would be worth.
#[test]
fn no_target_gets_more_than_it_has_room_for() {
    let system = System::new(2);
    // Each has a quarter of a GiB of the pool, and it is half full.
    (0..4).for_each(|id| stands(&system, id, 100 * GIB, 128 << 20, 1000));
    made(&system, wanted("tank", PlacementRule::Score, Durability::Wal, &[]));
    stands(&system, 0, 100 * GIB, 128 << 20, 100_000);
    let shares = reweigh(&system, true).shares;
    let whole: u64 = shares.iter().map(|share| share.then as u64).sum();
    let part = shares[0].then as f64 / whole as f64;
    // 85 % of a quarter of a GiB, of half a GiB.
    assert!((part - 0.425).abs() < 0.01, "{part}");
}

#[test]
fn shares_follow_by_themselves_where_a_pool_says_so() {
    let system = System::new(2);
    (0..4).for_each(|id| stands(&system, id, GIB, 0, 1000));
    made(&system, wanted("tank", PlacementRule::Score, Durability::Wal, &[]));
    let look = |seconds: u64| {
        let now = Duration::from_secs(seconds);
        block_on(system.service.follow_worth(now, &*system.targets)).unwrap();
        pool_now(&system).map.placements.len()
    };
    stands(&system, 3, GIB, 0, 700);
    assert_eq!(look(0), 1, "nobody said so");
    set(&system, &[("balance", "auto"), ("balance_threshold", "20%")]);
    assert_eq!((look(1000), look(1599)), (1, 1), "not long enough as it is");
    assert_eq!(look(1600), 2);
    assert_eq!(pool_now(&system).balance_wanted, 1, "data follow");
    // While they do, and for a time after that, it stays as it is; so does it where one is missing or leaves.
    stands(&system, 3, GIB, 0, 1000);
    assert_eq!(look(4000), 2, "data are still on their way");
    let after = Some(Duration::from_secs(60));
    block_on(system.service.stand_in(Duration::ZERO, after, &*system.targets)).unwrap();
    let pool = pool_now(&system);
    for target in &pool.map.targets {
        let map_version = pool.map.version;
        let joined = R::TargetJoined { pool: pool.id, target: target.id, map_version };
        system.run(joined).unwrap();
    }
    assert_eq!(pool_now(&system).map.balanced, 1);
    system.targets.away.borrow_mut().insert(Rank(1));
    block_on(system.service.engine_is_silent(Rank(1), "gone", true, &*system.targets)).unwrap();
    assert_eq!(look(9000), 2, "one is missing");
    system.targets.away.borrow_mut().clear();
    let system = System::new(2);
    (0..4).for_each(|id| stands(&system, id, GIB, 0, 1000));
    made(&system, wanted("tank", PlacementRule::Score, Durability::Wal, &[]));
    set(&system, &[("balance", "auto"), ("balance_interval_s", "0")]);
    let look = || {
        block_on(system.service.follow_worth(Duration::ZERO, &*system.targets)).unwrap();
        pool_now(&system).map.placements.len()
    };
    // Noise moves nothing.
    for kb_s in [1100, 950, 1140, 890] {
        stands(&system, 2, GIB, 0, kb_s);
        assert_eq!(look(), 1, "{kb_s}");
    }
    stands(&system, 2, GIB, 0, 1300);
    assert_eq!(look(), 2);
    // One that has become slow is not waited for.
    let system = System::new(2);
    (0..4).for_each(|id| stands(&system, id, GIB, 0, 1000));
    made(&system, wanted("tank", PlacementRule::Score, Durability::Wal, &[]));
    set(&system, &[("balance", "auto")]);
    stands(&system, 1, GIB, 0, 300);
    block_on(system.service.follow_worth(Duration::ZERO, &*system.targets)).unwrap();
    assert_eq!(pool_now(&system).map.placements.len(), 2);
}

/// A fast device behind a slow link is worth what the link lets through.
#[test]
fn links_count_in_scores() {
    let system = System::new(2);
    (0..4).for_each(|id| stands(&system, id, GIB, 0, 1000));
    made(&system, wanted("tank", PlacementRule::Score, Durability::Wal, &[]));
    for (target, kb_s) in [(0, 250), (1, 5000)] {
        let speed = Speed { kb_s, kb_s_min: kb_s, kb_s_max: kb_s };
        let mut standings = system.targets.standings.borrow_mut();
        let standing = standings.get_mut(&TargetId(target)).unwrap();
        standing.network = Some(Network { at_ns: 1, link_count: 1, speed });
    }
    let then: Vec<u32> = reweigh(&system, true).shares.iter().map(|share| share.then).collect();
    assert!(then[1] == then[2] && then[2] == then[3], "{then:?}");
    // (1000 * 1.02 + 1000) / 2.01 of the others' devices.
    assert!((then[1] as f64 / then[0] as f64 - 1004.97 / 250.0).abs() < 0.01, "{then:?}");
    // About the same is the same: links slower than devices, and no share follows their noise.
    for (target, kb_s) in [(0, 450), (1, 520), (2, 400), (3, 610)] {
        let speed = Speed { kb_s, kb_s_min: kb_s, kb_s_max: kb_s };
        let mut standings = system.targets.standings.borrow_mut();
        let standing = standings.get_mut(&TargetId(target)).unwrap();
        standing.network = Some(Network { at_ns: 1, link_count: 1, speed });
    }
    assert!(!reweigh(&system, true).is_news);
}

/// How a target stands whose devices have become slow, or are well again.
fn has_become(system: &System, target: u32, is_slow: bool) {
    stands(system, target, GIB, 0, if is_slow { 100 } else { 1000 });
    let past = is_slow.then_some(Past { read: 1000, write: 1000 });
    let mut standings = system.targets.standings.borrow_mut();
    let standing = standings.get_mut(&TargetId(target)).unwrap();
    standing.measures = standing.measures.map(|of| Measures { past, ..of });
}

#[test]
fn targets_that_stay_slow_are_drained_where_a_pool_says_so() {
    let system = System::new(3);
    (0..6).for_each(|id| has_become(&system, id, false));
    made(&system, wanted("tank", PlacementRule::Equal, Durability::Wal, &[]));
    let look = |seconds: u64| {
        let now = Duration::from_secs(seconds);
        block_on(system.service.drain_slow(now, &*system.targets)).unwrap();
        block_on(system.service.stand_in(now, None, &*system.targets)).unwrap();
        let map = pool_now(&system).map;
        map.next.iter().flatten().filter(|out| out.is_drained).map(|out| out.target.0).collect()
    };
    let none: Vec<u32> = Vec::new();
    has_become(&system, 3, true);
    assert_eq!((look(0), look(100_000)), (none.clone(), none.clone()), "nobody said so");
    set(&system, &[("drain_slow_after_s", "3600")]);
    assert_eq!(look(200_000), none, "the time begins when it is seen");
    // Well in between: the time begins anew.
    assert_eq!(look(203_599), none);
    has_become(&system, 3, false);
    assert_eq!(look(203_600), none);
    has_become(&system, 3, true);
    assert_eq!(look(203_700), none);
    // Most are slow: then it is not the device.
    for id in [0, 1, 2] {
        has_become(&system, id, true);
    }
    assert_eq!(look(210_000), none);
    for id in [0, 1, 2] {
        has_become(&system, id, false);
    }
    // One that does not answer: nobody is drained meanwhile.
    system.targets.away.borrow_mut().insert(Rank(0));
    assert_eq!(look(210_100), none);
    system.targets.away.borrow_mut().clear();
    // The others have no room for it: a drain would have no end.
    let whole_bytes = 1 << 60;
    for id in 0..6 {
        system.targets.standings.borrow_mut().entry(TargetId(id)).or_default().used_bytes =
            whole_bytes;
    }
    assert_eq!(look(210_150), none);
    for id in 0..6 {
        system.targets.standings.borrow_mut().entry(TargetId(id)).or_default().used_bytes = 1;
    }
    has_become(&system, 5, true);
    assert_eq!(look(210_200), [3], "who has been slow for longest, and nobody else meanwhile");
    assert_eq!(look(220_000), [3]);
    assert_eq!(pool_now(&system).map.outs.len(), 0);
    set(&system, &[("drain_slow_after_s", "0")]);
}

#[test]
fn targets_that_were_added_get_their_share_by_themselves() {
    let system = System::new(2);
    made(&system, wanted("tank", PlacementRule::Equal, Durability::Wal, &[0, 1]));
    set(&system, &[("balance", "auto")]);
    made(&system, R::PoolExtend { pool: label("tank"), targets: vec![TargetId(2)] });
    assert_eq!(pool_now(&system).balance_wanted, 1);
    set(&system, &[("balance_stopped", "yes")]);
    made(&system, R::PoolExtend { pool: label("tank"), targets: Vec::new() });
    assert_eq!(pool_now(&system).balance_wanted, 0, "it is stopped");
    // Where it was set later it is found out later.
    set(&system, &[("balance_stopped", "no")]);
    block_on(system.service.follow_worth(Duration::ZERO, &*system.targets)).unwrap();
    assert_eq!(pool_now(&system).balance_wanted, 2);
}

fn look_at_moves(system: &System, seconds: u64) -> PoolInfo {
    let (now, after) = (Duration::from_secs(seconds), Some(Duration::from_secs(60)));
    block_on(system.service.stand_in(now, after, &*system.targets)).unwrap();
    pool_now(system)
}

/// Who wanted no data to move for a while could only stop all of it, and with it what lost copies are made anew from.
#[test]
fn a_balance_is_stopped_and_what_heals_goes_on() {
    let system = System::new(4);
    made(&system, wanted("tank", PlacementRule::Equal, Durability::Wal, &[0, 1, 2, 3, 4, 5]));
    made(&system, R::PoolExtend { pool: label("tank"), targets: Vec::new() });
    let begin = || system.run(R::PoolBalance { pool: label("tank") }).unwrap();
    let is_moving = |pool: &PoolInfo| (pool.map.next.is_some(), pool.map.next_balanced);
    begin();
    assert_eq!(is_moving(&look_at_moves(&system, 0)), (true, 1));
    set(&system, &[("balance_stopped", "yes")]);
    assert_eq!(pool_now(&system).balance_wanted, 0);
    assert_eq!(is_moving(&look_at_moves(&system, 0)), (false, 0), "it is given up");

    // Nor does it begin by itself; when somebody begins it, it is not stopped any more.
    let follow = |seconds: u64| {
        let now = Duration::from_secs(seconds);
        block_on(system.service.follow_worth(now, &*system.targets)).unwrap();
        pool_now(&system).balance_wanted
    };
    set(&system, &[("balance", "auto")]);
    assert_eq!(follow(0), 0);
    let props = || match system.run(R::GetProps { subject: Subject::Pool(label("tank")) }).unwrap()
    {
        ControlReply::Props(props) => props["balance_stopped"].clone(),
        _ => panic!("not properties"),
    };
    assert_eq!(props(), "yes");
    begin();
    assert_eq!((props(), follow(0)), ("no".into(), 1));

    // A drain goes on without it.
    let aim = R::PoolAim { pool: label("tank"), targets: vec![TargetId(0)], aim: TargetAim::Drain };
    system.run(aim).unwrap();
    let both = look_at_moves(&system, 0);
    assert_eq!(is_moving(&both), (true, 1));
    let drained = |pool: &PoolInfo| -> Vec<TargetId> {
        pool.map.next.iter().flatten().map(|out| out.target).collect()
    };
    assert_eq!(drained(&both), [TargetId(0)]);
    set(&system, &[("balance_stopped", "yes")]);
    let alone = look_at_moves(&system, 0);
    assert_eq!((is_moving(&alone), drained(&alone)), ((true, 0), vec![TargetId(0)]));
    let serve =
        R::PoolAim { pool: label("tank"), targets: vec![TargetId(0)], aim: TargetAim::Serve };
    system.run(serve).unwrap();
    assert_eq!(is_moving(&look_at_moves(&system, 0)), (false, 0));

    // What is lost is made anew whether it is stopped or not, and a balance that is begun meanwhile waits for that.
    system.targets.away.borrow_mut().insert(Rank(2));
    block_on(system.service.engine_is_silent(Rank(2), "gone", true, &*system.targets)).unwrap();
    look_at_moves(&system, 100);
    let healing = look_at_moves(&system, 200);
    assert_eq!(drained(&healing), [TargetId(4), TargetId(5)]);
    begin();
    assert_eq!(look_at_moves(&system, 201).map, healing.map);
    set(&system, &[("balance_stopped", "yes")]);
    assert_eq!(look_at_moves(&system, 202).map, healing.map, "nothing of it is given up");
}

#[test]
fn wrong_settings_of_balance_change_nothing() {
    let system = System::new(1);
    made(&system, wanted("tank", PlacementRule::Equal, Durability::Wal, &[]));
    for (name, value, text) in [
        ("placement", "speed", "placement"),
        ("heal_share", "0", "a number from 1 to 100"),
        ("balance", "on", "'auto' or 'manual'"),
        ("balance_threshold", "0", "a number from 1 to 1000"),
        ("balance_interval_s", "1h", "a number from 0"),
        ("balance_stopped", "true", "'yes' or 'no'"),
    ] {
        let props = BTreeMap::from([
            ("label".to_string(), "other".to_string()),
            (name.to_string(), value.to_string()),
        ]);
        let change = R::SetProps { subject: Subject::Pool(label("tank")), props };
        assert_eq!(system.fails(change, text), Code::Inval, "{name}={value}");
    }
    assert_eq!(pool_now(&system).label, "tank");
}
