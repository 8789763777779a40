//! Snapshots: what targets are told in which order, and what a restart undoes or finishes.

use crate::fake::{System, create_cont, label};
use futures_executor::block_on;
use std::pin::pin;
use std::task::Poll;
use types::{Code, ContProps, Epoch, Rank, TargetId};
use wire::control::{ControlReply, ControlRequest as R, OpenMode, SnapInfo, SnapName};
use wire::map::DownReason;
use wire::versions::{ContStage, ContVersions};

fn create(name: &str) -> R {
    R::SnapCreate { pool: label("tank"), cont: label("home"), name: name.to_string() }
}

fn destroy(snap: SnapName) -> R {
    R::SnapDestroy { pool: label("tank"), cont: label("home"), snap }
}

fn roll_back(snap: SnapName, force: bool) -> R {
    R::Rollback { pool: label("tank"), cont: label("home"), snap, force }
}

fn made(system: &System, name: &str) -> SnapInfo {
    match system.run(create(name)).unwrap() {
        ControlReply::Snap(snap) => snap,
        other => panic!("{other:?}"),
    }
}

fn list(system: &System) -> (Vec<SnapInfo>, Option<Epoch>) {
    match system.run(R::SnapList(label("tank"), label("home"))).unwrap() {
        ControlReply::Snaps { snaps, rolling_back } => (snaps, rolling_back),
        other => panic!("{other:?}"),
    }
}

fn begun() -> System {
    let system = System::new(2);
    system.pool("tank");
    system.run(create_cont("tank", "home")).unwrap();
    system
}

/// The service after a restart.
fn restarted(system: System) -> System {
    let system = system.restarted();
    block_on(system.service.resume(&*system.targets)).unwrap();
    system
}

/// All targets keep the same, and it is this.
#[track_caller]
fn assert_told(system: &System, snapshots: &[Epoch], stage: ContStage) {
    let told = system.targets.versions.borrow();
    assert_eq!(told.len(), 4);
    for ((target, ..), held) in told.iter() {
        let want = ContVersions {
            revision: held.revision,
            snapshots: snapshots.to_vec(),
            held: false,
            stage,
        };
        assert_eq!(*held, want, "target {target}");
    }
}

#[test]
fn snapshots_come_and_go_on_all_targets() {
    let system = begun();
    let first = made(&system, "monday");
    // Beyond all that targets have done.
    assert!(first.epoch > Epoch(1003), "{first:?}");
    assert_told(&system, &[first.epoch], ContStage::Open);
    let second = made(&system, "");
    assert!(second.epoch > first.epoch);
    assert_eq!(list(&system), (vec![first.clone(), second.clone()], None));
    let ControlReply::Cont(cont) = system.run(R::ContQuery(label("tank"), label("home"))).unwrap()
    else {
        panic!("not a container");
    };
    assert_eq!((cont.snapshot_count, cont.snapshot_last), (2, second.epoch));
    for (name, code) in [("monday", Code::Exist), ("12", Code::Inval), ("a b", Code::Inval)] {
        assert_eq!(system.run(create(name)).unwrap_err().code, code, "{name}");
    }
    system.run(destroy(SnapName::Name("monday".into()))).unwrap();
    assert_told(&system, &[second.epoch], ContStage::Open);
    let gone = system.run(destroy(SnapName::Epoch(first.epoch))).unwrap_err();
    assert_eq!(gone.code, Code::NonExist);
    system.run(destroy(SnapName::Epoch(second.epoch))).unwrap();
    assert_told(&system, &[], ContStage::Open);
}

#[test]
fn a_snapshot_that_a_target_does_not_hear_of_is_not_made() {
    let system = begun();
    system.targets.away.borrow_mut().insert(Rank(1));
    assert_eq!(system.run(create("monday")).unwrap_err().code, Code::Unreach);
    assert_eq!(list(&system), (vec![], None));
    system.targets.away.borrow_mut().clear();
    // The name is free.
    let snap = made(&system, "monday");
    assert_told(&system, &[snap.epoch], ContStage::Open);
}

