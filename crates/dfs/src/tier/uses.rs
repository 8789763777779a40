//! On which days a file was used, as whoever moves files has seen it: times of access tell the last use only.
//!
//! An extended attribute of the file that programs neither see nor set: magic `AZU1`, a day (4 bytes; days since 1970), and 64 bits, of which
//! bit *n* says that the file was used *n* days before that day. Numbers have their least significant byte first.

use super::USES;
use crate::fs::Dfs;
use crate::inode::FileKind;
use crate::layout::xattr_akey;
use crate::node::Obj;
use crate::xattr::Change;
use async_recursion::async_recursion as boxed;
use types::{Code, Error, Result};
use wire::obj::Cond;

const MAGIC: &[u8; 4] = b"AZU1";
const ENCODED_BYTES: usize = 16;
/// Days that are remembered.
pub const USES_DAYS: u32 = 64;
const DAY_NS: i64 = 86_400_000_000_000;

/// Days, of the last 64 before the newest of them, that a file was used on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Uses {
    /// The newest, days since 1970.
    day: u32,
    /// Bit `n`: used `n` days before that.
    bits: u64,
}

/// The day of a time in nanoseconds since 1970; the first one for what was before.
pub fn day_of(time_ns: i64) -> u32 {
    u32::try_from(time_ns.max(0) / DAY_NS).unwrap_or(u32::MAX)
}

impl Uses {
    /// Notes a use on a day.
    pub fn add(&mut self, day: u32) {
        if day > self.day {
            self.bits = self.bits.checked_shl(day - self.day).unwrap_or(0);
            self.day = day;
        }
        self.bits |= 1u64.checked_shl(self.day - day).unwrap_or(0);
    }

    /// On how many of the last `days` days, the last of which is `today`, the file was used. At most 64 days count.
    pub fn count(self, today: u32, days: u32) -> u32 {
        let used = (0..USES_DAYS).filter(|back| self.bits >> back & 1 == 1);
        // What is later than today was noted by a clock that was ahead.
        let ago = used.filter_map(|back| today.checked_sub(self.day.checked_sub(back)?));
        ago.filter(|ago| *ago < days.min(USES_DAYS)).count() as u32
    }

    /// The bytes that are kept.
    pub fn encode(self) -> [u8; ENCODED_BYTES] {
        let mut raw = [0; ENCODED_BYTES];
        raw[..4].copy_from_slice(MAGIC);
        raw[4..8].copy_from_slice(&self.day.to_le_bytes());
        raw[8..].copy_from_slice(&self.bits.to_le_bytes());
        raw
    }

    /// The inverse. `Io` for other bytes.
    pub fn decode(raw: &[u8]) -> Result<Uses> {
        let bad = || Error::new(Code::Io, "what is noted of a file's uses cannot be understood");
        let raw: &[u8; ENCODED_BYTES] = raw.try_into().map_err(|_| bad())?;
        let (magic, rest) = raw.split_first_chunk::<4>().ok_or_else(bad)?;
        let (day, bits) = rest.split_first_chunk::<4>().ok_or_else(bad)?;
        let bits: [u8; 8] = bits.try_into().map_err(|_| bad())?;
        match magic == MAGIC {
            true => Ok(Uses { day: u32::from_le_bytes(*day), bits: u64::from_le_bytes(bits) }),
            false => Err(bad()),
        }
    }
}

impl Dfs {
    /// What is noted of a file's uses; nothing for one that has no name any more.
    #[boxed(?Send)]
    pub async fn tier_uses(&self, file: &Obj) -> Result<Uses> {
        let shared = &self.shared;
        let found = match file.kind() {
            FileKind::Regular => shared.fetch_node(&file.node).await?,
            FileKind::Directory
            | FileKind::Symlink
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice => None,
        };
        let Some((location, found)) = found.filter(|(_, found)| found.inode.has_xattrs) else {
            return Ok(Uses::default());
        };
        let place = shared.place_of(location.parent, &location.name, &found.inode);
        match shared.fetch_xattr(place, &xattr_akey(USES)).await? {
            Some(raw) => Uses::decode(&raw),
            None => Ok(Uses::default()),
        }
    }

    /// Notes a file's uses. Errors: as for extended attributes.
    #[boxed(?Send)]
    pub async fn set_tier_uses(&self, file: &Obj, uses: Uses) -> Result<()> {
        file.require_regular()?;
        let value = uses.encode();
        self.change_xattr(file, USES, Change::Set { value: &value, cond: Cond::NONE }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn golden_bytes() {
        let mut uses = Uses::default();
        uses.add(20_000);
        uses.add(20_003);
        let want = *b"AZU1\x23\x4e\0\0\x09\0\0\0\0\0\0\0";
        assert_eq!(uses.encode(), want);
        assert_eq!(Uses::decode(&want).unwrap(), uses);
        assert!(Uses::decode(&want[1..]).is_err() && Uses::decode(&[0; 16]).is_err());
        assert_eq!((day_of(-1), day_of(DAY_NS - 1), day_of(DAY_NS)), (0, 0, 1));
        assert_eq!(day_of(i64::MAX), 106_751);
    }

    /// Compared with a set of days, for uses in any order.
    #[test]
    fn days_are_counted_as_a_set_of_them_would() {
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let (mut uses, mut days) = (Uses::default(), BTreeSet::new());
            for _ in 0..random(40) {
                let day = 10_000 + random(150) as u32;
                uses.add(day);
                days.insert(day);
                let newest = *days.last().unwrap();
                days.retain(|day| newest - day < USES_DAYS);
                uses = Uses::decode(&uses.encode()).unwrap();
            }
            let (today, window) = (10_000 + random(200) as u32, random(70) as u32);
            let is_in = |day: &&u32| **day <= today && today - **day < window.min(USES_DAYS);
            assert_eq!(uses.count(today, window), days.iter().filter(is_in).count() as u32);
        }
        assert_eq!(Uses::default().count(20_000, 64), 0);
        let mut far = Uses::default();
        far.add(u32::MAX);
        far.add(0);
        assert_eq!((far.count(u32::MAX, 1), far.count(5, 64)), (1, 0));
    }
}
