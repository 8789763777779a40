//! Removing entries.
//!
//! The last name of a file goes in one round trip: the entry's target removes the entry and
//! frees the file it holds. A file that lives elsewhere (after a rename, or striped) is freed
//! by requests that follow, behind the caller where its home is away; a client that dies in between leaks an object, which the checker
//! finds. A directory goes in one transaction with its entry, only while it is empty.

use crate::by_object::Removed as Gone;
use crate::conflict::retry;
use crate::dir::DirAnchor;
use crate::entry::{Found, reply_kind};
use crate::flags::Access;
use crate::fs::{Dfs, inline};
use crate::inode::{Inode, S_ISVTX, epoch_ns};
use crate::layout::{INODE, MARKER, RECORD};
use crate::node::Obj;
use async_recursion::async_recursion as boxed;
use client::Batch;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use types::limits::check_name;
use types::{Code, Error, Oid, Result, Unit};
use wire::obj::{Cond, Linked, Op, OpReply, ReadCheck, ReadScope};

/// Entries removed at the same time by a recursive removal.
const PARALLEL: usize = 32;

/// What a plain remove met.
enum Removed {
    Gone(Gone),
    Directory,
}

impl Dfs {
    /// Removes a name of a file. The file goes with its last name, or when nobody has it open.
    ///
    /// Errors: `IsDir` for a directory, `NonExist`, `Access`, `NoPerm` in a sticky directory.
    #[boxed(?Send)]
    pub async fn unlink(&self, parent: &Obj, name: &[u8]) -> Result<()> {
        self.unlink_inode(parent, name).await.map(|_| ())
    }

    /// [`Dfs::unlink`], telling what it was.
    pub(crate) async fn unlink_inode(&self, parent: &Obj, name: &[u8]) -> Result<Gone> {
        match self.remove_file(parent, name).await? {
            Removed::Gone(gone) => Ok(gone),
            Removed::Directory => Err(Error::bare(Code::IsDir)),
        }
    }

    /// Removes an empty directory. Errors: `NotEmpty`, `NotDir`, `NonExist`, `Access`.
    #[boxed(?Send)]
    pub async fn rmdir(&self, parent: &Obj, name: &[u8]) -> Result<()> {
        self.rmdir_inode(parent, name).await.map(|_| ())
    }

    /// [`Dfs::rmdir`], telling what it was.
    pub(crate) async fn rmdir_inode(&self, parent: &Obj, name: &[u8]) -> Result<Gone> {
        let dir = self.check_remove(parent, name)?;
        self.remove_dir(parent.oid(), &dir, name).await
    }

    /// Removes a file or an empty directory; with `force` also a directory and all below it.
    #[boxed(?Send)]
    pub async fn remove(&self, parent: &Obj, name: &[u8], force: bool) -> Result<()> {
        if let Removed::Gone(_) = self.remove_file(parent, name).await? {
            return Ok(());
        }
        match Box::pin(self.rmdir(parent, name)).await {
            Err(error) if error.code == Code::NotEmpty && force => {}
            other => return other,
        }
        Box::pin(self.remove_tree(parent, name)).await
    }

    fn check_remove(&self, parent: &Obj, name: &[u8]) -> Result<Inode> {
        let dir = parent.require_dir()?;
        check_name(name)?;
        self.require_writable()?;
        self.check_access(&dir, Access::WRITE | Access::EXECUTE)?;
        Ok(dir)
    }

    async fn remove_file(&self, parent: &Obj, name: &[u8]) -> Result<Removed> {
        let dir = self.check_remove(parent, name)?;
        let shared = &self.shared;
        let oid = parent.oid();
        let sticky = dir.mode & S_ISVTX != 0 && self.check_owner(&dir).is_err();
        retry(shared, async || {
            let mut batch = shared.cont.batch();
            if sticky {
                // Whose file it is must be known before it goes.
                let found = Box::pin(shared.fetch_entry(oid, name, false)).await?;
                let found = found.ok_or_else(|| Error::bare(Code::NonExist))?;
                self.check_sticky(&dir, &found.inode)?;
                batch.check(ReadCheck {
                    unit: oid.first_unit(),
                    of: ReadScope::Akey(name, INODE),
                    seen: found.entry_epoch,
                });
            }
            batch.op(Op::RemoveLink { unit: oid.first_unit(), dkey: name, akey: INODE });
            let result = batch.run().await?;
            let changed_ns = Some(epoch_ns(result.epoch));
            let replies = result.replies()?;
            let Some(&OpReply::Removed { value, removed, linked }) = replies.first() else {
                return Err(reply_kind());
            };
            let raw = value.ok_or_else(|| Error::bare(Code::NonExist))?;
            let inode = Inode::decode(raw)?.0;
            if removed {
                shared.note_unlinked(&inode, oid, name);
                if linked == Linked::Elsewhere {
                    Box::pin(shared.free_nameless(inode.oid)).await?;
                }
                return Ok(Removed::Gone(Gone { changed_ns, ..Gone::from_inode(&inode) }));
            }
            if inode.is_dir() {
                return Ok(Removed::Directory);
            }
            let found = Box::pin(shared.fetch_entry(oid, name, false)).await?;
            let found = found.ok_or_else(|| Error::bare(Code::NonExist))?;
            if !found.inode.hard {
                // Replaced since.
                return Err(Error::bare(Code::TxRestart));
            }
            let gone = Gone::from_inode(&found.inode);
            Box::pin(self.unlink_hard(oid, name, found)).await?;
            Ok(Removed::Gone(gone))
        })
        .await
    }

