//! One run, from its seed to the judgement.

use super::clients::{Place, Worker, open};
use super::names::{NameAnswer, NameCall, Names, Tree};
use super::settings::{Fault, Settings};
use super::snapshots::{KEEPER, Snapshot};
use crate::cluster::{Cluster, ClusterSpec};
use crate::history::{Call, History, Moment, Moments};
use crate::linearizable::{self, Crash, Verdict};
use crate::local::make_placed_container;
use crate::register::{Asked, Register, Said};
use crate::serializable::{self, Transaction};
use crate::stores;
use client::{Container, ReadFrom};
use env::Env;
use futures_channel::oneshot;
use futures_util::future::{join, join_all};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::rc::Rc;
use std::time::Duration;
use transport::SimNet;
use types::{
    Code, ContLayout, ContProps, Durability, Error, ObjClass, ObjType, Oid, PlacementRule, Result,
};

/// Once there is peace, everybody is done after so long, virtual time.
const PEACE_TIME_MAX: Duration = Duration::from_secs(120);
/// What a `relaxed` pool has acknowledged for so long is not lost by a crash, virtual time.
const RELAXED_TIME_MAX: Duration = Duration::from_secs(2);

/// What a run was like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Equal for equal runs.
    pub trace_hash: u64,
    /// Calls, and those of them without an answer.
    pub calls: (usize, usize),
    /// Transactions that were answered.
    pub transactions: usize,
    /// Searches that were given up.
    pub undecided: usize,
    /// Stripes whose parity was compared with their data in the end.
    pub stripes: u64,
    /// Engines whose disks were exchanged for empty ones.
    pub wiped: u64,
    /// Wishes of an administrator that were heard: two for targets that were drained or excluded, and serve again.
    pub wishes: u64,
    /// Snapshots that were taken, and values that they showed.
    pub snapshots: (u64, u64),
    /// Times that all became what a snapshot shows.
    pub rollbacks: u64,
    /// Targets that engines got while they ran, and were taken into the pool.
    pub grown: u64,
    /// How often targets got other shares.
    pub weighed: u64,
    /// Files that got another class.
    pub migrated: u64,
    /// Blocks that decayed: of which bits flipped, that got what was for another, that cannot be read.
    pub decayed: [u64; 3],
    /// Cuts between two engines.
    pub engine_cuts: u32,
    /// What members answered in the place of leaders, and what they refused.
    pub member_reads: (u64, u64),
    /// Engines that stood still, and clients.
    pub still: (u32, u32),
    /// Faults that happened, by kind.
    pub faults: BTreeMap<Fault, u32>,
    /// Virtual time it took.
    pub took: Duration,
}

/// A run under way.
pub(super) struct Run {
    pub settings: Settings,
    pub cluster: Cluster,
    pub moments: Moments,
    /// Values that accounts began with.
    pub accounts: RefCell<BTreeMap<u64, u64>>,
    /// Engines that are not up.
    pub down: RefCell<BTreeSet<usize>>,
    /// Nodes of clients that stand still.
    pub still_clients: RefCell<BTreeSet<String>>,
    /// Kills, and when they were.
    pub crashes: RefCell<Vec<(Moment, Duration)>>,
    pub is_done: Cell<bool>,
    pub happened: RefCell<BTreeMap<Fault, u32>>,
    histories: RefCell<BTreeMap<Place, History<Asked, Said>>>,
    names: History<NameCall, NameAnswer>,
    transactions: RefCell<Vec<Transaction>>,
    value_last: Cell<u64>,
    oids: RefCell<BTreeMap<u64, Oid>>,
    stripes: Cell<u64>,
    member_reads: Cell<(u64, u64)>,
    /// Somebody has lost something that is not whole again.
    pub is_losing: Cell<bool>,
    pub wiped: Cell<u64>,
    /// Targets are drained or excluded.
    pub is_wishing: Cell<bool>,
    pub wishes: Cell<u64>,
    /// Targets come to have other shares.
    pub is_growing: Cell<bool>,
    pub grown: Cell<u64>,
    pub weighed: Cell<u64>,
    /// Files are getting another class.
    pub is_migrating: Cell<bool>,
    pub migrated: Cell<u64>,
    /// Uses of data by clients that may have counted as dead meanwhile, or that were given up and may arrive later.
    pub late_writes: Cell<u64>,
    /// Names that clients have removed, as far as they know: they got no answer.
    pub lost_unlinks: Cell<u64>,
    /// A snapshot is taken, or looked at.
    pub is_taking: Cell<bool>,
    pub snapshots_taken: Cell<u64>,
    pub rollbacks: Cell<u64>,
    /// Values that snapshots showed.
    pub shown: Cell<u64>,
    /// What snapshots showed of all names, by its hash.
    pub shown_trees: RefCell<BTreeMap<u64, Names>>,
    /// Snapshots that stay.
    pub kept: RefCell<Vec<Snapshot>>,
    /// What was found to be wrong by somebody who is no client.
    pub wrong: RefCell<Option<String>>,
    pub decayed: RefCell<[u64; 3]>,
    pub engine_cuts: Cell<u32>,
    pub still: Cell<(u32, u32)>,
    /// Moments by virtual time, for what a `relaxed` pool must keep.
    ticks: RefCell<Vec<(Duration, Moment)>>,
    tells: bool,
}

