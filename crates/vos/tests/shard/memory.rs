//! What lives in memory only, stores opened twice, and the cost of a directory entry.

use super::model::*;
use env::SimWorld;
use std::path::Path;
use types::{Code, Durability, Epoch, ObjType};
use wire::obj::*;

#[test]
fn a_memory_shard_comes_back_empty_and_usable() {
    let world = SimWorld::new(1);
    let env = world.node("a");
    world.block_on(async {
        let (_store, shard) = fresh(&env, &config(Durability::Memory)).await.unwrap();
        let value = UpdateValue::Inline(b"v");
        let iods = vec![UpdateIod { akey: b"i", cond: Cond::NONE, value }];
        let ops = [Op::Update { oid: oid(ObjType::MultiHashed, 1), dkey: b"d", cond: Cond::NONE, iods }];
        write(&shard, 1, &ops, b"", None).await.unwrap();
        shard.close().await.unwrap();
        assert_eq!(shard.stage(&ops).unwrap_err().code, Code::Closed);
    });
    world.kill("a");
    let env = world.node("a");
    world.block_on(async {
        let store = vos::Store::open(&env, Path::new("/target")).await.unwrap();
        let shard = store.open_shard(POOL).await.unwrap();
        assert!(!shard.has_cont(CONT));
        shard.create_cont(CONT).unwrap();
        compare(&shard, &Model::default()).await;
    });
    world.clear();
}

#[test]
fn a_store_in_use_is_refused() {
    let world = SimWorld::new(1);
    let env = world.node("a");
    world.block_on(async {
        let (store, shard) = fresh(&env, &config(Durability::Wal)).await.unwrap();
        let second = vos::Store::open(&env, Path::new("/target")).await.unwrap_err();
        assert_eq!(second.code, Code::Busy);
        assert!(second.to_string().contains("in use"), "{second}");
        let other = config(Durability::Memory);
        assert_eq!(store.create_shard(POOL, &other).await.unwrap_err().code, Code::Exist);
        let same = store.create_shard(POOL, &config(Durability::Wal)).await.unwrap();
        assert!(std::rc::Rc::ptr_eq(&same, &shard));
        store.destroy_shard(POOL).await.unwrap();
        store.destroy_shard(POOL).await.unwrap();
        assert!(store.shards().is_empty());
        assert_eq!(shard.create_cont(CONT).unwrap_err().code, Code::Closed);
        assert_eq!(store.open_shard(POOL).await.unwrap_err().code, Code::NonExist);
        let again = store.create_shard(POOL, &other).await.unwrap();
        assert!(!again.has_cont(CONT));
    });
    world.clear();
}

/// Bytes that malloc has handed out.
fn heap_bytes() -> usize {
    // SAFETY: mallinfo2 only reads the allocator's own counters.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}

#[test]
fn a_directory_entry_takes_at_most_300_bytes() {
    let world = SimWorld::new(1);
    let env = world.node("a");
    world.block_on(async {
        let config = vos::ShardConfig { scm_bytes: 1 << 30, ..config(Durability::Memory) };
        let (_store, shard) = fresh(&env, &config).await.unwrap();
        const COUNT: u64 = 100_000;
        let before = heap_bytes();
        for n in 0..COUNT {
            let name = format!("file.mdtest.{n:08}");
            assert_eq!(name.len(), 20);
            let value = UpdateValue::Inline(&[7; 100]);
            let iods = vec![UpdateIod { akey: b"i", cond: Cond::NONE, value }];
            let ops = [Op::Update { oid: oid(ObjType::MultiHashed, 1), dkey: name.as_bytes(), cond: Cond::NONE, iods }];
            let payload = shard.stage(&ops).unwrap();
            shard.apply(CONT, Epoch(n + 1), &ops, payload, None, &[]).unwrap();
        }
        // Other tests of this process run beside it, so there is room for their noise.
        let each = (heap_bytes() - before) as u64 / COUNT;
        assert!((121..=300).contains(&each), "{each} bytes per entry");
        let counted = (shard.stat().scm_bytes - shard.stat().scm_free_bytes) / COUNT;
        assert!(counted.abs_diff(each) < 60, "counted {counted}, real {each}");
    });
    world.clear();
}
