//! Orders: what the leader of a group has done, for the other members to do likewise.
//!
//! From each leader to each member of its groups goes one stream, in the order in which the leader did it
//! (`docs/decisions/2026-11-23-orders.md`). An order is resolved: conditions, links, handles and epochs are decided
//! already, and it names nothing of the leader's devices.

use crate::obj::{Batch, Op, Sums, TxId, TxOutcome};
use serde::{Deserialize, Serialize};
use types::{ContId, Epoch, PoolId, TargetId, Unit};

/// Some orders of a stream, the next ones. Their bulk follows in order. The reply is an [`OrdersDone`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Orders<'a> {
    pub pool: PoolId,
    /// The leader.
    pub from: TargetId,
    /// The map that it leads under: a receiver with a newer one refuses with `Stale`.
    pub map_version: u32,
    /// Which numbering: drawn anew whenever that begins anew.
    pub stream: u64,
    /// Number of the first order; the others follow without a gap.
    pub first: u64,
    /// Up to this number of the leader's ([`OrderAt::number`]) all members of their groups have its orders, the leader among them: no crash takes back
    /// what it promises to keep.
    pub settled: u64,
    #[serde(borrow)]
    pub orders: Vec<OrderAt<'a>>,
}

/// An order on its way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OrderAt<'a> {
    /// Its number among all orders of its leader.
    pub number: u64,
    /// An encoded [`Order`].
    #[serde(borrow)]
    pub order: &'a serde_bytes::Bytes,
    /// Bytes of bulk that belong to it.
    pub bulk_bytes: u32,
}

/// Answer to [`Orders`]: all of them are as durable as the pool promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OrdersDone {
    /// The last one's number.
    pub number: u64,
    /// The member is nearly full.
    pub is_short: bool,
    /// The newest epoch of anything that the member has.
    pub newest: Epoch,
}

/// The client's request that an order carries out, and the answer it got.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OrderOrigin<'a> {
    pub tx: TxId,
    /// A unit that it has changed.
    pub of: Unit,
    #[serde(with = "serde_bytes", borrow)]
    pub reply: &'a [u8],
}

/// What an [`Order::Apply`] has, whose operations are where they were.
#[derive(Serialize)]
pub struct ApplyOrder<'o, 'a> {
    pub cont: ContId,
    pub epoch: Epoch,
    pub ops: &'o [&'o Op<'a>],
    pub sums: Sums<'a>,
    pub origin: Option<OrderOrigin<'o>>,
    pub orphaned: Vec<Unit>,
    pub adopted: Vec<Unit>,
}

impl ApplyOrder<'_, '_> {
    /// What the encoding of an [`Order::Apply`] begins with; its fields follow.
    const TAG: u8 = 0;

    /// The encoded [`Order`].
    pub fn encode(&self) -> Vec<u8> {
        crate::encode(&(ApplyOrder::TAG, self))
    }
}

/// Encodes an [`Order::Prepare`] of a batch that is encoded already, without sums; `sums`: those that it has.
pub fn encode_prepare(tx: TxId, coordinator: Unit, batch: &[u8], sums: &Sums<'_>) -> Vec<u8> {
    let mut order = Vec::with_capacity(64 + batch.len() + sums.bytes.len());
    crate::encode_into(&(PREPARE_TAG, tx, coordinator), &mut order);
    // They are its last field.
    order.extend_from_slice(&batch[..batch.len() - crate::encode(&Sums::NONE).len()]);
    crate::encode_into(sums, &mut order);
    order
}

/// What the encoding of an [`Order::Prepare`] begins with; its fields follow.
const PREPARE_TAG: u8 = 1;