#[test]
fn a_rollback_freezes_rolls_and_opens_again() {
    let system = begun();
    let snap = made(&system, "monday");
    let gone = roll_back(SnapName::Name("sunday".into()), false);
    assert_eq!(system.run(gone.clone()).unwrap_err().code, Code::NonExist);
    // Also where somebody has the container open, who is not asked to close it for nothing.
    let ask = crate::cases_handles::ask(OpenMode::ReadWrite);
    let handle = crate::cases_handles::open_cont_as(&system, 1, ask);
    assert_eq!(system.run(gone).unwrap_err().code, Code::NonExist);
    system.run_as(1, R::ContClose { handle }).unwrap();
    system.run(roll_back(SnapName::Name("monday".into()), false)).unwrap();
    assert_told(&system, &[snap.epoch], ContStage::Open);
    assert_eq!(list(&system), (vec![snap.clone()], None));
    // Cut off: its intent stays, nothing else is done meanwhile, and it is gone on with.
    system.targets.broken.borrow_mut().insert(TargetId(3));
    let cut = system.run(roll_back(SnapName::Epoch(snap.epoch), false)).unwrap_err();
    assert_eq!(cut.code, Code::Io);
    assert_eq!(list(&system).1, Some(snap.epoch));
    for request in [create("tuesday"), destroy(SnapName::Epoch(snap.epoch))] {
        assert_eq!(system.run(request).unwrap_err().code, Code::Busy);
    }
    system.targets.broken.borrow_mut().clear();
    let system = restarted(system);
    assert_eq!(list(&system).1, None);
    assert_told(&system, &[snap.epoch], ContStage::Open);
}

/// The service dies after any number of orders: a snapshot is on all targets or on none, none goes
/// on holding, and a rollback is gone through with.
#[test]
fn wherever_the_service_dies_targets_and_catalog_agree() {
    for orders in 0..14 {
        let system = begun();
        let first = made(&system, "first");
        system.targets.orders_left.set(Some(orders));
        let outcome = system.run(create("second"));
        system.targets.orders_left.set(None);
        let system = restarted(system);
        let (snaps, _) = list(&system);
        let epochs: Vec<Epoch> = snaps.iter().map(|snap| snap.epoch).collect();
        assert_told(&system, &epochs, ContStage::Open);
        assert_eq!(outcome.is_ok(), epochs.len() == 2, "after {orders} orders");
        system.targets.orders_left.set(Some(orders));
        // It may fail; then the resume goes on with it.
        let _ = system.run(roll_back(SnapName::Epoch(first.epoch), false));
        system.targets.orders_left.set(None);
        let system = restarted(system);
        assert_told(&system, &epochs, ContStage::Open);
        assert_eq!(list(&system).1, None);
    }
}

/// A snapshot was refused while an engine was away. Where others have all that its targets have it is made, and the engine's targets follow
/// nobody before they know of it: they would let go of what only the snapshot sees.
#[test]
fn who_was_away_hears_of_snapshots_before_it_is_back() {
    let system = System::new(3);
    system.pool("tank");
    let R::ContCreate { pool, label: name, uuid, attrs, .. } = create_cont("tank", "home") else {
        panic!("a container")
    };
    let props = ContProps::posix(1);
    system.run(R::ContCreate { pool, label: name, uuid, props, attrs }).unwrap();
    system.run(create_cont("tank", "alone")).unwrap();
    let away = [TargetId(2), TargetId(3)];
    system.targets.away.borrow_mut().insert(Rank(1));
    // Nobody has noticed it yet.
    assert_eq!(system.run(create("early")).unwrap_err().code, Code::Unreach);
    let silent = system.service.engine_is_silent(Rank(1), "gone", true, &*system.targets);
    block_on(silent).unwrap();
    let snap = made(&system, "monday");
    // With one copy nobody else has what is there.
    let (pool, cont, name) = (label("tank"), label("alone"), String::new());
    let alone = system.run(R::SnapCreate { pool, cont, name });
    assert_eq!(alone.unwrap_err().code, Code::Unreach);
    let knows = |target: TargetId| {
        let told = system.targets.versions.borrow();
        told.iter().any(|((of, ..), held)| *of == target && held.snapshots == [snap.epoch])
    };
    assert!(knows(TargetId(0)) && away.iter().all(|target| !knows(*target)));
    let reason = |target: TargetId| system.pools()[0].map.target(target).unwrap().reason;
    system.targets.away.borrow_mut().clear();
    system.targets.deaf.borrow_mut().insert(away[0]);
    let resume = || block_on(system.service.resume_engine(Rank(1), &*system.targets)).unwrap();
    assert_eq!(resume().iter().map(|(target, _)| *target).collect::<Vec<_>>(), [away[0]]);
    assert_eq!(away.map(reason), [Some(DownReason::Silent), Some(DownReason::Behind)]);
    assert!(!knows(away[0]) && knows(away[1]));
    system.targets.deaf.borrow_mut().clear();
    assert_eq!(resume(), []);
    assert_eq!(away.map(reason), [Some(DownReason::Behind); 2]);
    assert!(knows(away[0]));
}

