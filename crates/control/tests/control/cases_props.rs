//! Changing properties and attributes.

use crate::fake::{System, TARGETS_PER_ENGINE, label};
use std::collections::{BTreeMap, BTreeSet};
use types::{Code, Rank, TargetId};
use wire::control::{ControlReply, ControlRequest as R, Subject};

fn tank() -> Subject {
    Subject::Pool(label("tank"))
}

fn home() -> Subject {
    Subject::Cont(label("tank"), label("home"))
}

fn props(subject: Subject, pairs: &[(&str, &str)]) -> R {
    let props = pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    R::SetProps { subject, props }
}

fn attrs(subject: Subject, pairs: &[(&str, Option<&[u8]>)]) -> R {
    let attrs = pairs.iter().map(|(n, v)| (n.to_string(), v.map(<[u8]>::to_vec))).collect();
    R::SetAttrs { subject, attrs }
}

fn system() -> System {
    let system = System::new(2);
    system.pool("tank");
    system.cont("tank", "home");
    system
}

#[test]
fn containers_change_by_the_names_users_type() {
    let system = system();
    let change = props(
        home(),
        &[("oclass", "s2"), ("dir_oclass", "SX"), ("file_oclass", "S4"), ("chunk_size", "4MiB")],
    );
    assert_eq!(system.run(change).unwrap(), ControlReply::Done);
    let cont = system.conts(&label("tank")).remove(0);
    let classes = [cont.props.oclass, cont.props.dir_oclass, cont.props.file_oclass];
    assert_eq!(classes.map(|class| class.to_string()), ["S2", "SX", "S4"]);
    assert_eq!(cont.props.chunk_bytes, 4 << 20);
    system.run(props(home(), &[])).unwrap();
    system.assert_in_step();
}

#[test]
fn labels_change_and_old_ones_are_free_again() {
    let system = system();
    system.pool("other");
    assert_eq!(system.fails(props(tank(), &[("label", "other")]), "another label"), Code::Exist);
    system.run(props(tank(), &[("label", "tank")])).unwrap();
    system.run(props(tank(), &[("label", "lake")])).unwrap();
    system.pool("tank");
    let home = Subject::Cont(label("lake"), label("home"));
    system.cont("lake", "shed");
    assert_eq!(system.fails(props(home.clone(), &[("label", "shed")]), "'shed'"), Code::Exist);
    system.run(props(home, &[("label", "")])).unwrap();
    system.cont("lake", "home");
    system.assert_in_step();
    assert_eq!(system.fails(props(tank(), &[("label", "")]), "label"), Code::Inval);
}

#[test]
fn wrong_properties_change_nothing_and_list_the_right_ones() {
    let system = system();
    let before = system.conts(&label("tank"));
    for (pairs, words, code) in [
        (&[("label", "x"), ("colour", "red")][..], "chunk_size", Code::Inval),
        (&[("label", "x"), ("rd_fac", "1")], "fixed when the container is made", Code::Inval),
        (&[("label", "x"), ("layout", "posix")], "label, oclass", Code::Inval),
        (&[("label", "x"), ("oclass", "Q9")], "property 'oclass'", Code::Inval),
        (&[("label", "x"), ("oclass", "EC_8P2GX+1MiB")], "'oclass'", Code::Redundancy),
        (&[("label", "x"), ("chunk_size", "lots")], "'chunk_size'", Code::Inval),
        (&[("label", "x"), ("chunk_size", "1")], "4 KiB", Code::Inval),
    ] {
        assert_eq!(system.fails(props(home(), pairs), words), code);
    }
    assert_eq!(system.conts(&label("tank")), before);
    assert_eq!(system.fails(props(tank(), &[("durability", "wal")]), "label"), Code::Inval);
    let nobody = Subject::Cont(label("tank"), label("nobody"));
    assert_eq!(system.fails(props(nobody, &[]), "'nobody'"), Code::NonExist);
}

