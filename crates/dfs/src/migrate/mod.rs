//! Files get another object class while they are in use.
//!
//! A new object, an orphan that belongs to who makes it, is filled from the old one while that is written to; then
//! one transaction puts it in the old one's place. It relies on what was copied being all there is (the newest epoch of
//! each unit of both objects), on the names being as they were, and on nobody having the file open; it frees the
//! old object as the removal of a last name does. See `docs/decisions/2026-11-25-migrate.md`.
//!
//! Invariants:
//! - Until the transaction the file is what it was; from then on it has the same bytes, holes, names, attributes and
//!   times of access and modification. Who dies in between leaves an orphan that goes with its client.
//! - Whoever changes the data of a file without an open handle (a truncation by name) registers one and then looks whether
//!   the name still leads to the object, as every open does.

mod copy;
mod tree;

pub use tree::{MigrateOptions, Migrating};

use crate::entry::{Found, Place};
use crate::flags::OpenFlags;
use crate::fs::{Dfs, Shared, inline};
use crate::inode::Inode;
use crate::layout::{INODE, RECORD};
use crate::node::{Location, Node, Obj};
use crate::xattr::{is_bulk, xattr_iod};
use client::{ArrayObj, Container};
use copy::Copy;
use std::time::Duration;
use types::{Code, Epoch, Error, ObjClass, Oid, Result};
use wire::obj::{Cond, Op, ReadCheck, ReadScope};

/// Pauses before the names are switched again after somebody had the file open or changed it: the first, and where doubling
/// ends.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// An engine that was started again, or leads what another one did, knows after half a minute who holds what open.
const OPENERS_KNOWN_MAX: Duration = Duration::from_secs(40);
/// Most names of a file whose class can be changed: all of them are switched in one transaction.
pub const NAMES_MAX: usize = 256;

/// What became of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Migrated {
    /// It has the class now.
    Done,
    /// It had it before.
    HadIt,
}

/// An object that is kept by an open handle; given back when dropped.
struct Held {
    cont: Container,
    oid: Oid,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.cont.release(self.oid);
    }
}

impl Dfs {
    /// Gives a file, named by all the names it has, a class. `on_bytes` hears of each piece that was copied.
    ///
    /// Errors: `Busy` when somebody had it open, or changed it, for all of `wait` after it was copied; `NonExist` when it was
    /// removed or renamed meanwhile; `NotSupported` for a file with names that are not given; `NoPerm`
    /// for who does not own it; those of writing, and of bringing a chunk back where the class demands that. The file is what it was then.
    pub(crate) async fn migrate_file(
        &self,
        names: &[Location],
        class: ObjClass,
        wait: Duration,
        on_bytes: &dyn Fn(u64),
    ) -> Result<Migrated> {
        self.require_writable()?;
        let shared = &self.shared;
        let first = names.first().ok_or_else(|| Error::inval("a file without a name"))?;
        let found = self.found_at(first).await?.filter(|found| found.inode.is_regular());
        let found = found.ok_or_else(gone)?;
        self.check_owner(&found.inode)?;
        let old = found.inode.oid;
        if old.class()? == class {
            return Ok(Migrated::HadIt);
        }
        require_all_names(&found.inode, names)?;
        let file = Obj::new(shared.node(first.clone(), found.inode), OpenFlags::READ_WRITE);
        let mut is_tiered = self.has_tier_copy(first, &found).await?;
        let (hint, _) = self.hint_of_new(first.parent, &first.name, class).await?;
        let new = shared.file_oid(class, hint).await?;
        let held = self.make_orphan(new).await?;
        let source = shared.array(&found.inode);
        let sink = ArrayObj { oid: new, ..source.clone() };
        let mut copy = Copy::new(source, sink);
        let env = shared.cont.client().env().clone();
        let (mut deadline, mut known_at, mut pause) = (None, None, PAUSE_MIN);
        loop {
            let passed = self.pass(&mut copy, &file, is_tiered, on_bytes).await;
            let mut wait_until = *deadline.get_or_insert(env.now() + wait);
            let switched = match passed {
                Ok(()) => self.switch(names, &file, &copy).await,
                Err(error) => Err(error),
            };
            let text = match switched {
                Ok(()) => break,
                Err(error) if error.code == Code::Busy => "the file is open",
                // Not the file's doing, and over soon.
                Err(error) if error.code == Code::WouldBlock => {
                    let known = *known_at.get_or_insert(env.now() + OPENERS_KNOWN_MAX);
                    wait_until = wait_until.max(known);
                    "engines were started again, and do not know yet whether the file is open"
                }
                // Changed, or part of another transaction.
                Err(error) if error.code == Code::TxRestart => "the file is being changed",
                // It got a copy in a tier meanwhile, and some of it went.
                Err(error) if error.code == Code::Inval && !is_tiered => {
                    is_tiered = true;
                    "the file is being changed"
                }
                Err(error) => return Err(error),
            };
            if env.now() >= wait_until {
                return Err(Error::new(Code::Busy, text));
            }
            env.sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        drop(held);
        Ok(Migrated::Done)
    }

    /// Brings the new object up to date.
    ///
    /// Errors: `TxRestart` when a chunk was given up while it was copied; `Inval` when one was and nobody looks for that.
    async fn pass(
        &self,
        copy: &mut Copy,
        file: &Obj,
        is_tiered: bool,
        on_bytes: &dyn Fn(u64),
    ) -> Result<()> {
        if is_tiered {
            self.fetch_what_is_split(file, &copy.sink).await?;
        }
        let passed = copy.pass(is_tiered.then_some((self, file)), on_bytes).await;
        match passed {
            Err(error) if error.code == Code::Inval => {
                copy.begin_anew().await?;
                if is_tiered { Err(Error::bare(Code::TxRestart)) } else { Err(error) }
            }
            Err(error) if error.code == Code::TxRestart => {
                copy.begin_anew().await?;
                Err(error)
            }
            outcome => outcome,
        }
    }

    async fn found_at(&self, place: &Location) -> Result<Option<Found>> {
        self.shared.fetch_entry(place.parent, &place.name, false).await
    }

    async fn has_tier_copy(&self, name: &Location, found: &Found) -> Result<bool> {
        if !found.inode.has_xattrs {
            return Ok(false);
        }
        let place = self.shared.place_of(name.parent, &name.name, &found.inode);
        self.has_tier_record(place, found.inode.oid).await
    }

    /// The record of the file's copy, as it is to be with the new object.
    async fn record_of_new(
        &self,
        place: Place<'_>,
        file: &Obj,
        copy: &Copy,
    ) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.record_with_new_object(place, file, &copy.seen, (&copy.sink, &copy.made)).await
    }

