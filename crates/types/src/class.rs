//! Object classes: a redundancy scheme times a number of redundancy groups.
//!
//! Names follow DAOS: `S1 S2 … SX`, `RP_2G1 … RP_6GX`, `EC_2P1G1 … EC_16P3GX`.
//! A group count is 2^k or 3·2^k, or `X`: every target of the pool. `X+SIZE` is progressive: the first
//! part of an array, of that size, is in the first group, and all beyond it over all groups.

use crate::{Error, Result, size};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How the members of one redundancy group protect the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
pub enum Scheme {
    /// One member: striped, no redundancy.
    Striped,
    /// Each member holds everything; 2 to 6 of them.
    Replicated { copies: u8 },
    /// Data cells and parity cells.
    ErasureCoded {
        /// Data cells: 2, 4, 8 or 16.
        data: u8,
        /// Parity cells: 1 to 3.
        parity: u8,
    },
}

impl Scheme {
    /// Members of one redundancy group.
    pub fn members(self) -> usize {
        match self {
            Scheme::Striped => 1,
            Scheme::Replicated { copies } => copies as usize,
            Scheme::ErasureCoded { data, parity } => (data + parity) as usize,
        }
    }

    /// Members of one redundancy group that hold its keys, what is not coded, and where the rest is; the others
    /// hold cells only.
    pub fn copies(self) -> usize {
        match self {
            Scheme::Striped => 1,
            Scheme::Replicated { copies } => copies as usize,
            Scheme::ErasureCoded { parity, .. } => parity as usize + 1,
        }
    }

    /// How many members may be lost without losing data: DAOS's redundancy factor.
    pub fn redundancy_factor(self) -> u8 {
        match self {
            Scheme::Striped => 0,
            Scheme::Replicated { copies } => copies - 1,
            Scheme::ErasureCoded { parity, .. } => parity,
        }
    }

    /// One byte for object ids: 0 striped, 2..=6 copies, 0x80 | log2(data) << 4 | parity.
    pub fn code(self) -> u8 {
        match self {
            Scheme::Striped => 0,
            Scheme::Replicated { copies } => copies,
            Scheme::ErasureCoded { data, parity } => {
                0x80 | (data.trailing_zeros() as u8) << 4 | parity
            }
        }
    }

    /// The inverse of [`Scheme::code`].
    pub fn from_code(code: u8) -> Option<Scheme> {
        match code {
            0 => Some(Scheme::Striped),
            2..=6 => Some(Scheme::Replicated { copies: code }),
            _ if code & 0x80 != 0 => {
                let (log2, parity) = (code >> 4 & 7, code & 15);
                ((1..=4).contains(&log2) && (1..=3).contains(&parity))
                    .then(|| Scheme::ErasureCoded { data: 1 << log2, parity })
            }
            _ => None,
        }
    }
}

/// Number of redundancy groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
pub enum GroupCount {
    /// This many; 2^k or 3·2^k.
    Count(u32),
    /// As many as the pool's targets allow.
    All,
    /// As many, but the first 2^`first_log2` bytes of an array are in the first group, whatever its
    /// chunks are; [`FIRST_PART_LOG2_MIN`] to [`FIRST_PART_LOG2_MAX`].
    AllBeyond { first_log2: u8 },
    /// Of directories: as many, but all in the first group until there are more than 2^`keys_log2` dkeys, at most
    /// [`LARGE_KEYS_LOG2_MAX`]; from then on they move.
    AllPast { keys_log2: u8 },
}

/// The smallest first part of a progressive array is a block: 4 KiB.
pub const FIRST_PART_LOG2_MIN: u8 = 12;
/// The largest is as large as the largest chunk: 1 GiB.
pub const FIRST_PART_LOG2_MAX: u8 = 30;
/// What the codes of progressive group counts begin with.
const BEYOND_CODE: u8 = 64;
/// An object is large with 2^30 dkeys at the latest.
pub const LARGE_KEYS_LOG2_MAX: u8 = 30;
/// What the codes of group counts that depend on the number of dkeys begin with.
const PAST_CODE: u8 = 96;

