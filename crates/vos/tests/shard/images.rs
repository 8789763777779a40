//! Members of a group catch up from each other by images of dkeys: afterwards they show the same, now and in
//! every snapshot.

use super::model::*;
use super::pages::{ROOMY, wide_step};
use super::places;
use super::sums::{flip, scrub};
use env::{Env, Rng, SimWorld};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use types::{Code, CsumKind, Durability, Epoch, ObjClass, ObjType, Oid, Result, Unit};
use vos::{PoolShard, PoolShardConfig, Store, SumPolicy};
use wire::obj::*;
use wire::versions::{ContStage, ContVersions};

/// What must be there.
#[derive(Clone, Default)]
struct Known {
    now: Model,
    snapshots: BTreeMap<u64, Model>,
    versions: ContVersions,
    epoch: u64,
}

impl Known {
    /// A step at all of these, of which the first is looked at. Others go their own ways at odd epochs.
    async fn step(&mut self, shards: &[&PoolShard], step: &Step) {
        self.epoch += 2;
        for shard in shards {
            let got = run(shard, self.epoch, step).await.map(|_| ()).map_err(|e| e.code);
            assert_eq!(got, self.now.check(step), "{step:?}");
        }
        let _ = self.now.run(self.epoch, step);
    }

    fn order(&mut self, shards: &[&PoolShard], held: bool) {
        let (revision, stage) = (self.versions.revision + 1, ContStage::Open);
        let snapshots = self.snapshots.keys().map(|&at| Epoch(at)).collect();
        self.versions = ContVersions { revision, snapshots, held, stage };
        for shard in shards {
            shard.set_versions(CONT, &self.versions).unwrap();
        }
    }

    /// Holds, goes on changing, then takes a snapshot of some moment since; or gives one up.
    async fn snapshot(&mut self, shards: &[&PoolShard], rng: &Rng) {
        if self.snapshots.len() >= 3 {
            let all: Vec<u64> = self.snapshots.keys().copied().collect();
            self.snapshots.remove(&all[rng.below(all.len() as u64) as usize]);
            return self.order(shards, false);
        }
        self.order(shards, true);
        let moment = rng.below(5);
        for n in 0..5 {
            if n == moment {
                self.snapshots.insert(self.epoch.max(1), self.now.clone());
            }
            self.step(shards, &any_step(rng)).await;
        }
        self.order(shards, false);
    }

    async fn live(&mut self, shards: &[&PoolShard], rng: &Rng, count: u64, snapshots: bool) {
        for n in 0..count {
            self.step(shards, &any_step(rng)).await;
            if snapshots && n % 20 == 15 {
                self.snapshot(shards, rng).await;
            }
        }
    }

    /// A shard shows what is known.
    async fn compare(&self, shard: &PoolShard) {
        compare(shard, &self.now).await;
        for (at, model) in &self.snapshots {
            compare_at(shard, model, *at).await;
        }
    }
}

fn any_step(rng: &Rng) -> Step {
    if rng.below(2) == 0 { Step::random(rng) } else { wide_step(rng) }
}

/// All units of a shard, page by page.
async fn units_of(shard: &PoolShard) -> BTreeMap<Unit, Epoch> {
    let mut all: Vec<(Unit, Epoch)> = Vec::new();
    loop {
        let after = all.last().map(|(unit, _)| *unit);
        let (page, complete) = shard.list_units(CONT, after, 7).await.unwrap();
        assert!(page.len() == 7 || complete);
        all.extend(page);
        if complete {
            break;
        }
    }
    assert!(all.is_sorted_by_key(|(unit, _)| unit.list_order()));
    all.into_iter().collect()
}

/// All dkeys of a unit, page by page.
async fn keys_of(shard: &PoolShard, unit: Unit) -> BTreeMap<Vec<u8>, Epoch> {
    let mut all: Vec<(Vec<u8>, Epoch)> = Vec::new();
    loop {
        let after = all.last().map(|(dkey, _)| dkey.clone());
        let (page, complete) = shard.list_keys(CONT, unit, after.as_deref(), 5).await.unwrap();
        assert!(page.len() == 5 || complete);
        all.extend(page);
        if complete {
            break;
        }
    }
    let count = all.len();
    let all: BTreeMap<_, _> = all.into_iter().collect();
    assert_eq!(all.len(), count, "listed twice");
    all
}

