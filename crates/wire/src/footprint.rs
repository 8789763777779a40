//! What an operation touches, told without carrying it out.
//!
//! [`Op::footprint`] describes every operation, and beside [`Op::unit`] it is the only list of all of them outside of the places that carry them
//! out. What follows from it: locks and what waits for stable storage (`vos::locks`, `vos::unsettled`), what has to be in memory
//! (`vos::residency`), who needs room, which target is asked (`client`), what a target with lost pages cannot answer, figures. So a new operation has
//! to be described before anything compiles, and cannot be forgotten in one of them. Pure, and nothing is allocated: keys are borrowed.
//!
//! Invariant: what an operation that changes something looks at in its own unit lies within what it changes. So a lock on what it
//! changes covers both.

use crate::obj::{Cond, ListScope, Op, QueryFlags, Recx, UpdateIod};
use serde_bytes::Bytes;
use types::{Oid, Unit};

/// What an operation touches of its unit, and what it needs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Footprint<'o> {
    pub unit: Unit,
    /// It has no effect unless the object is there ([`Cond::OBJ_EXISTS`]).
    pub needs_object: bool,
    pub changes: Changes<'o>,
    /// Beside the keys that it changes, which conditions look at.
    pub reads: Reads<'o>,
    pub brings: Brings<'o>,
    pub opens: Opens,
    /// What it changes is found by the leader of the unit, who applies other operations in its place.
    pub is_replaced: bool,
    pub kind: OpKind,
}

/// What an operation can change.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Changes<'o> {
    Nothing,
    /// Something of this dkey.
    Dkey(&'o [u8]),
    /// These akeys of a dkey go.
    Akeys {
        dkey: &'o [u8],
        akeys: &'o [&'o Bytes],
    },
    /// These dkeys go.
    Dkeys(&'o [&'o Bytes]),
    /// Integer dkeys from this one on go.
    DkeysFrom(u64),
    /// All of the unit goes.
    All,
    /// Something that it does not name, and perhaps later: it keeps all others away, though it touches nothing but what says that the object is there.
    Unnamed,
}

/// What an operation looks at.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Reads<'o> {
    Nothing,
    /// Values of this dkey.
    Dkey(&'o [u8]),
    /// The link at an akey, and the object that it leads to, should that be held here.
    Link {
        dkey: &'o [u8],
        akey: &'o [u8],
        /// That object is freed with it.
        frees: bool,
    },
    /// As [`Op::List`].
    List {
        scope: &'o ListScope<'o>,
        anchor: &'o [u8],
        count_max: u32,
        bytes_max: u32,
    },
    /// As [`Op::ListRuns`].
    Runs {
        chunk_records: u64,
        within: Recx,
        count_max: u32,
    },
    /// As [`Op::Query`].
    Query {
        flags: QueryFlags,
        dkey: &'o [u8],
        akey: &'o [u8],
    },
    /// Facts about all of the unit.
    Facts,
    /// Whether the object is there.
    Existence,
    /// Whether it is there, and whether other units may hold parts of it.
    Reach,
    /// Where its last record is, and whether other units may hold later ones.
    End,
}

/// How much of its unit an operation concerns.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Extent<'o> {
    Nothing,
    /// That the object is there.
    Existence,
    Dkey(&'o [u8]),
    Dkeys(&'o [&'o Bytes]),
    All,
}

/// What is stored with an operation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Brings<'o> {
    Nothing,
    /// Values of akeys of this dkey, here or in the bulk.
    Values {
        dkey: &'o [u8],
        iods: &'o [UpdateIod<'o>],
    },
    /// So many one-byte records of an array, all in the bulk.
    Records {
        chunk_records: u64,
        count: u64,
    },
}

/// On which object an operation registers an open handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opens {
    Nothing,
    /// On its own.
    Own,
    /// On the one that the link which it reads leads to, should that be held here.
    Linked,
}

/// Kinds of operations for people: figures are told by them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpKind {
    Update,
    Fetch,
    Append,
    Punch,
    List,
    Query,
    Lookup,
    Remove,
    Open,
}

impl OpKind {
    /// In the order of their numbers (`as usize`).
    pub const ALL: [OpKind; 9] = [
        OpKind::Update,
        OpKind::Fetch,
        OpKind::Append,
        OpKind::Punch,
        OpKind::List,
        OpKind::Query,
        OpKind::Lookup,
        OpKind::Remove,
        OpKind::Open,
    ];

    /// As metrics name it.
    pub const fn name(self) -> &'static str {
        match self {
            OpKind::Update => "update",
            OpKind::Fetch => "fetch",
            OpKind::Append => "append",
            OpKind::Punch => "punch",
            OpKind::List => "list",
            OpKind::Query => "query",
            OpKind::Lookup => "lookup",
            OpKind::Remove => "remove",
            OpKind::Open => "open",
        }
    }
}

