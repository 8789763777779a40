//! Identifiers: systems, pools, containers, targets, clients, objects.
//!
//! An object id has 128 bits. The user owns 96 (`lo` and the low half of `hi`); the top 32
//! bits are ours, laid out from the highest bit down:
//!
//! | bits of `hi` | width | meaning |
//! |---|---|---|
//! | 63 | 1 | placed by hint: only the low half of `hi` decides the first group's target |
//! | 62..56 | 7 | object type |
//! | 55..48 | 8 | redundancy scheme |
//! | 47..40 | 8 | number of redundancy groups (code, 255 = all targets, 64 + k = all beyond 2^k bytes, 96 + k = all past 2^k dkeys) |
//! | 39..32 | 8 | placement epoch |

use crate::{Error, GroupCount, ObjClass, Result, Scheme, hash};
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id_newtype {
    ($(#[$doc:meta])* $name:ident($raw:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug, Default)]
        #[serde(transparent)]
        pub struct $name(pub $raw);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id_newtype!(
    /// Number of a pool in its system; never reused.
    PoolId(u32)
);
id_newtype!(
    /// Number of a container in its pool; never reused.
    ContId(u64)
);
id_newtype!(
    /// Number of a target in its system, over all engines; never reused.
    TargetId(u32)
);
id_newtype!(
    /// Number of an engine in its system.
    Rank(u32)
);
id_newtype!(
    /// Random number a client process (or thread context) chose for itself.
    ClientId(u64)
);

/// How an object's dkeys are hashed or ordered; the numbers are the ones DAOS clients use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum ObjType {
    /// Hashed dkeys and akeys.
    MultiHashed = 0,
    /// Object id table of a snapshot.
    Oit = 1,
    /// Integer dkeys, hashed akeys.
    DkeyU64 = 2,
    /// Hashed dkeys, integer akeys.
    AkeyU64 = 3,
    /// Integer dkeys and akeys.
    MultiU64 = 4,
    /// Lexically ordered dkeys, hashed akeys.
    DkeyLexical = 5,
    /// Hashed dkeys, lexically ordered akeys.
    AkeyLexical = 6,
    /// Lexically ordered dkeys and akeys.
    MultiLexical = 7,
    /// Key-value object with hashed keys.
    KvHashed = 8,
    /// Key-value object with integer keys.
    KvU64 = 9,
    /// Key-value object with lexically ordered keys.
    KvLexical = 10,
    /// Array with its attributes in dkey 0.
    Array = 11,
    /// Array with attributes kept by the user.
    ArrayAttr = 12,
    /// Array of one-byte records with no attributes; what files are.
    ArrayByte = 13,
}

/// How the dkeys of an object are ordered in a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DkeyKind {
    /// By 64-bit hash of the key.
    Hashed,
    /// By value; keys are 8-byte little-endian integers.
    U64,
    /// Byte by byte.
    Lexical,
}

impl ObjType {
    /// All types, in the order of their numbers.
    pub const ALL: [ObjType; 14] = [
        ObjType::MultiHashed,
        ObjType::Oit,
        ObjType::DkeyU64,
        ObjType::AkeyU64,
        ObjType::MultiU64,
        ObjType::DkeyLexical,
        ObjType::AkeyLexical,
        ObjType::MultiLexical,
        ObjType::KvHashed,
        ObjType::KvU64,
        ObjType::KvLexical,
        ObjType::Array,
        ObjType::ArrayAttr,
        ObjType::ArrayByte,
    ];

    /// The type with this number, if there is one.
    pub fn from_number(number: u8) -> Option<ObjType> {
        Self::ALL.get(number as usize).copied()
    }

    /// How this type orders its dkeys.
    pub fn dkey_kind(self) -> DkeyKind {
        match self {
            ObjType::DkeyU64
            | ObjType::MultiU64
            | ObjType::KvU64
            | ObjType::Array
            | ObjType::ArrayAttr
            | ObjType::ArrayByte => DkeyKind::U64,
            ObjType::DkeyLexical | ObjType::MultiLexical | ObjType::KvLexical => DkeyKind::Lexical,
            _ => DkeyKind::Hashed,
        }
    }
}

/// A 128-bit object id, unique in its container.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
pub struct Oid {
    /// Our 32 bits above, the user's 32 bits below.
    pub hi: u64,
    /// The user's other 64 bits.
    pub lo: u64,
}

const HINT_BIT: u64 = 1 << 63;
const TYPE_SHIFT: u32 = 56;
const SCHEME_SHIFT: u32 = 48;
const GROUPS_SHIFT: u32 = 40;
const EPOCH_SHIFT: u32 = 32;

/// Sizes that cells may have, bytes. In an id the first four are bits of the scheme's code that are else 0; the last is told by
/// log2 of the data cells, 1 to 4, as 5, 6, 7, 0.
const CELL_SIZES: [u32; 5] = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];
const CELL_SIZE_LAST: u8 = CELL_SIZES.len() as u8 - 1;
/// Bits of the scheme's code: those that are 0 in it, and log2 of the data cells.
const CELL_BITS: u8 = 0b1100;
const LOG2_BITS: u8 = 0b111_0000;
const LOG2_LAST: u8 = 4;