    /// Registers an object as one that goes with this client's handle on it.
    async fn make_orphan(&self, oid: Oid) -> Result<Held> {
        let cont = self.shared.cont.clone();
        let mut batch = cont.batch();
        batch.op(Op::Open { unit: oid.first_unit() });
        batch.op(Op::PunchUnlessOpen { unit: oid.first_unit() });
        batch.run().await?;
        Ok(Held { cont, oid })
    }

    /// Puts the new object in the old one's place.
    ///
    /// Errors: `TxRestart` when the file has changed since it was copied; `Busy` when it is open, `WouldBlock` when that is not known;
    /// `NonExist`, `NotSupported` when the names are others now.
    async fn switch(&self, names: &[Location], file: &Obj, copy: &Copy) -> Result<()> {
        let shared = &self.shared;
        let (old, new) = (copy.source.oid, copy.sink.oid);
        let mut entries = Vec::with_capacity(names.len());
        for name in names {
            let entry = shared.entry_value(name.parent, &name.name).await?;
            entries.push(entry.filter(|entry| entry.inode.oid == old).ok_or_else(gone)?);
        }
        let is_hard = entries[0].inode.hard;
        let found = match is_hard {
            true => shared.fetch_hard(old).await?.ok_or_else(gone)?,
            false => entries[0].clone(),
        };
        require_all_names(&found.inode, names)?;
        let place = shared.place_of(names[0].parent, &names[0].name, &found.inode);
        let mut xattrs = match is_hard {
            true => shared.fetch_xattrs(place).await?,
            // They are in the entry, and stay there.
            false => Vec::new(),
        };
        if found.inode.has_xattrs
            && let Some(record) = self.record_of_new(place, file, copy).await?
        {
            xattrs.retain(|(akey, _)| *akey != record.0);
            xattrs.push(record);
        }
        let inode = inode_of_new(shared, &found.inode, copy);
        let record = Inode { hard: false, ..inode }.encode(b"");
        let values: Vec<Vec<u8>> = match is_hard {
            true => entries
                .iter()
                .map(|entry| Inode { oid: new, hard: true, ..entry.inode }.encode(b""))
                .collect(),
            false => vec![record.clone()],
        };
        let mut batch = shared.cont.batch();
        for (name, entry) in names.iter().zip(&entries) {
            let (unit, of) = (name.parent.first_unit(), ReadScope::Akey(&name.name, INODE));
            batch.check(ReadCheck { unit, of, seen: entry.entry_epoch });
        }
        if is_hard {
            // It is beside the data.
            let (unit, of) = (old.first_unit(), ReadScope::Akey(RECORD, INODE));
            batch.check(ReadCheck { unit, of, seen: found.epoch });
        }
        for (unit, tail) in &copy.seen {
            let (unit, of) = (*unit, ReadScope::Object);
            batch.check_of_unit(ReadCheck { unit, of, seen: tail.epoch });
        }
        // Who was taken for dead meanwhile has lost what it had copied.
        for (unit, tail) in copy.made.iter().filter(|(_, tail)| tail.epoch != Epoch::ZERO) {
            let (unit, of) = (*unit, ReadScope::Object);
            batch.check_of_unit(ReadCheck { unit, of, seen: tail.epoch });
        }
        for (name, value) in names.iter().zip(&values) {
            let (unit, dkey) = (name.parent.first_unit(), &name.name[..]);
            let mut iods = vec![inline(INODE, value)];
            if !is_hard {
                iods.extend(xattrs.iter().map(|(akey, value)| xattr_iod(akey, value, Cond::NONE)));
            }
            batch.op(Op::Update { unit, dkey, cond: Cond::DKEY_UPDATE, iods });
        }
        if is_hard {
            let mut iods = vec![inline(INODE, &record)];
            iods.extend(xattrs.iter().map(|(akey, value)| xattr_iod(akey, value, Cond::NONE)));
            let unit = new.first_unit();
            batch.op(Op::Update { unit, dkey: RECORD, cond: Cond::NONE, iods });
            // The old object lives on for a while, and whoever knows it by a name that it has lost takes its record for other names. (The
            // mark of a file that has grown beyond its first part is beside it, and stays.)
            let (unit, akeys) = (old.first_unit(), vec![INODE.into()]);
            batch.op(Op::PunchAkeys { unit, dkey: RECORD, cond: Cond::NONE, akeys });
        }
        for (_, value) in xattrs.iter().filter(|(_, value)| is_bulk(value)) {
            batch.bulk_out(value);
        }
        batch.op(Op::Adopt { unit: new.first_unit() });
        batch.op(Op::FreeClosed { unit: old.first_unit() });
        batch.run().await.map(|_| ())
    }

