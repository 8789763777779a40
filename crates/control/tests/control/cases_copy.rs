//! Copies of the catalog: what they hold, what they answer, how an engine starts with one.

use crate::fake::System;
use control::{CatalogCopy, EmbeddedCatalog, Service, SessionId};
use futures_executor::block_on;
use std::rc::Rc;
use types::{Code, Durability, Rank, Result, TargetId};
use wire::control::{ControlReply, ControlRequest as R, Name, OpenMode};

fn label(text: &str) -> Name {
    Name::Label(text.to_string())
}

/// Generation and entries that a caller with another generation gets.
fn page(system: &System, generation: u64) -> (u64, Vec<(String, Vec<u8>)>) {
    match system.run(R::CatalogCopy { generation, after: String::new() }) {
        Ok(ControlReply::CatalogCopy { generation, entries, is_complete: true }) => {
            (generation, entries)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_copy_answers_what_the_catalog_did_and_makes_nothing() {
    let system = System::new(2);
    let tank = system.pool("tank");
    system.cont("tank", "home");
    let (generation, entries) = page(&system, 0);
    assert_eq!(page(&system, generation), (generation, Vec::new()));
    // Use alone is no change.
    let ControlReply::Conts(conts) = system.run(R::ContList(label("tank"))).unwrap() else {
        panic!("no list");
    };
    system.run(R::AllocOids { pool: tank.id, cont: conts[0].id, count: 5 }).unwrap();
    assert_eq!(page(&system, generation).0, generation);

    let copy = CatalogCopy::kept_in(EmbeddedCatalog::in_memory().unwrap());
    block_on(copy.replace(entries)).unwrap();
    let service = Service::new(Box::new(copy.clone()), Rc::new(|| 1), Rc::new(|| 7));
    let ask = |request| -> Result<ControlReply> {
        block_on(service.handle(SessionId(1), request, &*system.targets))
    };
    assert!(ask(R::PoolOpen { pool: label("tank"), mode: OpenMode::ReadWrite }).is_ok());
    assert!(matches!(ask(R::ContList(label("tank"))), Ok(ControlReply::Conts(c)) if c.len() == 1));
    let refused = ask(crate::fake::create_pool("other")).unwrap_err();
    assert_eq!(refused.code, Code::Unreach, "{refused}");
    assert!(block_on(service.has_cont(tank.id, conts[0].id)).unwrap());

    let force = true;
    system.run(R::ContDestroy { pool: label("tank"), cont: label("home"), force }).unwrap();
    let (next, entries) = page(&system, generation);
    assert_ne!(next, generation);
    block_on(copy.replace(entries)).unwrap();
    let gone = ask(R::ContQuery(label("tank"), label("home"))).unwrap_err();
    assert_eq!(gone.code, Code::NonExist);
}

#[test]
fn a_large_catalog_is_copied_in_pages() {
    let system = System::new(1);
    system.pool("tank");
    for number in 0..60 {
        let attrs = [(format!("a{number}"), Some(vec![7; 30 << 10]))].into();
        let subject = wire::control::Subject::Pool(label("tank"));
        system.run(R::SetAttrs { subject, attrs }).unwrap();
    }
    let (mut all, mut pages) = (Vec::new(), 0);
    loop {
        let after = all.last().map_or_else(String::new, |(key, _): &(String, _)| key.clone());
        let reply = system.run(R::CatalogCopy { generation: 0, after }).unwrap();
        let ControlReply::CatalogCopy { entries, is_complete, .. } = reply else {
            panic!("not a copy");
        };
        all.extend(entries);
        pages += 1;
        if is_complete {
            break;
        }
    }
    assert!(pages > 1);
    assert!(all.is_sorted_by(|a, b| a.0 < b.0));
    assert_eq!(all.iter().filter(|(key, _)| key.starts_with("attr/pool/")).count(), 60);
}

/// An engine that started while the catalog was away held its pools and could serve none of them.
#[test]
fn an_engine_introduces_its_own_targets_from_a_copy() {
    let system = System::new(2);
    for (name, wanted) in [("ram", Durability::Memory), ("disk", Durability::Wal)] {
        let R::PoolCreate { label, bytes, scm_percent, targets, .. } =
            crate::fake::create_pool(name)
        else {
            panic!("not a creation");
        };
        let durability = wanted;
        system
            .run(R::PoolCreate {
                placement: types::PlacementRule::default(),
                label,
                bytes,
                scm_percent,
                durability,
                targets,
            })
            .unwrap();
        system.cont(name, "a");
    }
    let copy = CatalogCopy::kept_in(EmbeddedCatalog::in_memory().unwrap());
    block_on(copy.replace(page(&system, 0).1)).unwrap();
    let service = Service::new(Box::new(copy), Rc::new(|| 1), Rc::new(|| 7));
    system.targets.restart(Rank(1));
    for shard in system.targets.shards.borrow_mut().values_mut() {
        shard.map = None;
    }
    let own = [TargetId(2), TargetId(3)];
    block_on(service.introduce(&own, &*system.targets)).unwrap();
    for ((target, _), shard) in system.targets.shards.borrow().iter() {
        assert_eq!(shard.map.is_some(), own.contains(target));
        assert_eq!(shard.conts.len(), 1);
    }
    assert_eq!(system.targets.shards.borrow().len(), 8);
}
