//! What the kernel may keep, and for how long.
//!
//! | mode | names and attributes | pages | for |
//! |---|---|---|---|
//! | `none` | asked by each operation | reads and writes bypass them; mapped files have them until the next open | several nodes that write the same files |
//! | `metadata` | kept for the time-outs | kept while size and mtime stay the same; written through | most uses |
//! | `full` | kept for the time-outs | kept, and written back later | one node that writes |
//!
//! What `none` means for attributes: the kernel asks for a name (LOOKUP) in each operation, and is
//! told the attributes with it. Were they good for no time at all it would ask for them again to
//! check permissions, and again to hand them to the program, so they are good for
//! [`OPERATION_TTL`]. Nobody can get at older ones: the next operation on a path asks for its names
//! again, and for what is open attributes are good for no time ([`CachePolicy::attr_ttl_of`]).
//! Directories are the exception: one that a program is in, or has open, is asked about by no name.
//!
//! Why `metadata` is the default: with no caching at all each component of each path costs a
//! request and `exec` reads programs anew, which nobody expects of a mount; with write-back a
//! crash of this machine loses what programs believe written, and other nodes see it late, which
//! nobody expects of a *shared* file system. One second is what dfuse and the kernel's own FUSE
//! examples keep names and attributes for.

use std::str::FromStr;
use std::time::Duration;
use types::Error;

/// What the kernel may keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CacheMode {
    /// Nothing: each operation sees what other clients have completed.
    None,
    /// Names and attributes for a time, pages while the file does not change.
    #[default]
    Metadata,
    /// All, and written back later: for one node that writes.
    Full,
}

impl FromStr for CacheMode {
    type Err = Error;
    fn from_str(text: &str) -> Result<CacheMode, Error> {
        match text {
            "none" => Ok(CacheMode::None),
            "metadata" => Ok(CacheMode::Metadata),
            "full" => Ok(CacheMode::Full),
            _ => Err(Error::inval(format!(
                "'{text}' is no cache mode (want none, metadata or full)"
            ))),
        }
    }
}

/// How long names and attributes are kept where the mode keeps them.
pub const TTL_DEFAULT: Duration = Duration::from_secs(1);

/// How long attributes that came with a name are good where nothing is kept: for the operation that
/// asked for the name. The kernel counts in ticks of its timer and rounds up, so it is one tick at
/// least and two at most (1 to 10 ms each).
pub const OPERATION_TTL: Duration = Duration::from_nanos(1);

/// Mode and time-outs together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CachePolicy {
    pub mode: CacheMode,
    /// How long attributes are good, from one operation to another.
    pub attr_ttl: Duration,
    /// How long they are good within one, where that is longer.
    pub operation_ttl: Duration,
    /// How long names are good.
    pub entry_ttl: Duration,
    /// How long it is good that a name does not exist.
    pub negative_ttl: Duration,
}

impl CachePolicy {
    /// The defaults of a mode.
    pub fn new(mode: CacheMode) -> CachePolicy {
        let ttl = if mode == CacheMode::None { Duration::ZERO } else { TTL_DEFAULT };
        CachePolicy {
            mode,
            attr_ttl: ttl,
            operation_ttl: OPERATION_TTL,
            entry_ttl: ttl,
            negative_ttl: Duration::ZERO,
        }
    }

    /// How long attributes are good that the kernel is told now. `seen_without_name`: programs get
    /// at the attributes without asking for the name before.
    pub fn attr_ttl_of(&self, seen_without_name: bool) -> Duration {
        if seen_without_name { self.attr_ttl } else { self.attr_ttl.max(self.operation_ttl) }
    }

    /// Writes wait in the kernel's pages.
    pub fn writes_back(&self) -> bool {
        self.mode == CacheMode::Full
    }

    /// How a regular file is opened.
    pub fn pages(&self, opening: Opening) -> Pages {
        // What the kernel writes at what it takes for the end would be found elsewhere when
        // somebody else appends too.
        let appends_shared = opening.append && self.mode != CacheMode::Full;
        let direct = self.mode == CacheMode::None || opening.o_direct || appends_shared;
        Pages { direct, keep: opening.unchanged && self.mode != CacheMode::None }
    }
}

/// What is known when a regular file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Opening {
    pub append: bool,
    pub o_direct: bool,
    /// Size and mtime are those that the kernel has.
    pub unchanged: bool,
}

/// How the kernel is to treat the pages of an opened file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pages {
    /// Reads and writes bypass them.
    pub direct: bool,
    /// Those it has are still good.
    pub keep: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_by_mode_and_flags() {
        let plain = Opening { unchanged: true, ..Opening::default() };
        let appends = Opening { append: true, ..plain };
        let o_direct = Opening { o_direct: true, ..plain };
        let changed = Opening { unchanged: false, ..plain };
        for (mode, opening, direct, keep) in [
            (CacheMode::None, plain, true, false),
            (CacheMode::None, appends, true, false),
            (CacheMode::Metadata, plain, false, true),
            (CacheMode::Metadata, changed, false, false),
            (CacheMode::Metadata, appends, true, true),
            (CacheMode::Metadata, o_direct, true, true),
            (CacheMode::Full, plain, false, true),
            (CacheMode::Full, appends, false, true),
            (CacheMode::Full, changed, false, false),
            (CacheMode::Full, o_direct, true, true),
        ] {
            let pages = CachePolicy::new(mode).pages(opening);
            assert_eq!(pages, Pages { direct, keep }, "{mode:?} {opening:?}");
        }
    }

    #[test]
    fn no_caching_means_no_time_outs() {
        let none = CachePolicy::new(CacheMode::None);
        assert_eq!((none.attr_ttl, none.entry_ttl), (Duration::ZERO, Duration::ZERO));
        assert_eq!(
            (none.attr_ttl_of(true), none.attr_ttl_of(false)),
            (Duration::ZERO, OPERATION_TTL)
        );
        assert_eq!(CachePolicy::new(CacheMode::Full).attr_ttl_of(true), TTL_DEFAULT);
        assert_eq!(CachePolicy::new(CacheMode::Metadata).entry_ttl, TTL_DEFAULT);
        assert!("all".parse::<CacheMode>().unwrap_err().to_string().contains("metadata"));
    }
}
