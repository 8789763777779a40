//! The object API against simulated engines: values, arrays, conditions, punches, listings,
//! queries, key-value and array objects.

use client::{Anchor, ArrayObj, Client, Code, Container, FetchedValue, KvObj, Tx};
use sim::{Cluster, ClusterSpec};
use types::{ContLayout, Durability, Epoch, ObjClass, ObjType, Oid};
use wire::obj::{Cond, FetchIod, FetchWant, QueryFlags, Recx, UpdateIod, UpdateValue};

/// Runs a test in containers of each durability on two engines with two targets each.
fn everywhere(test: impl AsyncFn(&Client, &Container)) {
    for durability in [Durability::Memory, Durability::Wal, Durability::Relaxed] {
        let cluster = Cluster::start(ClusterSpec { seed: 7, engines: 2, targets: 2 }).unwrap();
        cluster.block_on(async {
            let client = cluster.client("c0");
            let cont = cluster.container(&client, durability, ContLayout::Plain).await.unwrap();
            test(&client, &cont).await;
        });
    }
}

fn oid(cont: &Container, kind: ObjType, class: &str, number: u64) -> Oid {
    cont.generate_oid(kind, class.parse().unwrap(), 0, number).unwrap()
}

fn inline<'a>(akey: &'a [u8], value: &'a [u8]) -> UpdateIod<'a> {
    UpdateIod { akey, cond: Cond::NONE, value: UpdateValue::Inline(value) }
}

fn single(akey: &[u8]) -> FetchIod<'_> {
    let want = FetchWant::Single { bytes_max: 1 << 20, inline_bytes_max: 256 };
    FetchIod { akey, want }
}

fn array<'a>(akey: &'a [u8], record_bytes: u32, recxs: &[(u64, u64)]) -> UpdateIod<'a> {
    let value = UpdateValue::Array { record_bytes, recxs: ranges(recxs) };
    UpdateIod { akey, cond: Cond::NONE, value }
}

fn ranges(recxs: &[(u64, u64)]) -> Vec<Recx> {
    recxs.iter().map(|&(index, count)| Recx { index, count }).collect()
}

fn records<'a>(akey: &'a [u8], record_bytes: u32, recxs: &[(u64, u64)]) -> FetchIod<'a> {
    FetchIod { akey, want: FetchWant::Array { record_bytes, recxs: ranges(recxs) } }
}

#[test]
fn several_akeys_and_scattered_memory_in_one_call() {
    everywhere(async |_, cont| {
        let object = cont.object(oid(cont, ObjType::MultiHashed, "S2", 1));
        let big = vec![7u8; 100_000];
        let iods = vec![
            inline(b"small", b"hello"),
            UpdateIod {
                akey: b"big",
                cond: Cond::NONE,
                value: UpdateValue::Single { bytes: big.len() as u64 },
            },
            array(b"array", 8, &[(0, 2), (10, 1)]),
        ];
        let numbers: Vec<u8> = (0..24).collect();
        // Memory is cut elsewhere than values.
        let data = [&big[..40_000], &big[40_000..], &numbers[..5], &numbers[5..]];
        object.update(None, Cond::NONE, b"k", iods, &data).await.unwrap();

        let mut room = vec![0u8; 100_000 + 24];
        let (first, second) = room.split_at_mut(33_333);
        let iods = vec![single(b"small"), single(b"big"), records(b"array", 8, &[(0, 2), (10, 1)])];
        let found = object.fetch(None, Cond::NONE, b"k", iods, &mut [first, second]).await.unwrap();
        assert_eq!(found[0], FetchedValue::Inline(b"hello".to_vec()));
        assert_eq!(found[1], FetchedValue::Single { bytes: 100_000, fitted: true });
        assert_eq!(found[2], FetchedValue::Array { record_bytes: 8, end: 11 });
        assert_eq!(&room[..100_000], &big[..]);
        assert_eq!(&room[100_000..], &numbers[..]);
    });
}

