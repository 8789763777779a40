//! A key with damage is put together with what another member has of it, whatever else that one has or lacks.

use super::model::*;
use super::pages::ROOMY;
use super::sums::{bytes, flip};
use env::{Env, Rng, SimWorld};
use std::rc::Rc;
use types::{ObjType, Unit};
use vos::{PoolShard, Store};
use wire::obj::*;

const DKEY: &[u8] = &7u64.to_le_bytes();
const BLOCK: u64 = 4096;

fn array() -> Unit {
    unit(ObjType::ArrayByte, 4)
}

struct Member {
    env: Env,
    _store: Rc<Store>,
    shard: Rc<PoolShard>,
}

impl Member {
    async fn new(world: &SimWorld, name: &str) -> Member {
        let env = world.node(name);
        let (store, shard) = fresh(&env, &ROOMY).await.unwrap();
        Member { env, _store: store, shard }
    }

    async fn put(&self, epoch: u64, index: u64, count: u64) {
        let bulk = bytes(epoch << 32 | index, count as usize);
        let value = UpdateValue::Array { record_bytes: 1, recxs: vec![Recx { index, count }] };
        let iods = vec![UpdateIod { akey: b"", cond: Cond::NONE, value }];
        let ops = [Op::Update { unit: array(), dkey: DKEY, cond: Cond::NONE, iods }];
        let lsn = write(&self.shard, epoch, &ops, &bulk, None).await.unwrap();
        self.shard.durable(lsn).await.unwrap();
    }

    async fn image(&self) -> types::Result<Vec<u8>> {
        self.shard.dkey_image(CONT, array(), DKEY).await
    }

    async fn completed(&self, other: &[u8]) -> Option<Vec<u8>> {
        self.shard.completed_image(CONT, array(), DKEY, other).await.unwrap()
    }

    /// Blocks that hold something.
    async fn blocks(&self) -> Vec<u64> {
        let (mut from, mut all) = (0, Vec::new());
        while let Some(found) = self.shard.scrub(from, 1).await.unwrap() {
            all.push(found.next_block - 1);
            from = found.next_block;
        }
        all
    }

    /// Flips a bit of a block; where in the key that is.
    async fn damage(&self, block: u64) -> u64 {
        let holders = self.shard.holders(&[block]).await;
        flip(&self.env, block * BLOCK * 8 + 77).await;
        holders.first().expect("somebody's block").offset
    }
}

/// The one that was away lacks an update and has another one that this one lacks; what is damaged here both have.
#[test]
fn what_is_damaged_comes_from_one_who_is_behind() {
    let world = SimWorld::new(1);
    world.block_on(async {
        let (a, b) = (Member::new(&world, "a").await, Member::new(&world, "b").await);
        for member in [&a, &b] {
            member.put(2, 0, 10_000).await;
        }
        b.put(4, 40_000, 5_000).await;
        a.put(6, 20_000, 5_000).await;
        let before = a.image().await.unwrap();
        let blocks = a.blocks().await;
        for block in blocks {
            let holders = a.shard.holders(&[block]).await;
            if holders.iter().any(|holder| holder.offset < 10_000) {
                a.damage(block).await;
            }
        }
        assert_eq!(a.image().await.unwrap_err().code, types::Code::Csum);
        let theirs = b.image().await.unwrap();
        let completed = a.completed(&theirs).await.expect("the other one has it");
        assert_eq!(completed, before);
        let done = a.shard.replace_damaged(CONT, array(), DKEY, &completed, &|| true).await;
        a.shard.durable(done.unwrap()).await.unwrap();
        assert_eq!(a.image().await.unwrap(), before);
    });
    world.clear();
}

/// What the other one has of the same records is of another change; or of the same, and not all of it.
#[test]
fn what_nobody_else_has_is_not_made_up() {
    let world = SimWorld::new(2);
    world.block_on(async {
        let (a, b) = (Member::new(&world, "a").await, Member::new(&world, "b").await);
        for member in [&a, &b] {
            member.put(2, 0, 3 * BLOCK).await;
        }
        a.put(4, BLOCK, BLOCK).await;
        let theirs = b.image().await.unwrap();
        let mut is_others = 0;
        for block in a.blocks().await {
            let member = Member::new(&world, &format!("c{block}")).await;
            member.put(2, 0, 3 * BLOCK).await;
            member.put(4, BLOCK, BLOCK).await;
            let before = member.image().await.unwrap();
            let at = member.damage(block).await;
            let completed = member.completed(&theirs).await;
            // The one in the middle b does not have.
            match at == BLOCK {
                true => assert_eq!(completed, None, "block {block}"),
                false => assert_eq!(completed, Some(before), "block {block}"),
            }
            is_others += u64::from(at != BLOCK);
        }
        assert_eq!(is_others, 2);
    });
    world.clear();
}

/// Random writes, most to both, some to one alone, joined now and then: what is put together is what was there, or nothing is.
#[test]
fn what_is_put_together_is_what_was_there() {
    let (mut filled, mut refused) = (0, 0);
    for seed in 0..40 {
        let world = SimWorld::new(seed);
        world.block_on(async {
            let rng = Rng::new(seed ^ 0xc0de);
            let (a, b) = (Member::new(&world, "a").await, Member::new(&world, "b").await);
            for n in 1..30 {
                let (at, count) = (rng.below(60_000), 1 + rng.below(12_000));
                let alone = rng.below(10);
                for (number, member) in [&a, &b].into_iter().enumerate() {
                    if alone != number as u64 {
                        member.put(2 * n, at, count).await;
                    }
                    if rng.below(12) == 0 {
                        member.shard.aggregate().await.unwrap();
                    }
                }
            }
            let before = a.image().await.unwrap();
            let blocks = a.blocks().await;
            for _ in 0..1 + rng.below(3) {
                a.damage(blocks[rng.below(blocks.len() as u64) as usize]).await;
            }
            match a.completed(&b.image().await.unwrap()).await {
                Some(image) => {
                    assert!(image == before, "seed {seed}");
                    filled += 1;
                }
                None => refused += 1,
            }
        });
        world.clear();
    }
    assert!(filled > 5 && refused > 5, "{filled} filled, {refused} refused");
}