#[test]
fn attributes_are_set_read_and_removed_together() {
    let system = system();
    let get = |subject: Subject| match system.run(R::GetAttrs { subject }).unwrap() {
        ControlReply::Attrs(attrs) => attrs,
        other => panic!("{other:?}"),
    };
    for subject in [tank(), home()] {
        assert_eq!(get(subject.clone()), BTreeMap::new());
        let set = attrs(subject.clone(), &[("a/b", Some(b"\0\xff")), ("n", Some(b""))]);
        system.run(set).unwrap();
        let change = attrs(subject.clone(), &[("n", None), ("a/b", Some(b"2")), ("z", Some(b"3"))]);
        system.run(change).unwrap();
        let held = get(subject.clone());
        let expected =
            BTreeMap::from([("a/b".to_string(), b"2".to_vec()), ("z".to_string(), b"3".to_vec())]);
        assert_eq!(held, expected);
        let missing = attrs(subject.clone(), &[("a/b", Some(b"lost")), ("n", None)]);
        assert_eq!(system.fails(missing, "no attribute 'n'"), Code::NoAttr);
        assert_eq!(get(subject), expected);
    }
    system.assert_in_step();
}

#[test]
fn attributes_have_limits() {
    let system = system();
    let long = "n".repeat(255);
    let big = vec![1; 64 << 10];
    system.run(attrs(home(), &[(&long, Some(&big))])).unwrap();
    assert_eq!(system.fails(attrs(home(), &[("", Some(b""))]), "1 to 255"), Code::Inval);
    let longer = "n".repeat(256);
    assert_eq!(system.fails(attrs(home(), &[(&longer, Some(b""))]), "1 to 255"), Code::Inval);
    let bigger = vec![1; (64 << 10) + 1];
    assert_eq!(system.fails(attrs(home(), &[("v", Some(&bigger))]), "65536"), Code::Inval);
    // All of them must fit one answer.
    let names: Vec<String> = (0..40).map(|at| format!("a{at}")).collect();
    let many: Vec<(&str, Option<&[u8]>)> =
        names.iter().map(|name| (name.as_str(), Some(&big[..]))).collect();
    assert_eq!(system.fails(attrs(home(), &many), "remove some"), Code::NoSpace);
    for pair in many.chunks(1).take(30) {
        system.run(attrs(home(), pair)).unwrap();
    }
    assert_eq!(system.fails(attrs(home(), &many[30..]), "remove some"), Code::NoSpace);
    let reply = system.run(R::GetAttrs { subject: home() });
    assert!(wire::encode(&reply).len() < types::limits::BODY_BYTES_MAX);
}

#[test]
fn admission_is_off_until_set_and_reaches_the_targets_at_once() {
    let system = system();
    let before = system.props("tank");
    assert_eq!((before["ioc_max_writers"].as_str(), before["ioc_weights"].as_str()), ("off", ""));
    let orders = system.targets.order_count.get();
    system.run(props(tank(), &[("ioc_max_writers", "off")])).unwrap();
    assert_eq!(system.targets.order_count.get(), orders, "what is off stays off without a word");
    let change = [("ioc_max_writers", "4"), ("ioc_max_readers", "auto"), ("label", "lake")];
    system.run(props(tank(), &change)).unwrap();
    system.assert_in_step();
    let lake = Subject::Pool(label("lake"));
    system.run(props(lake.clone(), &[("ioc_weights", "climate:3,test:1")])).unwrap();
    let after = system.props("lake");
    assert_eq!(after["ioc_max_writers"], "4");
    assert_eq!(after["ioc_max_readers"], "auto");
    assert_eq!(after["ioc_weights"], "climate:3,test:1");
    system.assert_in_step();
    for (name, value) in
        [("ioc_max_writers", "0"), ("ioc_max_readers", "many"), ("ioc_weights", "a")]
    {
        let wrong = props(lake.clone(), &[("label", "x"), (name, value)]);
        assert_eq!(system.fails(wrong, name), Code::Inval);
    }
    assert_eq!(system.props("lake"), after);
    system.run(props(lake, &[("ioc_max_writers", "off"), ("ioc_max_readers", "off")])).unwrap();
    system.assert_in_step();
    system.run(crate::fake::destroy_pool("lake", true)).unwrap();
    system.assert_in_step();
}

#[test]
fn targets_that_were_away_hear_of_admission_when_they_come_back() {
    let system = system();
    system.targets.away.borrow_mut().insert(Rank(1));
    system.run(props(tank(), &[("ioc_max_writers", "2")])).unwrap();
    system.targets.restart(Rank(1));
    system.targets.away.borrow_mut().clear();
    futures_executor::block_on(system.service.resume_engine(Rank(1), &*system.targets)).unwrap();
    system.assert_in_step();
    // One that fails is named, and setting the same again reaches it.
    system.targets.broken.borrow_mut().insert(types::TargetId(3));
    let failed = props(tank(), &[("ioc_max_writers", "3")]);
    assert_eq!(system.fails(failed.clone(), "target 3"), Code::Io);
    system.targets.broken.borrow_mut().clear();
    system.run(failed).unwrap();
    system.assert_in_step();
    let system = system.restarted();
    assert_eq!(system.props("tank")["ioc_max_writers"], "3");
    system.assert_in_step();
}

