//! Conditions over several ops, read checks, prepared transactions, the retry window, orphans.

use super::model::*;
use env::SimWorld;
use std::path::Path;
use types::{ClientId, Code, ContId, CsumKind, Durability, Epoch, ObjType, Unit};
use vos::{Origin, OrphanChange};
use wire::obj::*;

const TX: TxId = TxId { client: ClientId(5), seq: 44 };

fn update<'a>(dkey: &'a [u8], value: UpdateValue<'a>, cond: Cond) -> Op<'a> {
    let iods = vec![UpdateIod { akey: b"i", cond: Cond::NONE, value }];
    Op::Update { unit: unit(ObjType::MultiHashed, 1), dkey, cond, iods }
}

#[test]
fn conditions_look_at_the_state_before_the_batch() {
    let world = SimWorld::new(1);
    let env = world.node("a");
    world.block_on(async {
        let (_store, shard) = fresh(&env, &config(Durability::Memory)).await.unwrap();
        let insert = |dkey| update(dkey, UpdateValue::Inline(b"v"), Cond::DKEY_INSERT);
        // Both inserts of one name pass: neither sees the other.
        let lsn = write(&shard, 1, &[insert(b"a"), insert(b"a")], b"", None).await.unwrap();
        shard.durable(lsn).await.unwrap();
        let both = [insert(b"b"), insert(b"a")];
        assert_eq!(write(&shard, 2, &both, b"", None).await.unwrap_err().code, Code::Exist);
        let dir = unit(ObjType::MultiHashed, 1);
        assert!(shard.view(CONT).unwrap().value(dir, b"b", b"i").is_none());
        // An object with one other entry is not empty; with none beside the named one it is.
        let punch = |besides| [Op::PunchObj { unit: dir, cond: Cond::OBJ_EMPTY, besides }];
        assert_eq!(shard.check(CONT, &[], &punch(b"x")).unwrap_err().code, Code::NotEmpty);
        shard.check(CONT, &[], &punch(b"a")).unwrap();
        let check = |of, seen| [ReadCheck { unit: dir, of, seen: Epoch(seen) }];
        for (of, seen) in [
            (ReadScope::Keys, 1),
            (ReadScope::Object, 1),
            (ReadScope::Dkey(b"a"), 1),
            (ReadScope::Akey(b"a", b"i"), 1),
            (ReadScope::Dkey(b"b"), 0),
            (ReadScope::Akey(b"a", b"other"), 0),
        ] {
            shard.check(CONT, &check(of, seen), &[]).unwrap();
            let stale = shard.check(CONT, &check(of, seen + 1), &[]).unwrap_err();
            assert_eq!(stale.code, Code::TxRestart);
        }
    });
    world.clear();
}