/// Makes `to` what `from` is, as a member that was away does; the number of dkeys installed.
async fn catch_up(from: &PoolShard, to: &PoolShard) -> Result<u64> {
    to.set_versions(CONT, &from.versions(CONT)?)?;
    let (there, here) = (units_of(from).await, units_of(to).await);
    let mut installed = 0;
    let mut last = vos::Lsn(0);
    let units: BTreeSet<Unit> = there.keys().chain(here.keys()).copied().collect();
    for unit in units {
        if there.get(&unit) == here.get(&unit) {
            continue;
        }
        let (theirs, mine) = (keys_of(from, unit).await, keys_of(to, unit).await);
        let keys: BTreeSet<&Vec<u8>> = theirs.keys().chain(mine.keys()).collect();
        for dkey in keys {
            if theirs.get(dkey) != mine.get(dkey) {
                let image = from.dkey_image(CONT, unit, dkey).await?;
                last = to.install_dkey(CONT, unit, dkey, &image).await?;
                installed += 1;
            }
        }
        let facts = from.unit_facts(CONT, unit).await?;
        last = last.max(to.install_unit_facts(CONT, unit, &facts).await?);
    }
    to.durable(last).await?;
    Ok(installed)
}

/// Both show the same, by their own account.
async fn same(a: &PoolShard, b: &PoolShard) {
    let units = units_of(a).await;
    assert!(units == units_of(b).await);
    for unit in units.into_keys() {
        assert!(keys_of(a, unit).await == keys_of(b, unit).await, "{unit}");
        let digests = [a.digest(CONT, unit).await.unwrap(), b.digest(CONT, unit).await.unwrap()];
        assert_eq!(digests[0], digests[1], "{unit}");
    }
}

async fn reopen(env: &Env, store: Rc<Store>, shard: Rc<PoolShard>) -> (Rc<Store>, Rc<PoolShard>) {
    shard.close().await.unwrap();
    drop((shard, store));
    let store = open(env, 0).await.unwrap();
    let shard = store.open_shard(POOL).await.unwrap();
    (store, shard)
}

/// One history; with snapshots, or of the present alone.
async fn history(world: &SimWorld, seed: u64, snapshots: bool) {
    let rng = Rng::new(seed ^ 0xca7c);
    let (env_a, env_b) = (world.node("a"), world.node("b"));
    let durability = [Durability::Wal, Durability::Memory][seed as usize % 2];
    let ours = PoolShardConfig { durability, ..ROOMY };
    let (_store_a, a) = fresh_with(&env_a, &ROOMY, 0).await.unwrap();
    let (mut store_b, mut b) = fresh_with(&env_b, &ours, 0).await.unwrap();
    let mut known = Known::default();
    // Together for a while, or not at all.
    if !seed.is_multiple_of(3) {
        known.live(&[&a, &b], &rng, 60, snapshots).await;
    }
    for round in 0..3 {
        // What one has done alone is undone when it catches up.
        if seed % 5 > 2 {
            let mut alone = known.clone();
            alone.epoch += 1;
            alone.live(&[&b], &rng, 10, false).await;
        }
        known.live(&[&a], &rng, 60, snapshots).await;
        if rng.below(2) == 0 {
            a.aggregate().await.unwrap();
        }
        let installed = catch_up(&a, &b).await.unwrap();
        assert!(installed > 0);
        known.compare(&b).await;
        same(&a, &b).await;
        assert_eq!(scrub(&b).await, []);
        // There is nothing left to do, and doing it again makes no difference.
        assert_eq!(catch_up(&a, &b).await.unwrap(), 0);
        let units: Vec<Unit> = units_of(&a).await.into_keys().collect();
        for unit in units {
            let keys = keys_of(&a, unit).await;
            let Some(dkey) = keys.keys().nth(rng.below(keys.len() as u64) as usize) else {
                continue;
            };
            let image = a.dkey_image(CONT, unit, dkey).await.unwrap();
            // As damaged data are replaced: only where it is the same, and nothing else changes.
            let facts = b.unit_facts(CONT, unit).await.unwrap();
            let refused = b.replace_damaged(CONT, unit, dkey, &image, &|| false).await;
            assert_eq!(refused.unwrap_err().code, Code::Busy);
            b.replace_damaged(CONT, unit, dkey, &image, &|| true).await.unwrap();
            assert!(b.unit_facts(CONT, unit).await.unwrap() == facts);
            b.install_dkey(CONT, unit, dkey, &image).await.unwrap();
            assert_eq!(b.dkey_image(CONT, unit, dkey).await.unwrap().len(), image.len());
        }
        known.compare(&b).await;
        same(&a, &b).await;
        if durability == Durability::Wal {
            if rng.below(2) == 0 {
                b.checkpoint().await.unwrap();
            }
            (store_b, b) = reopen(&env_b, store_b, b).await;
            known.compare(&b).await;
            same(&a, &b).await;
        }
        b.aggregate().await.unwrap();
        same(&a, &b).await;
        // It takes part again, and its snapshots go when those of the others do.
        if round == 1 {
            known.live(&[&a, &b], &rng, 20, snapshots).await;
            known.compare(&b).await;
        }
    }
    drop(store_b);
}

