//! The memory a directory entry takes. Alone in its process: it measures the whole heap.

use std::path::Path;

use env::SimWorld;
use types::{ContId, Durability, Epoch, ObjClass, ObjType, Oid, PoolId};
use wire::obj::*;

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
        let config = vos::PoolShardConfig {
            durability: Durability::Memory,
            scm_bytes: 1 << 30,
            nvme_bytes: 1 << 20,
        };
        let store = vos::Store::open(&env, Path::new("/target")).await.unwrap();
        let shard = store.create_shard(PoolId(1), &config).await.unwrap();
        let (cont, unit) =
            (ContId(1), Oid::generate(0, 1, ObjType::MultiHashed, ObjClass::S1, 0).first_unit());
        shard.create_cont(cont).unwrap();
        const COUNT: u64 = 100_000;
        let before = heap_bytes();
        for n in 0..COUNT {
            let name = format!("file.mdtest.{n:08}");
            assert_eq!(name.len(), 20);
            let value = UpdateValue::Inline(&[7; 100]);
            let iods = vec![UpdateIod { akey: b"i", cond: Cond::NONE, value }];
            let ops = [Op::Update { unit, dkey: name.as_bytes(), cond: Cond::NONE, iods }];
            let payload = shard.stage(&ops).unwrap();
            shard.apply(cont, Epoch(n + 1), &ops, payload, None, &[]).unwrap();
        }
        let each = (heap_bytes() - before) as u64 / COUNT;
        assert!((121..=300).contains(&each), "{each} bytes per entry");
        let counted = (shard.stat().scm_bytes - shard.stat().scm_free_bytes) / COUNT;
        assert!(counted.abs_diff(each) < 60, "counted {counted}, real {each}");
    });
    world.clear();
}
