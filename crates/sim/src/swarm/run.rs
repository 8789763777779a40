//! One run, from its seed to the judgement.

use super::clients::{Place, Worker, open};
use super::settings::{Fault, Settings};
use crate::cluster::{Cluster, ClusterSpec};
use crate::history::{Call, History, Moment, Moments};
use crate::linearizable::{self, Crash, Verdict};
use crate::register::{Asked, Register, Said};
use crate::serializable::{self, Transaction};
use env::Env;
use futures_util::future::{join, join_all};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use transport::SimNet;
use types::{Code, ContLayout, Durability, Error, Result};

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
    /// Kills, and when they were.
    pub crashes: RefCell<Vec<(Moment, Duration)>>,
    pub is_done: Cell<bool>,
    pub happened: RefCell<BTreeMap<Fault, u32>>,
    histories: RefCell<BTreeMap<Place, History<Asked, Said>>>,
    transactions: RefCell<Vec<Transaction>>,
    value_last: Cell<u64>,
    stripes: Cell<u64>,
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
    let run = Run {
        settings: settings.clone(),
        cluster,
        moments: Moments::default(),
        accounts: RefCell::default(),
        down: RefCell::default(),
        crashes: RefCell::default(),
        is_done: Cell::new(false),
        happened: RefCell::default(),
        histories: RefCell::default(),
        transactions: RefCell::default(),
        value_last: Cell::new(0),
        stripes: Cell::new(0),
        ticks: RefCell::default(),
        tells,
    };
    run.cluster.block_on(run.whole())?;
    run.judge()
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

    /// The history of a key.
    pub fn history(&self, place: Place) -> History<Asked, Said> {
        let mut histories = self.histories.borrow_mut();
        histories.entry(place).or_insert_with(|| History::new(self.moments.clone())).clone()
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
            _ => Err(error),
        }
    }

    /// Work with trouble, then peace.
    async fn whole(&self) -> std::result::Result<(), String> {
        let text = |what: &str| {
            let what = what.to_string();
            move |error: Error| format!("{what}: {error}")
        };
        let setup = self.cluster.client("setup");
        let durability = self.settings.durability;
        let cont = self.cluster.container(&setup, durability, ContLayout::Plain).await;
        let maker = Worker::new(self, u32::MAX, cont.map_err(text("making a container"))?);
        for at in 0..self.settings.accounts {
            maker.open_account(at).await.map_err(text("opening an account"))?;
        }
        let mut clients = Vec::new();
        for number in 0..self.settings.clients {
            let client = self.cluster.client_with(&format!("c{number}"), |options| {
                options.timeout = self.settings.patience;
                // Leaders code what the others write.
                options.codes_stripes = number % 2 == 0;
            });
            clients.push((number, open(&client).await.map_err(text("opening the container"))?));
        }
        let net = SimNet::of(self.cluster.world());
        net.set_delay(Duration::from_micros(5), self.settings.delay_max);
        let env = self.cluster.world().node("judge");
        let deadline = Cell::new(Duration::MAX);
        let work = async {
            let outcomes = join_all(clients.into_iter().map(async |(number, cont)| {
                Worker::new(self, number, cont).work().await.map_err(|error| (number, error))
            }));
            for outcome in outcomes.await {
                outcome.map_err(|(number, error)| format!("client {number}: {error}"))?;
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
            Ok::<(), Error>(())
        };
        deadline.set(env.now() + PEACE_TIME_MAX);
        let looked = watch(&env, &deadline, self, last).await;
        looked.ok_or("in peace, a key gives no answer")?.map_err(text("in peace"))?;
        if let Some(files) = &self.settings.files {
            let compared = maker.compare_cells(files).await.map_err(text("comparing cells"))?;
            return compared.map_or(Ok(()), Err);
        }
        let compared = maker.compare_members().await.map_err(text("comparing members"))?;
        compared.map_or(Ok(()), Err)
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

/// A key's history, for people.
fn tell(calls: &[Call<Asked, Said>], order: &[usize], missing: &str, crashes: &[Crash]) -> String {
    let mut lines = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        let (end, said) = match &call.returned {
            Some((end, said)) => (end.to_string(), format!("{said:?}")),
            None => (String::new(), "no answer".into()),
        };
        let place = order.iter().position(|other| *other == at);
        let place = place.map(|place| format!("#{place}")).unwrap_or_default();
        let who =
            if call.client == u32::MAX { "judge".into() } else { format!("c{}", call.client) };
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
