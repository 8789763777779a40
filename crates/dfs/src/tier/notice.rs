//! What all programs that use a container must know of its tier: whether fsync may have to wait for it, and how much writers
//! are to slow down while the pool is nearly full of what the tier does not have yet.
//!
//! It stands beside the superblock record: akey `t:tier` (flags, 1: some directory wants fsync to wait; then the name of
//! the tier) and akey `t:slow` (pause for each MiB in microseconds, 4 bytes; until when, nanoseconds since 1970, 8 bytes).
//! A mount reads it with the superblock, and again once a second while it writes or syncs; a container without a tier once a minute.

use super::{SyncPolicy, TierSource, source};
use crate::entry::reply_kind;
use crate::flags::OpenFlags;
use crate::fs::{Dfs, Shared, inline};
use crate::inode::FileKind;
use crate::layout::SUPERBLOCK;
use crate::node::Obj;
use async_recursion::async_recursion as boxed;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use types::map::HashMap;
use types::{Code, Error, Oid, Result};
use wire::obj::{Cond, FetchIod, FetchWant, Fetched, Op, OpReply};
use wire::reply::FetchedIod;

const NOTICE: &[u8] = b"t:tier";
const SLOW: &[u8] = b"t:slow";
const NOTICE_BYTES_MAX: u32 = 256;
const WANTS_SYNC: u8 = 1;
/// How long what is known is good for.
const AGE_MAX: Duration = Duration::from_secs(1);
/// The same of a container that had no tier.
const AGE_MAX_WITHOUT: Duration = Duration::from_secs(60);
/// Slowdowns that are said to last longer are not believed, nanoseconds.
const AHEAD_MAX_NS: u64 = 600_000_000_000;
/// Longest pause of one write.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A container's tier, for programs that use its files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TierNotice {
    /// Name of the tier.
    pub tier: String,
    /// A directory has, or had, [`SyncPolicy::Posix`].
    pub has_posix: bool,
}

impl TierNotice {
    pub fn encode(&self) -> Vec<u8> {
        let flags = if self.has_posix { WANTS_SYNC } else { 0 };
        [&[flags], self.tier.as_bytes()].concat()
    }

    /// `None` for bytes that are no notice.
    pub fn decode(raw: &[u8]) -> Option<TierNotice> {
        let (flags, name) = raw.split_first()?;
        let tier = String::from_utf8(name.to_vec()).ok().filter(|name| !name.is_empty())?;
        Some(TierNotice { tier, has_posix: flags & WANTS_SYNC != 0 })
    }
}

/// How much writers slow down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Slowdown {
    /// Pause for each MiB that is written, microseconds.
    pub pause_us_per_mib: u32,
    /// Not after this, nanoseconds since 1970: whoever said it may have ended.
    pub until_ns: u64,
}

impl Slowdown {
    pub fn encode(self) -> [u8; 12] {
        let mut raw = [0; 12];
        raw[..4].copy_from_slice(&self.pause_us_per_mib.to_le_bytes());
        raw[4..].copy_from_slice(&self.until_ns.to_le_bytes());
        raw
    }

    /// `None` for bytes that are no slowdown.
    pub fn decode(raw: &[u8]) -> Option<Slowdown> {
        let (pause, until) = raw.split_first_chunk()?;
        Some(Slowdown {
            pause_us_per_mib: u32::from_le_bytes(*pause),
            until_ns: u64::from_le_bytes(until.try_into().ok()?),
        })
    }

    /// The pause that a write of so many bytes makes.
    fn pause(self, bytes: u64, now_ns: u64) -> Duration {
        // Who says it says it for a short time; further ahead is another clock's, and may be there for ever.
        if self.until_ns <= now_ns || self.until_ns - now_ns > AHEAD_MAX_NS {
            return Duration::ZERO;
        }
        let us = (self.pause_us_per_mib as u128 * bytes as u128) >> 20;
        Duration::from_micros(us.min(u64::MAX as u128) as u64).min(PAUSE_MAX)
    }
}