#[test]
fn a_member_that_was_away_catches_up() {
    for seed in places::seeds(3, 9) {
        let world = SimWorld::new(seed);
        world.block_on(history(&world, seed, false));
        world.clear();
    }
}

#[test]
fn a_member_that_was_away_catches_up_with_snapshots() {
    for seed in places::seeds(3, 9) {
        let world = SimWorld::new(seed);
        world.block_on(history(&world, seed, true));
        world.clear();
    }
}

/// Members of a group, by themselves.
struct Pair {
    a: Rc<PoolShard>,
    b: Rc<PoolShard>,
    env_b: Env,
    /// Of both; they go with this.
    _stores: [Rc<Store>; 2],
}

impl Pair {
    async fn new(world: &SimWorld, ours: &PoolShardConfig, theirs: &PoolShardConfig) -> Pair {
        let (env_a, env_b) = (world.node("a"), world.node("b"));
        let (store_a, a) = fresh(&env_a, ours).await.unwrap();
        let (store_b, b) = fresh(&env_b, theirs).await.unwrap();
        Pair { a, b, env_b, _stores: [store_a, store_b] }
    }

    fn shards(&self) -> [&PoolShard; 2] {
        [&self.a, &self.b]
    }

    fn order(&self, shards: &[&PoolShard], revision: u64, snapshots: &[u64]) {
        let snapshots = snapshots.iter().map(|&at| Epoch(at)).collect();
        let wanted = ContVersions { revision, snapshots, held: false, stage: ContStage::Open };
        for shard in shards {
            shard.set_versions(CONT, &wanted).unwrap();
        }
    }
}

fn big() -> Unit {
    unit(ObjType::ArrayByte, 5)
}

/// Writes dkeys of one object, some with a block.
async fn fill(shards: &[&PoolShard], epoch: u64, dkeys: std::ops::Range<u64>) {
    let value = [epoch as u8; 40];
    let keys: Vec<[u8; 8]> = dkeys.map(u64::to_le_bytes).collect();
    for part in keys.chunks(100) {
        let mut bulk = Vec::new();
        let mut ops = Vec::new();
        for (n, dkey) in part.iter().enumerate() {
            let cond = Cond::NONE;
            let value = UpdateValue::Inline(&value);
            let mut iods = vec![UpdateIod { akey: b"v", cond, value }];
            if n % 10 == 0 {
                let recxs = vec![Recx { index: epoch, count: 4500 }];
                let value = UpdateValue::Array { record_bytes: 1, recxs };
                iods.push(UpdateIod { akey: b"", cond, value });
                bulk.resize(bulk.len() + 4500, epoch as u8);
            }
            ops.push(Op::Update { unit: big(), dkey, cond, iods });
        }
        for shard in shards {
            write(shard, epoch, &ops, &bulk, None).await.unwrap();
        }
    }
}

