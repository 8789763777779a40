//! The first request of a session: which version, which sizes, which features.

use super::abi::{self, InHeader, InitIn, InitOut, init};
use super::config::{Config, Negotiated};
use types::{Code, Error, Result};

/// The unit in which the kernel counts request sizes.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Pages of a request where the kernel says nothing of a limit.
const PAGES_DEFAULT: u32 = 256;

/// What the kernel has offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub unique: u64,
    pub minor: u32,
    max_readahead: u32,
    flags: u64,
}

impl Offer {
    /// Reads an INIT request. `Version` for a protocol we do not speak.
    pub fn parse(raw: &[u8]) -> Result<Offer> {
        let short = || Error::new(Code::Proto, "the kernel's first FUSE request is too short");
        let (header, body) = abi::take::<InHeader>(raw).ok_or_else(short)?;
        if header.opcode != abi::op::INIT {
            let what = format!("the kernel's first FUSE request is no INIT but {}", header.opcode);
            return Err(Error::new(Code::Proto, what));
        }
        // Older kernels send the first four words only.
        let mut whole = [0u8; size_of::<InitIn>()];
        let got = body.len().min(whole.len());
        if got < 16 {
            return Err(short());
        }
        whole[..got].copy_from_slice(&body[..got]);
        let (asked, _) = abi::take::<InitIn>(&whole).ok_or_else(short)?;
        if asked.major != abi::MAJOR || asked.minor < abi::MINOR_MIN {
            let (major, minor) = (asked.major, asked.minor);
            let text = format!(
                "the kernel speaks FUSE {major}.{minor}; at least {}.{} (Linux 5.4) is needed",
                abi::MAJOR,
                abi::MINOR_MIN
            );
            return Err(Error::new(Code::Version, text));
        }
        let mut flags = u64::from(asked.flags);
        if flags & init::INIT_EXT != 0 {
            flags |= u64::from(asked.flags2) << 32;
        }
        Ok(Offer {
            unique: header.unique,
            minor: asked.minor,
            max_readahead: asked.max_readahead,
            flags,
        })
    }

    /// Whether FUSE over io_uring is on offer.
    pub fn has_uring(&self) -> bool {
        self.flags & init::OVER_IO_URING != 0
    }

    /// The answer, and what it means. `uring`: use io_uring, which must be on offer.
    pub fn accept(&self, config: &Config, pages_max: u32, uring: bool) -> (InitOut, Negotiated) {
        let mut want = init::ASYNC_READ
            | init::ATOMIC_O_TRUNC
            | init::BIG_WRITES
            | init::EXPORT_SUPPORT
            | init::ASYNC_DIO
            | init::NO_OPEN_SUPPORT
            | init::NO_OPENDIR_SUPPORT
            | init::PARALLEL_DIROPS
            | init::ABORT_ERROR
            | init::MAX_PAGES
            | init::SETXATTR_EXT
            | init::INIT_EXT
            | init::CREATE_SUPP_GROUP
            | init::HAS_EXPIRE_ONLY
            | init::DIRECT_IO_ALLOW_MMAP;
        let mut also = |wanted: bool, flags: u64| {
            if wanted {
                want |= flags;
            }
        };
        also(config.locks, init::POSIX_LOCKS | init::FLOCK_LOCKS);
        also(config.readdirplus, init::DO_READDIRPLUS);
        also(config.writeback_cache, init::WRITEBACK_CACHE);
        also(config.explicit_inval_data, init::EXPLICIT_INVAL_DATA);
        also(!config.explicit_inval_data, init::AUTO_INVAL_DATA);
        also(config.cache_symlinks, init::CACHE_SYMLINKS);
        also(config.kill_privileges, init::HANDLE_KILLPRIV_V2);
        also(config.posix_acl, init::POSIX_ACL);
        also(config.umask_by_file_system, init::DONT_MASK);
        also(uring, init::OVER_IO_URING);
        let flags = self.flags & want;
        let has = |flag: u64| flags & flag != 0;

        let pages_max = if has(init::MAX_PAGES) { pages_max } else { 32 };
        let pages = config.max_write_bytes.div_ceil(PAGE_BYTES as u32).clamp(1, pages_max);
        let max_write = config.max_write_bytes.clamp(PAGE_BYTES as u32, pages * PAGE_BYTES as u32);
        let minor = self.minor.min(abi::MINOR);
        let reply = InitOut {
            major: abi::MAJOR,
            minor,
            max_readahead: match config.readahead_bytes {
                Some(bytes) => bytes,
                None => self.max_readahead,
            },
            flags: flags as u32,
            flags2: (flags >> 32) as u32,
            max_background: config.max_background.max(1),
            congestion_threshold: (config.max_background / 4 * 3).max(1),
            max_write,
            time_gran: 1,
            max_pages: pages as u16,
            ..InitOut::default()
        };
        let agreed = Negotiated {
            minor,
            max_write_bytes: max_write,
            max_pages: pages as u16,
            uring: has(init::OVER_IO_URING),
            writeback_cache: has(init::WRITEBACK_CACHE),
            explicit_inval_data: has(init::EXPLICIT_INVAL_DATA),
            readdirplus: has(init::DO_READDIRPLUS),
            locks: has(init::POSIX_LOCKS),
            kill_privileges: has(init::HANDLE_KILLPRIV_V2),
            posix_acl: has(init::POSIX_ACL),
            umask_by_file_system: has(init::DONT_MASK),
            zero_message_open: has(init::NO_OPEN_SUPPORT),
            create_groups: has(init::CREATE_SUPP_GROUP),
            expire_entries: has(init::HAS_EXPIRE_ONLY),
            setxattr_ext: has(init::SETXATTR_EXT),
        };
        (reply, agreed)
    }
}

