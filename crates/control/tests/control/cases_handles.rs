//! Handles: modes that exclude each other, sessions that end.

use crate::fake::{System, destroy_cont, destroy_pool, label};
use std::time::Duration;
use types::Code;
use wire::control::{ContAsk, ControlReply, ControlRequest as R, Evict, OpenMode};

pub const RW: OpenMode = OpenMode::ReadWrite;

fn open_pool(mode: OpenMode) -> R {
    R::PoolOpen { pool: label("tank"), mode }
}

pub fn ask(mode: OpenMode) -> ContAsk {
    ContAsk { mode, evict: Evict::Nobody, user: 7, leaves_times: false }
}

fn open_cont(mode: OpenMode) -> R {
    R::ContOpen { pool: label("tank"), cont: label("home"), ask: ask(mode) }
}

/// Opens `tank/home`.
#[track_caller]
pub fn open_cont_as(system: &System, session: u64, ask: ContAsk) -> u64 {
    let open = R::ContOpen { pool: label("tank"), cont: label("home"), ask };
    handle_of(system.run_as(session, open).unwrap())
}

fn handle_of(reply: ControlReply) -> u64 {
    match reply {
        ControlReply::PoolOpened { handle, .. } | ControlReply::ContOpened { handle, .. } => handle,
        other => panic!("{other:?}"),
    }
}

fn system() -> System {
    let system = System::new(1);
    system.pool("tank");
    system.cont("tank", "home");
    system
}

#[test]
fn exclusive_means_alone() {
    let system = system();
    for open in [open_pool, open_cont] {
        let close = |handle| {
            let pool = system.run(R::PoolClose { handle });
            if pool.is_err() { system.run(R::ContClose { handle }) } else { pool }
        };
        let first = handle_of(system.run(open(OpenMode::Exclusive)).unwrap());
        for mode in [OpenMode::ReadOnly, RW, OpenMode::Exclusive] {
            assert_eq!(system.fails(open(mode), "exclusively"), Code::Busy);
        }
        close(first).unwrap();
        let reader = handle_of(system.run(open(OpenMode::ReadOnly)).unwrap());
        let writer = handle_of(system.run(open(RW)).unwrap());
        assert_ne!(reader, writer);
        assert_eq!(system.fails(open(OpenMode::Exclusive), "open handles"), Code::Busy);
        close(reader).unwrap();
        close(writer).unwrap();
        close(handle_of(system.run(open(OpenMode::Exclusive)).unwrap())).unwrap();
    }
}

#[test]
fn open_handles_are_counted_and_stand_in_the_way_of_destruction() {
    let system = system();
    let ControlReply::PoolOpened { pool, .. } = system.run(open_pool(RW)).unwrap() else {
        panic!("no handle");
    };
    assert_eq!((pool.handle_count, pool.cont_count), (1, 1));
    let ControlReply::ContOpened { cont, handle, .. } = system.run(open_cont(RW)).unwrap() else {
        panic!("no handle");
    };
    assert_eq!(cont.handle_count, 1);
    assert_eq!(
        system.fails(destroy_cont("tank", "home", false), "1 open handle; close it"),
        Code::Busy
    );
    assert_eq!(system.fails(destroy_pool("tank", false), "2 open handles"), Code::Busy);
    system.run(destroy_cont("tank", "home", true)).unwrap();
    assert_eq!(system.fails(R::ContClose { handle }, "by force"), Code::BadHandle);
    assert_eq!(system.fails(destroy_pool("tank", false), "1 open handle; close it"), Code::Busy);
    system.run(destroy_pool("tank", true)).unwrap();
    system.assert_in_step();
}

#[test]
fn a_handle_belongs_to_its_session_and_kind_and_closes_once() {
    let system = system();
    let pool = handle_of(system.run_as(1, open_pool(RW)).unwrap());
    let cont = handle_of(system.run_as(2, open_cont(RW)).unwrap());
    let code = |session, request| system.run_as(session, request).unwrap_err().code;
    assert_eq!(code(2, R::PoolClose { handle: pool }), Code::BadHandle);
    assert_eq!(code(1, R::ContClose { handle: pool }), Code::BadHandle);
    assert_eq!(code(2, R::PoolClose { handle: cont }), Code::BadHandle);
    system.run_as(1, R::PoolClose { handle: pool }).unwrap();
    assert_eq!(code(1, R::PoolClose { handle: pool }), Code::BadHandle);
    system.run_as(2, R::ContClose { handle: cont }).unwrap();
}

#[test]
fn a_session_that_ends_frees_its_handles_only() {
    let system = system();
    for session in [1, 1, 2] {
        system.run_as(session, open_pool(RW)).unwrap();
        system.run_as(session, open_cont(RW)).unwrap();
    }
    system.service.session_closed(control::SessionId(1));
    let pool = &system.pools()[0];
    assert_eq!(pool.handle_count, 1);
    assert_eq!(system.conts(&label("tank"))[0].handle_count, 1);
    system.service.session_closed(control::SessionId(2));
    system.run(destroy_cont("tank", "home", false)).unwrap();
    system.run(destroy_pool("tank", false)).unwrap();
}

/// A caller may send a request and go. The request then ran after the end of the session, and
/// its handle stood in the way of everybody until the service started again.
#[test]
fn a_request_that_outlives_its_session_leaves_no_handle() {
    let system = system();
    system.service.session_closed(control::SessionId(5));
    for open in [open_pool(RW), open_cont(OpenMode::Exclusive)] {
        assert_eq!(system.run_as(5, open).unwrap_err().code, Code::Closed);
    }
    system.run(open_pool(OpenMode::Exclusive)).unwrap();
    system.run(open_cont(OpenMode::Exclusive)).unwrap();
}

