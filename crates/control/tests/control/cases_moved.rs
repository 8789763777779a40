//! Catalogs that move, and catalogs that are made anew from copies.

use crate::etcd_server::EtcdServer;
use crate::fake::{System, catalog_of};
use control::{
    Catalog, CatalogImage, Change, ClosedDf, Compare, EmbeddedCatalog, EtcdAccess, EtcdCatalog,
    EtcdConfig, Named, PoolDf, StageDf, SystemDf, Versioned, check_not_older, check_open,
    make_catalog, move_catalog, newest, recover,
};
use futures_executor::block_on;
use futures_util::future::{FutureExt, LocalBoxFuture};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use types::{Code, Durability, Error, PlacementRule, PoolId, Rank, Result, TargetId};
use uuid::Uuid;
use wire::control::{ControlReply, ControlRequest as R, Name, Subject, TargetAim};
use wire::map::TargetState;
use wire::measure::{Measures, Speed, Standing};

/// A catalog whose commits fail from some point on, done or not.
struct Failing {
    inner: EmbeddedCatalog,
    /// Commits that are left.
    left: Cell<usize>,
    /// The first that fails is carried out all the same.
    last_lands: Cell<bool>,
}

impl Failing {
    fn new() -> Failing {
        let inner = EmbeddedCatalog::in_memory().unwrap();
        Failing { inner, left: Cell::new(usize::MAX), last_lands: Cell::new(false) }
    }
}

impl Catalog for Failing {
    fn get<'a>(&'a self, key: &'a str) -> LocalBoxFuture<'a, Result<Option<Versioned>>> {
        self.inner.get(key)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> LocalBoxFuture<'a, Result<Vec<(String, Versioned)>>> {
        self.inner.list(prefix)
    }

    fn commit<'a>(
        &'a self,
        compares: &'a [Compare],
        changes: &'a [Change],
    ) -> LocalBoxFuture<'a, Result<bool>> {
        async move {
            let Some(left) = self.left.get().checked_sub(1) else {
                if self.last_lands.take() {
                    self.inner.commit(compares, changes).await?;
                }
                return Err(Error::new(Code::TimedOut, "cut off"));
            };
            self.left.set(left);
            self.inner.commit(compares, changes).await
        }
        .boxed_local()
    }
}

fn named<'a>(catalog: &'a dyn Catalog, name: &str) -> Named<'a> {
    Named { catalog, name: name.into() }
}

fn contents(catalog: &dyn Catalog) -> BTreeMap<String, Vec<u8>> {
    let all = block_on(catalog.list("")).unwrap().into_iter();
    all.filter(|(key, _)| key != "closed").map(|(key, stored)| (key, stored.bytes)).collect()
}

/// Entries of a catalog with all kinds of things in it, and many.
fn entries() -> BTreeMap<String, Vec<u8>> {
    let system = serde_json::to_vec(&SystemDf::new(Uuid::from_u128(5))).unwrap();
    let mut entries = BTreeMap::from([("system".to_string(), system)]);
    for n in 0..250 {
        entries.insert(format!("attr/pool/00000001/{n}"), vec![n as u8; 3000]);
        entries.insert(format!("cont/00000001/{n:016x}"), b"{}".to_vec());
    }
    entries
}

fn fill(catalog: &dyn Catalog, entries: &BTreeMap<String, Vec<u8>>) {
    block_on(make_catalog(&named(catalog, "new"), entries, "test")).unwrap();
}

fn is_open(catalog: &dyn Catalog) -> bool {
    let system = block_on(catalog.get("system")).unwrap();
    system.is_some() && block_on(check_open(catalog)).is_ok()
}

/// Wherever a move is cut off, it can be begun again, and nobody serves two catalogs meanwhile.
#[test]
fn a_move_that_is_cut_off_goes_on() {
    let entries = entries();
    let mut was_cut = 0;
    for (side, last_lands) in [(0, false), (0, true), (1, false), (1, true)] {
        for left in 0.. {
            let places = [Failing::new(), Failing::new()];
            fill(&places[0], &entries);
            // What an earlier move has left.
            fill(&places[1], &BTreeMap::from([("pool/7".to_string(), b"{}".to_vec())]));
            let old = serde_json::to_vec(&serde_json::json!({
                "version": 2, "arriving": false, "place": "elsewhere"
            }));
            let close = [Change::Put("closed".into(), old.unwrap())];
            block_on(places[1].commit(&[], &close)).unwrap();
            places[side].left.set(left);
            places[side].last_lands.set(last_lands);
            let (from, to) = (named(&places[0], "here"), named(&places[1], "there"));
            let outcome = block_on(move_catalog(&from, &to));
            assert!(!(is_open(&places[0]) && is_open(&places[1])), "both, after {left}");
            places.iter().for_each(|place| place.left.set(usize::MAX));
            if let Err(error) = &outcome {
                assert_eq!(error.code, Code::TimedOut, "{error}");
                was_cut += 1;
                let again = block_on(move_catalog(&from, &to));
                // The last step may have been done though nothing was heard of it.
                let is_done = is_open(&places[1]);
                assert!(again.is_ok() || is_done, "{again:?} after {left} at {side}");
            }
            assert!(is_open(&places[1]) && !is_open(&places[0]));
            assert_eq!(contents(&places[1]), entries);
            let told = block_on(check_open(&places[0])).unwrap_err();
            assert!(told.text.contains("moved to there"), "{told}");
            if outcome.is_ok() {
                break;
            }
        }
    }
    assert!(was_cut > 8, "{was_cut}");
}