/// What a mount knows of the notice, and for how long it is good.
#[derive(Default)]
pub(crate) struct Known {
    notice: RefCell<Option<TierNotice>>,
    slow: Cell<Slowdown>,
    /// Environment's time of the last look.
    seen: Cell<Option<Duration>>,
    /// Sync policies of directories, and when they were asked for.
    policies: RefCell<HashMap<Oid, (SyncPolicy, Duration)>>,
}

impl Known {
    /// What is fetched with the superblock record, behind its iod.
    pub fn iods() -> [FetchIod<'static>; 2] {
        [NOTICE, SLOW].map(|akey| FetchIod {
            akey,
            want: FetchWant::Single {
                bytes_max: NOTICE_BYTES_MAX as u64,
                inline_bytes_max: NOTICE_BYTES_MAX,
            },
        })
    }

    /// Takes over what was fetched so.
    pub fn learn(&self, iods: &[FetchedIod<'_>], now: Duration) -> Result<()> {
        let [notice, slow] = iods else { return Err(reply_kind()) };
        let raw = |iod: &FetchedIod<'_>| match &iod.value {
            Fetched::Inline(raw) => Some(raw.to_vec()),
            _ => None,
        };
        self.notice.replace(raw(notice).and_then(|raw| TierNotice::decode(&raw)));
        self.slow.set(raw(slow).and_then(|raw| Slowdown::decode(&raw)).unwrap_or_default());
        self.seen.set(Some(now));
        Ok(())
    }

    /// The same of another mount of the container.
    pub fn copy(&self) -> Known {
        Known {
            notice: self.notice.clone(),
            slow: self.slow.clone(),
            seen: self.seen.clone(),
            policies: RefCell::default(),
        }
    }
}

impl Dfs {
    /// The container's tier, as its files' users are told of it; `None`: it has none, or nobody has said so yet.
    #[boxed(?Send)]
    pub async fn tier_notice(&self) -> Result<Option<TierNotice>> {
        self.shared.look_at_notice().await?;
        Ok(self.shared.tier.notice.borrow().clone())
    }

    /// Says which tier the container has.
    #[boxed(?Send)]
    pub async fn set_tier_notice(&self, notice: &TierNotice) -> Result<()> {
        self.put_notice(NOTICE, &notice.encode()).await
    }

    /// Slows writers down, all that use the container. They notice within a second.
    #[boxed(?Send)]
    pub async fn set_tier_slowdown(&self, slow: Slowdown) -> Result<()> {
        self.put_notice(SLOW, &slow.encode()).await
    }

    async fn put_notice(&self, akey: &[u8], value: &[u8]) -> Result<()> {
        self.require_writable()?;
        let mut batch = self.shared.cont.batch();
        batch.op(Op::Update {
            unit: self.shared.superblock_oid.first_unit(),
            dkey: SUPERBLOCK,
            cond: Cond::NONE,
            iods: vec![inline(akey, value)],
        });
        batch.run().await?;
        self.shared.look_at_notice().await
    }

    /// Makes a write wait while writers are to slow down.
    pub(crate) async fn slow_down(&self, bytes: u64) -> Result<()> {
        let shared = &self.shared;
        shared.renew_notice().await?;
        let env = shared.cont.client().env();
        let pause = shared.tier.slow.get().pause(bytes, env.wall_ns());
        if !pause.is_zero() {
            env.sleep(pause).await;
        }
        Ok(())
    }

    /// fsync: returns when the data are as safe as the file's directories say: in the pool (there they are when a write returns), or
    /// with [`SyncPolicy::Posix`] in the container's tier, too.
    ///
    /// Errors: those of the tier: the data are in the pool, and not in the tier; `Unreach` where this process reaches none.
    #[boxed(?Send)]
    pub async fn fsync(&self, obj: &Obj) -> Result<()> {
        self.sync();
        if obj.kind() != FileKind::Regular || obj.is_unlinked() || self.require_writable().is_err()
        {
            return Ok(());
        }
        self.shared.renew_notice().await?;
        let notice = self.shared.tier.notice.borrow().clone().filter(|notice| notice.has_posix);
        let Some(notice) = notice else { return Ok(()) };
        if self.sync_policy_of(obj).await? == SyncPolicy::Async {
            return Ok(());
        }
        // Whoever syncs may have opened it for writing only.
        let file = Obj::new(obj.node.clone(), OpenFlags::READ_WRITE);
        let source: &dyn TierSource = &**source();
        source.sync(self, &file, &notice.tier).await.map_err(|error| {
            error.context(format!("the data are in the pool and not yet in tier '{}'", notice.tier))
        })
    }