impl GroupCount {
    /// One byte for object ids: even 2k for 2^k, odd 2k+1 for 3·2^k, 255 for all, 64 + k for all
    /// beyond 2^k bytes, 96 + k for all past 2^k dkeys.
    pub fn code(self) -> u8 {
        match self {
            GroupCount::All => 255,
            GroupCount::AllBeyond { first_log2 } => BEYOND_CODE + first_log2,
            GroupCount::AllPast { keys_log2 } => PAST_CODE + keys_log2,
            GroupCount::Count(n) if n.is_power_of_two() => 2 * n.trailing_zeros() as u8,
            GroupCount::Count(n) => 2 * n.trailing_zeros() as u8 + 1,
        }
    }

    /// The inverse of [`GroupCount::code`].
    pub fn from_code(code: u8) -> Option<GroupCount> {
        match code {
            255 => Some(GroupCount::All),
            76..=94 => Some(GroupCount::AllBeyond { first_log2: code - BEYOND_CODE }),
            96..=126 => Some(GroupCount::AllPast { keys_log2: code - PAST_CODE }),
            0..=30 if code.is_multiple_of(2) => Some(GroupCount::Count(1 << (code / 2))),
            0..=27 => Some(GroupCount::Count(3 << (code / 2))),
            _ => None,
        }
    }

    fn checked(n: u32) -> Option<GroupCount> {
        let odd_part = n.checked_shr(n.trailing_zeros())?;
        (n <= 32_768 && (odd_part == 1 || odd_part == 3)).then_some(GroupCount::Count(n))
    }
}

/// How an object is protected, and over how many groups it is striped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ObjClass {
    /// Protection inside a group.
    pub scheme: Scheme,
    pub groups: GroupCount,
}

impl ObjClass {
    /// One group of one member.
    pub const S1: ObjClass = ObjClass { scheme: Scheme::Striped, groups: GroupCount::Count(1) };
    /// Striped over every target of the pool.
    pub const SX: ObjClass = ObjClass { scheme: Scheme::Striped, groups: GroupCount::All };

    /// What files have where nobody names a class: the first MiB in one group, all beyond over all.
    pub const PROGRESSIVE: ObjClass =
        ObjClass { scheme: Scheme::Striped, groups: GroupCount::AllBeyond { first_log2: 20 } };

    /// What directories have where nobody names a class: one group up to 8,192 names, all groups beyond.
    pub const SPREADING: ObjClass =
        ObjClass { scheme: Scheme::Striped, groups: GroupCount::AllPast { keys_log2: 13 } };

    /// Bytes of the first part of a progressive class; `None` for all others.
    pub fn first_part_bytes(self) -> Option<u64> {
        match self.groups {
            GroupCount::AllBeyond { first_log2 } => Some(1 << first_log2),
            GroupCount::All | GroupCount::Count(_) | GroupCount::AllPast { .. } => None,
        }
    }

    /// With more dkeys than this an object is in all groups and not in the first alone; `None` for classes whose objects are
    /// always in the same.
    pub fn small_keys_max(self) -> Option<u64> {
        match self.groups {
            GroupCount::AllPast { keys_log2 } => Some(1 << keys_log2),
            GroupCount::All | GroupCount::Count(_) | GroupCount::AllBeyond { .. } => None,
        }
    }

    /// A progressive class with this protection; with 0 bytes, a class of one group.
    ///
    /// Errors: `Inval` unless `bytes` is 0 or a power of two from 4 KiB to 1 GiB.
    pub fn with_first_part(self, bytes: u64) -> Result<ObjClass> {
        let known = FIRST_PART_LOG2_MIN..=FIRST_PART_LOG2_MAX;
        let groups = match bytes.checked_ilog2() {
            None => GroupCount::Count(1),
            Some(log2) if bytes.is_power_of_two() && known.contains(&(log2 as u8)) => {
                GroupCount::AllBeyond { first_log2: log2 as u8 }
            }
            Some(_) => {
                return Err(Error::inval(format!(
                    "first part {bytes} must be 0 or a power of two from 4 KiB to 1 GiB"
                )));
            }
        };
        Ok(ObjClass { groups, ..self })
    }

    /// This class if it survives `rd_fac` losses, else as many groups of as many copies as it takes.
    pub fn at_least(self, rd_fac: u8) -> ObjClass {
        if self.scheme.redundancy_factor() >= rd_fac {
            return self;
        }
        ObjClass { scheme: Scheme::Replicated { copies: rd_fac.saturating_add(1).min(6) }, ..self }
    }