async fn punch(shards: &[&PoolShard], epoch: u64) {
    let ops = [Op::PunchObj { unit: big(), cond: Cond::NONE, besides: b"" }];
    for shard in shards {
        write(shard, epoch, &ops, b"", None).await.unwrap();
    }
}

/// More than what is removed dkey by dkey: an object of so many is put aside whole when a snapshot sees it.
const MANY: u64 = 1100;

/// Story: an object that a snapshot sees and that is punched while it is big is put aside whole, and readers of that
/// snapshot look there and nowhere else. Who had put an object aside that others had not, or at another time, would have
/// shown nothing of what was installed.
#[test]
fn lives_of_an_object_may_differ() {
    for case in 0..5 {
        let world = SimWorld::new(case);
        world.block_on(async {
            let pair = Pair::new(&world, &ROOMY, &ROOMY).await;
            let (both, a) = (pair.shards(), &pair.a);
            // Together; a snapshot; then one of them goes on alone.
            let first = if case == 0 { &both[..1] } else { &both[..] };
            fill(first, 4, 0..MANY).await;
            pair.order(first, 1, &[5]);
            match case {
                // Whoever comes new, or knows of the first life, or not even that.
                0..=2 => {
                    punch(if case == 2 { first } else { &both[..1] }, 6).await;
                    fill(&both[..1], 8, 0..MANY).await;
                    pair.order(&both[..1], 2, &[5, 9]);
                    punch(&both[..1], 10).await;
                    fill(&both[..1], 12, 30..90).await;
                }
                // What it has put aside alone was never gone.
                3 => {
                    punch(&both[1..], 7).await;
                    fill(&both[..1], 8, 500..700).await;
                    pair.order(&both[..1], 2, &[5, 9]);
                    fill(&both[..1], 10, 600..800).await;
                }
                // And was, at another time; nothing is there any more.
                _ => {
                    fill(&both[1..], 7, 0..40).await;
                    punch(&both[1..], 9).await;
                    fill(&both[..1], 8, 500..700).await;
                    pair.order(&both[..1], 2, &[5, 9]);
                    punch(&both[..1], 10).await;
                }
            }
            catch_up(a, &pair.b).await.unwrap();
            same(a, &pair.b).await;
            for at in [0, 5, 9] {
                let mut seen = [dump_at(a, at).await, dump_at(&pair.b, at).await];
                if at > 0 {
                    seen.iter_mut().for_each(|model| forget_epochs(model, false));
                }
                assert!(seen[0] == seen[1], "case {case}, at {at}");
            }
            // It goes on like the others, and what no snapshot sees any more comes back.
            fill(&both, 14, 0..200).await;
            punch(&both, 16).await;
            same(a, &pair.b).await;
            pair.order(&both, 3, &[5]);
            same(a, &pair.b).await;
            pair.order(&both, 4, &[]);
            while pair.b.is_unswept(CONT) {
                pair.env_b.sleep(Duration::from_millis(1)).await;
            }
            let stat = pair.b.stat();
            assert_eq!(stat.scm_free_bytes, stat.scm_bytes, "case {case}");
            let (followed, counted) = pair.b.space_audit().unwrap().unwrap();
            assert_eq!(followed, counted);
            assert_eq!(units_of(&pair.b).await, BTreeMap::new());
        });
        world.clear();
    }
}