    /// What fsync of a file waits for; known for a second by directory.
    async fn sync_policy_of(&self, file: &Obj) -> Result<SyncPolicy> {
        let shared = &self.shared;
        let (dir, now) = (file.parent_oid(), shared.cont.client().env().now());
        let known = shared.tier.policies.borrow().get(&dir).copied();
        if let Some((policy, _)) = known.filter(|(_, seen)| *seen + AGE_MAX > now) {
            return Ok(policy);
        }
        let policy = match self.tier_marks_for(file).await {
            Ok(marks) => marks.sync.unwrap_or_default(),
            // Its directory was removed, and with it the file.
            Err(error) if error.code == Code::NonExist => SyncPolicy::Async,
            Err(error) => return Err(error),
        };
        let mut policies = shared.tier.policies.borrow_mut();
        policies.retain(|_, (_, seen)| *seen + AGE_MAX > now);
        policies.insert(dir, (policy, now));
        Ok(policy)
    }
}

impl Shared {
    /// Looks again if what is known is too old.
    async fn renew_notice(self: &Rc<Self>) -> Result<()> {
        let now = self.cont.client().env().now();
        let age_max = match *self.tier.notice.borrow() {
            Some(_) => AGE_MAX,
            None => AGE_MAX_WITHOUT,
        };
        if self.tier.seen.get().is_some_and(|seen| seen + age_max > now) {
            return Ok(());
        }
        // Others go on with what was known meanwhile.
        self.tier.seen.set(Some(now));
        self.look_at_notice().await
    }

    async fn look_at_notice(&self) -> Result<()> {
        let mut batch = self.cont.batch();
        batch.op(Op::Fetch {
            unit: self.superblock_oid.first_unit(),
            dkey: SUPERBLOCK,
            cond: Cond::NONE,
            iods: Known::iods().to_vec(),
        });
        let result = batch.run().await?;
        let replies = result.replies()?;
        let Some(OpReply::Fetched(iods)) = replies.first() else { return Err(reply_kind()) };
        self.tier.learn(iods, self.cont.client().env().now())
    }
}

/// Answer of a way in that reaches no stores.
pub(super) fn reaches_none() -> Error {
    Error::new(
        Code::Unreach,
        "the directory's sync policy is posix, and this program reaches no tiers; use a mount, or 'azekura fs tier sync'",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_what_users_of_a_tier_are_told() {
        let notice = TierNotice { tier: "cold".into(), has_posix: true };
        assert_eq!(notice.encode(), b"\x01cold");
        assert_eq!(TierNotice::decode(b"\x01cold"), Some(notice));
        assert_eq!(TierNotice::decode(b"\x01"), None);
        assert_eq!(TierNotice::decode(b"\0\xff"), None);
        let slow = Slowdown { pause_us_per_mib: 0x0102, until_ns: 3 };
        assert_eq!(slow.encode(), *b"\x02\x01\0\0\x03\0\0\0\0\0\0\0");
        assert_eq!(Slowdown::decode(&slow.encode()), Some(slow));
        assert_eq!(Slowdown::decode(b"123"), None);
        assert_eq!(Slowdown::decode(b"1234567890123"), None);
    }

    #[test]
    fn pauses_grow_with_what_is_written_and_end() {
        let slow = Slowdown { pause_us_per_mib: 2000, until_ns: 10 };
        assert_eq!(slow.pause(1 << 20, 9), Duration::from_micros(2000));
        assert_eq!(slow.pause(1 << 19, 9), Duration::from_micros(1000));
        assert_eq!(slow.pause(1 << 20, 10), Duration::ZERO);
        assert_eq!(slow.pause(u64::MAX, 9), PAUSE_MAX);
    }
}