/// A snapshot could be begun after an engine's targets had been told which there are, and before the map said that they are back: they
/// were passed over, and followed for a moment without keeping what only that snapshot sees.
#[test]
fn who_comes_back_while_a_snapshot_is_made_keeps_what_it_sees() {
    let mut made_before_back = 0;
    for seed in 0..400 {
        // A catalog that takes its time, too.
        let system = System::empty(Some(seed));
        (0..3).for_each(|engine| drop(system.join(engine).unwrap()));
        system.pool("tank");
        let R::ContCreate { pool, label: name, uuid, attrs, .. } = create_cont("tank", "home")
        else {
            panic!("a container")
        };
        let props = ContProps::posix(1);
        system.run(R::ContCreate { pool, label: name, uuid, props, attrs }).unwrap();
        let silent = system.service.engine_is_silent(Rank(1), "gone", true, &*system.targets);
        block_on(silent).unwrap();
        let session = control::SessionId(1);
        let later = |turns| crate::fake::Yield(turns);
        let mut snap = pin!(async {
            later((seed % 40) as u32).await;
            system.service.handle(session, create("monday"), &*system.targets).await
        });
        let mut resume = pin!(async {
            later((seed / 40) as u32).await;
            system.service.resume_engine(Rank(1), &*system.targets).await
        });
        let (mut made, mut resumed) = (None, None);
        block_on(std::future::poll_fn(|context| {
            if made.is_none()
                && let Poll::Ready(outcome) = snap.as_mut().poll(context)
            {
                made = Some(outcome);
            }
            if resumed.is_none()
                && let Poll::Ready(outcome) = resume.as_mut().poll(context)
            {
                resumed = Some(outcome);
            }
            let shards = system.targets.shards.borrow();
            let versions = system.targets.versions.borrow();
            let is_back = |target: TargetId| {
                let maps = shards.values().filter_map(|shard| shard.map.as_ref());
                maps.filter_map(|map| map.target(target))
                    .any(|target| target.reason == Some(DownReason::Behind))
            };
            let all_hold = versions.values().any(|told| !told.snapshots.is_empty());
            let keeps = |target: TargetId| {
                let mut told = versions.iter().filter(|((of, ..), _)| *of == target);
                told.any(|(_, told)| told.held || !told.snapshots.is_empty())
            };
            for target in [TargetId(2), TargetId(3)] {
                let is_known = !all_hold || !is_back(target) || keeps(target);
                assert!(is_known, "seed {seed}: {target} follows and knows of no snapshot");
                made_before_back += u32::from(all_hold && !is_back(target));
            }
            match made.is_some() && resumed.is_some() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        }));
        let ControlReply::Snap(snap) = made.unwrap().unwrap() else { panic!("a snapshot") };
        assert_eq!(resumed.unwrap().unwrap(), []);
        let told = system.targets.versions.borrow();
        assert_eq!(told.len(), 6);
        assert!(told.values().all(|told| told.snapshots == [snap.epoch] && !told.held));
    }
    assert!(made_before_back > 0);
}
