//! Listings while keys come and go.

use super::model::*;
use env::{Rng, SimWorld};
use std::collections::BTreeSet;
use types::{Durability, Epoch, ObjType, hash};
use wire::obj::*;

fn put(shard: &vos::PoolShard, epoch: u64, unit: types::Unit, dkey: &[u8], value: &[u8]) {
    let iods = vec![UpdateIod { akey: b"i", cond: Cond::NONE, value: UpdateValue::Inline(value) }];
    let ops = [Op::Update { unit, dkey, cond: Cond::NONE, iods }];
    let payload = shard.stage(&ops).unwrap();
    shard.check(CONT, &[], &ops).unwrap();
    shard.apply(CONT, Epoch(epoch), &ops, payload, None, &[]).unwrap();
}

fn punch(shard: &vos::PoolShard, epoch: u64, unit: types::Unit, dkey: &[u8]) {
    let dkeys = vec![serde_bytes::Bytes::new(dkey)];
    let ops = [Op::PunchDkeys { unit, cond: Cond::NONE, dkeys }];
    let payload = shard.stage(&ops).unwrap();
    shard.apply(CONT, Epoch(epoch), &ops, payload, None, &[]).unwrap();
}

#[test]
fn what_stays_is_listed_once_whatever_comes_and_goes() {
    for (seed, kind) in (0..12)
        .zip([ObjType::MultiHashed, ObjType::DkeyU64, ObjType::DkeyLexical].into_iter().cycle())
    {
        let world = SimWorld::new(seed);
        let env = world.node("a");
        world.block_on(async {
            let rng = Rng::new(seed);
            let (_store, shard) = fresh(&env, &config(Durability::Memory)).await.unwrap();
            let unit = unit(kind, 1);
            let key = |n: u64| match kind {
                ObjType::DkeyU64 => n.to_le_bytes().to_vec(),
                _ => format!("{n}").into_bytes(),
            };
            // Even keys stay, odd ones come and go.
            (0..400).step_by(2).for_each(|n| put(&shard, n + 1, unit, &key(n), b"v"));
            let mut seen = Vec::new();
            let mut anchor = Vec::new();
            let scope =
                ListScope::Dkeys { value_of: Some(b"i"), follow: false, hash_range: (0, u64::MAX) };
            loop {
                let view = shard.view(CONT).unwrap();
                let page = view.list(unit, scope, &anchor, 1 + rng.below(9) as u32, 100).unwrap();
                for item in page.items() {
                    let Listed::Entry { key, value, .. } = item else { panic!("{item:?}") };
                    assert_eq!(value, b"v");
                    seen.push(key.to_vec());
                }
                drop(view);
                anchor = page.anchor;
                if anchor.is_empty() {
                    break;
                }
                for _ in 0..10 {
                    let n = rng.below(200) * 2 + 1;
                    if rng.below(2) == 0 {
                        put(&shard, 1000, unit, &key(n), b"v");
                    } else {
                        punch(&shard, 1000, unit, &key(n));
                    }
                }
                // The key the listing stands at may go, too, if it is an odd one.
            }
            let set: BTreeSet<_> = seen.iter().cloned().collect();
            assert_eq!(set.len(), seen.len(), "a key was listed twice");
            (0..400).step_by(2).for_each(|n| assert!(set.contains(&key(n)), "{n} was left out"));
        });
        world.clear();
    }
}

#[test]
fn hash_ranges_part_the_keys() {
    let world = SimWorld::new(1);
    let env = world.node("a");
    world.block_on(async {
        let (_store, shard) = fresh(&env, &config(Durability::Memory)).await.unwrap();
        let unit = unit(ObjType::MultiHashed, 1);
        (0..200u64).for_each(|n| put(&shard, n + 1, unit, format!("{n}").as_bytes(), b"v"));
        let cut = u64::MAX / 3;
        let mut count = 0;
        for range in [(0, cut), (cut + 1, u64::MAX)] {
            let scope = ListScope::Dkeys { value_of: None, follow: false, hash_range: range };
            list_all(&shard, 0, unit, scope, 7, |item| {
                let Listed::Key { key } = item else { panic!("{item:?}") };
                assert!((range.0..=range.1).contains(&hash::bytes(key)));
                count += 1;
            })
            .await;
        }
        assert_eq!(count, 200);
        let inverted = ListScope::Dkeys { value_of: None, follow: false, hash_range: (9, 3) };
        list_all(&shard, 0, unit, inverted, 7, |item| panic!("{item:?}")).await;
        for bad in [&b"\x07abc"[..], b"\x02"] {
            let view = shard.view(CONT).unwrap();
            let scope =
                ListScope::Dkeys { value_of: None, follow: false, hash_range: (0, u64::MAX) };
            assert_eq!(view.list(unit, scope, bad, 9, 9).unwrap_err().code, types::Code::Inval);
        }
    });
    world.clear();
}

#[test]
fn a_followed_link_brings_the_size_of_the_file() {
    let world = SimWorld::new(1);
    let env = world.node("a");
    world.block_on(async {
        let (_store, shard) = fresh(&env, &config(Durability::Memory)).await.unwrap();
        let (dir, file) = (unit(ObjType::MultiHashed, 1), unit(ObjType::ArrayByte, 2));
        let mut value = [0; 60];
        let link = wire::link::Link {
            kind: wire::link::LinkKind::Array,
            protected: false,
            counted: false,
            oid: file.object,
        };
        link.encode_into(&mut value);
        put(&shard, 1, dir, b"name", &value);
        let recxs = vec![Recx { index: 10, count: 5000 }];
        let iods = vec![UpdateIod {
            akey: b"",
            cond: Cond::NONE,
            value: UpdateValue::Array { record_bytes: 1, recxs },
        }];
        let dkey = 4u64.to_le_bytes();
        let ops = [Op::Update { unit: file, dkey: &dkey, cond: Cond::NONE, iods }];
        write(&shard, 2, &ops, &[1; 5000], None).await.unwrap();
        let view = shard.view(CONT).unwrap();
        let scope =
            ListScope::Dkeys { value_of: Some(b"i"), follow: true, hash_range: (0, u64::MAX) };
        let page = view.list(dir, scope, b"", 9, 9999).unwrap();
        let want = Tail { dkey_max: Some(4), end: 5010, epoch: Epoch(2), bytes_used: 5000 };
        let item = page.items().next().unwrap();
        assert_eq!(
            item,
            Listed::Entry { key: b"name", value: &value, epoch: Epoch(1), tail: Some(want) }
        );
        assert_eq!(view.value(dir, b"name", b"i"), Some((Epoch(1), &value[..])));
    });
    world.clear();
}
