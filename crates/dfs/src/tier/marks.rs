//! What directories say of tiers: what is to be moved, what fsync waits for, what stays in the pool.
//!
//! A *mark* is an akey in a directory's marker, beside its parent's id, so that who knows an object only finds its
//! way up with one request for each directory. A file has one mark, [`Mark::Pin`], as an attribute that programs do not see.
//! Of a kind the mark that is nearest on the way up counts.

use crate::entry::reply_kind;
use crate::flags::Access;
use crate::fs::{Dfs, inline};
use crate::inode::FileKind;
use crate::layout::{MARKER, PARENT, xattr_akey};
use crate::node::Obj;
use crate::xattr::Change;
use async_recursion::async_recursion as boxed;
use types::limits::INLINE_BYTES_MAX;
use types::{Code, Error, Oid, Result};
use wire::obj::{Cond, FetchIod, FetchWant, Fetched, Op, OpReply, ReadCheck, ReadScope};

/// Attribute of a file that is pinned. Belongs to no namespace that programs see.
pub(crate) const FILE_PIN: &[u8] = b"azekura.tier.pin";
/// Directories on the way to the root: more are a loop of a damaged tree.
const DEPTH_MAX: usize = 4096;
/// Largest value of a mark, bytes.
pub const MARK_BYTES_MAX: usize = INLINE_BYTES_MAX - 1;

/// Kinds of marks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// What is moved when; text that is for whoever moves.
    Policy,
    /// What fsync waits for: see [`SyncPolicy`].
    Sync,
    /// What is below stays in the pool; the value says nothing.
    Pin,
}

const MARKS: [Mark; 3] = [Mark::Policy, Mark::Sync, Mark::Pin];

impl Mark {
    fn akey(self) -> &'static [u8] {
        match self {
            Mark::Policy => b"t:policy",
            Mark::Sync => b"t:sync",
            Mark::Pin => b"t:pin",
        }
    }
}

/// When fsync of a file returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SyncPolicy {
    /// When the pool has the data.
    #[default]
    Async,
    /// When the tier has them, too.
    Posix,
}

impl SyncPolicy {
    /// `async` or `posix`.
    pub fn word(self) -> &'static str {
        match self {
            SyncPolicy::Async => "async",
            SyncPolicy::Posix => "posix",
        }
    }

    /// The inverse of [`SyncPolicy::word`].
    pub fn of_word(word: &[u8]) -> Option<SyncPolicy> {
        [SyncPolicy::Async, SyncPolicy::Posix].into_iter().find(|it| it.word().as_bytes() == word)
    }
}

/// The marks of one directory, or of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Marks {
    pub policy: Option<Vec<u8>>,
    pub sync: Option<SyncPolicy>,
    pub is_pinned: bool,
}

impl Marks {
    /// What counts below a directory with these marks, if `above` counts for it.
    pub fn below(self, above: &Marks) -> Marks {
        Marks {
            policy: self.policy.or_else(|| above.policy.clone()),
            sync: self.sync.or(above.sync),
            is_pinned: self.is_pinned || above.is_pinned,
        }
    }
}

impl Dfs {
    /// The marks that a directory or file has itself.
    ///
    /// Errors: `Access` for what the caller may not read.
    #[boxed(?Send)]
    pub async fn tier_marks(&self, obj: &Obj) -> Result<Marks> {
        self.check_access(&obj.node.inode(), Access::READ)?;
        match obj.kind() {
            FileKind::Directory => Ok(self.marks_of_dir(obj.oid()).await?.0),
            FileKind::Regular => {
                Ok(Marks { is_pinned: self.has_file_pin(obj).await?, ..Marks::default() })
            }
            _ => Ok(Marks::default()),
        }
    }

    /// The marks that count for an object: its own and those of the directories above it. Of a file with several names those
    /// above the one it was opened by.
    #[boxed(?Send)]
    pub async fn tier_marks_for(&self, obj: &Obj) -> Result<Marks> {
        let mut marks = Marks::default();
        let mut dir = obj.oid();
        if obj.kind() != FileKind::Directory {
            if obj.kind() == FileKind::Regular {
                marks.is_pinned = self.has_file_pin(obj).await?;
            }
            dir = obj.parent_oid();
        }
        for _ in 0..DEPTH_MAX {
            let (here, parent) = self.marks_of_dir(dir).await?;
            marks = marks.below(&here);
            if self.shared.is_root(dir) {
                return Ok(marks);
            }
            dir = parent;
        }
        Err(Error::new(Code::Io, "a directory is below itself; azekura fs check mends that"))
    }