/// A target that did not hear of new settings went on with the old ones until its engine was started again, though it answered a moment later.
#[test]
fn who_has_not_heard_of_settings_is_told_without_joining_again() {
    let is_slow = |system: &System, is_away| match is_away {
        true => drop(system.targets.away.borrow_mut().insert(Rank(1))),
        false => system.targets.away.borrow_mut().clear(),
    };
    let fails = |system: &System, is_away| match is_away {
        true => drop(system.targets.broken.borrow_mut().insert(TargetId(TARGETS_PER_ENGINE))),
        false => system.targets.broken.borrow_mut().clear(),
    };
    let ways: [fn(&System, bool); 2] = [is_slow, fails];
    for (at, set_away) in ways.into_iter().enumerate() {
        let system = system();
        assert_eq!(system.service.take_untold(), BTreeSet::new());
        set_away(&system, true);
        let told = system.run(props(tank(), &[("scrub", "64MiB/s"), ("cache_max", "1GiB")]));
        assert_eq!(told.is_ok(), at == 0, "{told:?}");
        set_away(&system, false);
        assert_eq!(system.service.take_untold(), BTreeSet::from([Rank(1)]));
        let tell = system.service.resume_engine(Rank(1), &*system.targets);
        assert_eq!(futures_executor::block_on(tell).unwrap(), []);
        assert_eq!(system.props("tank")["cache_max"], (1u64 << 30).to_string());
        system.assert_in_step();
        assert_eq!(system.service.take_untold(), BTreeSet::new());
    }
}

#[test]
fn the_scrubbers_rate_reaches_the_targets_at_once_and_those_that_come_back() {
    let system = system();
    assert_eq!(system.props("tank")["scrub"], "16MiB/s");
    let wrong = props(tank(), &[("scrub", "fast"), ("label", "x")]);
    assert_eq!(system.fails(wrong, "'scrub'"), Code::Inval);
    system.run(props(tank(), &[("scrub", "64MiB/s"), ("label", "lake")])).unwrap();
    assert_eq!(system.props("lake")["scrub"], "64MiB/s");
    system.assert_in_step();
    system.targets.away.borrow_mut().insert(Rank(1));
    let lake = Subject::Pool(label("lake"));
    system.run(props(lake.clone(), &[("scrub", "off"), ("ioc_max_writers", "2")])).unwrap();
    system.targets.restart(Rank(1));
    system.targets.away.borrow_mut().clear();
    futures_executor::block_on(system.service.resume_engine(Rank(1), &*system.targets)).unwrap();
    system.assert_in_step();
    assert!(system.targets.scrubs.borrow().values().all(|scrub| scrub.rate.0 == 0));
    assert_eq!(system.restarted().props("lake")["scrub"], "off");
}

#[test]
fn limits_of_the_data_cache_reach_the_targets_at_once_and_those_that_come_back() {
    let system = system();
    let shown = |system: &System, name: &str| {
        let props = system.props(name);
        (props["cache_max"].clone(), props["cache_file_max"].clone())
    };
    assert_eq!(shown(&system, "tank"), ((16u64 << 30).to_string(), (128u64 << 20).to_string()));
    let wrong = props(tank(), &[("cache_file_max", "much"), ("cache_max", "1GiB")]);
    assert_eq!(system.fails(wrong, "'cache_file_max'"), Code::Inval);
    system.run(props(tank(), &[("cache_max", "1GiB")])).unwrap();
    system.assert_in_step();
    system.targets.away.borrow_mut().insert(Rank(1));
    system.run(props(tank(), &[("cache_max", "off"), ("cache_file_max", "4KiB")])).unwrap();
    system.targets.restart(Rank(1));
    system.targets.away.borrow_mut().clear();
    futures_executor::block_on(system.service.resume_engine(Rank(1), &*system.targets)).unwrap();
    system.assert_in_step();
    let caches: Vec<u64> =
        system.targets.caches.borrow().values().map(|cache| cache.bytes_max).collect();
    assert!(!caches.is_empty() && caches.iter().all(|bytes| *bytes == 0), "{caches:?}");
    assert_eq!(shown(&system.restarted(), "tank"), ("0".to_string(), "4096".to_string()));
}