#[test]
fn a_system_is_never_written_over() {
    let mine = entries();
    let system = serde_json::to_vec(&SystemDf::new(Uuid::from_u128(6))).unwrap();
    let other = BTreeMap::from([("system".to_string(), system)]);
    let places = [EmbeddedCatalog::in_memory().unwrap(), EmbeddedCatalog::in_memory().unwrap()];
    fill(&places[0], &mine);
    fill(&places[1], &other);
    let (from, to) = (named(&places[0], "here"), named(&places[1], "there"));
    let refused = block_on(move_catalog(&from, &to)).unwrap_err();
    assert_eq!(refused.code, Code::Exist, "{refused}");
    assert!(is_open(&places[0]) && is_open(&places[1]));
    assert_eq!((contents(&places[0]), contents(&places[1])), (mine.clone(), other));
    let refused = block_on(make_catalog(&to, &mine, "a copy")).unwrap_err();
    assert_eq!(refused.code, Code::Exist, "{refused}");
    let empty = EmbeddedCatalog::in_memory().unwrap();
    let refused = block_on(move_catalog(&named(&empty, "nowhere"), &to)).unwrap_err();
    assert_eq!(refused.code, Code::NonExist, "{refused}");
}

#[test]
fn a_large_catalog_goes_to_a_real_etcd_and_back() {
    let Some(server) = EtcdServer::start() else { return };
    let open = |run| {
        let access = EtcdAccess { endpoints: vec![server.endpoint()], ..EtcdAccess::default() };
        let config = EtcdConfig::new(access, "p", Uuid::from_u128(1), "here", run);
        block_on(EtcdCatalog::open(config)).unwrap()
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog");
    let entries = entries();
    let files = EmbeddedCatalog::open(&path).unwrap();
    fill(&files, &entries);
    let etcd = open(1);
    let counts = block_on(move_catalog(&named(&files, "files"), &named(&etcd, "etcd"))).unwrap();
    assert_eq!((counts.containers, counts.entries), (250, 501));
    assert_eq!(contents(&etcd), entries);
    drop((etcd, files));
    let closed = CatalogImage::read(&path).unwrap().unwrap();
    assert!(!closed.is_open());
    let (etcd, files) = (open(2), EmbeddedCatalog::open(&path).unwrap());
    let more = [
        Change::Put("attr/pool/00000001/new".into(), vec![1]),
        Change::Delete("cont/00000001/0000000000000003".into()),
    ];
    assert!(block_on(etcd.commit(&[], &more)).unwrap());
    let now = contents(&etcd);
    block_on(move_catalog(&named(&etcd, "etcd"), &named(&files, "files"))).unwrap();
    assert_eq!(contents(&files), now);
    assert!(is_open(&files) && !is_open(&etcd));
}

#[test]
fn the_record_of_a_closed_catalog_is_frozen() {
    let golden = r#"{"version":2,"arriving":true,"place":"files in /a"}"#;
    let record: ClosedDf = serde_json::from_str(golden).unwrap();
    assert_eq!(serde_json::to_string(&record).unwrap(), golden);
}

/// What an engine has in its copy of this system.
fn copy(system: &System) -> CatalogImage {
    match system.run(R::CatalogCopy { generation: 0, after: String::new() }) {
        Ok(ControlReply::CatalogCopy { entries, is_complete: true, .. }) => {
            CatalogImage { entries: entries.into_iter().collect() }
        }
        other => panic!("{other:?}"),
    }
}

fn pool_of(entries: &BTreeMap<String, Vec<u8>>) -> PoolDf {
    serde_json::from_slice(&entries["pool/00000001"]).unwrap()
}

/// Weights that followed what targets are worth, shares that moved, and a target that was drained: all after the copy was made. Placing
/// an object by other weights than those it was placed by would be losing it.
#[test]
fn weights_epochs_and_who_is_drained_outlive_the_catalog() {
    let system = System::new(3);
    let speed = |kb_s| Speed { kb_s, kb_s_min: kb_s, kb_s_max: kb_s };
    let stands = |target: u32, kb_s: u64| {
        let measures =
            Some(Measures { read: speed(kb_s), write: speed(kb_s), ..Measures::default() });
        let standing = Standing { free_bytes: 1 << 33, measures, ..Standing::default() };
        system.targets.standings.borrow_mut().insert(TargetId(target), standing);
    };
    (0..6).for_each(|target| stands(target, 1000));
    let create = R::PoolCreate {
        label: "tank".into(),
        bytes: 1 << 30,
        scm_percent: 10,
        durability: Durability::Wal,
        placement: PlacementRule::Score,
        targets: [0, 1, 2, 3].map(TargetId).to_vec(),
    };
    system.run(create).unwrap();
    system.cont("tank", "home");
    let tank = || Name::Label("tank".into());
    system.run(R::PoolExtend { pool: tank(), targets: vec![TargetId(4), TargetId(5)] }).unwrap();
    let props = [("balance_threshold", "33"), ("cache_max", "4GiB"), ("drain_slow_after_s", "77")];
    let props = props.map(|(name, value)| (name.to_string(), value.to_string())).into();
    system.run(R::SetProps { subject: Subject::Pool(tank()), props }).unwrap();
    let old = copy(&system);

    // Weights of a third epoch, data that moved there, and a target that gave what it had.
    stands(1, 4000);
    system.run(R::PoolReweigh { pool: tank(), is_trial: false }).unwrap();
    system.run(R::PoolBalance { pool: tank() }).unwrap();
    let settle = || {
        for _ in 0..3 {
            block_on(system.service.stand_in(Duration::ZERO, None, &*system.targets)).unwrap();
            let map = system.pools()[0].map.clone();
            for target in &map.targets {
                let pool = system.pools()[0].id;
                let joined = R::TargetJoined { pool, target: target.id, map_version: map.version };
                // Only until the change is made.
                let _ = system.run(joined);
            }
        }
    };
    settle();
    let aim = R::PoolAim { pool: tank(), targets: vec![TargetId(2)], aim: TargetAim::Drain };
    system.run(aim).unwrap();
    settle();
    let map = system.pools()[0].map.clone();
    assert_eq!((map.placements.len(), map.balanced, map.outs.len()), (3, 2, 1));
    let now = pool_of(&copy(&system).entries);

    let made = recover(&old, &[], std::slice::from_ref(&map)).unwrap();
    let pool = pool_of(&made.entries);
    assert_eq!((&pool.placements, &pool.outs, &pool.next), (&now.placements, &now.outs, &now.next));
    assert_eq!((pool.balanced, pool.balance, pool.placement), (2, now.balance, now.placement));
    assert_eq!((pool.balance.threshold_percent, pool.balance.drain_slow_after_s), (33, 77));
    // How far targets have said that they are, they say again.
    let of = |pool: &PoolDf| -> Vec<_> {
        pool.targets.iter().map(|held| (held.id, held.state, held.aim)).collect()
    };
    assert_eq!(of(&pool), of(&now), "and nobody has the drained one serve again");
    assert!(pool.map_version > map.version);
    // Targets take the settings again: theirs are older.
    assert_eq!(pool.cache.bytes_max, 4 << 30);
    assert!(pool.cache.revision > now.cache.revision);
    // Another copy of it, and nobody who knows more.
    let same = recover(&copy(&system), &[], &[]).unwrap();
    let same = pool_of(&same.entries);
    assert_eq!((&same.placements, &same.outs), (&now.placements, &now.outs));
}

#[test]
fn a_catalog_made_anew_mistakes_nothing_for_something_else() {
    let system = System::new(3);
    let tank = system.pool("tank");
    let home = system.cont("tank", "home");
    let old = copy(&system);
    system.cont("tank", "later");
    let now = copy(&system);
    assert_eq!(newest(&[old.clone(), now.clone(), CatalogImage::default()]).unwrap(), 1);
    assert_eq!(newest(&[CatalogImage::default()]).unwrap_err().code, Code::NonExist);
    // Another system's: two that are made alike have different identities in earnest.
    let mut stranger = old.clone();
    let other = serde_json::to_vec(&SystemDf::new(Uuid::from_u128(99))).unwrap();
    stranger.entries.insert("system".into(), other);
    assert_eq!(newest(&[now.clone(), stranger]).unwrap_err().code, Code::Inval);

    // An engine that runs knows that a target went down after the copy was made.
    let mut map = tank.map.clone();
    map.version += 7;
    map.targets[1].state = TargetState::Down;
    map.targets[1].left = map.version;
    let made =
        recover(&old, &[("new".into(), now.clone())], &[map.clone(), tank.map.clone()]).unwrap();
    let notes = made.notes.join("\n");
    assert!(
        notes.contains("container 'later' of pool 'tank'") && notes.contains("newer map"),
        "{notes}"
    );
    let pool = pool_of(&made.entries);
    assert!(pool.map_version > map.version);
    assert_eq!((pool.targets[1].state, pool.targets[1].left), (TargetState::Down, map.version));
    assert_eq!(pool.targets[0].state, TargetState::Up);
    let lost = now.pools().unwrap().remove(0);
    assert!(pool.cont_next > lost.cont_next && pool.stage == StageDf::Ready);
    assert_eq!(pool.durability, Durability::Wal);
    let oids = |entries: &BTreeMap<String, Vec<u8>>| {
        let key = format!("oids/{:08x}/{:016x}", PoolId(1).0, home.id.0);
        let value: serde_json::Value = serde_json::from_slice(&entries[&key]).unwrap();
        value["next"].as_u64().unwrap()
    };
    assert_eq!(oids(&made.entries), 1 << 56);
    let system: SystemDf = serde_json::from_slice(&made.entries["system"]).unwrap();
    let before = now.system().unwrap().unwrap();
    assert_eq!(system.uuid, before.uuid);
    assert!(system.pool_next > before.pool_next && system.rank_next > before.rank_next);
    assert!(system.target_next > before.target_next);
    // Lost again before any number was used: other numbers all the same.
    let mut again = CatalogImage { entries: made.entries };
    again.entries.retain(|key, _| !key.starts_with("oids/"));
    let again = recover(&again, &[], &[]).unwrap();
    assert_eq!(oids(&again.entries), 2 << 56);
    assert!(pool_of(&again.entries).map_version > pool.map_version);
}

#[test]
fn an_image_tells_what_a_system_has_with_an_engine() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog");
    assert_eq!(CatalogImage::read(Path::new(&path)).unwrap(), None);
    let system = System::new(2);
    system.pool("tank");
    let image = copy(&system);
    let files = EmbeddedCatalog::open(&path).unwrap();
    fill(&files, &image.entries);
    // Read while it is open.
    let read = CatalogImage::read(&path).unwrap().unwrap();
    assert_eq!(read, image);
    let (uuid, engine) = read.engines().unwrap().remove(1);
    let standing = read.standing(uuid).unwrap().unwrap();
    assert_eq!((standing.rank, &standing.targets), (Rank(1), &engine.targets));
    assert_eq!((standing.pools, standing.others.len()), (vec!["tank".to_string()], 1));
    assert!(standing.targets.iter().all(|target| *target > TargetId(0)));
    assert_eq!(read.standing(Uuid::from_u128(77)).unwrap(), None);
}