#[test]
fn a_prepared_transaction_outlives_the_engine_and_keeps_its_locks() {
    for outcome in [TxOutcome::Committed(Epoch(90)), TxOutcome::Aborted] {
        for checkpoint in [false, true] {
            let world = SimWorld::new(1);
            let env = world.node("a");
            let large = vec![9; 20_000];
            let ops = vec![update(b"d", UpdateValue::Single { bytes: 20_000 }, Cond::NONE)];
            let batch = wire::encode(&Batch {
                pool: POOL,
                cont: CONT,
                at: Epoch::ZERO,
                checks: vec![],
                ops: ops.clone(),
                sums: Sums::NONE,
            });
            let free = world.block_on(async {
                let (_store, shard) = fresh(&env, &config(Durability::Wal)).await.unwrap();
                let free = shard.stat().nvme_free_bytes;
                let mut payload = shard.stage(&ops).unwrap();
                let mut rest = &large[..];
                for buffer in payload.buffers() {
                    let (now, later) = rest.split_at(buffer.len());
                    buffer.copy_from_slice(now);
                    rest = later;
                }
                let bytes = sums_of(CsumKind::Crc32c, &ops, &large);
                let sums = Sums { kind: CsumKind::Crc32c, bytes: &bytes };
                shard.take_sums(CONT, &sums, &mut payload).unwrap();
                payload.write().await.unwrap();
                assert!(!shard.conflicts(CONT, &[], &ops));
                let lsn = shard
                    .prepare(TX, unit(ObjType::MultiHashed, 8), CONT, batch.clone(), payload)
                    .unwrap();
                shard.durable(lsn).await.unwrap();
                let lsn = shard
                    .log_decision(
                        TX,
                        Epoch(90),
                        &[unit(ObjType::MultiHashed, 1), unit(ObjType::MultiHashed, 2)],
                        None,
                    )
                    .unwrap();
                shard.durable(lsn).await.unwrap();
                if checkpoint {
                    shard.checkpoint().await.unwrap();
                }
                free
            });
            world.kill("a");
            let env = world.node("a");
            world.block_on(async {
                let store = vos::Store::open(&env, Path::new("/target")).await.unwrap();
                let shard = store.open_shard(POOL).await.unwrap();
                assert_eq!(shard.prepared(), [(TX, unit(ObjType::MultiHashed, 8))]);
                let (cont, held) = shard.prepared_batch(TX).unwrap();
                assert_eq!((cont, held.bytes()), (CONT, &batch[..]));
                assert_eq!(
                    shard.decision(TX),
                    Some((
                        Epoch(90),
                        vec![unit(ObjType::MultiHashed, 1), unit(ObjType::MultiHashed, 2)]
                    ))
                );
                assert!(shard.conflicts(CONT, &[], &ops));
                let other = [update(b"e", UpdateValue::Inline(b""), Cond::NONE)];
                assert!(!shard.conflicts(CONT, &[], &other));
                // The held part makes the object. Whoever relies on its being there must wait:
                // once a create in a directory just made was told that there is no directory.
                let unborn = [update(b"e", UpdateValue::Inline(b""), Cond::OBJ_EXISTS)];
                assert!(shard.conflicts(CONT, &[], &unborn));
                assert!(shard.stat().nvme_free_bytes < free);
                let origin = Origin { tx: TX, of: None, reply: b"answer" };
                let lsn = shard.decide(TX, outcome, Some(origin), &[]).unwrap();
                shard.durable(lsn).await.unwrap();
                assert!(!shard.conflicts(CONT, &[], &ops));
                let again = shard.decide(TX, outcome, None, &[]).unwrap();
                shard.durable(again).await.unwrap();
                shard.forget_decision(TX).unwrap();
                shard.close().await.unwrap();
                drop((shard, store));
                let store = vos::Store::open(&env, Path::new("/target")).await.unwrap();
                let shard = store.open_shard(POOL).await.unwrap();
                assert!(shard.prepared().is_empty() && shard.decisions().is_empty());
                let found = dump(&shard).await;
                if outcome == TxOutcome::Aborted {
                    assert!(found.0.is_empty());
                    assert_eq!(shard.stat().nvme_free_bytes, free);
                    assert_eq!(shard.replayed(TX).unwrap(), None);
                } else {
                    let object = &found.0[&unit(ObjType::MultiHashed, 1)];
                    assert_eq!(
                        object.dkeys[&b"d"[..]].1[&b"i"[..]],
                        (90, Value::Single(large.clone()))
                    );
                    assert_eq!(shard.replayed(TX).unwrap(), Some(b"answer".to_vec()));
                    assert_eq!(shard.last_epoch(), Epoch(90));
                }
            });
            world.clear();
        }
    }
}

/// Lists of orphans were one answer, however many there were.
#[test]
fn orphans_are_listed_in_pages_of_one_container() {
    let world = SimWorld::new(1);
    let env = world.node("a");
    world.block_on(async {
        let (_store, shard) = fresh(&env, &config(Durability::Wal)).await.unwrap();
        let other = ContId(CONT.0 + 1);
        shard.create_cont(other).unwrap();
        let units: Vec<_> = (1..30).map(|nth| unit(ObjType::ArrayByte, nth)).collect();
        let added: Vec<_> = units.iter().map(|unit| OrphanChange::Add(*unit)).collect();
        for (cont, epoch) in [(CONT, 1), (other, 2)] {
            let payload = shard.stage(&[]).unwrap();
            let lsn = shard.apply(cont, Epoch(epoch), &[], payload, None, &added).unwrap();
            shard.durable(lsn).await.unwrap();
        }
        let mut all = units;
        all.sort_unstable();
        for (max, keeps) in [(1, 1), (4, 1), (7, 3), (100, 2)] {
            let is_meant = |unit: &Unit| unit.object.lo.is_multiple_of(keeps);
            let (mut listed, mut after) = (Vec::new(), None);
            loop {
                let page = shard.orphans_after(CONT, after, max, is_meant);
                assert!(page.len() <= max);
                let Some(last) = page.last() else { break };
                after = Some(*last);
                listed.extend(page);
            }
            let meant: Vec<_> = all.iter().copied().filter(|unit| is_meant(unit)).collect();
            assert_eq!(listed, meant, "{max} at a time");
        }
    });
}