    /// Holds a file open that is known by a name only, for a change of its data. `None` where somebody holds it already: it is
    /// open, or has no name.
    ///
    /// Errors: `NonExist` when the name does not lead to it any more.
    pub(crate) async fn hold_named(&self, node: &Node) -> Result<Option<impl Drop + use<>>> {
        let shared = &self.shared;
        if node.has_handles() || node.is_unlinked() {
            return Ok(None);
        }
        let Location { parent, name } = node.location();
        let found = shared.fetch_entry(parent, &name, true).await?;
        let held = |oid| Held { cont: shared.cont.clone(), oid };
        let is_it = found.as_ref().is_some_and(|found| found.inode.oid == node.oid);
        match found.filter(|found| found.opened) {
            Some(_) if is_it => return Ok(Some(held(node.oid))),
            Some(other) => shared.cont.release(other.inode.oid),
            None if is_it && shared.register_open(parent, &name, node.oid).await? => {
                return Ok(Some(held(node.oid)));
            }
            None => {}
        }
        if node.inode().hard {
            // It may have other names.
            let mut batch = shared.cont.batch();
            batch.op(Op::Open { unit: node.oid.first_unit() });
            batch.run().await?;
            let held = held(node.oid);
            if shared.fetch_hard(node.oid).await?.is_some() {
                return Ok(Some(held));
            }
        }
        Err(Error::new(Code::NonExist, "the object lost the name it was known by"))
    }
}

/// The inode with the new object; what the data told of the time of modification is explicit then.
fn inode_of_new(shared: &Shared, old: &Inode, copy: &Copy) -> Inode {
    let data = copy.seen_epoch();
    Inode {
        oid: copy.sink.oid,
        quiet: false,
        // A class of its own for the file; the default may change.
        chunk_bytes: copy.source.chunk_records as u32,
        mtime_ns: old.mtime_with(data),
        mtime_epoch: old.mtime_epoch.max(data).max(copy.made_epoch()),
        ctime_ns: shared.now_ns(),
        ..*old
    }
}

fn require_all_names(inode: &Inode, names: &[Location]) -> Result<()> {
    let known = names.len();
    if inode.nlink as usize == known && known <= NAMES_MAX {
        return Ok(());
    }
    let nlink = inode.nlink;
    let text = match known > NAMES_MAX {
        true => format!("the file has {nlink} names; at most {NAMES_MAX} can be switched at once"),
        false => format!("{known} of the file's {nlink} names are below the path"),
    };
    Err(Error::new(Code::NotSupported, text))
}

fn gone() -> Error {
    Error::new(Code::NonExist, "the file was removed or renamed meanwhile")
}