impl Oid {
    /// The id that names nothing.
    pub const NIL: Oid = Oid { hi: 0, lo: 0 };

    /// Fills our 32 bits above the user's 96 (`user_hi` and `user_lo`).
    pub fn generate(
        user_hi: u32,
        user_lo: u64,
        kind: ObjType,
        class: ObjClass,
        placement_epoch: u8,
    ) -> Oid {
        Oid {
            hi: (kind as u64) << TYPE_SHIFT
                | (class.scheme.code() as u64) << SCHEME_SHIFT
                | (class.groups.code() as u64) << GROUPS_SHIFT
                | (placement_epoch as u64) << EPOCH_SHIFT
                | user_hi as u64,
            lo: user_lo,
        }
    }

    /// The same id, placed by its low 32 bits of `hi` alone, so that a creator can put
    /// the object's first group on a target of its choice (architecture, section 9).
    pub fn with_placement_hint(self, hint: u32) -> Oid {
        Oid { hi: (self.hi & !0xffff_ffff) | HINT_BIT | hint as u64, lo: self.lo }
    }

    /// Where the object stands in listings of objects: by hash, then by id.
    pub fn list_order(self) -> (u64, Oid) {
        (crate::hash::mix2(self.hi, self.lo), self)
    }

    /// Its first unit: links lead to it, and open handles and locks are kept with it.
    pub fn first_unit(self) -> Unit {
        self.unit(0)
    }

    /// The unit of one of its groups in a class that keeps one whole copy of it.
    pub fn unit(self, group: u32) -> Unit {
        Unit { object: self, group, cell: 0 }
    }

    pub fn is_nil(self) -> bool {
        self == Self::NIL
    }

    /// The word that placement draws from.
    pub fn placement_key(self) -> u64 {
        if self.hi & HINT_BIT != 0 {
            hash::mix(self.hi & 0xffff_ffff)
        } else {
            hash::mix2(self.hi & 0xffff_ffff, self.lo)
        }
    }

    /// The object type, or `None` when the bits are not ones we write.
    pub fn obj_type(self) -> Option<ObjType> {
        ObjType::from_number((self.hi >> TYPE_SHIFT & 0x7f) as u8)
    }

    /// How dkeys are ordered; unknown types count as hashed.
    pub fn dkey_kind(self) -> DkeyKind {
        self.obj_type().map_or(DkeyKind::Hashed, ObjType::dkey_kind)
    }

    /// The same id with cells of this size, if its class has an erasure code; nothing else has cells. A size that
    /// [`crate::props::check_cell_bytes`] refuses counts as the default.
    pub fn with_cell_bytes(self, bytes: u32) -> Oid {
        let code = (self.hi >> SCHEME_SHIFT) as u8;
        let Some(Scheme::ErasureCoded { .. }) = Scheme::from_code(code & !CELL_BITS) else {
            return self;
        };
        let size = CELL_SIZES.iter().position(|size| *size == bytes).unwrap_or(0) as u8;
        let code = match size {
            CELL_SIZE_LAST => (code & !LOG2_BITS) | (code.wrapping_add(LOG2_LAST << 4) & LOG2_BITS),
            size => code | size << 2,
        };
        Oid { hi: self.hi & !(0xff << SCHEME_SHIFT) | (code as u64) << SCHEME_SHIFT, ..self }
    }