/// Runs a seed. With `tells`, says on the way what happens. An error says what was wrong.
pub fn run(settings: &Settings, tells: bool) -> std::result::Result<Report, String> {
    let spec =
        ClusterSpec { seed: settings.seed, engines: settings.engines, targets: settings.targets };
    let cluster = Cluster::start_healing(spec, settings.store.clone(), settings.rebuild_after_s)
        .map_err(|error| format!("starting the cluster: {error}"))?;
    let moments = Moments::default();
    let run = Rc::new(Run {
        settings: settings.clone(),
        cluster,
        names: History::new(moments.clone()),
        moments,
        accounts: RefCell::default(),
        down: RefCell::default(),
        still_clients: RefCell::default(),
        crashes: RefCell::default(),
        is_done: Cell::new(false),
        happened: RefCell::default(),
        histories: RefCell::default(),
        transactions: RefCell::default(),
        value_last: Cell::new(0),
        oids: RefCell::default(),
        stripes: Cell::new(0),
        member_reads: Cell::default(),
        is_losing: Cell::new(false),
        wiped: Cell::new(0),
        is_wishing: Cell::new(false),
        wishes: Cell::new(0),
        is_growing: Cell::new(false),
        grown: Cell::new(0),
        weighed: Cell::new(0),
        is_migrating: Cell::new(false),
        migrated: Cell::new(0),
        late_writes: Cell::new(0),
        lost_unlinks: Cell::new(0),
        is_taking: Cell::new(false),
        snapshots_taken: Cell::new(0),
        rollbacks: Cell::new(0),
        shown: Cell::new(0),
        shown_trees: RefCell::default(),
        kept: RefCell::default(),
        wrong: RefCell::default(),
        decayed: RefCell::default(),
        engine_cuts: Cell::new(0),
        still: Cell::default(),
        ticks: RefCell::default(),
        tells,
    });
    let outcome = run.cluster.block_on(run.whole());
    // Their tasks know of the run, which has the world that has the tasks.
    (0..settings.clients).for_each(|number| run.cluster.world().kill(&client_name(number)));
    outcome?;
    run.judge()
}

/// The node of a client.
pub(super) fn client_name(number: u32) -> String {
    format!("c{number}")
}

impl Run {
    /// Tells what happens, to who asked for it.
    pub fn note(&self, text: impl FnOnce() -> String) {
        if self.tells {
            let (now, moment) = (self.cluster.world().now(), self.moments.last());
            eprintln!("{now:>12?} {moment:>4} {}", text());
        }
    }

    /// A value that was never written.
    pub fn new_value(&self) -> u64 {
        self.value_last.set(self.value_last.get() + 1);
        self.value_last.get()
    }

    /// The object of a class with a number. Made once: while targets are drained a pool may be too small for new ones.
    pub fn oid(&self, cont: &Container, kind: ObjType, class: &str, number: u64) -> Result<Oid> {
        if let Some(oid) = self.oids.borrow().get(&number) {
            return Ok(*oid);
        }
        let oid = cont.generate_oid(kind, class.parse()?, 0, number)?;
        self.oids.borrow_mut().insert(number, oid);
        Ok(oid)
    }

    /// The history of a key.
    pub fn history(&self, place: Place) -> History<Asked, Said> {
        let mut histories = self.histories.borrow_mut();
        histories.entry(place).or_insert_with(|| History::new(self.moments.clone())).clone()
    }

    /// The history of all names.
    pub fn names(&self) -> &History<NameCall, NameAnswer> {
        &self.names
    }

