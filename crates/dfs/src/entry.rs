//! Reading entries and changing inodes.
//!
//! Invariants:
//! - An inode is changed only by a batch that checks that it is still the one that was read;
//!   a lost race is run again after a short random pause.
//! - A handle counts as registered only when the entry was seen to name the object *after* the
//!   servers had registered it: an unlink that comes later finds the handle.

use crate::conflict::retry;
use crate::fs::{Shared, fetch_inode, inline};
use crate::inode::Inode;
use crate::layout::{INODE, RECORD, ROOT};
use crate::node::{Location, Node};
use async_recursion::async_recursion as boxed;
use std::rc::Rc;
use std::time::Duration;
use types::{Code, Epoch, Error, Oid, Result};
use wire::link;
use wire::obj::{Cond, Fetched, Op, OpReply, ReadCheck, ReadScope, Tail};

/// Pauses before a file without a name is freed once more: the first, and where doubling ends.
const FREE_PAUSE_MIN: Duration = Duration::from_secs(1);
const FREE_PAUSE_MAX: Duration = Duration::from_secs(30);

/// An inode as found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub inode: Inode,
    /// Target of a symbolic link.
    pub target: Box<[u8]>,
    /// Epoch of the inode where it is kept: in the entry, or in the file's object.
    pub epoch: Epoch,
    /// When it was changed last: before that epoch if an engine has moved the entry since.
    pub changed: Epoch,
    /// Epoch of the entry's value.
    pub entry_epoch: Epoch,
    /// Of the file, if all of it is on the entry's target.
    pub tail: Option<Tail>,
    /// That target is the file's home and has registered an open handle.
    pub opened: bool,
}

impl Found {
    fn decode(raw: &[u8], epoch: Epoch) -> Result<Found> {
        let (inode, target) = Inode::decode(raw)?;
        Ok(Found {
            inode,
            target: target.into(),
            epoch,
            changed: link::written_at(raw, epoch),
            entry_epoch: epoch,
            tail: None,
            opened: false,
        })
    }

    /// What has just been made at `epoch`.
    pub fn fresh(inode: Inode, epoch: Epoch) -> Found {
        Found {
            inode,
            target: Box::default(),
            epoch,
            changed: epoch,
            entry_epoch: epoch,
            tail: Some(Tail::default()),
            opened: false,
        }
    }

    /// From the reply to [`fetch_inode`]; `None` when there is no inode.
    pub fn from_fetch(reply: Option<&OpReply<'_>>) -> Result<Option<Found>> {
        let Some(OpReply::Fetched(iods)) = reply else {
            return Err(reply_kind());
        };
        match iods.first() {
            Some(iod) => match iod.value {
                Fetched::Inline(raw) => Found::decode(raw, iod.epoch).map(Some),
                Fetched::Absent => Ok(None),
                _ => Err(reply_kind()),
            },
            None => Err(reply_kind()),
        }
    }

    /// True when only the object's shards know all its attributes.
    pub fn needs_shards(&self) -> bool {
        self.inode.is_dir() || (self.inode.is_regular() && self.tail.is_none())
    }

    /// From the reply to [`Op::FetchLink`]; `None` when there is no entry.
    pub fn from_link_reply(reply: Option<&OpReply<'_>>) -> Result<Option<Found>> {
        match reply {
            Some(&OpReply::Link { value: Some(raw), epoch, tail, opened }) => {
                Found::from_link(raw, epoch, tail, opened).map(Some)
            }
            Some(OpReply::Link { value: None, .. }) => Ok(None),
            _ => Err(reply_kind()),
        }
    }

    /// From a listed or fetched link value.
    pub fn from_link(raw: &[u8], epoch: Epoch, tail: Option<Tail>, opened: bool) -> Result<Found> {
        Ok(Found { tail, opened, ..Found::decode(raw, epoch)? })
    }
}

/// Where an inode is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place<'a> {
    pub oid: Oid,
    pub dkey: &'a [u8],
}