    /// The code of its scheme, and which of [`CELL_SIZES`] its cells have.
    fn scheme_code(self) -> (u8, usize) {
        let code = (self.hi >> SCHEME_SHIFT) as u8;
        let (log2, size) = ((code & LOG2_BITS) >> 4, (code & CELL_BITS) >> 2);
        if code & 0x80 == 0 || (1..=LOG2_LAST).contains(&log2) {
            let is_coded = code & 0x80 != 0;
            return if is_coded { (code & !CELL_BITS, size as usize) } else { (code, 0) };
        }
        // No code has so many data cells: the largest cells of one that has fewer.
        match size {
            0 => {
                let log2 = code.wrapping_sub(LOG2_LAST << 4) & LOG2_BITS;
                ((code & !LOG2_BITS) | log2, CELL_SIZES.len() - 1)
            }
            _ => (code, 0),
        }
    }

    /// Bytes of the cells of its stripes; the default where there are none.
    pub fn cell_bytes(self) -> u32 {
        CELL_SIZES[self.scheme_code().1]
    }

    /// The object class, or `Inval` when the bits are not ones we write.
    pub fn class(self) -> Result<ObjClass> {
        let scheme = Scheme::from_code(self.scheme_code().0)
            .ok_or_else(|| Error::inval(format!("object {self}: unknown redundancy scheme")))?;
        let groups = GroupCount::from_code((self.hi >> GROUPS_SHIFT) as u8)
            .ok_or_else(|| Error::inval(format!("object {self}: unknown group count")))?;
        Ok(ObjClass { scheme, groups })
    }

    /// Data and parity cells of its stripes, if its class has an erasure code.
    pub fn cells(self) -> Option<(u8, u8)> {
        match Scheme::from_code(self.scheme_code().0)? {
            Scheme::ErasureCoded { data, parity } => Some((data, parity)),
            Scheme::Striped | Scheme::Replicated { .. } => None,
        }
    }

    /// Bytes of its first part, which is in its first group, if its class is progressive.
    pub fn first_part_bytes(self) -> Option<u64> {
        match GroupCount::from_code((self.hi >> GROUPS_SHIFT) as u8)? {
            GroupCount::AllBeyond { first_log2 } => Some(1 << first_log2),
            GroupCount::All | GroupCount::Count(_) | GroupCount::AllPast { .. } => None,
        }
    }

    /// With more dkeys than this it is in all of its groups and not in the first alone, if its class is such a one.
    pub fn small_keys_max(self) -> Option<u64> {
        match GroupCount::from_code((self.hi >> GROUPS_SHIFT) as u8)? {
            GroupCount::AllPast { keys_log2 } => Some(1 << keys_log2),
            GroupCount::All | GroupCount::Count(_) | GroupCount::AllBeyond { .. } => None,
        }
    }

    /// True when its class lets its dkeys move to further groups once they are many.
    pub fn spreads(self) -> bool {
        self.small_keys_max().is_some()
    }

    /// An id whose only group is placed as this one's first group is: enough to find its first unit, without
    /// placing all others.
    pub fn first_group_alone(self) -> Oid {
        let one = (GroupCount::Count(1).code() as u64) << GROUPS_SHIFT;
        Oid { hi: self.hi & !(0xff << GROUPS_SHIFT) | one, ..self }
    }

    /// True when each of its groups has one member: nothing of it is kept twice or coded.
    pub fn is_alone(self) -> bool {
        (self.hi >> SCHEME_SHIFT) as u8 == Scheme::Striped.code()
    }

    /// The placement epoch the object was made in.
    pub fn placement_epoch(self) -> u8 {
        (self.hi >> EPOCH_SHIFT) as u8
    }