/// What is installed is there whole or not at all, wherever the power goes. Returns what a member showed after each
/// install, or whether what it shows after the power went at this change of its disk is one of them.
async fn cut_after(
    world: &SimWorld,
    changes: u64,
    states: Option<&[Vec<Model>]>,
) -> (Vec<Vec<Model>>, bool) {
    let rng = Rng::new(3);
    let memory = PoolShardConfig { durability: Durability::Memory, ..ROOMY };
    let pair = Pair::new(world, &memory, &config(Durability::Wal)).await;
    let mut known = Known::default();
    for (n, snapshot) in [(8, true), (6, false)] {
        known.live(&pair.shards(), &rng, n, false).await;
        if snapshot {
            known.snapshot(&pair.shards(), &rng).await;
        }
    }
    known.live(&[&pair.a], &rng, 8, false).await;
    let Pair { a, b, _stores, .. } = pair;
    b.checkpoint().await.unwrap();
    let disk = world.disk("b");
    disk.stop_after(changes);
    let snapshots: Vec<u64> = [0].into_iter().chain(known.snapshots.keys().copied()).collect();
    let mut found = vec![];
    if states.is_none() {
        found.push(show(&b, &snapshots).await);
    }
    let mut acked = 0;
    let outcome: Result<()> = async {
        for unit in units_of(&a).await.into_keys() {
            for dkey in keys_of(&a, unit).await.into_keys() {
                let image = a.dkey_image(CONT, unit, &dkey).await?;
                let lsn = b.install_dkey(CONT, unit, &dkey, &image).await?;
                b.durable(lsn).await?;
                acked += 1;
                if states.is_none() {
                    found.push(show(&b, &snapshots).await);
                }
            }
            let lsn = b.install_unit_facts(CONT, unit, &a.unit_facts(CONT, unit).await?).await?;
            b.durable(lsn).await?;
            acked += 1;
            if states.is_none() {
                found.push(show(&b, &snapshots).await);
            }
            if acked % 3 == 0 {
                b.checkpoint().await?;
            }
        }
        Ok(())
    }
    .await;
    let Some(states) = states else {
        outcome.unwrap();
        return (found, true);
    };
    if let Err(error) = &outcome {
        assert!(matches!(error.code, Code::Io | Code::Closed), "{error}");
    }
    drop((b, _stores));
    world.kill("b");
    disk.crash();
    let store = open(&world.node("b"), 0).await.unwrap();
    let b = store.open_shard(POOL).await.unwrap();
    let shown = show(&b, &snapshots).await;
    let next = (acked + 1).min(states.len() - 1);
    assert!(states[acked..=next].contains(&shown), "{acked} installed, cut at {changes}");
    // It goes on from there.
    catch_up(&a, &b).await.unwrap();
    same(&a, &b).await;
    known.compare(&b).await;
    (Vec::new(), outcome.is_ok())
}

/// What is shown now and in snapshots.
async fn show(shard: &PoolShard, at: &[u64]) -> Vec<Model> {
    let mut all = Vec::new();
    for &at in at {
        let mut model = dump_at(shard, at).await;
        if at > 0 {
            forget_epochs(&mut model, false);
        }
        all.push(model);
    }
    all
}

#[test]
fn a_dkey_is_installed_whole_or_not_at_all() {
    let world = SimWorld::new(1);
    let (states, _) = world.block_on(cut_after(&world, u64::MAX, None));
    world.clear();
    assert!(states.len() > 8, "{}", states.len());
    let mut changes = 0;
    loop {
        let world = SimWorld::new(1);
        let (_, finished) = world.block_on(cut_after(&world, changes, Some(&states)));
        world.clear();
        if finished {
            break;
        }
        changes = places::next(changes, 1);
        assert!(changes < 2000, "the installs never finish");
    }
    assert!(changes > 20, "the power was cut at {changes} places only");
}

