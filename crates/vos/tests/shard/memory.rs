//! What lives in memory only, and stores opened twice.

use super::model::*;
use env::SimWorld;
use std::path::Path;
use types::{Code, Durability, ObjType};
use wire::obj::*;

#[test]
fn a_memory_shard_comes_back_empty_and_usable() {
    let world = SimWorld::new(1);
    let env = world.node("a");
    world.block_on(async {
        let (_store, shard) = fresh(&env, &config(Durability::Memory)).await.unwrap();
        let value = UpdateValue::Inline(b"v");
        let iods = vec![UpdateIod { akey: b"i", cond: Cond::NONE, value }];
        let ops =
            [Op::Update { oid: oid(ObjType::MultiHashed, 1), dkey: b"d", cond: Cond::NONE, iods }];
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