    /// Sixteen bytes, little-endian, `hi` first; the form inside links and records.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut raw = [0; 16];
        raw[..8].copy_from_slice(&self.hi.to_le_bytes());
        raw[8..].copy_from_slice(&self.lo.to_le_bytes());
        raw
    }

    /// The inverse of [`Oid::to_bytes`].
    pub fn from_bytes(raw: [u8; 16]) -> Oid {
        let word = |at: usize| {
            let mut half = [0; 8];
            half.copy_from_slice(&raw[at..at + 8]);
            u64::from_le_bytes(half)
        };
        Oid { hi: word(0), lo: word(8) }
    }
}

/// What one target holds of an object, and what requests to a target name: one cell of one of the
/// object's redundancy groups. A target may hold several units of one object, which have nothing to
/// do with each other there; in order, they are neighbours.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
pub struct Unit {
    pub object: Oid,
    /// The group, counted from 0.
    pub group: u32,
    /// 0: what the group's members have copies of. Else cells of stripes, of this place in the group, counted from 1.
    pub cell: u8,
}

impl Unit {
    /// The unit that names nothing, before all others in order.
    pub const NIL: Unit = Unit { object: Oid::NIL, group: 0, cell: 0 };

    /// Where the unit stands in listings: by hash of its object, then by itself.
    pub fn list_order(self) -> (u64, Unit) {
        (self.object.list_order().0, self)
    }

    /// True for cells of stripes, which only members with an erasure code have, beside what they have copies of.
    pub fn is_cell(self) -> bool {
        self.cell > 0
    }

    /// The unit after this one in order; `None` after the last.
    pub fn next(self) -> Option<Unit> {
        let Unit { object, group, cell } = self;
        if let Some(cell) = cell.checked_add(1) {
            return Some(Unit { cell, ..self });
        }
        if let Some(group) = group.checked_add(1) {
            return Some(object.unit(group));
        }
        let object = match object.lo.checked_add(1) {
            Some(lo) => Oid { lo, ..object },
            None => Oid { hi: object.hi.checked_add(1)?, lo: 0 },
        };
        Some(object.first_unit())
    }

    /// An id whose layout tells where the unit is: of progressive arrays, which are many and small, only the first
    /// group need be placed for their first units.
    pub fn placed_as(self) -> Oid {
        let is_first = self.group == 0 && self.object.first_part_bytes().is_some();
        if is_first { self.object.first_group_alone() } else { self.object }
    }

    /// The last unit that an object can have.
    pub fn last_of(object: Oid) -> Unit {
        Unit { object, group: u32::MAX, cell: u8::MAX }
    }

    /// True for the unit of [`Oid::NIL`].
    pub fn is_nil(self) -> bool {
        self.object.is_nil()
    }

    /// As [`Oid::obj_type`].
    pub fn obj_type(self) -> Option<ObjType> {
        self.object.obj_type()
    }

    /// As [`Oid::dkey_kind`].
    pub fn dkey_kind(self) -> DkeyKind {
        self.object.dkey_kind()
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}.{}", self.object, self.group, self.cell)
    }
}

