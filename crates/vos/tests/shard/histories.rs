//! Random histories, each cut off by the power going at a random change of the disk: what was
//! acknowledged is there, what was not is there up to some record and no further, whole or not
//! at all; snapshots show what they showed; and in the end every byte comes back.
//!
//! Next to nothing of the index stays in memory, and checkpoints, sweeps and aggregation run at any
//! moment. Of a write that was under way when the power went any part may have reached the disk, and
//! of several any.
//!
//! `AZEKURA_CRASH_SEEDS` is the number of histories; each has two crashes or more.

use super::model::*;
use super::pages::{ROOMY, wide_step};
use env::{Env, Rng, SimDisk, SimWorld};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use types::{ClientId, Code, Epoch, ObjType, Result};
use vos::{Lsn, PoolShard, PoolShardConfig, Store};
use wire::obj::*;
use wire::versions::{ContStage, ContVersions};

const SEEDS_DEFAULT: u64 = 80;
/// Acts of a life.
const ACTS: u64 = 24;
const TX: TxId = TxId { client: ClientId(5), seq: 44 };

/// What one record changes.
#[derive(Clone)]
enum Change {
    Step(u64, Step),
    Versions(ContVersions, BTreeMap<u64, Rc<Model>>),
    /// A rollback to this has ended: what it is now, at epochs that are to be found out.
    RolledBack(ContVersions, Rc<Model>),
    Prepare(Step),
    /// At an epoch, or not at all.
    Decide(Option<u64>),
}

/// What must be there.
#[derive(Clone, Default)]
struct Known {
    now: Model,
    /// The epochs in `now` are not known.
    timeless: bool,
    versions: ContVersions,
    snapshots: BTreeMap<u64, Rc<Model>>,
    prepared: Option<Step>,
}

impl Known {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Step(epoch, step) => self.now.run(*epoch, step).expect("it went through"),
            Change::Versions(versions, snapshots) => {
                (self.versions, self.snapshots) = (versions.clone(), snapshots.clone());
            }
            Change::RolledBack(versions, model) => {
                (self.versions, self.now) = (versions.clone(), Model::clone(model));
                self.timeless = true;
            }
            Change::Prepare(step) => self.prepared = Some(step.clone()),
            Change::Decide(outcome) => {
                let step = self.prepared.take().expect("it was prepared");
                if let Some(epoch) = outcome {
                    self.now.run(*epoch, &step).expect("it was checked");
                }
            }
        }
    }
}

/// A shard on its way through a history.
struct History {
    env: Env,
    disk: SimDisk,
    rng: Rng,
    /// Memory for the index, bytes.
    cache: u64,
    store: Option<Rc<Store>>,
    shard: Option<Rc<PoolShard>>,
    /// All that was done, and all that was acknowledged; what is between them, in order.
    done: Known,
    acked: Known,
    between: VecDeque<(Lsn, Change)>,
    epoch: u64,
    tally: Tally,
}

/// What histories came to.
#[derive(Default)]
struct Tally {
    /// Lives that the power cut off, of two in each.
    cut: u64,
    /// Records that were not acknowledged and there, and lives in which some were not there.
    kept: u64,
    lost: u64,
}

impl History {
    fn shard(&self) -> Rc<PoolShard> {
        self.shard.clone().expect("it is open")
    }

    fn did(&mut self, lsn: Lsn, change: Change) {
        self.done.apply(&change);
        self.between.push_back((lsn, change));
    }

    /// Waits until all that was done is acknowledged.
    async fn settle(&mut self) -> Result<()> {
        if let Some((lsn, _)) = self.between.back() {
            self.shard().durable(*lsn).await?;
        }
        while let Some((_, change)) = self.between.pop_front() {
            self.acked.apply(&change);
        }
        Ok(())
    }

