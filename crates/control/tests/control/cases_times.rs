//! When containers were last opened and changed.

use crate::cases_handles::open_cont_as;
use crate::fake::{System, create_cont, destroy_cont, destroy_pool, label};
use std::collections::BTreeMap;
use wire::control::{
    ContAsk, ControlReply, ControlRequest as R, Evict, OpenMode, SnapName, Subject,
};

fn times(system: &System) -> (u64, u64) {
    match system.run(R::ContQuery(label("tank"), label("home"))).unwrap() {
        ControlReply::Cont(info) => (info.opened_ns, info.changed_ns),
        other => panic!("{other:?}"),
    }
}

fn ask(mode: OpenMode, leaves_times: bool) -> ContAsk {
    ContAsk { mode, evict: Evict::Nobody, user: 7, leaves_times }
}

fn system() -> System {
    let system = System::new(1);
    system.pool("tank");
    system.cont("tank", "home");
    system
}

#[test]
fn each_use_notes_what_it_is() {
    let system = system();
    let created = 1_700_000_000_000_000_000;
    assert_eq!(times(&system), (0, created), "never opened, changed by its creation");

    // A reader opens it; one that wants to leave no trace does not.
    let reader = open_cont_as(&system, 1, ask(OpenMode::ReadOnly, true));
    assert_eq!(times(&system), (0, created));
    let other = open_cont_as(&system, 1, ask(OpenMode::ReadOnly, false));
    let (opened, changed) = times(&system);
    assert!(opened > created && changed == created);
    system.run(R::ContClose { handle: reader }).unwrap();
    assert_eq!(times(&system), (opened, changed));
    system.run(R::ContClose { handle: other }).unwrap();
    let closed = times(&system);
    assert!(closed.0 == opened && closed.1 > opened);

    // A writer, which is noted whatever it asks for.
    let writer = open_cont_as(&system, 1, ask(OpenMode::ReadWrite, true));
    let before = times(&system);
    assert!(before.0 > opened && before.1 == closed.1);
    system.run(R::ContClose { handle: writer }).unwrap();
    let after = times(&system);
    assert!(after.0 == before.0 && after.1 > before.1);

    // Changes of the container itself, and asking about it, which is none.
    let subject = Subject::Cont(label("tank"), label("home"));
    let changes = [
        R::SetAttrs { subject: subject.clone(), attrs: [("a".to_string(), Some(vec![1]))].into() },
        R::SetProps {
            subject: subject.clone(),
            props: BTreeMap::from([("oclass".to_string(), "SX".to_string())]),
        },
        R::SnapCreate { pool: label("tank"), cont: label("home"), name: "monday".into() },
        R::SnapDestroy {
            pool: label("tank"),
            cont: label("home"),
            snap: SnapName::Name("monday".into()),
        },
    ];
    let mut last = after;
    for change in changes {
        let text = format!("{change:?}");
        system.run(change).unwrap();
        let now = times(&system);
        assert!(now.0 == last.0 && now.1 > last.1, "{text}");
        last = now;
    }
    system.run(R::GetAttrs { subject: subject.clone() }).unwrap();
    system.run(R::GetProps { subject }).unwrap();
    system.run(R::SnapList(label("tank"), label("home"))).unwrap();
    assert_eq!(times(&system), last);
    system.assert_in_step();
}

#[test]
fn a_session_that_ends_has_closed_what_it_held() {
    let system = system();
    open_cont_as(&system, 2, ask(OpenMode::ReadWrite, false));
    let before = times(&system);
    system.service.session_closed(control::SessionId(2));
    let after = times(&system);
    assert!(after.0 == before.0 && after.1 > before.1);
}

/// Times are in memory until they are saved; a restart knows what was saved, and what is saved goes
/// with the container.
#[test]
fn saved_times_outlive_the_service_and_not_the_container() {
    let system = system();
    futures_executor::block_on(system.service.save_times()).unwrap();
    open_cont_as(&system, 1, ask(OpenMode::ReadWrite, false));
    let saved = times(&system);
    futures_executor::block_on(system.service.save_times()).unwrap();
    system
        .run(R::SetAttrs {
            subject: Subject::Cont(label("tank"), label("home")),
            attrs: [("a".to_string(), Some(vec![1]))].into(),
        })
        .unwrap();
    assert_ne!(times(&system), saved);
    let system = system.restarted();
    assert_eq!(times(&system), saved);

    // Opened once more and destroyed before that is saved; and with a pool.
    open_cont_as(&system, 1, ask(OpenMode::ReadWrite, false));
    system.run(destroy_cont("tank", "home", true)).unwrap();
    futures_executor::block_on(system.service.save_times()).unwrap();
    system.assert_in_step();
    system.run(create_cont("tank", "home")).unwrap();
    assert_eq!(times(&system).0, 0, "another container of that name");
    open_cont_as(&system, 1, ask(OpenMode::ReadWrite, false));
    futures_executor::block_on(system.service.save_times()).unwrap();
    open_cont_as(&system, 1, ask(OpenMode::ReadWrite, false));
    system.run(destroy_pool("tank", true)).unwrap();
    futures_executor::block_on(system.service.save_times()).unwrap();
    system.assert_in_step();
}