impl fmt::Debug for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}.{:016x}", self.hi, self.lo)
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Oid {
    type Err = Error;
    fn from_str(text: &str) -> Result<Oid> {
        let bad = || Error::inval(format!("'{text}' is not an object id (want HI.LO in hex)"));
        let (hi, lo) = text.split_once('.').ok_or_else(bad)?;
        let parse = |half: &str| u64::from_str_radix(half, 16).map_err(|_| bad());
        Ok(Oid { hi: parse(hi)?, lo: parse(lo)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_ids_carry_type_class_and_epoch() {
        for class in ObjClass::named() {
            let oid = Oid::generate(7, 9, ObjType::ArrayByte, class, 3);
            assert_eq!(oid.class().unwrap(), class);
            assert_eq!(oid.obj_type(), Some(ObjType::ArrayByte));
            assert_eq!(oid.placement_epoch(), 3);
            assert_eq!(oid.to_string().parse::<Oid>().unwrap(), oid);
            assert_eq!(Oid::from_bytes(oid.to_bytes()), oid);
        }
    }

    #[test]
    fn ids_of_coded_objects_carry_the_size_of_their_cells() {
        let mut seen = std::collections::BTreeSet::new();
        for class in ObjClass::named() {
            let oid = Oid::generate(7, 9, ObjType::ArrayByte, class, 3);
            assert_eq!(oid.cell_bytes(), 64 << 10);
            for bytes in CELL_SIZES {
                let sized = oid.with_cell_bytes(bytes);
                let is_coded = matches!(class.scheme, Scheme::ErasureCoded { .. });
                assert_eq!(sized.cell_bytes(), if is_coded { bytes } else { 64 << 10 });
                assert_eq!(sized.class().unwrap(), class);
                assert_eq!(sized.cells(), oid.cells());
                assert_eq!(sized.first_group_alone().cell_bytes(), sized.cell_bytes());
                assert_eq!((sized.placement_key(), sized.lo), (oid.placement_key(), 9));
                assert!(seen.insert(sized) || !is_coded, "{class} with cells of {bytes}");
            }
        }
        // Stored in every entry of a coded file: a change here needs a way to tell old ids from new ones.
        let oid = |class: &str, bytes| {
            let class = class.parse().unwrap();
            Oid::generate(0, 0, ObjType::ArrayByte, class, 0).with_cell_bytes(bytes).hi >> 48
        };
        assert_eq!(oid("EC_2P1GX", 64 << 10), 0x0d91);
        assert_eq!(oid("EC_4P2GX", 128 << 10), 0x0da6);
        assert_eq!(oid("EC_8P3GX", 512 << 10), 0x0dbf);
        assert_eq!(oid("EC_2P1GX", 1 << 20), 0x0dd1);
        assert_eq!(oid("EC_16P2GX", 1 << 20), 0x0d82);
    }

    #[test]
    fn units_of_an_object_are_neighbours_in_both_orders() {
        let objects = [Oid { hi: 1, lo: 8 }, Oid { hi: 1, lo: 9 }, Oid { hi: 2, lo: 0 }];
        let all = |object: Oid| {
            let cells = |group| [0, 1, u8::MAX].map(|cell| Unit { object, group, cell });
            [0, 1, u32::MAX].map(cells).concat()
        };
        let mut units: Vec<Unit> = objects.into_iter().rev().flat_map(all).collect();
        units.sort_unstable();
        assert_eq!(units, objects.map(all).concat());
        assert!(units.windows(2).all(|two| two[0].next().is_some_and(|next| next <= two[1])));
        units.sort_unstable_by_key(|unit| unit.list_order());
        let mut found: Vec<Oid> = units.chunks(9).map(|units| units[0].object).collect();
        assert!(units.chunks(9).all(|units| units == all(units[0].object)));
        found.sort_unstable_by_key(|oid| oid.list_order());
        assert_eq!(found, units.chunks(9).map(|units| units[0].object).collect::<Vec<_>>());
        let last = Oid { hi: u64::MAX, lo: u64::MAX };
        assert_eq!(Unit::last_of(objects[0]).next(), Some(objects[1].first_unit()));
        assert_eq!(
            Unit::last_of(Oid { lo: u64::MAX, ..objects[0] }).next(),
            Some(objects[2].first_unit())
        );
        assert_eq!(Unit::last_of(last).next(), None);
        assert_eq!(size_of::<Unit>(), 24);
    }

    #[test]
    fn a_hint_alone_decides_the_placement_key() {
        let class = "S1".parse().unwrap();
        let a = Oid::generate(0, 1, ObjType::ArrayByte, class, 0).with_placement_hint(42);
        let b = Oid::generate(0, 2, ObjType::ArrayByte, class, 0).with_placement_hint(42);
        assert_eq!(a.placement_key(), b.placement_key());
        assert_eq!(a.class().unwrap(), class);
        assert_eq!(a.obj_type(), Some(ObjType::ArrayByte));
    }
}
