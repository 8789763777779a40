//! Who may show what it leads, and who gives that back before others lead.

use crate::fake::{System, Yield, engine_info, label};
use control::LEAD_TERM;
use futures_executor::block_on;
use futures_util::future::join;
use std::time::Duration;
use types::{PoolId, Rank, TargetId};
use wire::control::{ControlReply, ControlRequest as R, JoinInfo, MemberState, TargetAim};
use wire::map::PoolMap;

const FIRST: [TargetId; 2] = [TargetId(0), TargetId(1)];
const SECOND: [TargetId; 2] = [TargetId(2), TargetId(3)];

fn map(system: &System) -> PoolMap {
    system.pools()[0].map.clone()
}

/// Pools that an engine is granted to lead in when its targets have a map of this version.
fn granted(system: &System, targets: [TargetId; 2], version: u32) -> Vec<PoolId> {
    let known = vec![(map(system).pool, version)];
    let request = R::LeadGrant { targets: targets.into(), known };
    match system.run(request).unwrap() {
        ControlReply::Granted(pools) => pools,
        other => panic!("{other:?}"),
    }
}

fn exclude(system: &System, rank: u32) {
    system.run(R::SystemExclude { rank: Rank(rank), why: String::new() }).unwrap();
}

/// Who was asked to give back what it leads, since the last time.
fn given_back(system: &System) -> Vec<TargetId> {
    let mut all: Vec<TargetId> =
        system.targets.given_back.take().into_iter().map(|(target, _)| target).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn who_has_an_old_map_is_granted_nothing() {
    let system = System::new(3);
    system.pool("tank");
    let PoolMap { pool, version, .. } = map(&system);
    assert_eq!(granted(&system, FIRST, version), [pool]);
    assert_eq!(granted(&system, FIRST, version - 1), []);
    exclude(&system, 1);
    assert_eq!(granted(&system, SECOND, version), []);
    assert_eq!(granted(&system, FIRST, version), [], "it is told the new one first");
    assert_eq!(granted(&system, FIRST, version + 1), [pool]);
    // A service that has told nobody a map does not know which is the newest.
    let system = system.restarted();
    assert_eq!(granted(&system, FIRST, version + 1), []);
    assert_eq!(block_on(system.service.resume(&*system.targets)).unwrap(), []);
    assert_eq!(granted(&system, FIRST, version + 1), [pool]);
    assert_eq!(granted(&system, FIRST, version), []);
}

/// One whose commit has no answer may have been made: the map before may not be the newest any more.
#[test]
fn what_may_have_been_committed_counts() {
    for lands in [false, true] {
        let system = System::new(3);
        system.pool("tank");
        let PoolMap { pool, version, .. } = map(&system);
        let system = system.restarted_with(lands);
        assert_eq!(block_on(system.service.resume(&*system.targets)).unwrap(), []);
        assert_eq!(granted(&system, SECOND, version), [pool]);
        system.commits_left.set(Some(1));
        let request = R::SystemExclude { rank: Rank(1), why: String::new() };
        assert!(system.run(request).is_err());
        let asked = R::LeadGrant { targets: SECOND.into(), known: vec![(pool, version)] };
        assert_eq!(system.run(asked).unwrap(), ControlReply::Granted(Vec::new()), "{lands}");
    }
}

/// Whoever loses nothing is not asked, and whoever has nothing neither.
#[test]
fn who_may_lose_a_group_is_asked() {
    let system = System::new(3);
    system.service.begins(Duration::ZERO);
    system.targets.now.set(Duration::from_secs(60));
    system.pool("tank");
    let grant = |version: u32| {
        for targets in [FIRST, SECOND, [TargetId(4), TargetId(5)]] {
            granted(&system, targets, version);
        }
    };
    exclude(&system, 1);
    assert_eq!(given_back(&system), [], "nothing was granted");
    system.run(R::SystemClearExclude { rank: Rank(1) }).unwrap();
    let caught_up = |target| {
        let PoolMap { pool, version: map_version, .. } = map(&system);
        R::TargetCaughtUp { pool, target, map_version }
    };
    grant(map(&system).version);
    system.run(caught_up(SECOND[0])).unwrap();
    // It may come to lead what any other one leads.
    let all: Vec<TargetId> = (0..6).map(TargetId).collect();
    assert_eq!(given_back(&system), all);
    grant(map(&system).version);
    system.run(caught_up(SECOND[1])).unwrap();
    given_back(&system);
    grant(map(&system).version);
    let aim = R::PoolAim { pool: label("tank"), targets: vec![FIRST[1]], aim: TargetAim::Exclude };
    system.run(aim).unwrap();
    assert_eq!(given_back(&system), [FIRST[1]]);
    system.assert_in_step();
}

/// What a dead engine's targets were granted has to run out before others lead, which takes longer than to start it again: who has joined by then is not
/// called down any more.
#[test]
fn an_engine_that_has_been_started_again_is_not_called_down() {
    for starts in [false, true] {
        let system = System::new(3);
        system.service.begins(Duration::ZERO);
        system.pool("tank");
        system.targets.now.set(Duration::from_secs(60));
        let before = map(&system).version;
        granted(&system, SECOND, before);
        system.targets.away.borrow_mut().insert(Rank(1));
        let silent = system.service.engine_is_silent(Rank(1), "no answer", true, &*system.targets);
        let started = async {
            Yield(2).await;
            if starts {
                system.targets.away.borrow_mut().remove(&Rank(1));
                let join = JoinInfo { start: 2, ..engine_info(1) };
                system.ask(R::Join(join)).await.unwrap();
            }
        };
        let (silent, ()) = block_on(join(silent, started));
        silent.unwrap();
        let is_up = block_on(system.service.members()).unwrap()[1].2 == MemberState::Up;
        assert_eq!((is_up, map(&system).version == before), (starts, starts));
        // It leads what it led, by the map that there is.
        assert_eq!(granted(&system, SECOND, before).len(), usize::from(starts));
    }
}

/// One that does not answer has run out a term after it was granted something, and a new service does not know what the one before has granted.
#[test]
fn for_who_does_not_answer_it_is_waited() {
    let system = System::new(3);
    system.service.begins(Duration::ZERO);
    system.pool("tank");
    let at = Duration::from_secs(60);
    system.targets.now.set(at);
    granted(&system, SECOND, map(&system).version);
    system.targets.away.borrow_mut().insert(Rank(1));
    exclude(&system, 1);
    let waited = system.targets.now.get() - at;
    assert!(waited > LEAD_TERM && waited < LEAD_TERM * 2, "{waited:?}");
    assert_eq!(given_back(&system), []);

    let system = system.restarted();
    let begun = system.targets.now.get();
    system.service.begins(begun);
    system.targets.now.set(begun + LEAD_TERM / 2);
    system.targets.away.borrow_mut().insert(Rank(2));
    exclude(&system, 2);
    let waited = system.targets.now.get() - begun;
    assert!(waited > LEAD_TERM && waited < LEAD_TERM * 2, "{waited:?}");

    let system = system.restarted();
    let begun = system.targets.now.get();
    system.service.begins(begun);
    system.targets.now.set(begun + LEAD_TERM * 2);
    exclude(&system, 0);
    assert_eq!(system.targets.now.get(), begun + LEAD_TERM * 2, "all of that has run out");
}