impl<'o> Footprint<'o> {
    /// One that neither needs the object, nor brings or opens anything, nor is replaced.
    #[inline(always)]
    fn plain(unit: Unit, kind: OpKind, changes: Changes<'o>, reads: Reads<'o>) -> Footprint<'o> {
        Footprint {
            unit,
            needs_object: false,
            changes,
            reads,
            brings: Brings::Nothing,
            opens: Opens::Nothing,
            is_replaced: false,
            kind,
        }
    }

    /// True when it can change stored state.
    #[inline]
    pub fn is_write(&self) -> bool {
        !matches!(self.changes, Changes::Nothing)
    }

    /// True when what it brings takes room.
    #[inline]
    pub fn takes_room(&self) -> bool {
        !matches!(self.brings, Brings::Nothing)
    }

    /// What nobody else may change meanwhile; nor see, if [`Footprint::is_write`].
    #[inline]
    pub fn extent(&self) -> Extent<'o> {
        match self.changes {
            Changes::Nothing => self.reads.extent(),
            Changes::Dkey(dkey) | Changes::Akeys { dkey, .. } => Extent::Dkey(dkey),
            Changes::Dkeys(dkeys) => Extent::Dkeys(dkeys),
            Changes::DkeysFrom(_) | Changes::All | Changes::Unnamed => Extent::All,
        }
    }

    /// The dkey that it is on, or the first one, if it is on some that it names.
    #[inline]
    pub fn dkey(&self) -> Option<&'o [u8]> {
        match self.extent() {
            Extent::Dkey(dkey) => Some(dkey),
            Extent::Dkeys(dkeys) => dkeys.first().map(|dkey| dkey.as_ref()),
            Extent::Nothing | Extent::Existence | Extent::All => None,
        }
    }

    /// Most that keys and values of a list take in its answer, bytes.
    pub fn listed_bytes_max(&self) -> u32 {
        match self.reads {
            Reads::List { bytes_max, .. } => bytes_max,
            Reads::Nothing
            | Reads::Dkey(_)
            | Reads::Link { .. }
            | Reads::Runs { .. }
            | Reads::Query { .. }
            | Reads::Facts
            | Reads::Existence
            | Reads::Reach
            | Reads::End => 0,
        }
    }

    /// True when it looks at objects that it does not name.
    pub fn follows(&self) -> bool {
        match self.reads {
            Reads::Link { .. }
            | Reads::List { scope: ListScope::Dkeys { follow: true, .. }, .. } => true,
            Reads::Nothing
            | Reads::Dkey(_)
            | Reads::List { .. }
            | Reads::Runs { .. }
            | Reads::Query { .. }
            | Reads::Facts
            | Reads::Existence
            | Reads::Reach
            | Reads::End => false,
        }
    }

    /// True when it goes along many keys, so that what comes next is worth having.
    pub fn walks(&self) -> bool {
        match self.reads {
            Reads::List { .. } | Reads::Runs { .. } => true,
            Reads::Nothing
            | Reads::Dkey(_)
            | Reads::Link { .. }
            | Reads::Query { .. }
            | Reads::Facts
            | Reads::Existence
            | Reads::Reach
            | Reads::End => false,
        }
    }
}

impl<'o> Reads<'o> {
    /// How much of the unit is looked at.
    #[inline]
    pub fn extent(self) -> Extent<'o> {
        match self {
            Reads::Nothing => Extent::Nothing,
            Reads::Existence => Extent::Existence,
            Reads::Dkey(dkey) | Reads::Link { dkey, .. } => Extent::Dkey(dkey),
            Reads::List { scope, .. } => match *scope {
                ListScope::Akeys { dkey } | ListScope::Recxs { dkey, .. } => Extent::Dkey(dkey),
                ListScope::Dkeys { .. } => Extent::All,
            },
            Reads::Runs { .. } | Reads::Query { .. } | Reads::Facts | Reads::Reach | Reads::End => {
                Extent::All
            }
        }
    }
}

/// The unit in an operation, to read or to change.
macro_rules! unit_in {
    ($op:expr) => {
        match $op {
            Op::Update { unit, .. }
            | Op::Fetch { unit, .. }
            | Op::PunchObj { unit, .. }
            | Op::PunchDkeys { unit, .. }
            | Op::PunchDkeysFrom { unit, .. }
            | Op::PunchAkeys { unit, .. }
            | Op::List { unit, .. }
            | Op::Query { unit, .. }
            | Op::Stat { unit }
            | Op::FetchLink { unit, .. }
            | Op::RemoveLink { unit, .. }
            | Op::Open { unit }
            | Op::PunchUnlessOpen { unit }
            | Op::Append { unit, .. }
            | Op::ListRuns { unit, .. }
            | Op::Adopt { unit }
            | Op::FreeClosed { unit } => unit,
        }
    };
}