    /// The classes that have a name in user interfaces and tab completion.
    pub fn named() -> Vec<ObjClass> {
        let mut schemes = vec![Scheme::Striped];
        schemes.extend((2..=6).map(|copies| Scheme::Replicated { copies }));
        for data in [2, 4, 8, 16] {
            schemes.extend((1..=3).map(|parity| Scheme::ErasureCoded { data, parity }));
        }
        let groups: Vec<GroupCount> = [1, 2, 4, 6, 8, 12, 16, 32, 64, 128]
            .into_iter()
            .map(GroupCount::Count)
            .chain([GroupCount::All])
            .collect();
        schemes
            .into_iter()
            .flat_map(|scheme| groups.iter().map(move |&groups| ObjClass { scheme, groups }))
            .collect()
    }
}

impl fmt::Display for ObjClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scheme {
            Scheme::Striped => write!(f, "S")?,
            Scheme::Replicated { copies } => write!(f, "RP_{copies}G")?,
            Scheme::ErasureCoded { data, parity } => write!(f, "EC_{data}P{parity}G")?,
        }
        match self.groups {
            GroupCount::All => write!(f, "X"),
            GroupCount::AllBeyond { first_log2: log2 @ 30.. } => {
                write!(f, "X+{}GiB", 1u64 << (log2 - 30))
            }
            GroupCount::AllBeyond { first_log2: log2 @ 20.. } => {
                write!(f, "X+{}MiB", 1u64 << (log2 - 20))
            }
            GroupCount::AllBeyond { first_log2 } => {
                write!(f, "X+{}KiB", (1u64 << first_log2) >> 10)
            }
            GroupCount::AllPast { keys_log2 } => write!(f, "X@{}", 1u64 << keys_log2),
            GroupCount::Count(n) => write!(f, "{n}"),
        }
    }
}

impl FromStr for ObjClass {
    type Err = Error;

    /// Accepts the names above in any case.
    fn from_str(text: &str) -> Result<ObjClass> {
        parse(&text.to_ascii_uppercase()).ok_or_else(|| {
            Error::inval(format!(
                "'{text}' is not an object class (examples: S1, S4, SX, SX+1MiB, SX@8192, RP_2G1, RP_3GX, EC_4P2GX)"
            ))
        })
    }
}

fn parse(text: &str) -> Option<ObjClass> {
    let groups = |text: &str| match text {
        "X" => Some(GroupCount::All),
        _ if text.starts_with("X+") => {
            let bytes = size::parse(text.strip_prefix("X+")?).ok()?;
            let first_log2 = bytes.checked_ilog2()? as u8;
            let known = FIRST_PART_LOG2_MIN..=FIRST_PART_LOG2_MAX;
            (bytes.is_power_of_two() && known.contains(&first_log2))
                .then_some(GroupCount::AllBeyond { first_log2 })
        }
        _ if text.starts_with("X@") => {
            let keys = decimal(text.strip_prefix("X@")?)?;
            let keys_log2 = keys.checked_ilog2()? as u8;
            (keys.is_power_of_two() && keys_log2 <= LARGE_KEYS_LOG2_MAX)
                .then_some(GroupCount::AllPast { keys_log2 })
        }
        digits => GroupCount::checked(number(digits)?),
    };
    if let Some(rest) = text.strip_prefix("RP_") {
        let (copies, count) = rest.split_once('G')?;
        let copies: u8 = number(copies)?.try_into().ok()?;
        let scheme = (2..=6).contains(&copies).then_some(Scheme::Replicated { copies })?;
        return Some(ObjClass { scheme, groups: groups(count)? });
    }
    if let Some(rest) = text.strip_prefix("EC_") {
        let (cells, count) = rest.split_once('G')?;
        let (data, parity) = cells.split_once('P')?;
        let (data, parity) = (number(data)?.try_into().ok()?, number(parity)?.try_into().ok()?);
        let scheme = (matches!(data, 2 | 4 | 8 | 16) && (1..=3).contains(&parity))
            .then_some(Scheme::ErasureCoded { data, parity })?;
        return Some(ObjClass { scheme, groups: groups(count)? });
    }
    let count = text.strip_prefix('S')?;
    Some(ObjClass { scheme: Scheme::Striped, groups: groups(count)? })
}

/// Plain decimal digits without sign or leading zero, at most five.
fn number(text: &str) -> Option<u32> {
    (text.len() <= 5).then(|| decimal(text))?
}