/// One that was restored from a backup is told from the engines' copies, whatever has changed since.
#[test]
fn a_catalog_older_than_a_copy_of_it_is_refused() {
    let system = System::new(3);
    system.pool("tank");
    let steps: [(&str, &dyn Fn()); 4] = [
        ("the next container of pool 'tank'", &|| drop(system.cont("tank", "home"))),
        ("the next pool", &|| drop(system.pool("scratch"))),
        ("the last change of an engine", &|| drop(system.join(3).unwrap())),
        ("the last change of an engine", &|| {
            let why = "gone".to_string();
            drop(system.run(R::SystemExclude { rank: Rank(2), why }).unwrap());
        }),
    ];
    let check = |here: &CatalogImage, copy: &CatalogImage| {
        block_on(check_not_older(&catalog_of(here), &catalog_of(copy)))
    };
    for (what, step) in steps {
        let before = system.image();
        step();
        let now = system.image();
        check(&now, &before).unwrap();
        check(&now, &now).unwrap();
        let refused = check(&before, &now).unwrap_err();
        assert_eq!(refused.code, Code::Inval);
        assert!(
            refused.text.contains(what) && refused.text.contains("system recover"),
            "{refused}"
        );
        // Nobody knows anything of it yet, or knows another one.
        check(&before, &CatalogImage::default()).unwrap();
        check(&CatalogImage::default(), &now).unwrap();
        let mut stranger = now.clone();
        let other = serde_json::to_vec(&SystemDf::new(Uuid::from_u128(99))).unwrap();
        stranger.entries.insert("system".into(), other);
        check(&before, &stranger).unwrap();
    }
    // A pool that was removed makes nothing older.
    let before = system.image();
    system.run(crate::fake::destroy_pool("scratch", true)).unwrap();
    check(&system.image(), &before).unwrap();
    // Nor does one that is made anew from an older copy.
    let made = recover(&before, &[], &[]).unwrap();
    check(&CatalogImage { entries: made.entries }, &system.image()).unwrap();
}
