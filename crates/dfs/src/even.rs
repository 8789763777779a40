//! First parts of files over the groups of their directory, as evenly as if somebody counted.
//!
//! A file is made beside its entry: then one request is enough for both. In a directory that has spread, entries lie by the hashes of their
//! names, and some fifty large files for each group are as even as chance has it. So a mount counts what it has written lately of each
//! directory's files, by group, and where a group has clearly more than the average the next file goes to the one with the least (consistent
//! hashing with bounded loads). Such a file costs a second request, as one that was renamed does; of small files there are none as long as the
//! difference is small in bytes.
//!
//! Invariant: what is counted decides where new files go and nothing else.

use types::{Oid, hash};

/// Directories remembered; a small direct-mapped table.
const DIRS: usize = 64;
/// More than the average by this part of it is clearly more, and a half of a first part in addition.
const MORE_PART: u64 = 64;

/// What a mount has written in each group.
#[derive(Default)]
pub(crate) struct Written(Vec<Option<Dir>>);

struct Dir {
    oid: Oid,
    /// By group, bytes.
    bytes: Vec<u64>,
}

/// Where a file's first part was put when it was made, and how much of it has been counted.
#[derive(Clone, Copy)]
pub(crate) struct Beside {
    pub dir: Oid,
    pub group: u32,
    pub bytes: u64,
}

impl Written {
    fn dir(&mut self, oid: Oid) -> &mut Dir {
        self.0.resize_with(DIRS, || None);
        let slot = &mut self.0[hash::mix2(oid.hi, oid.lo) as usize % DIRS];
        if slot.as_ref().is_some_and(|dir| dir.oid != oid) {
            *slot = None;
        }
        slot.get_or_insert_with(|| Dir { oid, bytes: Vec::new() })
    }

    /// So many bytes more were written in a group of a directory.
    pub fn add(&mut self, dir: Oid, group: u32, bytes: u64) {
        let dir = self.dir(dir);
        if dir.bytes.len() <= group as usize {
            dir.bytes.resize(group as usize + 1, 0);
        }
        dir.bytes[group as usize] += bytes;
    }

    /// The group for another file whose entry is in `group`, of so many; `first_bytes` of it may be there.
    pub fn choose(&mut self, dir: Oid, group: u32, group_count: usize, first_bytes: u64) -> u32 {
        let bytes = &mut self.dir(dir).bytes;
        bytes.resize(group_count, 0);
        let Some(&here) = bytes.get(group as usize) else { return group };
        let mean = bytes.iter().sum::<u64>() / group_count as u64;
        if here < mean + mean / MORE_PART + first_bytes / 2 {
            return group;
        }
        let least = (0..).zip(bytes.iter()).min_by_key(|(_, bytes)| **bytes);
        least.map_or(group, |(least, _)| least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GROUPS: usize = 8;

    fn dir(lo: u64) -> Oid {
        Oid { hi: 1, lo }
    }

    /// Files of so many bytes by mounts that know nothing of each other; the first ones are made while the directory is small. Returns the files
    /// in each group, and how many are not beside their entries.
    fn make(mounts: usize, files: u64, bytes: u64, small: u64) -> (Vec<u64>, u64) {
        let (mut counts, mut apart) = (vec![0; GROUPS], 0);
        let mut written: Vec<Written> = (0..mounts).map(|_| Written::default()).collect();
        for file in 0..files {
            let of = &mut written[file as usize % mounts];
            let entry = (hash::mix(file + 77) >> 61) as u32;
            let group = match file < small {
                true => 0,
                false => of.choose(dir(1), entry, GROUPS, MIB),
            };
            apart += (file >= small && group != entry) as u64;
            of.add(dir(1), group, bytes);
            counts[group as usize] += 1;
        }
        (counts, apart)
    }

    #[test]
    fn some_hundred_large_files_are_even() {
        for mounts in [1, 4] {
            let (counts, apart) = make(mounts, 400, MIB, 8);
            assert!(counts.iter().all(|count| (45..=55).contains(count)), "{mounts}: {counts:?}");
            assert!(apart < 110, "{mounts}: {apart}");
        }
        // Without any of this they are not.
        let mut counts = [0u32; GROUPS];
        (0..400).for_each(|file| counts[(hash::mix(file + 77) >> 61) as usize] += 1);
        assert!(!counts.iter().all(|count| (45..=55).contains(count)), "{counts:?}");
    }

    #[test]
    fn small_and_empty_files_stay_beside_their_entries() {
        let (_, apart) = make(1, 100_000, 3_901, 100);
        assert!(apart < 500, "{apart}");
        assert_eq!(make(1, 10_000, 0, 5_000).1, 0);
    }

    #[test]
    fn a_directory_that_shares_a_place_begins_anew() {
        let mut written = Written::default();
        written.add(dir(1), 3, 9 * MIB);
        assert_ne!(written.choose(dir(1), 3, GROUPS, MIB), 3);
        let slot = |oid: Oid| hash::mix2(oid.hi, oid.lo) as usize % DIRS;
        let other = (2..).map(dir).find(|other| slot(*other) == slot(dir(1))).unwrap();
        assert_eq!(written.choose(other, 3, GROUPS, MIB), 3);
        assert_eq!(written.choose(dir(1), 3, GROUPS, MIB), 3);
        // A map may have fewer groups.
        written.add(dir(1), 3, 9 * MIB);
        assert_eq!(written.choose(dir(1), 2, 3, MIB), 2);
    }
}