/// Plain decimal digits without sign or leading zero.
fn decimal(text: &str) -> Option<u32> {
    let plain = !text.is_empty()
        && text.len() <= 10
        && text.bytes().all(|b| b.is_ascii_digit())
        && !text.starts_with('0');
    plain.then(|| text.parse().ok())?
}

impl Serialize for ObjClass {
    fn serialize<S: serde::Serializer>(
        &self,
        serializer: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ObjClass {
    fn deserialize<D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> std::result::Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_that_io500_configurations_use_is_known() {
        for name in [
            "SX",
            "S1",
            "RP_2G1",
            "RP_2GX",
            "RP_3GX",
            "RP_2G32",
            "EC_2P1GX",
            "EC_2P2GX",
            "EC_4P2GX",
            "EC_8P2GX",
            "EC_16P1GX",
            "EC_16P2GX",
        ] {
            assert_eq!(name.parse::<ObjClass>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn names_and_codes_round_trip() {
        for class in ObjClass::named() {
            assert_eq!(class.to_string().parse::<ObjClass>().unwrap(), class);
            assert_eq!(Scheme::from_code(class.scheme.code()), Some(class.scheme));
            assert_eq!(GroupCount::from_code(class.groups.code()), Some(class.groups));
        }
    }

    #[test]
    fn progressive_classes_have_names_codes_and_a_first_part() {
        for (name, bytes) in [
            ("SX+4KiB", 4 << 10),
            ("SX+1MiB", 1 << 20),
            ("RP_2GX+8MiB", 8 << 20),
            ("EC_4P2GX+1GiB", 1 << 30),
        ] {
            let class: ObjClass = name.parse().unwrap();
            assert_eq!((class.to_string(), class.first_part_bytes()), (name.into(), Some(bytes)));
            assert_eq!(GroupCount::from_code(class.groups.code()), Some(class.groups));
        }
        assert_eq!("sx+1m".parse::<ObjClass>().unwrap(), ObjClass::PROGRESSIVE);
        assert_eq!(ObjClass::PROGRESSIVE.at_least(1).to_string(), "RP_2GX+1MiB");
        assert_eq!(ObjClass::SPREADING.to_string(), "SX@8192");
        assert_eq!(ObjClass::SPREADING.at_least(1).to_string(), "RP_2GX@8192");
        for bad in ["SX+", "SX+0", "SX+2KiB", "SX+2GiB", "SX+3MiB", "S4+1MiB", "SX+1MiB+1MiB"] {
            assert!(bad.parse::<ObjClass>().is_err(), "{bad}");
        }
    }

    #[test]
    fn classes_of_directories_that_grow_have_names_and_codes() {
        for (name, keys) in [("SX@1", 1), ("SX@8192", 8192), ("RP_2GX@1073741824", 1 << 30)] {
            let class: ObjClass = name.parse().unwrap();
            assert_eq!((class.to_string(), class.small_keys_max()), (name.into(), Some(keys)));
            assert_eq!(class.first_part_bytes(), None);
            assert_eq!(GroupCount::from_code(class.groups.code()), Some(class.groups));
        }
        assert_eq!("SX@8192".parse::<ObjClass>().unwrap().at_least(1).to_string(), "RP_2GX@8192");
        for bad in ["SX@", "SX@0", "SX@3", "SX@08", "SX@2147483648", "SX@8K", "S4@8"] {
            assert!(bad.parse::<ObjClass>().is_err(), "{bad}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_examples() {
        // Fuzzing found that `EC_516P1GX` was taken for `EC_4P1GX`: 516 was cut to eight bits.
        let cut = ["EC_516P1GX", "EC_2P257G1", "RP_258G1"];
        let plain = ["", "S", "S0", "S5", "S-1", "S+1", "RP_1G1", "RP_7GX", "EC_3P1GX", "EC_2P4G1"];
        for bad in cut.into_iter().chain(plain).chain(["SXX", "X"]) {
            let error = bad.parse::<ObjClass>().unwrap_err();
            assert!(error.to_string().contains("RP_2G1"), "{error}");
        }
    }

    #[test]
    fn unknown_codes_decode_to_nothing() {
        for code in 0..=255u8 {
            if let Some(scheme) = Scheme::from_code(code) {
                assert_eq!(scheme.code(), code);
            }
            if let Some(groups) = GroupCount::from_code(code) {
                assert_eq!(groups.code(), code);
            }
        }
    }
}
