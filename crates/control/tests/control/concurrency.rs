//! Requests that overlap in every order a seed can think of.

use crate::fake::{
    System, create_cont, create_pool, destroy_cont, destroy_pool, engine_info, label,
};
use futures_executor::block_on;
use futures_util::future::{join, join_all};
use std::collections::BTreeSet;
use types::{Code, ContId, PoolId, Rank};
use wire::control::{ControlReply, ControlRequest as R};

const SEEDS: u64 = 60;

fn system(seed: u64) -> System {
    let system = System::empty(Some(seed));
    system.join(0).unwrap();
    system.join(1).unwrap();
    system
}

/// Runs all requests at once.
fn all(system: &System, requests: Vec<R>) -> Vec<types::Result<ControlReply>> {
    block_on(join_all(requests.into_iter().map(|request| system.ask(request))))
}

#[test]
fn one_label_has_one_winner() {
    for seed in 0..SEEDS {
        let system = system(seed);
        let made = all(&system, (0..5).map(|_| create_pool("tank")).collect());
        assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 1);
        for error in made.into_iter().filter_map(Result::err) {
            assert_eq!(error.code, Code::Exist);
        }
        let made = all(&system, (0..5).map(|_| create_cont("tank", "home")).collect());
        assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 1);
        system.assert_in_step();
    }
}

#[test]
fn one_rename_wins() {
    for seed in 0..SEEDS {
        let system = system(seed);
        system.pool("a");
        system.pool("b");
        let rename = |from: &str| R::SetProps {
            subject: wire::control::Subject::Pool(label(from)),
            props: [("label".to_string(), "c".to_string())].into(),
        };
        let done = all(&system, vec![rename("a"), rename("b"), create_pool("c")]);
        assert_eq!(done.iter().filter(|done| done.is_ok()).count(), 1, "{done:?}");
        system.assert_in_step();
    }
}

#[test]
fn object_numbers_never_overlap() {
    for seed in 0..SEEDS {
        let system = system(seed);
        system.pool("tank");
        system.cont("tank", "home");
        let request = R::AllocOids { pool: PoolId(1), cont: ContId(1), count: 10 };
        let mut seen = BTreeSet::new();
        for reply in all(&system, vec![request; 8]) {
            let ControlReply::Oids(first) = reply.unwrap() else { panic!("no numbers") };
            assert!((first..first + 10).all(|number| seen.insert(number)));
        }
    }
}

#[test]
fn different_engines_get_different_numbers_and_one_engine_one() {
    for seed in 0..SEEDS {
        let system = System::empty(Some(seed));
        let requests = [0, 1, 0, 2, 1].map(|engine| R::Join(engine_info(engine))).to_vec();
        let replies: Vec<ControlReply> =
            all(&system, requests).into_iter().map(Result::unwrap).collect();
        assert_eq!(replies[0], replies[2]);
        assert_eq!(replies[1], replies[4]);
        let engines = block_on(system.service.engines()).unwrap();
        let targets: BTreeSet<_> = engines.iter().flat_map(|(_, targets)| targets).collect();
        assert_eq!((engines.len(), targets.len()), (3, 6));
    }
}

#[test]
fn opening_and_destroying_exclude_each_other() {
    let (mut opened_count, mut destroyed_count) = (0, 0);
    for seed in 0..SEEDS {
        let system = system(seed);
        system.pool("tank");
        system.cont("tank", "home");
        let open = R::ContOpen {
            pool: label("tank"),
            cont: label("home"),
            ask: crate::cases_handles::ask(crate::cases_handles::RW),
        };
        let replies = all(&system, vec![open, destroy_cont("tank", "home", false)]);
        let [opened, destroyed] = [replies[0].is_ok(), replies[1].is_ok()];
        assert!(!(opened && destroyed));
        opened_count += opened as u32;
        destroyed_count += destroyed as u32;
        if opened {
            assert_eq!(system.conts(&label("tank"))[0].handle_count, 1);
        }
        system.assert_in_step();
    }
    assert!(destroyed_count > 0 && opened_count > 0, "{opened_count} {destroyed_count}");
}

/// Once, the engines' addresses were read before the pool: a resume that overlapped a join
/// then sent the new map version with the old address, and no target took the true one any more.
/// And a pool made during a join could keep version 1 with either address.
#[test]
fn any_mix_leaves_targets_and_catalog_in_step() {
    for seed in 0..SEEDS {
        let system = system(seed);
        system.pool("tank");
        system.cont("tank", "old");
        let mut moved = engine_info(1);
        moved.info.tcp = format!("moved:{seed}");
        let requests = vec![
            create_cont("tank", "a"),
            create_pool("lake"),
            R::Join(moved),
            destroy_cont("tank", "old", true),
            create_cont("tank", "a"),
            create_cont("tank", "b"),
            R::SetAttrs {
                subject: wire::control::Subject::Cont(label("tank"), label("old")),
                attrs: [("n".to_string(), Some(vec![1]))].into(),
            },
            destroy_pool("tank", seed % 2 == 0),
            create_pool("tank"),
            destroy_cont("tank", "a", true),
        ];
        let resume = system.service.resume(&*system.targets);
        let asked = join_all(requests.into_iter().map(|request| system.ask(request)));
        let (replies, resumed) = block_on(join(asked, resume));
        resumed.unwrap();
        assert!(replies.iter().any(|reply| reply.is_ok()));
        // As after every join. The targets of the others must be right without it.
        block_on(system.service.resume_engine(Rank(1), &*system.targets)).unwrap();
        system.assert_in_step();
    }
}