    /// Notes what members have answered a client, and what not.
    fn note_member_reads(&self, (shown, refused): (u64, u64)) {
        let so_far = self.member_reads.get();
        self.member_reads.set((so_far.0 + shown, so_far.1 + refused));
    }

    /// Notes that so many stripes were compared.
    pub fn note_stripes(&self, count: u64) {
        self.stripes.set(self.stripes.get() + count);
    }

    /// Notes a transaction.
    pub fn note_tx(&self, transaction: Transaction) {
        self.transactions.borrow_mut().push(transaction);
    }

    /// Errors that trouble explains leave a call without an answer; others end the run.
    pub fn bear(&self, error: Error) -> Result<()> {
        match error.code {
            // An update that finds no room fails; of a few it is not said which.
            Code::TimedOut | Code::Unreach | Code::Closed | Code::NoSpace => {
                self.note(|| format!("no answer: {error}"));
                Ok(())
            }
            // A disk that fails; of writes that were refused it is not said whether they will last.
            Code::Io if self.settings.faults.contains(&Fault::DiskError) => {
                self.note(|| format!("no answer: {error}"));
                Ok(())
            }
            // What is made is refused where those that are not drained are too few without who is away for long.
            Code::Redundancy if self.settings.faults.contains(&Fault::Drain) => {
                self.note(|| format!("no answer: {error}"));
                Ok(())
            }
            // Nobody can use what is being rolled back.
            Code::Busy if self.settings.faults.contains(&Fault::Rollback) => {
                self.note(|| format!("no answer: {error}"));
                Ok(())
            }
            // What is damaged, or cannot be read, is refused while nobody else can be asked.
            Code::Csum | Code::Io if self.settings.faults.contains(&Fault::Damage) => {
                self.note(|| format!("no answer: {error}"));
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Work with trouble, then peace.
    async fn whole(self: &Rc<Run>) -> std::result::Result<(), String> {
        let text = |what: &str| {
            let what = what.to_string();
            move |error: Error| format!("{what}: {error}")
        };
        let setup = self.cluster.client("setup");
        let durability = self.settings.durability;
        let cont = match self.settings.has_names {
            true => match self.make_tree(&setup).await {
                Ok(()) => open(&setup).await,
                Err(error) => Err(error),
            },
            false => match self.plain_props() {
                Ok(props) => {
                    make_placed_container(&setup, durability, self.placement(), props).await
                }
                Err(error) => Err(error),
            },
        };
        let maker = Worker::new(self.clone(), u32::MAX, cont.map_err(text("making a container"))?);
        maker.know_objects().map_err(text("making objects"))?;
        let limit = self.settings.bulk_limit;
        let limits = ["ioc_max_writers", "ioc_max_readers"];
        let limits = limits.map(|name| (name.to_string(), limit.to_string()));
        let set = maker.cont.pool().set_props(limits.into()).await;
        set.map_err(text("setting limits"))?;
        for at in 0..self.settings.accounts {
            maker.open_account(at).await.map_err(text("opening an account"))?;
        }
        let mut clients = Vec::new();
        for number in 0..self.settings.clients {
            let client = self.cluster.client_with(&client_name(number), |options| {
                options.timeout = self.settings.patience;
                options.unanswered_max = self.settings.unanswered_max;
                // Leaders code what the others write.
                options.codes_stripes = number % 2 == 0;
                options.read_from = match types::hash::mix2(self.settings.seed, number.into()) % 3 {
                    0 => ReadFrom::Leaders,
                    _ => ReadFrom::Members,
                };
            });
            clients.push((number, open(&client).await.map_err(text("opening the container"))?));
        }
        let net = SimNet::of(self.cluster.world());
        net.set_delay(Duration::from_micros(5), self.settings.delay_max);
        net.set_flight_bytes_max(self.settings.flight_bytes_max);
        let env = self.cluster.world().node("judge");
        let deadline = Cell::new(Duration::MAX);
        let work = async {
            // Each on its own node, which may stand still.
            let begin = |(number, cont): (u32, Container)| {
                let (told, outcome) = oneshot::channel();
                let env = cont.client().env().clone();
                let worker = Worker::new(self.clone(), number, cont);
                env.spawn(async move {
                    // Nobody waits for it any more when the run has failed.
                    let _ = told.send(worker.work().await);
                    worker.run.note_member_reads(worker.cont.client().member_read_counts());
                });
                async move { (number, outcome.await) }
            };
            for (number, outcome) in join_all(clients.into_iter().map(begin)).await {
                let outcome = outcome.map_err(|_| format!("client {number} is gone"))?;
                outcome.map_err(|error| format!("client {number}: {error}"))?;
            }
            self.is_done.set(true);
            Ok::<(), String>(())
        };
        let trouble = async {
            self.trouble().await;
            net.heal_all();
            deadline.set(env.now() + PEACE_TIME_MAX);
            self.note(|| "peace".into());
        };
        let all = join(work, trouble);
        let watched = watch(&env, &deadline, self, all).await;
        let (worked, ()) = watched.ok_or("in peace, clients do not come to an end")?;
        worked?;
        let last = async {
            for key in 0..self.settings.keys {
                maker.ask(Place::Key(key), Asked::Get).await?;
                maker.ask(Place::Key(key), Asked::Put(self.new_value())).await?;
                maker.ask(Place::Key(key), Asked::Get).await?;
            }
            for at in 0..self.settings.accounts {
                maker.read_account(at).await?;
            }
            if let Some(files) = &self.settings.files {
                maker.lose_members(files).await?;
            }
            if self.settings.has_names {
                maker.look_at_names().await?;
            }
            Ok::<(), Error>(())
        };
        deadline.set(env.now() + PEACE_TIME_MAX);
        let looked = watch(&env, &deadline, self, last).await;
        looked.ok_or("in peace, a key gives no answer")?.map_err(text("in peace"))?;
        self.end_wishes(&env, &setup).await.map_err(text("in peace"))?;
        self.demand_mended(&env, &setup).await.map_err(text("in peace"))?;
        self.look_at_kept(&setup).await.map_err(text("looking at snapshots"))?;
        self.wrong.take().map_or(Ok(()), Err)?;
        let compared = match &self.settings.files {
            Some(files) => maker.compare_cells(files).await.map_err(text("comparing cells"))?,
            None if self.settings.has_names => {
                maker.compare_names().await.map_err(text("comparing names"))?
            }
            None => maker.compare_members().await.map_err(text("comparing members"))?,
        };
        compared.map_or(Ok(()), Err)?;
        if self.settings.checks_stores() {
            let checked = self.check_stores().await.map_err(text("checking the stores"))?;
            checked.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// By what targets get shares of the pool.
    pub fn placement(&self) -> PlacementRule {
        match self.settings.faults.contains(&Fault::Reweigh) {
            true => PlacementRule::Capacity,
            false => PlacementRule::Equal,
        }
    }

    /// Of a container whose objects nobody finds without room for their members: what would leave too few targets is refused.
    fn plain_props(&self) -> Result<ContProps> {
        let widest = self.settings.files.as_ref().map_or(self.settings.class, |files| files.class);
        let oclass: ObjClass = widest.parse()?;
        let rd_fac = oclass.scheme.redundancy_factor();
        Ok(ContProps { layout: ContLayout::Plain, oclass, ..ContProps::posix(rd_fac) })
    }

    /// Stops all engines, of some runs in good order, and has their stores looked at; says what is wrong.
    async fn check_stores(&self) -> Result<Option<String>> {
        let engines = self.settings.engines;
        for at in (0..engines).filter(|_| self.settings.seed.is_multiple_of(2)) {
            self.cluster.stop_engine(at).await?;
        }
        (0..engines).for_each(|at| self.cluster.kill_engine(at));
        stores::damage(&self.cluster).await
    }

    /// The last moment before a time.
    fn moment_at(&self, time: Duration) -> Moment {
        let ticks = self.ticks.borrow();
        let at = ticks.partition_point(|(tick, _)| *tick <= time);
        at.checked_sub(1).map_or(0, |at| ticks[at].1)
    }

    /// What crashes may take back. In a `wal` pool it is nothing that anybody was told or shown, which is as if it had
    /// not been.
    fn crashes(&self) -> Vec<Crash> {
        if self.settings.durability == Durability::Wal {
            return Vec::new();
        }
        let keeps = |(at, time): &(Moment, Duration)| Crash {
            at: *at,
            keeps_until: match self.settings.durability {
                Durability::Wal => *at,
                Durability::Relaxed => self.moment_at(time.saturating_sub(RELAXED_TIME_MAX)),
                Durability::Memory => 0,
            },
        };
        self.crashes.borrow().iter().map(keeps).collect()
    }

    fn judge(&self) -> std::result::Result<Report, String> {
        let crashes = self.crashes();
        let mut report = Report {
            trace_hash: self.cluster.world().trace_hash(),
            calls: (0, 0),
            transactions: 0,
            undecided: 0,
            stripes: self.stripes.get(),
            member_reads: self.member_reads.get(),
            wiped: self.wiped.get(),
            wishes: self.wishes.get(),
            snapshots: (self.snapshots_taken.get(), self.shown.get()),
            rollbacks: self.rollbacks.get(),
            grown: self.grown.get(),
            weighed: self.weighed.get(),
            migrated: self.migrated.get(),
            decayed: *self.decayed.borrow(),
            engine_cuts: self.engine_cuts.get(),
            still: self.still.get(),
            faults: self.happened.borrow().clone(),
            took: self.cluster.world().now(),
        };
        for (place, history) in self.histories.borrow().iter() {
            let mut calls = history.calls();
            report.calls.0 += calls.len();
            report.calls.1 += calls.iter().filter(|call| call.returned.is_none()).count();
            // It may have been done, been seen and been lost in the crash, and asked again it fails.
            let is_refused =
                |said: &Said| matches!(said, Said::Exist | Said::NonExist | Said::Lost);
            let spans = |call: &&Call<Asked, Said>| {
                call.returned.is_some_and(|(end, said)| {
                    let mut within = crashes.iter().filter(|crash| crash.at < end);
                    is_refused(&said) && within.any(|crash| call.invoked < crash.at)
                })
            };
            let again: Vec<_> = calls.iter().filter(spans).cloned().collect();
            calls.extend(again.into_iter().map(|call| Call { returned: None, ..call }));
            match linearizable::check(&Register, None, &calls, &crashes) {
                Verdict::Linearizable => {}
                Verdict::Undecided => report.undecided += 1,
                Verdict::Violation(order, missing) => {
                    return Err(format!(
                        "{place:?}: no order of its calls explains the answers.\n{}",
                        tell(&calls, &order, &missing, &crashes)
                    ));
                }
            }
        }
        let calls = self.names.calls();
        report.calls.0 += calls.len();
        report.calls.1 += calls.iter().filter(|call| call.returned.is_none()).count();
        let tree = Tree { shown: self.shown_trees.take() };
        match linearizable::check(&tree, Names::new(), &calls, &[]) {
            Verdict::Linearizable => {}
            Verdict::Undecided => report.undecided += 1,
            Verdict::Violation(order, missing) => {
                let told = tell(&calls, &order, &missing, &[]);
                return Err(format!("no order of the calls explains the answers.\n{told}"));
            }
        }
        let transactions = self.transactions.borrow();
        report.transactions = transactions.iter().filter(|tx| tx.committed.is_some()).count();
        // In other pools a transaction that somebody saw may be gone after a crash.
        if crashes.is_empty() {
            serializable::check(&self.accounts.borrow(), &transactions)?;
        }
        Ok(report)
    }
}

/// Drives a future; `None` when the deadline, which may be set meanwhile, passes.
async fn watch<F: Future>(
    env: &Env,
    deadline: &Cell<Duration>,
    run: &Run,
    future: F,
) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    loop {
        if let Some(output) = env.timeout(Duration::from_millis(50), future.as_mut()).await {
            return Some(output);
        }
        run.ticks.borrow_mut().push((env.now(), run.moments.last()));
        if env.now() > deadline.get() {
            return None;
        }
    }
}

/// A history, for people.
fn tell<Op: Debug, Ret: Debug>(
    calls: &[Call<Op, Ret>],
    order: &[usize],
    missing: &str,
    crashes: &[Crash],
) -> String {
    let mut lines = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        let (end, said) = match &call.returned {
            Some((end, said)) => (end.to_string(), format!("{said:?}")),
            None => (String::new(), "no answer".into()),
        };
        let place = order.iter().position(|other| *other == at);
        let place = place.map(|place| format!("#{place}")).unwrap_or_default();
        let who = match call.client {
            u32::MAX => "judge".into(),
            KEEPER => "then".into(),
            client => format!("c{client}"),
        };
        let span = format!("{}..{end}", call.invoked);
        lines.push(format!("{span:>12} {who:>5} {place:>5} {:?} -> {said}", call.op));
    }
    for crash in crashes {
        lines.push(format!("{:>12} crash", crash.at));
    }
    format!(
        "{}\nthe longest order is that of the #; then there is no place for\n{missing}",
        lines.join("\n")
    )
}