    fn step(&self) -> Step {
        let mut step = wide_step(&self.rng);
        // Many large arrays take more time than they tell.
        if let Act::Array { recx, .. } | Act::Zero { recx, .. } = &mut step.act
            && recx.count > 40
            && self.rng.below(3) > 0
        {
            (recx.index, recx.count) = (recx.index % 50, 1 + recx.count % 40);
        }
        step
    }

    async fn run_step(&mut self, step: Step) -> Result<()> {
        self.epoch += 1;
        let want = self.done.now.check(&step);
        match run(&self.shard(), self.epoch, &step).await {
            Ok(lsn) => {
                assert_eq!(want, Ok(()), "{step:?}");
                self.did(lsn, Change::Step(self.epoch, step));
            }
            Err(error) if Err(error.code) == want => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn order(
        &mut self,
        held: bool,
        stage: ContStage,
        snapshots: BTreeMap<u64, Rc<Model>>,
    ) -> Result<()> {
        let revision = self.done.versions.revision + 1;
        let epochs = snapshots.keys().map(|&at| Epoch(at)).collect();
        let wanted = ContVersions { revision, snapshots: epochs, held, stage };
        let lsn = self.shard().set_versions(CONT, &wanted)?;
        self.did(lsn, Change::Versions(wanted, snapshots));
        Ok(())
    }

    async fn snapshot(&mut self) -> Result<()> {
        let mut snapshots = self.done.snapshots.clone();
        self.order(true, ContStage::Open, snapshots.clone())?;
        let moment = self.rng.below(4);
        for n in 0..4 {
            if n == moment {
                snapshots.insert(self.epoch, Rc::new(self.done.now.clone()));
            }
            let step = self.step();
            self.run_step(step).await?;
        }
        self.order(false, ContStage::Open, snapshots)
    }

    fn destroy_one(&mut self) -> Result<()> {
        let mut snapshots = self.done.snapshots.clone();
        if let Some(at) = self.one_of(&snapshots) {
            snapshots.remove(&at);
            self.order(false, ContStage::Open, snapshots)?;
        }
        Ok(())
    }

    fn one_of(&self, snapshots: &BTreeMap<u64, Rc<Model>>) -> Option<u64> {
        let all: Vec<u64> = snapshots.keys().copied().collect();
        (!all.is_empty()).then(|| all[self.rng.below(all.len() as u64) as usize])
    }

    async fn roll_back(&mut self) -> Result<()> {
        let Some(to) = self.one_of(&self.done.snapshots) else { return Ok(()) };
        let stage = ContStage::RollingBack(Epoch(to));
        self.order(false, stage, self.done.snapshots.clone())?;
        self.settle().await?;
        self.finish_rollback(to).await
    }

    async fn finish_rollback(&mut self, to: u64) -> Result<()> {
        self.epoch += 1;
        let epoch = Epoch(self.epoch);
        let lsn = self.shard().roll_back(CONT, Epoch(to), &|_| epoch).await?;
        self.shard().durable(lsn).await?;
        let mut versions = self.done.versions.clone();
        (versions.revision, versions.stage) = (versions.revision + 1, ContStage::Open);
        let lsn = self.shard().set_versions(CONT, &versions)?;
        let model = self.done.snapshots[&to].clone();
        self.did(lsn, Change::RolledBack(versions, model));
        self.settle().await?;
        // The power stays on for a while: looking needs it.
        self.disk.stop_after(u64::MAX);
        self.find_epochs().await;
        self.disk.stop_after(self.rng.below(150));
        Ok(())
    }

    /// Takes the epochs of the present, which is known but for them.
    async fn find_epochs(&mut self) {
        let found = dump(&self.shard()).await;
        adopt(&mut self.done.now, &found);
        self.done.timeless = false;
        self.acked = self.done.clone();
    }

    async fn transaction(&mut self) -> Result<()> {
        let step = self.step();
        if self.done.now.check(&step).is_err() {
            return Ok(());
        }
        let shard = self.shard();
        let inline = step.inline();
        let ops = vec![step.op(&inline)];
        let bulk = step.bulk();
        let mut payload = shard.stage(&ops)?;
        let mut rest = &bulk[..];
        for room in payload.buffers() {
            let (mine, more) = rest.split_at(room.len());
            room.copy_from_slice(mine);
            rest = more;
        }
        let kind = shard.sum_policy(CONT)?.kind;
        let sums = sums_of(kind, &ops, &bulk);
        shard.take_sums(CONT, &Sums { kind, bytes: &sums }, &mut payload)?;
        payload.write().await?;
        shard.ready(CONT, &[], &ops).await?;
        shard.check(CONT, &[], &ops)?;
        let batch = wire::encode(&Batch {
            pool: POOL,
            cont: CONT,
            at: Epoch::ZERO,
            checks: vec![],
            ops,
            sums: Sums::NONE,
        });
        let lsn = shard.prepare(TX, unit(ObjType::MultiHashed, 1), CONT, batch, payload)?;
        self.did(lsn, Change::Prepare(step));
        self.settle().await?;
        if self.rng.below(3) == 0 {
            shard.checkpoint().await?;
        }
        self.decide().await
    }

    async fn decide(&mut self) -> Result<()> {
        self.epoch += 1;
        let epoch = (self.rng.below(4) > 0).then_some(self.epoch);
        let outcome = epoch.map_or(TxOutcome::Aborted, |at| TxOutcome::Committed(Epoch(at)));
        self.shard().ready_to_decide(TX).await?;
        let lsn = self.shard().decide(TX, outcome, None, &[])?;
        self.did(lsn, Change::Decide(epoch));
        Ok(())
    }

    /// One act; an error means the power has gone.
    async fn act(&mut self) -> Result<()> {
        match self.rng.below(24) {
            0..=12 => {
                // Some at once: what is not acknowledged may be there or not.
                for _ in 0..1 + self.rng.below(4) {
                    let step = self.step();
                    self.run_step(step).await?;
                }
                if self.rng.below(4) == 0 {
                    return Ok(());
                }
            }
            13 | 14 if self.done.snapshots.len() < 3 => self.snapshot().await?,
            15 => self.destroy_one()?,
            16 => self.roll_back().await?,
            17 => self.transaction().await?,
            18 => self.shard().aggregate().await?,
            19 => self.shard().checkpoint().await?,
            20 | 21 => {
                let beside = self.shard();
                self.env.spawn(async move { beside.checkpoint().await.unwrap_or(()) });
                return Ok(());
            }
            22 => {
                self.settle().await?;
                self.shard().close().await?;
                (self.shard, self.store) = (None, None);
                self.open().await?;
            }
            _ => self.env.sleep(Duration::from_micros(self.rng.below(2000))).await,
        }
        self.settle().await
    }

    async fn open(&mut self) -> Result<()> {
        let store = open(&self.env, self.cache).await?;
        self.shard = Some(store.open_shard(POOL).await?);
        self.store = Some(store);
        Ok(())
    }

    fn crash(&mut self, world: &SimWorld) {
        (self.shard, self.store) = (None, None);
        world.kill("a");
        self.disk.crash();
        self.env = world.node("a");
    }

    /// Large objects and some small ones, before anything goes wrong.
    async fn begin(&mut self) {
        // In every other one the index is larger than its tier.
        let tight = PoolShardConfig { scm_bytes: 16 << 10, nvme_bytes: 8 << 20, ..ROOMY };
        let config = if self.rng.below(2) == 0 { ROOMY } else { tight };
        let (store, shard) = fresh_with(&self.env, &config, self.cache).await.unwrap();
        (self.store, self.shard) = (Some(store), Some(shard));
        self.epoch += 1;
        for kind in [ObjType::MultiHashed, ObjType::ArrayByte, ObjType::DkeyLexical] {
            let steps: Vec<Step> = (0..70u64)
                .map(|number| Step {
                    unit: unit(kind, 5),
                    dkey: match kind {
                        ObjType::ArrayByte => number.to_le_bytes().to_vec(),
                        _ => format!("dkey-{number:05}").into_bytes(),
                    },
                    akey: vec![],
                    cond: Cond::NONE,
                    act: Act::Single { bulk: number % 9 == 0, bytes: 1100, fill: number as u8 },
                })
                .collect();
            let inline: Vec<Vec<u8>> = steps.iter().map(Step::inline).collect();
            let ops: Vec<Op<'_>> = steps.iter().zip(&inline).map(|(s, i)| s.op(i)).collect();
            let bulk: Vec<u8> = steps.iter().flat_map(Step::bulk).collect();
            let lsn = write(&self.shard(), self.epoch, &ops, &bulk, None).await.unwrap();
            steps.into_iter().for_each(|step| self.did(lsn, Change::Step(self.epoch, step)));
        }
        self.settle().await.unwrap();
        if self.rng.below(2) == 0 {
            self.shard().checkpoint().await.unwrap();
        }
    }

    /// Acts until the power goes or nothing is left to do.
    async fn live(&mut self) {
        self.disk.stop_after(self.rng.below(160));
        for _ in 0..ACTS {
            if let Err(error) = self.act().await {
                assert!(matches!(error.code, Code::Io | Code::Closed), "{error}");
                self.tally.cut += 1;
                return;
            }
        }
    }

    /// After a crash: finds out what is there, and that it may be.
    async fn come_back(&mut self) {
        self.open().await.unwrap();
        let shard = self.shard();
        let versions = shard.versions(CONT).unwrap();
        let prepared = shard.is_prepared(TX);
        let found = match versions.stage {
            ContStage::Open => Some(dump(&shard).await),
            _ => None,
        };
        let is = |known: &Known| {
            known.versions == versions
                && known.prepared.is_some() == prepared
                && found.as_ref().is_none_or(|found| agree(found, known))
        };
        while !is(&self.acked) {
            self.tally.kept += 1;
            let (_, change) = self.between.pop_front().expect("none of what may be there is");
            self.acked.apply(&change);
        }
        self.tally.lost += !self.between.is_empty() as u64;
        self.between.clear();
        self.done = self.acked.clone();
        if self.done.timeless {
            self.find_epochs().await;
        }
        if let ContStage::RollingBack(to) = versions.stage {
            self.finish_rollback(to.0).await.unwrap();
            self.disk.stop_after(u64::MAX);
        }
        compare(&shard, &self.done.now).await;
        for (at, model) in &self.done.snapshots {
            compare_at(&shard, model, *at).await;
        }
        if prepared {
            self.decide().await.unwrap();
        }
        // A snapshot that was about to be taken is given up.
        if versions.held {
            self.order(false, ContStage::Open, self.done.snapshots.clone()).unwrap();
        }
        self.settle().await.unwrap();
    }

    /// Everything removed: every block and byte comes back.
    async fn empty(&mut self) {
        self.order(false, ContStage::Open, BTreeMap::new()).unwrap();
        let units: Vec<_> = self.done.now.0.keys().copied().collect();
        let punch = |unit| Op::PunchObj { unit, cond: Cond::NONE, besides: b"" };
        let ops: Vec<Op<'_>> = units.into_iter().map(punch).collect();
        self.epoch += 1;
        write(&self.shard(), self.epoch, &ops, b"", None).await.unwrap();
        let shard = self.shard();
        let mut tries = 0;
        while shard.is_unswept(CONT) {
            self.env.sleep(Duration::from_millis(1)).await;
            tries += 1;
            assert!(tries < 100_000, "the sweep never ends");
        }
        self.env.sleep(Duration::from_secs(1)).await;
        let stat = shard.stat();
        assert_eq!((stat.object_count, stat.dkey_count), (0, 0));
        assert_eq!(stat.scm_free_bytes, stat.scm_bytes);
        assert_eq!(stat.nvme_free_bytes, stat.nvme_bytes);
        assert_eq!(shard.summed_bytes(0), 0);
    }
}

/// True when what was found is what is known.
fn agree(found: &Model, known: &Known) -> bool {
    let want = as_dumped(&known.now);
    if !known.timeless {
        return *found == want;
    }
    let (mut found, mut want) = (found.clone(), want);
    forget_epochs(&mut found, true);
    forget_epochs(&mut want, true);
    found == want
}

/// Gives a model the epochs of what was found.
fn adopt(model: &mut Model, found: &Model) {
    let (mut got, mut want) = (found.clone(), as_dumped(model));
    forget_epochs(&mut got, true);
    forget_epochs(&mut want, true);
    assert!(got == want, "\n got {got:?}\nwant {want:?}");
    for (unit, object) in &mut model.0 {
        let now = &found.0[unit];
        (object.epoch, object.keys_epoch) = (now.epoch, now.keys_epoch);
        for (dkey, (epoch, akeys)) in &mut object.dkeys {
            *epoch = now.dkeys[dkey].0;
            for (akey, (epoch, _)) in akeys {
                *epoch = now.dkeys[dkey].1[akey].0;
            }
        }
    }
}

/// Says which history it was.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was history {}", self.0);
        }
    }
}