#[test]
fn a_damaged_image_is_refused_and_so_is_one_of_something_else() {
    let world = SimWorld::new(4);
    world.block_on(async {
        let pair = Pair::new(&world, &config(Durability::Wal), &config(Durability::Wal)).await;
        let (a, b) = (&pair.a, &pair.b);
        fill(&[a], 2, 0..2).await;
        fill(&[b], 1, 0..3).await;
        let (dkey, other) = (0u64.to_le_bytes(), 1u64.to_le_bytes());
        let image = a.dkey_image(CONT, big(), &dkey).await.unwrap();
        let facts = a.unit_facts(CONT, big()).await.unwrap();
        let (before, free) = (b.digest(CONT, big()).await.unwrap(), b.stat());
        for at in (0..image.len()).filter(|at| *at < 300 || at % 37 == 0) {
            let mut damaged = image.clone();
            damaged[at] ^= 1 << (at % 8);
            let error = b.install_dkey(CONT, big(), &dkey, &damaged).await.unwrap_err();
            assert!(matches!(error.code, Code::Csum | Code::Version), "{error}");
        }
        for at in 0..facts.len() {
            let mut damaged = facts.clone();
            damaged[at] ^= 1 << (at % 8);
            let error = b.install_unit_facts(CONT, big(), &damaged).await.unwrap_err();
            assert!(matches!(error.code, Code::Csum | Code::Version), "{error}");
        }
        let cut = &image[..image.len() / 2];
        let strange = unit(ObjType::ArrayByte, 6);
        for (unit, dkey, image, code) in [
            (big(), &dkey, cut, Code::Csum),
            (big(), &dkey, b"", Code::Csum),
            (big(), &dkey, &facts[..], Code::Csum),
            (big(), &other, &image[..], Code::Inval),
            (strange, &dkey, &image[..], Code::Inval),
        ] {
            let error = b.install_dkey(CONT, unit, dkey, image).await.unwrap_err();
            assert_eq!(error.code, code, "{error}");
        }
        let error = b.install_unit_facts(CONT, strange, &facts).await.unwrap_err();
        assert_eq!(error.code, Code::Inval);
        assert_eq!((b.digest(CONT, big()).await.unwrap(), b.stat()), (before, free));
        // Data that are damaged where they are make no image.
        flip(&world.node("a"), 8 * 4000).await;
        let error = a.dkey_image(CONT, big(), &dkey).await.unwrap_err();
        assert_eq!(error.code, Code::Csum, "{error}");
        assert_eq!(a.digest(CONT, big()).await.unwrap_err().code, Code::Csum);
        a.dkey_image(CONT, big(), &other).await.unwrap();
    });
    world.clear();
}

#[test]
fn an_image_that_does_not_fit_changes_nothing() {
    let world = SimWorld::new(5);
    world.block_on(async {
        let pair = Pair::new(&world, &ROOMY, &config(Durability::Wal)).await;
        let (a, b) = (&pair.a, &pair.b);
        let write = async |shard: &PoolShard, epoch: u64, dkey: &[u8], bytes: u64| {
            let value = UpdateValue::Single { bytes };
            let iods = vec![UpdateIod { akey: b"a", cond: Cond::NONE, value }];
            let ops = [Op::Update { unit: big(), dkey, cond: Cond::NONE, iods }];
            write(shard, epoch, &ops, &vec![epoch as u8; bytes as usize], None).await.unwrap();
        };
        let (dkey, other) = (0u64.to_le_bytes(), 1u64.to_le_bytes());
        write(a, 2, &dkey, 5 << 20).await;
        write(b, 1, &other, 5 << 20).await;
        write(b, 1, &dkey, 1000).await;
        let (before, free) = (b.digest(CONT, big()).await.unwrap(), b.stat());
        let image = a.dkey_image(CONT, big(), &dkey).await.unwrap();
        let error = b.install_dkey(CONT, big(), &dkey, &image).await.unwrap_err();
        assert_eq!(error.code, Code::NoSpace);
        assert_eq!((b.digest(CONT, big()).await.unwrap(), b.stat()), (before, free));
        // The image of a dkey that is not there makes room.
        let image = a.dkey_image(CONT, big(), &other).await.unwrap();
        let lsn = b.install_dkey(CONT, big(), &other, &image).await.unwrap();
        b.written(lsn).await.unwrap();
        catch_up(a, b).await.unwrap();
        same(a, b).await;
    });
    world.clear();
}

/// Sums of another kind, or none, on either side.
#[test]
fn members_need_not_sum_alike() {
    let world = SimWorld::new(6);
    world.block_on(async {
        let pair = Pair::new(&world, &ROOMY, &ROOMY).await;
        fill(&[&pair.a], 2, 0..30).await;
        for (n, kind) in CsumKind::ALL.into_iter().enumerate() {
            let env = world.node(&format!("c{n}"));
            let store = open(&env, u64::MAX).await.unwrap();
            let c = store.create_shard(POOL, &ROOMY).await.unwrap();
            c.create_summed_cont(CONT, SumPolicy { kind, verify: true }).unwrap();
            catch_up(&pair.a, &c).await.unwrap();
            same(&pair.a, &c).await;
            assert_eq!(scrub(&c).await, []);
            // And on to the next.
            catch_up(&c, &pair.b).await.unwrap();
            same(&c, &pair.b).await;
            punch(&[&pair.b], 3 + n as u64).await;
        }
    });
    world.clear();
}