#[test]
fn arrays_keep_holes_overwrites_and_record_sizes() {
    everywhere(async |_, cont| {
        let object = cont.object(oid(cont, ObjType::MultiHashed, "S1", 2));
        let write = async |at: u64, bytes: &[u8]| {
            let iods = vec![array(b"a", 1, &[(at, bytes.len() as u64)])];
            object.update(None, Cond::NONE, b"k", iods, &[bytes]).await.unwrap();
        };
        write(0, &[1; 10_000]).await;
        write(5_000, &[2; 20_000]).await;
        write(24_990, &[3; 20]).await;
        write(30_000, b"x").await;
        let mut room = vec![9; 30_010];
        let iods = vec![records(b"a", 1, &[(0, 30_010)])];
        object.fetch(None, Cond::NONE, b"k", iods, &mut [&mut room]).await.unwrap();
        let mut wanted = vec![0; 30_010];
        wanted[..5_000].fill(1);
        wanted[5_000..25_000].fill(2);
        wanted[24_990..25_010].fill(3);
        wanted[30_000] = b'x';
        assert!(room == wanted);

        let other_size = vec![array(b"a", 4, &[(0, 1)])];
        let refused = object.update(None, Cond::NONE, b"k", other_size, &[&[0; 4]]).await;
        assert_eq!(refused.unwrap_err().code, Code::Inval);

        let mut anchor = Anchor::start();
        let listed = object.list_recxs(None, b"k", b"a", false, &mut anchor, 100).await.unwrap();
        let covered: u64 = listed.iter().map(|(recx, ..)| recx.count).sum();
        assert_eq!(covered, 25_011, "{listed:?}");
    });
}

#[test]
fn conditions_hold_or_nothing_happens() {
    everywhere(async |_, cont| {
        let object = cont.object(oid(cont, ObjType::MultiHashed, "S1", 3));
        let put = async |cond, dkey: &'static [u8], akey: &'static [u8]| {
            object
                .update(None, cond, dkey, vec![inline(akey, b"v")], &[])
                .await
                .map(|_| ())
                .map_err(|error| error.code)
        };
        assert_eq!(put(Cond::DKEY_UPDATE, b"d", b"a").await, Err(Code::NonExist));
        assert_eq!(put(Cond::DKEY_INSERT, b"d", b"a").await, Ok(()));
        assert_eq!(put(Cond::DKEY_INSERT, b"d", b"b").await, Err(Code::Exist));
        assert_eq!(put(Cond::AKEY_INSERT, b"d", b"a").await, Err(Code::Exist));
        assert_eq!(put(Cond::AKEY_UPDATE, b"d", b"b").await, Err(Code::NonExist));
        assert_eq!(put(Cond::AKEY_UPDATE, b"d", b"a").await, Ok(()));
        assert_eq!(put(Cond::OBJ_EXISTS, b"e", b"a").await, Ok(()));
        let fetch = async |cond, dkey: &'static [u8], akey: &'static [u8]| {
            let found = object.fetch(None, cond, dkey, vec![single(akey)], &mut []).await;
            found.map(|mut found| found.remove(0)).map_err(|error| error.code)
        };
        assert_eq!(fetch(Cond::NONE, b"x", b"a").await, Ok(FetchedValue::Absent));
        assert_eq!(fetch(Cond::DKEY_FETCH, b"x", b"a").await, Err(Code::NonExist));
        assert_eq!(fetch(Cond::AKEY_FETCH, b"d", b"b").await, Err(Code::NonExist));
        let missing = object.punch_akeys(None, Cond::PUNCH, b"d", &[b"b"]).await;
        assert_eq!(missing.unwrap_err().code, Code::NonExist);
        let missing = object.punch_dkeys(None, Cond::PUNCH, &[b"d", b"nope"]).await;
        assert_eq!(missing.unwrap_err().code, Code::NonExist);
        // The failed punch of two took neither.
        assert!(matches!(fetch(Cond::NONE, b"d", b"a").await, Ok(FetchedValue::Inline(_))));
        object.punch_dkeys(None, Cond::PUNCH, &[b"d"]).await.unwrap();
        assert_eq!(fetch(Cond::NONE, b"d", b"a").await, Ok(FetchedValue::Absent));
        object.punch(Cond::NONE).await.unwrap();
        assert_eq!(put(Cond::OBJ_EXISTS, b"e", b"a").await, Err(Code::NonExist));
    });
}