#[test]
fn handles_of_an_earlier_run_are_not_taken_for_new_ones() {
    let system = system();
    let old = handle_of(system.run(open_pool(RW)).unwrap());
    let system = system.restarted();
    let new = handle_of(system.run(open_pool(RW)).unwrap());
    assert_ne!(old, new);
    assert_eq!(
        system.fails(R::PoolClose { handle: old }, "not an open pool handle"),
        Code::BadHandle
    );
}

/// Who has it open is not known when the service begins. Whoever wants it for himself waits until all would have said so, unless somebody has, or it was
/// made since.
#[test]
fn who_wants_something_alone_waits_for_those_who_come_back() {
    let (grace_time, leave_time) = (Duration::from_secs(10), Duration::from_secs(2));
    let rollback = || R::Rollback {
        pool: label("tank"),
        cont: label("home"),
        snap: wire::control::SnapName::Name("monday".into()),
        force: false,
    };
    let wants = [
        open_pool(OpenMode::Exclusive),
        open_cont(OpenMode::Exclusive),
        rollback(),
        destroy_cont("tank", "home", false),
        destroy_pool("tank", false),
    ];
    let new = |begun: Duration| {
        let system = system();
        let (pool, cont) = (label("tank"), label("home"));
        system.run(R::SnapCreate { pool, cont, name: "monday".into() }).unwrap();
        let system = system.restarted();
        system.targets.now.set(begun);
        system.service.begins(begun);
        system
    };
    let begun = Duration::from_secs(100);
    for want in wants {
        let system = new(begun);
        let _ = system.run(want.clone());
        assert_eq!(system.targets.now.get(), begun + grace_time, "{want:?}");
        // Somebody has said so.
        let system = new(begun);
        system.run(open_pool(RW)).unwrap();
        system.run(open_cont(RW)).unwrap();
        assert_eq!(system.fails(want.clone(), "open handle"), Code::Busy);
        assert_eq!(system.targets.now.get(), begun + leave_time, "{want:?}");
        // Nobody can have it from before.
        let system = new(begun);
        system.pool("own");
        system.cont("own", "home");
        system.cont("tank", "own");
        system.run(destroy_cont("tank", "own", false)).unwrap();
        system.run(destroy_cont("own", "home", false)).unwrap();
        system.run(destroy_pool("own", false)).unwrap();
        // With force, and for who shares it, there is nothing to wait for.
        system.run(open_cont(RW)).unwrap();
        system.run(destroy_cont("tank", "home", true)).unwrap();
        system.run(destroy_pool("tank", true)).unwrap();
        assert_eq!(system.targets.now.get(), begun, "{want:?}");
        // Nor later.
        let system = new(begun);
        system.targets.now.set(begun + grace_time);
        let _ = system.run(want.clone());
        assert_eq!(system.targets.now.get(), begun + grace_time, "{want:?}");
    }
}

/// A handle that is evicted counts for nothing any more, and only those of the same user on the same
/// container are, unless all are.
#[test]
fn an_open_can_close_the_handles_before_it() {
    let system = system();
    system.cont("tank", "other");
    let count = || {
        let conts = system.conts(&label("tank"));
        conts.iter().map(|cont| cont.handle_count).collect::<Vec<_>>()
    };
    let beside = R::ContOpen { pool: label("tank"), cont: label("other"), ask: ask(RW) };
    system.run_as(1, beside).unwrap();
    let mine = open_cont_as(&system, 1, ask(RW));
    let theirs = open_cont_as(&system, 2, ContAsk { user: 8, ..ask(RW) });
    assert_eq!(count(), [2, 1]);

    let evicting = ContAsk { evict: Evict::User, ..ask(RW) };
    let next = open_cont_as(&system, 3, evicting);
    assert_eq!(count(), [2, 1]);
    assert_eq!(system.fails(R::ContClose { handle: mine }, "evicted"), Code::BadHandle);
    system.run_as(2, R::ContClose { handle: theirs }).unwrap();
    system.run_as(3, R::ContClose { handle: next }).unwrap();

    // An exclusive one of one's own goes; somebody else's stands in the way, and then nothing is
    // evicted.
    let exclusive = open_cont_as(&system, 1, ask(OpenMode::Exclusive));
    let next = open_cont_as(&system, 3, evicting);
    assert_eq!(count(), [1, 1]);
    system.run_as(3, R::ContClose { handle: next }).unwrap();
    let stranger = ContAsk { user: 8, ..ask(OpenMode::Exclusive) };
    let strange = open_cont_as(&system, 2, stranger);
    let open = R::ContOpen { pool: label("tank"), cont: label("home"), ask: evicting };
    assert_eq!(system.fails(open, "exclusively"), Code::Busy);
    assert_eq!(count(), [1, 1]);
    assert_eq!(system.run(R::ContClose { handle: exclusive }).unwrap_err().code, Code::BadHandle);

    // All.
    let alone = ContAsk { evict: Evict::All, ..ask(OpenMode::Exclusive) };
    let last = open_cont_as(&system, 1, alone);
    assert_eq!(count(), [1, 1]);
    assert_eq!(
        system.run_as(2, R::ContClose { handle: strange }).unwrap_err().code,
        Code::BadHandle
    );
    system.run(R::ContClose { handle: last }).unwrap();
    system.assert_in_step();
}