/// Digests tell what readers can tell, and nothing else.
#[test]
fn a_digest_tells_what_readers_can_tell() {
    let world = SimWorld::new(7);
    world.block_on(async {
        let pair = Pair::new(&world, &ROOMY, &ROOMY).await;
        let (a, b) = (&pair.a, &pair.b);
        let put = async |shard: &PoolShard, epoch: u64, dkey: &str, act: Act| {
            let unit = unit(ObjType::MultiHashed, 0);
            let (dkey, akey, cond) = (dkey.into(), b"a".to_vec(), Cond::NONE);
            run(shard, epoch, &Step { unit, dkey, akey, cond, act }).await.unwrap();
        };
        let unit = unit(ObjType::MultiHashed, 0);
        let digest = async |shard: &PoolShard| shard.digest(CONT, unit).await.unwrap();
        let array = |index: u64, count: u64| Act::Array {
            record_bytes: 1,
            recx: Recx { index, count },
            fill: 3,
        };
        assert_eq!(digest(a).await, digest(b).await);
        // The same bytes at the same epochs, in one piece or in several.
        for (index, count) in [(0, 100), (100, 9000), (9100, 10)] {
            put(a, 5, "d", array(index, count)).await;
        }
        assert_ne!(digest(a).await, digest(b).await);
        put(b, 5, "d", array(0, 9110)).await;
        assert_eq!(digest(a).await, digest(b).await);
        a.aggregate().await.unwrap();
        assert_eq!(digest(a).await, digest(b).await);
        // Anything else tells.
        let mut seen = BTreeSet::from([digest(a).await]);
        let single = |bulk: bool, fill: u8| Act::Single { bulk, bytes: 700, fill };
        put(a, 6, "e", single(true, 1)).await;
        assert!(seen.insert(digest(a).await));
        put(b, 6, "e", single(false, 1)).await;
        assert_eq!(digest(a).await, digest(b).await);
        put(a, 7, "e", single(true, 1)).await;
        assert!(seen.insert(digest(a).await));
        put(a, 7, "e", single(true, 2)).await;
        assert!(seen.insert(digest(a).await));
        let zeros = Act::Zero { record_bytes: 1, recx: Recx { index: 9110, count: 1 << 40 } };
        put(a, 7, "d", zeros).await;
        assert!(seen.insert(digest(a).await));
        put(a, 7, "d", Act::PunchRecords(Recx { index: 7, count: 1 })).await;
        assert!(seen.insert(digest(a).await));
        pair.order(&[a], 1, &[8]);
        assert!(seen.insert(digest(a).await));
        put(a, 9, "e", Act::PunchDkey).await;
        assert!(seen.insert(digest(a).await));
        // Zeros without end take no time.
        catch_up(a, b).await.unwrap();
        same(a, b).await;
    });
    world.clear();
}

/// Story: a member whose index was full could not catch up with what had been removed, for room was asked for the
/// key that goes.
#[test]
fn removing_needs_no_room() {
    let world = SimWorld::new(8);
    world.block_on(async {
        let config = config(Durability::Memory);
        let pair = Pair::new(&world, &config, &config).await;
        let (a, b) = (&pair.a, &pair.b);
        // In ever smaller pieces, until nothing fits.
        let (mut bytes, mut number) = (3000, 0);
        loop {
            let act = Act::Single { bulk: false, bytes, fill: 1 };
            let unit = unit(ObjType::MultiHashed, 0);
            let dkey = format!("{number:05}").into_bytes();
            let step = Step { unit, dkey, akey: vec![], cond: Cond::NONE, act };
            match run(b, 2, &step).await {
                Ok(_) => number += 1,
                Err(error) => {
                    assert_eq!(error.code, Code::NoSpace);
                    if bytes == 0 {
                        break;
                    }
                    bytes /= 2;
                }
            }
        }
        assert_eq!(catch_up(a, b).await.unwrap(), number);
        same(a, b).await;
        let stat = b.stat();
        assert_eq!(stat.scm_free_bytes, stat.scm_bytes);
    });
    world.clear();
}