#[test]
fn listings_are_complete_over_shards_and_split_among_readers() {
    everywhere(async |_, cont| {
        for class in ["S1", "SX"] {
            let object = cont.object(oid(cont, ObjType::MultiHashed, class, 4));
            let mut names: Vec<String> = (0..500).map(|n| format!("key{n:04}")).collect();
            for name in &names {
                let iods = vec![inline(b"a", name.as_bytes())];
                object.update(None, Cond::NONE, name.as_bytes(), iods, &[]).await.unwrap();
            }
            for parts in [1, 3, 8] {
                let mut seen = Vec::new();
                for mut anchor in object.split(parts).unwrap() {
                    while !anchor.is_end() {
                        let keys = object.list_dkeys(None, &mut anchor, 37).await.unwrap();
                        seen.extend(
                            keys.iter().map(|key| String::from_utf8(key.to_vec()).unwrap()),
                        );
                        anchor = Anchor::from_bytes(&anchor.to_bytes()).unwrap();
                    }
                }
                seen.sort();
                names.sort();
                assert_eq!(seen, names, "{class} in {parts} parts");
            }
        }
        let object = cont.object(oid(cont, ObjType::MultiLexical, "S1", 5));
        for akey in [&b"c"[..], b"a", b"b"] {
            object.update(None, Cond::NONE, b"k", vec![inline(akey, b"v")], &[]).await.unwrap();
        }
        let mut anchor = Anchor::start();
        let mut akeys = Vec::new();
        while !anchor.is_end() {
            akeys.extend(object.list_akeys(None, b"k", &mut anchor, 2).await.unwrap());
        }
        akeys.sort();
        assert_eq!(akeys.iter().map(|key| key[0]).collect::<Vec<_>>(), b"abc");
    });
}

#[test]
fn queries_find_the_ends() {
    everywhere(async |_, cont| {
        let object = cont.object(oid(cont, ObjType::MultiU64, "SX", 6));
        let max = QueryFlags::DKEY.and(QueryFlags::MAX);
        assert_eq!(object.query(None, max, b"", b"").await.unwrap(), None);
        for dkey in [5u64, 1000, 77] {
            for akey in [3u64, 9] {
                let (dkey, akey) = (dkey.to_le_bytes(), akey.to_le_bytes());
                let iods = vec![array(&akey, 2, &[(4, 2), (100, 3)])];
                object.update(None, Cond::NONE, &dkey, iods, &[&[1; 10]]).await.unwrap();
            }
        }
        let all = QueryFlags::DKEY.and(QueryFlags::AKEY).and(QueryFlags::RECX);
        let most = object.query(None, all.and(QueryFlags::MAX), b"", b"").await.unwrap().unwrap();
        assert_eq!(&most.dkey[..], 1000u64.to_le_bytes());
        assert_eq!(&most.akey[..], 9u64.to_le_bytes());
        assert_eq!(most.recx, Some(Recx { index: 100, count: 3 }));
        assert_eq!(most.record_bytes, 2);
        let least = object.query(None, all, b"", b"").await.unwrap().unwrap();
        assert_eq!(&least.dkey[..], 5u64.to_le_bytes());
        assert_eq!(&least.akey[..], 3u64.to_le_bytes());
        assert_eq!(least.recx, Some(Recx { index: 4, count: 2 }));
    });
}

#[test]
fn key_value_objects() {
    everywhere(async |_, cont| {
        for kind in [ObjType::KvHashed, ObjType::KvLexical] {
            let kv = KvObj { object: cont.object(oid(cont, kind, "SX", 7)) };
            assert_eq!(kv.get(None, b"k").await.unwrap(), None);
            for bytes in [0usize, 10, 1024, 5_000, 300_000] {
                let value: Vec<u8> = (0..bytes).map(|n| n as u8).collect();
                kv.put(None, Cond::NONE, b"k", &value).await.unwrap();
                assert_eq!(kv.get(None, b"k").await.unwrap(), Some(value));
                assert_eq!(kv.size(None, b"k").await.unwrap(), Some(bytes as u64));
            }
            let exists = kv.put(None, Cond::DKEY_INSERT, b"k", b"v").await.unwrap_err();
            assert_eq!(exists.code, Code::Exist);
            kv.remove(None, Cond::PUNCH, b"k").await.unwrap();
            assert_eq!(kv.remove(None, Cond::PUNCH, b"k").await.unwrap_err().code, Code::NonExist);
            assert_eq!(kv.get(None, b"k").await.unwrap(), None);
        }
    });
}