/// Most pages of a request that this kernel allows (a sysctl since Linux 6.13).
pub(crate) fn pages_max() -> u32 {
    std::fs::read_to_string("/proc/sys/fs/fuse/max_pages_limit")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(PAGES_DEFAULT)
        .clamp(1, u32::from(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::bytes_of;

    fn request(major: u32, minor: u32, flags: u64) -> Vec<u8> {
        let header = InHeader { opcode: abi::op::INIT, unique: 2, ..InHeader::default() };
        let body = InitIn {
            major,
            minor,
            max_readahead: 131_072,
            flags: flags as u32 | init::INIT_EXT as u32,
            flags2: (flags >> 32) as u32,
            unused: [0; 11],
        };
        [bytes_of(&header), bytes_of(&body)].concat()
    }

    #[test]
    fn takes_what_is_offered_and_wanted() {
        let raw = request(7, 45, u64::MAX);
        let offer = Offer::parse(&raw).unwrap();
        assert!(offer.has_uring());
        let config = Config { locks: false, writeback_cache: true, ..Config::default() };
        let (reply, agreed) = offer.accept(&config, 256, true);
        assert_eq!((reply.minor, reply.max_write, reply.max_pages), (45, 1 << 20, 256));
        assert!(agreed.uring && agreed.writeback_cache && !agreed.locks && agreed.readdirplus);
        assert_eq!(u64::from(reply.flags) & init::POSIX_ACL, 0);
        assert_eq!(agreed.payload_bytes_max(), 1 << 20);
        let (reply, agreed) = offer.accept(&config, 256, false);
        assert!(!agreed.uring && reply.flags2 & (init::OVER_IO_URING >> 32) as u32 == 0);
    }

    #[test]
    fn keeps_to_an_older_and_smaller_kernel() {
        let raw = request(7, 31, init::ASYNC_READ | init::BIG_WRITES);
        // Such a kernel sends 16 bytes.
        let offer = Offer::parse(&raw[..40 + 16]).unwrap();
        assert!(!offer.has_uring());
        let (reply, agreed) = offer.accept(&Config::default(), 256, false);
        assert_eq!((reply.minor, reply.max_pages, reply.max_write), (31, 32, 32 * 4096));
        assert!(!agreed.locks && !agreed.setxattr_ext);
        assert_eq!(Offer::parse(&request(7, 12, 0)).unwrap_err().code, Code::Version);
        assert_eq!(Offer::parse(&request(8, 1, 0)).unwrap_err().code, Code::Version);
        assert_eq!(Offer::parse(&raw[..40]).unwrap_err().code, Code::Proto);
    }

    #[test]
    fn larger_requests_where_the_kernel_allows() {
        let offer = Offer::parse(&request(7, 45, u64::MAX)).unwrap();
        let config = Config { max_write_bytes: 4 << 20, ..Config::default() };
        let (reply, agreed) = offer.accept(&config, 1024, false);
        assert_eq!((reply.max_pages, agreed.max_write_bytes), (1024, 4 << 20));
        let (reply, _) = offer.accept(&config, 512, false);
        assert_eq!((reply.max_pages, reply.max_write), (512, 2 << 20));
    }
}