/// Story: while a snapshot is being made everything is kept, for it may be one of a moment that has passed. A member that caught up
/// meanwhile did not hear of objects that were gone by then, and the snapshot showed nothing of them there.
#[test]
fn a_member_catches_up_while_a_snapshot_is_being_made() {
    for seed in 0..12 {
        let world = SimWorld::new(seed);
        world.block_on(async {
            let rng = Rng::new(seed ^ 0x4e1d);
            let pair = Pair::new(&world, &ROOMY, &ROOMY).await;
            let (a, b) = (&pair.a, &pair.b);
            let mut known = Known::default();
            if seed % 2 == 0 {
                known.live(&pair.shards(), &rng, 10, false).await;
            }
            known.live(&[a], &rng, 20, false).await;
            known.order(&[a], true);
            let moment = (known.epoch, known.now.clone());
            known.live(&[a], &rng, 10, false).await;
            for unit in moment.1.0.keys().filter(|_| rng.below(2) == 0) {
                let (dkey, akey, cond) = (vec![0; 8], vec![], Cond::NONE);
                let step = Step { unit: *unit, dkey, akey, cond, act: Act::PunchObj };
                known.step(&[a], &step).await;
            }
            catch_up(a, b).await.unwrap();
            known.snapshots.insert(moment.0, moment.1);
            known.order(&pair.shards(), false);
            known.compare(b).await;
            same(a, b).await;
        });
        world.clear();
    }
}

/// Who comes back asks the others what of theirs it should have; in a pool without copies that must not mean a walk
/// through millions of objects.
#[test]
fn a_shard_knows_whether_it_ever_held_copies() {
    let world = SimWorld::new(1);
    let env = world.node("a");
    world.block_on(async {
        let (store, shard) = fresh(&env, &config(Durability::Wal)).await.unwrap();
        let put = |class: ObjClass| {
            let object = Oid::generate(0, 3, ObjType::MultiHashed, class, 0);
            let value = UpdateValue::Inline(b"v");
            let iods = vec![UpdateIod { akey: b"a", cond: Cond::NONE, value }];
            Op::Update { unit: object.first_unit(), dkey: b"d", cond: Cond::NONE, iods }
        };
        let lsn = write(&shard, 1, &[put(ObjClass::SX)], b"", None).await.unwrap();
        shard.durable(lsn).await.unwrap();
        let (store, shard) = reopen(&env, store, shard).await;
        assert!(!shard.holds_copies());
        let lsn = write(&shard, 2, &[put("RP_2G1".parse().unwrap())], b"", None).await.unwrap();
        shard.durable(lsn).await.unwrap();
        assert!(shard.holds_copies());
        let (store, shard) = reopen(&env, store, shard).await;
        assert!(shard.holds_copies(), "from the log, or its last checkpoint");
        shard.checkpoint().await.unwrap();
        let (_store, shard) = reopen(&env, store, shard).await;
        assert!(shard.holds_copies());
    });
    world.clear();
}

#[test]
fn what_came_while_other_changes_were_missing_is_known_after_a_restart() {
    let world = SimWorld::new(5);
    let env = world.node("a");
    world.block_on(async {
        let (store, shard) = fresh(&env, &config(Durability::Wal)).await.unwrap();
        assert_eq!(shard.lacks_since(), None);
        shard.begin_lacking(Epoch(7)).unwrap();
        shard.begin_lacking(Epoch(9)).unwrap();
        assert_eq!(shard.lacks_since(), Some(Epoch(7)), "the first of them");
        shard.begin_lacking(Epoch(5)).unwrap();
        let (store, shard) = reopen(&env, store, shard).await;
        assert_eq!(shard.lacks_since(), Some(Epoch(5)), "from the log");
        shard.checkpoint().await.unwrap();
        let (store, shard) = reopen(&env, store, shard).await;
        assert_eq!(shard.lacks_since(), Some(Epoch(5)), "from the checkpoint");
        shard.end_lacking().unwrap();
        let (_store, shard) = reopen(&env, store, shard).await;
        assert_eq!(shard.lacks_since(), None);
    });
    world.clear();
}