#[test]
fn array_objects_over_chunks_and_targets() {
    everywhere(async |_, cont| {
        for (class, record_bytes) in [("S1", 1u32), ("SX", 1), ("S2", 3), ("SX+16KiB", 2)] {
            let array = ArrayObj {
                cont: cont.clone(),
                oid: oid(cont, ObjType::ArrayByte, class, 8 + record_bytes as u64),
                record_bytes,
                chunk_records: 4096,
            };
            assert_eq!(array.size().await.unwrap(), 0);
            let bytes = |records: usize| records * record_bytes as usize;
            let data: Vec<u8> = (0..bytes(20_000)).map(|n| (n % 251) as u8).collect();
            // Three ranges in one call, memory in two pieces.
            let recxs = ranges(&[(100, 10_000), (50_000, 5_000), (60_000, 5_000)]);
            array.write(&recxs, &[&data[..77], &data[77..]]).await.unwrap();
            assert_eq!(array.size().await.unwrap(), 65_000);
            let mut room = vec![0xff; data.len()];
            let known = array.read(&recxs, &mut [&mut room]).await.unwrap();
            assert!(room == data);
            assert_eq!(known, 65_000);
            // Holes and what lies beyond the end read as zero.
            let mut room = vec![0xff; bytes(300)];
            array.read(&ranges(&[(0, 200), (70_000, 100)]), &mut [&mut room]).await.unwrap();
            assert!(room[..bytes(100)].iter().all(|b| *b == 0));
            assert!(room[bytes(100)..bytes(200)] == data[..bytes(100)]);
            assert!(room[bytes(200)..].iter().all(|b| *b == 0));
            // Cut inside a chunk, extend again: what was cut off is gone.
            array.set_size(7_000).await.unwrap();
            assert_eq!(array.size().await.unwrap(), 7_000);
            array.set_size(100_000).await.unwrap();
            assert_eq!(array.size().await.unwrap(), 100_000);
            let mut room = vec![0xff; bytes(10_000)];
            array.read(&ranges(&[(0, 10_000)]), &mut [&mut room]).await.unwrap();
            assert!(room[bytes(100)..bytes(7_000)] == data[..bytes(6_900)]);
            assert!(room[bytes(7_000)..].iter().all(|b| *b == 0));
            array.punch(&ranges(&[(200, 5_000)])).await.unwrap();
            array.read(&ranges(&[(0, 10_000)]), &mut [&mut room]).await.unwrap();
            assert!(room[bytes(200)..bytes(5_200)].iter().all(|b| *b == 0));
            assert!(room[bytes(5_200)..bytes(7_000)] == data[bytes(5_100)..bytes(6_900)]);
            assert_eq!(array.size().await.unwrap(), 100_000);
            array.set_size(0).await.unwrap();
            assert_eq!(array.size().await.unwrap(), 0);
            array.write(&ranges(&[(0, 10)]), &[&data[..bytes(10)]]).await.unwrap();
            array.destroy().await.unwrap();
            assert_eq!(array.size().await.unwrap(), 0);
            let beyond = array.write(&ranges(&[(u64::MAX - 1, 5)]), &[&data[..bytes(5)]]).await;
            assert_eq!(beyond.unwrap_err().code, Code::FileTooBig);
        }
    });
}

#[test]
fn arrays_that_know_their_shape() {
    everywhere(async |_, cont| {
        let id = oid(cont, ObjType::Array, "SX", 40);
        assert_eq!(ArrayObj::open(cont, id).await.err().unwrap().code, Code::NonExist);
        let array = ArrayObj::create(cont, id, 4, 100).await.unwrap();
        let again = ArrayObj::create(cont, id, 4, 100).await.err().unwrap();
        assert_eq!(again.code, Code::Exist);
        let data: Vec<u8> = (0..4_000u32).map(|n| n as u8).collect();
        array.write(&ranges(&[(50, 1_000)]), &[&data]).await.unwrap();
        let opened = ArrayObj::open(cont, id).await.unwrap();
        assert_eq!((opened.record_bytes, opened.chunk_records), (4, 100));
        assert_eq!(opened.size().await.unwrap(), 1_050);
        let mut room = vec![0; 4_000];
        opened.read(&ranges(&[(50, 1_000)]), &mut [&mut room]).await.unwrap();
        assert!(room == data);
        // Emptied, it is still an array; destroyed, it is none.
        opened.set_size(0).await.unwrap();
        assert_eq!(opened.size().await.unwrap(), 0);
        assert_eq!(ArrayObj::open(cont, id).await.unwrap().chunk_records, 100);
        opened.destroy().await.unwrap();
        assert_eq!(ArrayObj::open(cont, id).await.err().unwrap().code, Code::NonExist);
        let bytes = oid(cont, ObjType::ArrayByte, "S1", 41);
        ArrayObj::create(cont, bytes, 1, 10).await.unwrap();
        assert_eq!(ArrayObj::open(cont, bytes).await.unwrap().chunk_records, 10);
        let other = oid(cont, ObjType::KvHashed, "S1", 42);
        assert_eq!(ArrayObj::create(cont, other, 1, 10).await.err().unwrap().code, Code::Inval);
        assert!(ArrayObj::open_with_attrs(cont, bytes, 0, 10).is_err());
    });
}