/// What a member does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Order<'a> {
    /// Apply updates and punches at an epoch. Their conditions held.
    Apply {
        cont: ContId,
        epoch: Epoch,
        #[serde(borrow)]
        ops: Vec<Op<'a>>,
        /// Sums of the bulk.
        #[serde(borrow)]
        sums: Sums<'a>,
        #[serde(borrow)]
        origin: Option<OrderOrigin<'a>>,
        /// Objects that have lost their last name but are held open, and objects that are so no more.
        orphaned: Vec<Unit>,
        adopted: Vec<Unit>,
    },
    /// Hold a part of a transaction, whose conditions held.
    Prepare {
        /// Of the part.
        tx: TxId,
        /// A unit of the coordinator's group.
        coordinator: Unit,
        /// Its ops are updates and punches, and what becomes of objects that lose their names; with
        /// the sums of the bulk.
        #[serde(borrow)]
        batch: Batch<'a>,
    },
    /// Let a part take effect, or drop it.
    Decide {
        /// Of the part.
        tx: TxId,
        /// Never `Pending`.
        outcome: TxOutcome,
    },
    /// Keep the decision of a transaction that the group coordinates.
    Decision {
        tx: TxId,
        epoch: Epoch,
        /// A unit of each part's group, the coordinator's first.
        participants: Vec<Unit>,
        #[serde(borrow)]
        origin: Option<OrderOrigin<'a>>,
    },
    /// Forget it: all participants know.
    ForgetDecision { tx: TxId },
    /// Make a dkey what the image in the bulk says.
    Install {
        cont: ContId,
        unit: Unit,
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
        /// Bytes of the image that came in parts before, right before; 0: the bulk is all of it.
        before: u64,
    },
    /// Keep a part of an image that is too large for one message, until its `Install` comes.
    InstallPart {
        cont: ContId,
        unit: Unit,
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
        /// Where in the image it begins: 0, or where the part before it ended.
        at: u64,
    },
    /// Set what is known of a unit as a whole; in the bulk.
    InstallFacts { cont: ContId, unit: Unit },
    /// Keep these answers for retries: what they are about is here.
    Answers {
        #[serde(borrow)]
        answers: Vec<OrderOrigin<'a>>,
    },
    /// Let a stripe's records give way to its name: its cells are kept. No effect where they are not as they were.
    Fold {
        cont: ContId,
        unit: Unit,
        #[serde(with = "serde_bytes", borrow)]
        dkey: &'a [u8],
        #[serde(with = "serde_bytes", borrow)]
        akey: &'a [u8],
        stripe: crate::cell::Stripe,
        /// Records of the stripe.
        count: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::obj::{Cond, UpdateIod, UpdateValue};
    use types::{ClientId, Oid};

    #[test]
    fn an_order_is_the_same_whether_it_has_its_operations_or_not() {
        let unit = Oid { hi: 1, lo: 2 }.unit(3);
        let value = UpdateValue::Inline(b"value");
        let iods = vec![UpdateIod { akey: b"akey", cond: Cond::NONE, value }];
        let ops = vec![
            Op::Update { unit, dkey: b"dkey", cond: Cond::OBJ_EXISTS, iods },
            Op::PunchObj { unit, cond: Cond::NONE, besides: b"" },
        ];
        let (cont, epoch, sums) = (ContId(4), Epoch(5), Sums::NONE);
        let tx = TxId { client: ClientId(6), seq: 7 };
        let origin = Some(OrderOrigin { tx, of: unit, reply: b"reply" });
        let (orphaned, adopted) = (vec![unit], vec![unit, unit]);
        let here: Vec<&Op<'_>> = ops.iter().collect();
        let (lost, kept) = (orphaned.clone(), adopted.clone());
        let order =
            ApplyOrder { cont, epoch, ops: &here, sums, origin, orphaned: lost, adopted: kept };
        let encoded = order.encode();
        let batch = Batch {
            pool: PoolId(8),
            cont,
            at: Epoch::ZERO,
            checks: vec![],
            ops: ops.clone(),
            sums,
        };
        let order = Order::Apply { cont, epoch, ops, sums, origin, orphaned, adopted };
        assert_eq!(encoded, crate::encode(&order));

        let of_batch = crate::encode(&batch);
        let sums = Sums { kind: types::CsumKind::Crc32c, bytes: b"sums" };
        for sums in [Sums::NONE, sums] {
            let batch = Batch { sums, ..batch.clone() };
            let encoded = encode_prepare(tx, unit, &of_batch, &sums);
            assert_eq!(encoded, crate::encode(&Order::Prepare { tx, coordinator: unit, batch }));
        }
    }
}
