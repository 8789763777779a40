//! An akey that changes its kind in one batch: nobody sees it gone in between, and the log tells the same again.

use super::model::*;
use env::SimWorld;
use types::{Code, Durability, ObjType};
use wire::obj::*;

const DKEY: &[u8] = &1u64.to_le_bytes();

fn ops(value: UpdateValue<'static>, punch: bool) -> Vec<Op<'static>> {
    let unit = unit(ObjType::ArrayByte, 2);
    let iods = vec![UpdateIod { akey: b"", cond: Cond::NONE, value }];
    let akeys = vec![serde_bytes::Bytes::new(b"")];
    let punched = Op::PunchAkeys { unit, dkey: DKEY, cond: Cond::NONE, akeys };
    let update = Op::Update { unit, dkey: DKEY, cond: Cond::NONE, iods };
    if punch { vec![punched, update] } else { vec![update] }
}

fn array() -> UpdateValue<'static> {
    UpdateValue::Array { record_bytes: 1, recxs: vec![Recx { index: 0, count: 3 }] }
}

#[test]
fn an_akey_changes_its_kind_with_a_punch_before_it_only() {
    let world = SimWorld::new(1);
    let env = world.node("a");
    world.block_on(async {
        let (store, shard) = fresh(&env, &config(Durability::Wal)).await.unwrap();
        let unit = unit(ObjType::ArrayByte, 2);
        let whole = Recx { index: 0, count: 8 };
        write(&shard, 1, &ops(array(), false), b"abc", None).await.unwrap();
        let single = || UpdateValue::Inline(b"elsewhere");
        let refused = shard.check(CONT, &[], &ops(single(), false)).unwrap_err();
        assert_eq!(refused.code, Code::Inval);
        write(&shard, 2, &ops(single(), true), b"", None).await.unwrap();
        let runs = || shard.view(CONT).unwrap().runs(unit, 4, whole, 9).unwrap().0;
        // All of the chunk counts as written, for its records are somewhere.
        assert_eq!(runs(), [Recx { index: 0, count: 4 }]);
        assert_eq!(shard.check(CONT, &[], &ops(array(), false)).unwrap_err().code, Code::Inval);
        assert_eq!(shard.view(CONT).unwrap().tail(unit).unwrap().dkey_max, None);
        let lsn = write(&shard, 3, &ops(array(), true), b"xyz", None).await.unwrap();
        assert_eq!(runs(), [Recx { index: 0, count: 3 }]);
        shard.durable(lsn).await.unwrap();
        shard.close().await.unwrap();
        drop((shard, store));
        let store = open(&env, u64::MAX).await.unwrap();
        let shard = store.open_shard(POOL).await.unwrap();
        shard.ready(CONT, &[], &[Op::Stat { unit }]).await.unwrap();
        assert_eq!(shard.view(CONT).unwrap().tail(unit).unwrap().end, 3);
        assert_eq!(shard.space_audit().unwrap().map(|(a, b)| a == b), Some(true));
    });
    world.clear();
}