impl Shared {
    /// Where the inode named by (dir, name) is kept.
    pub fn place_of<'a>(&self, dir: Oid, name: &'a [u8], inode: &Inode) -> Place<'a> {
        if self.is_root(inode.oid) {
            Place { oid: self.superblock_oid, dkey: ROOT }
        } else if inode.hard {
            Place { oid: inode.oid, dkey: RECORD }
        } else {
            Place { oid: dir, dkey: name }
        }
    }

    /// Reads an entry and the inode it names; `None` when there is no such entry. One round
    /// trip, two for a file with several names. With `open`, the entry's target registers a
    /// handle if it holds the file.
    pub async fn fetch_entry(&self, dir: Oid, name: &[u8], open: bool) -> Result<Option<Found>> {
        match self.fetch_link(dir, name, open).await? {
            // What is rare is boxed, here and elsewhere on the way of each operation: a future is as large as the largest thing it
            // may do, and is moved as it is made.
            Some(found) if found.inode.hard => {
                Box::pin(self.fetch_record_again(dir, name, found, open)).await
            }
            other => Ok(other),
        }
    }

    /// Completes an entry of a file with several names. It may get another object between the two looks (`migrate`): the name is looked
    /// at again as long as it leads to another one.
    async fn fetch_record_again(
        &self,
        dir: Oid,
        name: &[u8],
        mut entry: Found,
        open: bool,
    ) -> Result<Option<Found>> {
        loop {
            let oid = entry.inode.oid;
            if let Some(record) = self.fetch_record(entry).await? {
                return Ok(Some(record));
            }
            entry = match self.fetch_link(dir, name, open).await? {
                Some(now) if now.inode.hard && now.inode.oid != oid => now,
                Some(now) if now.inode.hard => {
                    if now.opened {
                        self.cont.release(oid);
                    }
                    return Ok(None);
                }
                other => return Ok(other),
            };
        }
    }

    /// An entry as it stands, without the inode of a file with several names.
    pub async fn entry_value(&self, dir: Oid, name: &[u8]) -> Result<Option<Found>> {
        self.fetch_link(dir, name, false).await
    }

    async fn fetch_link(&self, dir: Oid, name: &[u8], open: bool) -> Result<Option<Found>> {
        let mut batch = self.cont.batch();
        batch.op(Op::FetchLink { unit: dir.first_unit(), dkey: name, akey: INODE, open });
        if !open {
            batch.may_ask_members();
        }
        let result = batch.run().await?;
        Found::from_link_reply(result.replies()?.first())
    }

    /// Completes an entry of a file with several names; `None` when the file is gone.
    pub async fn fetch_record(&self, entry: Found) -> Result<Option<Found>> {
        let oid = entry.inode.oid;
        let mut batch = self.cont.batch();
        batch.op(fetch_inode(oid, RECORD));
        let result = batch.run().await?;
        match Found::from_fetch(result.replies()?.first())? {
            Some(record) => Ok(Some(Found {
                inode: Inode { hard: true, oid, ..record.inode },
                entry_epoch: entry.entry_epoch,
                tail: entry.tail,
                opened: entry.opened,
                ..record
            })),
            None => {
                if entry.opened {
                    self.cont.release(oid);
                }
                Ok(None)
            }
        }
    }

    /// The file's size and newest data epoch, with no further question where the entry's
    /// target knows all there is to know.
    #[boxed(?Send)]
    pub async fn tail(&self, found: &Found) -> Result<Tail> {
        if !found.inode.is_regular() {
            return Ok(Tail::default());
        }
        let array = self.array(&found.inode);
        match found.tail {
            Some(tail) => Ok(Tail { end: array.size_from_tail(&tail), ..tail }),
            None => Box::pin(self.merged_tail(found)).await,
        }
    }

    /// Registers a handle at the file's home, and makes sure that the entry still names the file.
    /// False when it does not: the handle is given back.
    pub async fn register_open(&self, dir: Oid, name: &[u8], oid: Oid) -> Result<bool> {
        let mut batch = self.cont.batch();
        batch.op(Op::Open { unit: oid.first_unit() });
        batch.run().await?;
        let found = self.fetch_entry(dir, name, false).await;
        let still_there = matches!(&found, Ok(Some(now)) if now.inode.oid == oid);
        if !still_there {
            self.cont.release(oid);
        }
        found.map(|_| still_there)
    }

    /// Frees a file at its home, at once or when nobody has it open; the home sees to the rest.
    pub async fn free_file(&self, oid: Oid) -> Result<()> {
        let mut batch = self.cont.batch();
        batch.op(Op::PunchUnlessOpen { unit: oid.first_unit() });
        batch.run().await.map(|_| ())
    }

    /// The same of a file that has lost its last name: nobody else finds it any more. Where its home gives no answer it is asked again behind the caller, as long as this file
    /// system is in use.
    pub async fn free_nameless(self: &Rc<Self>, oid: Oid) -> Result<()> {
        match self.free_file(oid).await {
            Err(error) if may_pass(&error) => {}
            outcome => return outcome,
        }
        let (shared, env) = (Rc::downgrade(self), self.cont.client().env().clone());
        env.clone().spawn(async move {
            let mut pause = FREE_PAUSE_MIN;
            loop {
                env.sleep(pause).await;
                pause = (pause * 2).min(FREE_PAUSE_MAX);
                let Some(shared) = shared.upgrade() else { return };
                match shared.free_file(oid).await {
                    Err(error) if may_pass(&error) => {}
                    // What cannot be freed the checker finds.
                    _ => return,
                }
            }
        });
        Ok(())
    }

    /// Reads where a node's inode is now; `None` when its entry names it no more.
    pub async fn fetch_node(&self, node: &Node) -> Result<Option<(Location, Found)>> {
        let location = node.location();
        if self.is_root(node.oid) {
            return Ok(Some((location, self.fetch_root().await?)));
        }
        if node.is_unlinked() && !node.inode().hard {
            return Ok(None);
        }
        let hard = node.inode().hard;
        let found = self.fetch_known(location.parent, &location.name, node.oid, hard).await?;
        Ok(found.map(|found| (location, found)))
    }

    /// The inode of an object that is known by a name; of a file with several names (`hard`) also
    /// when it lost this one. `None` when it is gone, or named otherwise.
    async fn fetch_known(
        &self,
        dir: Oid,
        name: &[u8],
        oid: Oid,
        hard: bool,
    ) -> Result<Option<Found>> {
        let found = self.fetch_entry(dir, name, false).await?;
        match found.filter(|found| found.inode.oid == oid) {
            // The file has other names, perhaps; its inode is with the object in any case.
            None if hard => self.fetch_hard(oid).await,
            found => Ok(found),
        }
    }

    /// The inode of a file with several names, by its object; `None` when it is gone. What is to
    /// be known of an entry is not.
    pub async fn fetch_hard(&self, oid: Oid) -> Result<Option<Found>> {
        let mut batch = self.cont.batch();
        batch.op(fetch_inode(oid, RECORD));
        let result = batch.run().await?;
        let found = Found::from_fetch(result.replies()?.first())?;
        Ok(found.map(|found| Found {
            inode: Inode { hard: true, oid, ..found.inode },
            entry_epoch: Epoch::ZERO,
            ..found
        }))
    }

    /// Changes an inode: `change` gets it as it is and may refuse. Returns what is stored now.
    pub async fn update_inode(
        &self,
        dir: Oid,
        name: &[u8],
        found: Found,
        mut change: impl FnMut(&Found) -> Result<Inode>,
    ) -> Result<Found> {
        let (oid, hard) = (found.inode.oid, found.inode.hard);
        let mut current = Some(found);
        retry(self, async || {
            let found = match current.take() {
                Some(found) => Some(found),
                None if self.is_root(oid) => Some(self.fetch_root().await?),
                None => self.fetch_known(dir, name, oid, hard).await?,
            };
            let found = found.ok_or_else(|| Error::bare(Code::NonExist))?;
            let inode = change(&found)?;
            let raw = Inode { hard: false, ..inode }.encode(&found.target);
            let place = self.place_of(dir, name, &found.inode);
            let mut batch = self.cont.batch();
            batch.check(ReadCheck {
                unit: place.oid.first_unit(),
                of: ReadScope::Akey(place.dkey, INODE),
                seen: found.epoch,
            });
            batch.op(Op::Update {
                unit: place.oid.first_unit(),
                dkey: place.dkey,
                cond: Cond::NONE,
                iods: vec![inline(INODE, &raw)],
            });
            let epoch = batch.run().await?.epoch;
            let entry_epoch = if inode.hard { found.entry_epoch } else { epoch };
            if let Some(node) = self.open_node(inode.oid) {
                node.set_inode(inode);
            }
            Ok(Found { inode, epoch, changed: epoch, entry_epoch, ..found })
        })
        .await
    }
}

/// True for what may be otherwise later: an engine is away, or has something else to do.
fn may_pass(error: &Error) -> bool {
    matches!(
        error.code,
        Code::TimedOut
            | Code::Unreach
            | Code::Closed
            | Code::Stale
            | Code::Busy
            | Code::NoSpace
            | Code::TxRestart
            | Code::Moved
    )
}

/// A target's answer does not fit the question.
pub(crate) fn reply_kind() -> Error {
    Error::new(Code::Proto, "a target gave an answer of the wrong kind")
}