    /// One name less of a file with several; one attempt.
    async fn unlink_hard(&self, dir: Oid, name: &[u8], found: Found) -> Result<()> {
        let shared = &self.shared;
        let raw = less_one_name(&found, shared.now_ns());
        let run = async |has_room: bool| {
            let mut batch = shared.cont.batch();
            batch.check(ReadCheck {
                unit: dir.first_unit(),
                of: ReadScope::Akey(name, INODE),
                seen: found.entry_epoch,
            });
            let dkeys = vec![name.into()];
            batch.op(Op::PunchDkeys { unit: dir.first_unit(), cond: Cond::PUNCH, dkeys });
            drop_name(&mut batch, &found, &raw, has_room);
            batch.run().await.map(|_| ())
        };
        match run(true).await {
            Err(error) if error.code == Code::NoSpace && found.inode.nlink <= 1 => {
                run(false).await?;
            }
            other => other?,
        }
        if found.inode.nlink <= 1
            && let Some(node) = shared.open_node(found.inode.oid)
        {
            node.set_unlinked();
        }
        Ok(())
    }

    async fn remove_dir(&self, parent: Oid, dir: &Inode, name: &[u8]) -> Result<Gone> {
        let shared = &self.shared;
        check_name(name)?;
        retry(shared, async || {
            let found = shared.fetch_entry(parent, name, false).await?;
            let found = found.ok_or_else(|| Error::bare(Code::NonExist))?;
            if !found.inode.is_dir() {
                return Err(Error::bare(Code::NotDir));
            }
            self.check_sticky(dir, &found.inode)?;
            let units = shared.cont.units_in_use(found.inode.oid).await?;
            let mut batch = shared.cont.batch();
            batch.check(ReadCheck {
                unit: parent.first_unit(),
                of: ReadScope::Akey(name, INODE),
                seen: found.epoch,
            });
            batch.op(Op::PunchDkeys {
                unit: parent.first_unit(),
                cond: Cond::PUNCH,
                dkeys: vec![name.into()],
            });
            punch_dir(&mut batch, &units);
            batch.run().await?;
            shared.note_unlinked(&found.inode, parent, name);
            Ok(Gone::from_inode(&found.inode))
        })
        .await
    }

    /// Removes a directory and all below it, depth first.
    async fn remove_tree(&self, parent: &Obj, name: &[u8]) -> Result<()> {
        let flags = crate::flags::OpenFlags::PATH | crate::flags::OpenFlags::NOFOLLOW;
        let top = match self.lookup_rel(parent, name, flags).await {
            Err(error) if error.code == Code::NonExist => return Ok(()),
            other => other?,
        };
        let mut stack = vec![(parent.clone(), top)];
        while let Some((above, dir)) = stack.last().cloned() {
            let mut below = Vec::new();
            let mut anchor = DirAnchor::start();
            while !anchor.is_end() {
                let entries = self.readdir(&dir, &mut anchor, 512).await?;
                let dir = &dir;
                let dirs: Vec<Option<Obj>> = stream::iter(entries)
                    .map(|entry| async move {
                        match self.remove(dir, &entry.name, false).await {
                            Err(error) if error.code == Code::NotEmpty => {}
                            Err(error) if error.code == Code::NonExist => return Ok(None),
                            Err(error) => return Err(error),
                            Ok(()) => return Ok(None),
                        }
                        match self.lookup_rel(dir, &entry.name, flags).await {
                            Err(error) if error.code == Code::NonExist => Ok(None),
                            other => other.map(Some),
                        }
                    })
                    .buffer_unordered(PARALLEL)
                    .try_collect()
                    .await?;
                below.extend(dirs.into_iter().flatten());
            }
            if below.is_empty() {
                match self.rmdir(&above, &dir.name()).await {
                    // Somebody makes files in it meanwhile: go on until it is gone.
                    Err(error) if error.code == Code::NotEmpty => {}
                    Err(error) if error.code != Code::NonExist => return Err(error),
                    _ => {
                        stack.pop();
                    }
                }
            } else {
                stack.extend(below.into_iter().map(|sub| (dir.clone(), sub)));
            }
        }
        Ok(())
    }
}

/// The inode of a file with several names once one is gone.
pub(crate) fn less_one_name(found: &Found, now_ns: i64) -> Vec<u8> {
    let nlink = found.inode.nlink.saturating_sub(1);
    Inode { hard: false, nlink, ctime_ns: now_ns, ..found.inode }.encode(&found.target)
}

/// Takes one name from the count of a file with several, and frees it with the last.
/// With `has_room` unset, without anything that takes space.
pub(crate) fn drop_name<'a>(batch: &mut Batch<'a>, found: &Found, raw: &'a [u8], has_room: bool) {
    let oid = found.inode.oid;
    batch.check(ReadCheck {
        unit: oid.first_unit(),
        of: ReadScope::Akey(RECORD, INODE),
        seen: found.epoch,
    });
    // Of the last name, too: whoever has the file open sees that it has none.
    if found.inode.nlink > 1 || has_room {
        let iods = vec![inline(INODE, raw)];
        batch.op(Op::Update { unit: oid.first_unit(), dkey: RECORD, cond: Cond::NONE, iods });
    }
    if found.inode.nlink <= 1 {
        batch.op(Op::PunchUnlessOpen { unit: oid.first_unit() });
    }
}

/// Removes all units of a directory's object that are in use, provided that it is empty. `Moved` when more of them are, after which that is
/// known here.
pub(crate) fn punch_dir(batch: &mut Batch<'_>, units: &[Unit]) {
    for &unit in units {
        let mut cond = Cond::OBJ_EMPTY;
        // One that is spreading is not in all of them yet.
        if unit.group == 0 || !unit.object.spreads() {
            cond = cond.and(Cond::OBJ_EXISTS);
        }
        if units.len() > 1 {
            cond = cond.and(Cond::ALL_GROUPS);
        }
        batch.op(Op::PunchObj { unit, cond, besides: MARKER });
    }
}