#[test]
fn replies_and_orphans_survive_a_crash() {
    // All are in doubt, as far as their numbers say.
    let tx_of = |count| {
        let seq = wire::request_id::in_lane(count, 1, wire::request_id::UNANSWERED_MAX);
        TxId { client: ClientId(1), seq }
    };
    for checkpoint in [false, true] {
        let world = SimWorld::new(1);
        let env = world.node("a");
        let lost = unit(ObjType::ArrayByte, 9);
        let found = unit(ObjType::ArrayByte, 8);
        world.block_on(async {
            let (_store, shard) = fresh(&env, &config(Durability::Wal)).await.unwrap();
            for seq in 0..300u64 {
                let ops = [update(b"d", UpdateValue::Inline(b"v"), Cond::NONE)];
                let payload = shard.stage(&ops).unwrap();
                let tx = tx_of(seq);
                let origin = Some(Origin { tx, of: None, reply: b"ok" });
                let orphans = [OrphanChange::Add(lost), OrphanChange::Add(found)];
                let lsn =
                    shard.apply(CONT, Epoch(seq + 1), &ops, payload, origin, &orphans).unwrap();
                shard.durable(lsn).await.unwrap();
            }
            let payload = shard.stage(&[]).unwrap();
            let gone = [OrphanChange::Remove(found)];
            let lsn = shard.apply(CONT, Epoch(400), &[], payload, None, &gone).unwrap();
            shard.durable(lsn).await.unwrap();
            if checkpoint {
                shard.checkpoint().await.unwrap();
            }
        });
        world.kill("a");
        let env = world.node("a");
        world.block_on(async {
            let store = vos::Store::open(&env, Path::new("/target")).await.unwrap();
            let shard = store.open_shard(POOL).await.unwrap();
            assert_eq!(shard.orphans(), [(CONT, lost)]);
            let reply = |seq| shard.replayed(tx_of(seq)).unwrap();
            assert_eq!(reply(43), None);
            assert_eq!(reply(44), Some(b"ok".to_vec()));
            assert_eq!(reply(299), Some(b"ok".to_vec()));
            assert_eq!(shard.last_epoch(), Epoch(400));
            shard.forget_client(ClientId(1));
            assert_eq!(reply(299), None);
        });
        world.clear();
    }
}

#[test]
fn a_failed_log_refuses_everything_and_says_so() {
    let world = SimWorld::new(1);
    let env = world.node("a");
    world.block_on(async {
        let (_store, shard) = fresh(&env, &config(Durability::Wal)).await.unwrap();
        world.disk("a").stop_after(0);
        let ops = [update(b"d", UpdateValue::Inline(b"v"), Cond::NONE)];
        let lsn = write(&shard, 1, &ops, b"", None).await.unwrap();
        assert_eq!(shard.durable(lsn).await.unwrap_err().code, Code::Io);
        let refused = shard.stage(&ops).unwrap_err();
        assert_eq!(refused.code, Code::Io);
        assert!(refused.to_string().contains("restart"), "{refused}");
    });
    world.clear();
}

/// A decision that is undone takes the answer to its client with it, also after a restart, by the log or by a checkpoint, and where the decision was repeated without it.
#[test]
fn an_undone_decision_takes_its_answer_along() {
    let client = TxId { client: ClientId(8), seq: 5 };
    for checkpoint in [false, true] {
        let world = SimWorld::new(1);
        let env = world.node("a");
        let who = [unit(ObjType::MultiHashed, 1), unit(ObjType::MultiHashed, 2)];
        world.block_on(async {
            let (store, shard) = fresh(&env, &config(Durability::Wal)).await.unwrap();
            let origin = Origin { tx: client, of: Some(who[0]), reply: b"done" };
            shard.log_decision(TX, Epoch(90), &who, Some(origin)).unwrap();
            let lsn = shard.log_decision(TX, Epoch(90), &who, None).unwrap();
            shard.durable(lsn).await.unwrap();
            if checkpoint {
                shard.checkpoint().await.unwrap();
            }
            drop((shard, store));
        });
        world.kill("a");
        let env = world.node("a");
        for is_undone in [false, true] {
            world.block_on(async {
                let store = vos::Store::open(&env, Path::new("/target")).await.unwrap();
                let shard = store.open_shard(POOL).await.unwrap();
                let known = (!is_undone).then_some(client);
                assert_eq!(shard.answered_by(TX), known, "{checkpoint}");
                let answer = (!is_undone).then(|| b"done".to_vec());
                assert_eq!(shard.replayed(client).unwrap(), answer, "{checkpoint}");
                let lsn = shard.undo_decision(TX).unwrap();
                shard.durable(lsn).await.unwrap();
                assert_eq!((shard.decision(TX), shard.replayed(client).unwrap()), (None, None));
                shard.close().await.unwrap();
            });
        }
        world.clear();
    }
}