#[test]
fn classes_that_the_pool_cannot_keep_are_refused_by_name() {
    everywhere(async |_, cont| {
        for (class, code) in [("RP_6G1", Code::Redundancy), ("EC_4P2GX", Code::Redundancy)] {
            let class: ObjClass = class.parse().unwrap();
            let refused = cont.generate_oid(ObjType::MultiHashed, class, 0, 1).unwrap_err();
            assert_eq!(refused.code, code, "{refused}");
            assert!(refused.to_string().contains(&class.to_string()), "{refused}");
        }
    });
}

#[test]
fn transactions_are_atomic_and_lose_conflicts() {
    everywhere(async |_, cont| {
        let kv = |n: u64| KvObj { object: cont.object(oid(cont, ObjType::KvHashed, "S1", n)) };
        let accounts: Vec<KvObj> = (100..108).map(kv).collect();
        for account in &accounts {
            account.put(None, Cond::NONE, b"balance", b"10").await.unwrap();
        }
        let tx = Tx::open(cont, false);
        for account in &accounts {
            let seen = account.get(Some(&tx), b"balance").await.unwrap();
            assert_eq!(seen.as_deref(), Some(&b"10"[..]));
            account.put(Some(&tx), Cond::NONE, b"balance", b"11").await.unwrap();
        }
        assert_eq!(accounts[0].get(None, b"balance").await.unwrap().unwrap(), b"10");
        let epoch = tx.commit().await.unwrap();
        assert!(epoch > Epoch::ZERO);
        assert_eq!(tx.commit().await.unwrap_err().code, Code::BadHandle);
        for account in &accounts {
            assert_eq!(account.get(None, b"balance").await.unwrap().unwrap(), b"11");
        }
        // What it read changes before it commits: it must start again, and nothing happened.
        let tx = Tx::open(cont, false);
        accounts[0].get(Some(&tx), b"balance").await.unwrap();
        accounts[1].put(Some(&tx), Cond::NONE, b"balance", b"12").await.unwrap();
        accounts[0].put(None, Cond::NONE, b"balance", b"99").await.unwrap();
        assert_eq!(tx.commit().await.unwrap_err().code, Code::TxRestart);
        assert_eq!(accounts[1].get(None, b"balance").await.unwrap().unwrap(), b"11");
        tx.restart().unwrap();
        accounts[0].get(Some(&tx), b"balance").await.unwrap();
        accounts[1].put(Some(&tx), Cond::NONE, b"balance", b"12").await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(accounts[1].get(None, b"balance").await.unwrap().unwrap(), b"12");
        // A key that was absent when read counts, too.
        let tx = Tx::open(cont, false);
        assert_eq!(accounts[2].get(Some(&tx), b"new").await.unwrap(), None);
        accounts[3].put(Some(&tx), Cond::NONE, b"x", b"y").await.unwrap();
        accounts[2].put(None, Cond::NONE, b"new", b"1").await.unwrap();
        assert_eq!(tx.commit().await.unwrap_err().code, Code::TxRestart);
        tx.abort().unwrap();
        assert_eq!(accounts[3].get(None, b"x").await.unwrap(), None);
        let reader = Tx::open(cont, true);
        let refused = accounts[0].put(Some(&reader), Cond::NONE, b"a", b"b").await.unwrap_err();
        assert_eq!(refused.code, Code::ReadOnly);
    });
}