/// Lives one history.
fn live_through(seed: u64) -> Tally {
    let _seed = Seed(seed);
    let world = SimWorld::new(seed);
    let (env, disk) = (world.node("a"), world.disk("a"));
    let rng = Rng::new(seed ^ 0xa11);
    let cache = [0, 64 << 10, 200 << 10, 1 << 30][rng.below(4) as usize];
    let mut history = History {
        env,
        disk,
        rng,
        cache,
        store: None,
        shard: None,
        done: Known::default(),
        acked: Known::default(),
        between: VecDeque::new(),
        epoch: 0,
        tally: Tally::default(),
    };
    world.block_on(history.begin());
    for _ in 0..2 {
        world.block_on(history.live());
        history.crash(&world);
        // The power may go again while it comes back.
        while history.rng.below(3) == 0 {
            history.disk.stop_after(history.rng.below(12));
            world.block_on(async {
                let _ = history.open().await;
                history.env.sleep(Duration::from_millis(history.rng.below(4))).await;
            });
            history.crash(&world);
        }
        world.block_on(history.come_back());
    }
    world.block_on(history.empty());
    let tally = std::mem::take(&mut history.tally);
    drop(history);
    world.clear();
    tally
}

#[test]
fn nothing_is_lost_or_leaked_in_any_history() {
    let seeds = std::env::var("AZEKURA_CRASH_SEEDS").ok();
    let seeds = seeds.map_or(SEEDS_DEFAULT, |seeds| seeds.parse().expect("a number of seeds"));
    let first = std::env::var("AZEKURA_CRASH_FIRST").ok();
    let first = first.map_or(0, |first| first.parse().expect("the first seed"));
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let live = || {
        let mut sum = Tally::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + seeds {
                return sum;
            }
            let tally = live_through(seed);
            sum.cut += tally.cut;
            sum.kept += tally.kept;
            sum.lost += tally.lost;
        }
    };
    let tallies: Vec<Tally> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(live)).collect();
        all.into_iter().map(|one| one.join().expect("a history went wrong")).collect()
    });
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
    let (cut, kept, lost) = (sum(|t| t.cut), sum(|t| t.kept), sum(|t| t.lost));
    println!(
        "{seeds} histories: {cut} lives cut, {kept} records kept and {lost} lives with some lost"
    );
    assert!(
        seeds < 50 || cut > seeds && kept > seeds / 10 && lost > seeds / 10,
        "the power goes too seldom"
    );
}