    /// Sets a mark of a directory, or pins a file; `None` takes it away.
    ///
    /// Errors: `NoPerm` unless the caller owns it; `RecordTooBig`; `Inval` for a mark that a file or something else cannot have.
    #[boxed(?Send)]
    pub async fn set_tier_mark(&self, obj: &Obj, mark: Mark, value: Option<&[u8]>) -> Result<()> {
        self.require_writable()?;
        if value.is_some_and(|value| value.len() > MARK_BYTES_MAX) {
            let text = format!("a policy has at most {MARK_BYTES_MAX} bytes");
            return Err(Error::new(Code::RecordTooBig, text));
        }
        self.check_owner(&obj.node.inode())?;
        match (obj.kind(), mark) {
            (FileKind::Directory, _) => {}
            (FileKind::Regular, Mark::Pin) => {
                let change = match value {
                    Some(value) => Change::Set { value, cond: Cond::NONE },
                    None if !self.has_file_pin(obj).await? => return Ok(()),
                    None => Change::Remove,
                };
                return self.change_xattr(obj, FILE_PIN, change).await;
            }
            _ => return Err(Error::inval("policies are given to directories")),
        }
        let dir = obj.oid();
        let (_, seen) = self.parent_of(dir).await?;
        let unit = dir.first_unit();
        let mut batch = self.shared.cont.batch();
        // So that a directory that goes meanwhile does not leave something behind.
        batch.check(ReadCheck { unit, of: ReadScope::Akey(MARKER, PARENT), seen });
        let (dkey, cond) = (MARKER, Cond::NONE);
        match value {
            Some(value) => {
                let iods = vec![inline(mark.akey(), value)];
                batch.op(Op::Update { unit, dkey, cond, iods });
            }
            None => {
                let akeys = vec![mark.akey().into()];
                batch.op(Op::PunchAkeys { unit, dkey, cond, akeys });
            }
        }
        batch.run().await.map(|_| ())
    }

    async fn has_file_pin(&self, file: &Obj) -> Result<bool> {
        let shared = &self.shared;
        let Some((location, found)) = shared.fetch_node(&file.node).await? else {
            return Ok(false);
        };
        if !found.inode.has_xattrs {
            return Ok(false);
        }
        let place = shared.place_of(location.parent, &location.name, &found.inode);
        Ok(shared.fetch_xattr(place, &xattr_akey(FILE_PIN)).await?.is_some())
    }

    /// A directory's own marks, and its parent. `NonExist` when it is gone.
    async fn marks_of_dir(&self, dir: Oid) -> Result<(Marks, Oid)> {
        let room = INLINE_BYTES_MAX as u32;
        let want = |akey| FetchIod {
            akey,
            want: FetchWant::Single { bytes_max: room as u64, inline_bytes_max: room },
        };
        let mut iods = vec![want(PARENT)];
        iods.extend(MARKS.map(|mark| want(mark.akey())));
        let mut batch = self.shared.cont.batch();
        batch.op(Op::Fetch { unit: dir.first_unit(), dkey: MARKER, cond: Cond::NONE, iods });
        let result = batch.run().await?;
        let replies = result.replies()?;
        let Some(OpReply::Fetched(iods)) = replies.first() else { return Err(reply_kind()) };
        let value = |at: usize| match iods.get(at).map(|iod| &iod.value) {
            Some(Fetched::Inline(raw)) => Ok(Some(raw.to_vec())),
            Some(Fetched::Absent) => Ok(None),
            _ => Err(reply_kind()),
        };
        let parent = value(0)?.ok_or_else(|| Error::bare(Code::NonExist))?;
        let parent: [u8; 16] = parent[..].try_into().map_err(|_| reply_kind())?;
        // What is not known is a promise that cannot be kept otherwise.
        let sync = value(2)?.map(|word| SyncPolicy::of_word(&word).unwrap_or(SyncPolicy::Posix));
        let marks = Marks { policy: value(1)?, sync, is_pinned: value(3)?.is_some() };
        Ok((marks, Oid::from_bytes(parent)))
    }
}