impl Op<'_> {
    /// The unit the op addresses.
    #[inline]
    pub fn unit(&self) -> Unit {
        *unit_in!(self)
    }

    /// The object of that unit.
    #[inline]
    pub fn oid(&self) -> Oid {
        self.unit().object
    }

    /// Makes it an op on another unit.
    pub fn set_unit(&mut self, to: Unit) {
        *unit_in!(self) = to;
    }

    /// True when the op can change stored state.
    #[inline]
    pub fn is_write(&self) -> bool {
        self.footprint().is_write()
    }

    /// What the op touches and needs. Inlined always: who asks for one thing pays for that.
    #[inline(always)]
    pub fn footprint(&self) -> Footprint<'_> {
        let plain = |kind, changes, reads| Footprint::plain(self.unit(), kind, changes, reads);
        match self {
            Op::Update { unit: _, dkey, cond, iods } => Footprint {
                needs_object: cond.has(Cond::OBJ_EXISTS),
                brings: Brings::Values { dkey, iods },
                ..plain(OpKind::Update, Changes::Dkey(dkey), Reads::Nothing)
            },
            Op::Fetch { unit: _, dkey, cond, iods: _ } => Footprint {
                needs_object: cond.has(Cond::OBJ_EXISTS),
                ..plain(OpKind::Fetch, Changes::Nothing, Reads::Dkey(dkey))
            },
            Op::PunchObj { unit: _, cond, besides: _ } => Footprint {
                needs_object: cond.has(Cond::OBJ_EXISTS),
                ..plain(OpKind::Punch, Changes::All, Reads::Nothing)
            },
            Op::PunchDkeys { unit: _, cond, dkeys } => Footprint {
                needs_object: cond.has(Cond::OBJ_EXISTS),
                ..plain(OpKind::Punch, Changes::Dkeys(dkeys), Reads::Nothing)
            },
            Op::PunchDkeysFrom { unit: _, from } => {
                plain(OpKind::Punch, Changes::DkeysFrom(*from), Reads::Nothing)
            }
            Op::PunchAkeys { unit: _, dkey, cond, akeys } => Footprint {
                needs_object: cond.has(Cond::OBJ_EXISTS),
                ..plain(OpKind::Punch, Changes::Akeys { dkey, akeys }, Reads::Nothing)
            },
            Op::List { unit: _, scope, anchor, count_max, bytes_max } => {
                let (count_max, bytes_max) = (*count_max, *bytes_max);
                let reads = Reads::List { scope, anchor, count_max, bytes_max };
                plain(OpKind::List, Changes::Nothing, reads)
            }
            Op::Query { unit: _, flags, dkey, akey } => {
                let reads = Reads::Query { flags: *flags, dkey, akey };
                plain(OpKind::Query, Changes::Nothing, reads)
            }
            Op::Stat { unit: _ } => plain(OpKind::Query, Changes::Nothing, Reads::Facts),
            Op::FetchLink { unit: _, dkey, akey, open } => {
                let reads = Reads::Link { dkey, akey, frees: false };
                Footprint {
                    opens: if *open { Opens::Linked } else { Opens::Nothing },
                    ..plain(OpKind::Lookup, Changes::Nothing, reads)
                }
            }
            Op::RemoveLink { unit: _, dkey, akey } => {
                let reads = Reads::Link { dkey, akey, frees: true };
                Footprint { is_replaced: true, ..plain(OpKind::Remove, Changes::Dkey(dkey), reads) }
            }
            Op::Open { unit: _ } => Footprint {
                opens: Opens::Own,
                ..plain(OpKind::Open, Changes::Nothing, Reads::Existence)
            },
            Op::PunchUnlessOpen { unit: _ } => {
                Footprint { is_replaced: true, ..plain(OpKind::Punch, Changes::All, Reads::Reach) }
            }
            Op::Append { unit: _, chunk_records, count } => Footprint {
                brings: Brings::Records { chunk_records: *chunk_records, count: *count },
                is_replaced: true,
                ..plain(OpKind::Append, Changes::Unnamed, Reads::End)
            },
            Op::ListRuns { unit: _, chunk_records, within, count_max } => {
                let (chunk_records, within) = (*chunk_records, *within);
                let reads = Reads::Runs { chunk_records, within, count_max: *count_max };
                plain(OpKind::List, Changes::Nothing, reads)
            }
            Op::Adopt { unit: _ } => Footprint {
                is_replaced: true,
                ..plain(OpKind::Open, Changes::Unnamed, Reads::Nothing)
            },
            Op::FreeClosed { unit: _ } => Footprint {
                is_replaced: true,
                ..plain(OpKind::Punch, Changes::Unnamed, Reads::Nothing)
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_in_the_order_of_their_numbers() {
        for (at, kind) in OpKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at, "{}", kind.name());
        }
    }
}
