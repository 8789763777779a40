//! The order in which the devices of a target get what is to be written.

use super::model::*;
use env::SimWorld;
use futures_util::future::join3;
use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;
use types::Durability;
use vos::{Devices, Store, StoreOptions};

/// A small write that comes behind large ones to a slow device is not the last one there, and was without a queue before the device.
#[test]
fn small_writes_do_not_wait_for_all_large_ones_before_them() {
    for (write_queue, order) in
        [(Duration::from_millis(10), [1, 2, 3]), (Duration::ZERO, [1, 3, 2])]
    {
        let world = SimWorld::new(1);
        let env = world.node("a");
        world.block_on(async {
            let bytes_per_s_max = Some(1 << 20);
            let options = StoreOptions { write_queue, bytes_per_s_max, ..StoreOptions::default() };
            let devices = Devices::one(Path::new("/t"));
            let store = Store::open_with(&env, &devices, options).await.unwrap();
            let shard = store.create_shard(POOL, &config(Durability::Wal)).await.unwrap();
            shard.durable(shard.create_cont(CONT).unwrap()).await.unwrap();
            let ended = RefCell::new(Vec::new());
            let write = async |number: u64, bytes: usize| {
                let step = Step {
                    unit: unit(types::ObjType::MultiHashed, number),
                    dkey: b"d".to_vec(),
                    akey: b"a".to_vec(),
                    cond: wire::obj::Cond::NONE,
                    act: Act::Single { bulk: true, bytes, fill: 7 },
                };
                let at = order.iter().position(|ended| *ended == number).unwrap() as u64;
                run(&shard, at + 1, &step).await.unwrap();
                ended.borrow_mut().push(number);
            };
            join3(write(1, 256 << 10), write(3, 256 << 10), write(2, 8 << 10)).await;
            assert_eq!(ended.take(), order);
        });
        world.clear();
    }
}
