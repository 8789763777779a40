//! Rename: POSIX `renameat2`, always atomic.
//!
//! One batch moves the entry (inode and extended attributes), disposes of what had the new
//! name and checks that both entries are still what was read.
//!
//! Invariant: no directory is ever below itself. When a directory changes its parent, the batch
//! also checks the marker of every directory from the new parent up to the root, and rewrites the
//! marker of the one that moves. Of two moves that together would make a cycle, each rewrites a
//! marker that the other checks, so one of them runs again and then sees the other.
//!
//! A rename sets the ctime of what moves, as local file systems do: backups that go by ctime then
//! see that it has another name. With the entry that is done; the inode of a file with several
//! names is in the file's object, and the same batch writes it there.

use crate::by_object::{Removed, Renamed};
use crate::conflict::retry;
use crate::create::insert;
use crate::entry::{Found, Place};
use crate::flags::{Access, RenameFlags};
use crate::fs::{Dfs, inline};
use crate::inode::{Inode, S_ISVTX, epoch_ns};
use crate::layout::{INODE, MARKER, PARENT, RECORD};
use crate::node::{Location, Obj};
use crate::remove::{drop_name, less_one_name, punch_dir};
use crate::xattr::{is_bulk, xattr_iod};
use async_recursion::async_recursion as boxed;
use client::Batch;
use types::limits::check_name;
use types::{Code, Epoch, Error, Key, Oid, Result, Unit};
use wire::obj::{Cond, Op, ReadCheck, ReadScope};

/// Directories on the way up before the tree counts as broken.
const DEPTH_MAX: usize = 100_000;

/// Extended attributes: akey and value.
type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// What was read of an entry, with the akeys of the attributes kept in it.
type Entry = (Found, Vec<Vec<u8>>);

/// One side of a rename.
#[derive(Clone, Copy)]
struct Side<'a> {
    dir: Oid,
    dir_inode: &'a Inode,
    name: &'a [u8],
}

impl Dfs {
    /// Gives what is called (`parent`, `name`) the new name, in place of what has it now.
    ///
    /// With `NOREPLACE` a taken name is `Exist`; with `EXCHANGE` the two swap. Renaming a thing
    /// onto itself or onto another name of the same file does nothing. Errors: `NonExist`;
    /// `IsDir` file onto directory; `NotDir` directory onto file; `NotEmpty`; `Inval` for a
    /// directory moved below itself, or both flags; `Access`; `NoPerm` in sticky directories.
    #[boxed(?Send)]
    pub async fn rename(
        &self,
        parent: &Obj,
        name: &[u8],
        new_parent: &Obj,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        self.rename_inodes(parent, name, new_parent, new_name, flags).await.map(|_| ())
    }

    /// [`Dfs::rename`], telling what it did. When a directory or symbolic link took part, other
    /// paths than the two may lead elsewhere now.
    pub(crate) async fn rename_inodes(
        &self,
        parent: &Obj,
        name: &[u8],
        new_parent: &Obj,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<Renamed> {
        let (dir, new_dir) = (parent.require_dir()?, new_parent.require_dir()?);
        check_name(name)?;
        check_name(new_name)?;
        if flags.has(RenameFlags::NOREPLACE | RenameFlags::EXCHANGE) {
            return Err(Error::inval("NOREPLACE and EXCHANGE exclude each other"));
        }
        self.require_writable()?;
        let want = Access::WRITE | Access::EXECUTE;
        self.check_access(&dir, want)?;
        self.check_access(&new_dir, want)?;
        let from = Side { dir: parent.oid(), dir_inode: &dir, name };
        let to = Side { dir: new_parent.oid(), dir_inode: &new_dir, name: new_name };
        let mut kept = Vec::new();
        let renamed = retry(&self.shared, async || {
            let entry = |side: Side<'_>| {
                let shared = self.shared.clone();
                let (dir, name) = (side.dir, Key::new(side.name));
                async move { shared.fetch_entry_with_xattrs(dir, &name).await }
            };
            let (moved, replaced) = futures_util::future::try_join(entry(from), entry(to)).await?;
            let moved = moved.ok_or_else(|| Error::bare(Code::NonExist))?;
            if flags.has(RenameFlags::NOREPLACE) && replaced.is_some() {
                return Err(Error::bare(Code::Exist));
            }
            let leads_on = |(found, _): &Entry| found.inode.is_dir() || found.inode.is_symlink();
            let only_files = !leads_on(&moved) && !replaced.as_ref().is_some_and(leads_on);
            let same = replaced.as_ref().is_some_and(|(r, _)| r.inode.oid == moved.0.inode.oid);
            if same {
                self.require_one_file(from, to).await?;
            }
            let told = if same { Oid::NIL } else { moved.0.inode.oid };
            let (mut gone, mut swapped) = (None, None);
            if flags.has(RenameFlags::EXCHANGE) {
                let other = replaced.ok_or_else(|| Error::bare(Code::NonExist))?;
                swapped = Some(other.0.inode.oid).filter(|_| !same);
                let at = self.exchange(from, moved, to, other).await?;
                kept = at.into_iter().flat_map(|at| [(parent, at), (new_parent, at)]).collect();
                kept.truncate(if from.dir == to.dir { 1 } else { 2 });
            } else {
                let other = replaced.as_ref().filter(|_| !same);
                gone = other.map(|(found, _)| Removed::from_inode(&found.inode));
                let at = self.replace(from, moved, to, replaced).await?;
                let is_kept = gone.is_some() && from.dir != to.dir;
                kept = at.filter(|_| is_kept).map(|at| (new_parent, at)).into_iter().collect();
            }
            Ok(Renamed { moved: told, replaced: gone, swapped, only_files })
        })
        .await?;
        for (dir, at) in kept {
            Box::pin(self.touch_names(dir, at)).await;
        }
        Ok(renamed)
    }

    /// Sets the times of a directory of which a name leads to something else since `at`: they are those of the last change of the set of its names, and that is
    /// the same. Whoever changes its inode at this moment sets a time that does as well.
    async fn touch_names(&self, dir: &Obj, at: Epoch) {
        let shared = &self.shared;
        let touch = async || {
            let Some((location, found)) = shared.fetch_node(&dir.node).await? else {
                return Ok(());
            };
            let at_ns = epoch_ns(at);
            let times = (at_ns, at.max(found.inode.mtime_epoch), found.inode.ctime_ns.max(at_ns));
            let (mtime_ns, mtime_epoch, ctime_ns) = times;
            let inode = Inode { mtime_ns, mtime_epoch, ctime_ns, ..found.inode };
            let raw = inode.encode(&found.target);
            let place = shared.place_of(location.parent, &location.name, &found.inode);
            let mut batch = shared.cont.batch();
            let (unit, iods) = (place.oid.first_unit(), vec![inline(INODE, &raw)]);
            let of = ReadScope::Akey(place.dkey, INODE);
            batch.check(ReadCheck { unit, of, seen: found.epoch });
            batch.op(Op::Update { unit, dkey: place.dkey, cond: Cond::NONE, iods });
            batch.run().await?;
            dir.node.set_inode(inode);
            Ok::<_, Error>(())
        };
        // The rename is done, whatever becomes of this.
        let _ = touch().await;
    }

    /// Makes sure that two names lead to one file at a time: one that was looked at under one name, and renamed to the other before that was looked at, has one name only.
    ///
    /// Errors: `TxRestart` when that may be so.
    async fn require_one_file(&self, from: Side<'_>, to: Side<'_>) -> Result<()> {
        if (from.dir, from.name) == (to.dir, to.name) {
            return Ok(());
        }
        let before = self.shared.entry_value(from.dir, from.name).await?;
        let other = self.shared.entry_value(to.dir, to.name).await?;
        let after = self.shared.entry_value(from.dir, from.name).await?;
        let all =
            [before, other, after].map(|found| found.map(|found| (found.inode.oid, found.epoch)));
        match all {
            // It was there all the time, and so when the other one was looked at.
            [Some(before), Some(other), Some(after)] if before == after && before.0 == other.0 => {
                Ok(())
            }
            _ => Err(Error::new(
                Code::TxRestart,
                "a name was changed while the other one was looked at",
            )),
        }
    }

    /// Answers with when it was done, if there was anything to do.
    async fn replace(
        &self,
        from: Side<'_>,
        (moved, akeys): Entry,
        to: Side<'_>,
        replaced: Option<Entry>,
    ) -> Result<Option<Epoch>> {
        let (replaced, mut stale) = replaced.map_or((None, Vec::new()), |(r, s)| (Some(r), s));
        if replaced.as_ref().is_some_and(|found| found.inode.oid == moved.inode.oid) {
            return Ok(None);
        }
        self.check_moves(from, &moved, to)?;
        if let Some(found) = &replaced {
            self.check_sticky(to.dir_inode, &found.inode)?;
            match (moved.inode.is_dir(), found.inode.is_dir()) {
                (true, false) => return Err(Error::bare(Code::NotDir)),
                (false, true) => return Err(Error::bare(Code::IsDir)),
                _ => {}
            }
        }
        let shared = &self.shared;
        let chain = self.ancestors_if_moving(from, &moved, to).await?;
        let xattrs = self.entry_xattrs(from, akeys).await?;
        stale.retain(|akey| xattrs.iter().all(|(kept, _)| kept != akey));
        let record = self.moved_inode(&moved);
        let (raw, parent_raw) = (self.moved_record(&moved), to.dir.to_bytes());
        let fewer = replaced.as_ref().map(|found| less_one_name(found, shared.now_ns()));
        let freed = match &replaced {
            Some(found) if found.inode.is_dir() => {
                shared.cont.units_in_use(found.inode.oid).await?
            }
            _ => Vec::new(),
        };
        let mut batch = shared.cont.batch();
        check_entry(&mut batch, from, moved.entry_epoch);
        let seen = replaced.as_ref().map_or(Epoch::ZERO, |found| found.entry_epoch);
        check_entry(&mut batch, to, seen);
        check_chain(&mut batch, &chain);
        let gone = vec![from.name.into()];
        batch.op(Op::PunchDkeys { unit: from.dir.first_unit(), cond: Cond::PUNCH, dkeys: gone });
        if !stale.is_empty() {
            let akeys = stale.iter().map(|akey| akey.as_slice().into()).collect();
            batch.op(Op::PunchAkeys {
                unit: to.dir.first_unit(),
                dkey: to.name,
                cond: Cond::NONE,
                akeys,
            });
        }
        put_entry(&mut batch, to, &raw, &xattrs);
        set_parent(&mut batch, from, &moved, to, &parent_raw);
        put_record(&mut batch, &moved, record.as_deref());
        if let Some(found) = &replaced {
            dispose(&mut batch, found, fewer.as_deref().unwrap_or_default(), &freed);
        }
        let epoch = batch.run().await?.epoch;
        if let Some(found) = &replaced {
            shared.note_unlinked(&found.inode, to.dir, to.name);
            if found.inode.hard
                && found.inode.nlink <= 1
                && let Some(node) = shared.open_node(found.inode.oid)
            {
                node.set_unlinked();
            }
        }
        self.note_moved(from, &moved, to);
        Ok(Some(epoch))
    }

    /// As [`Dfs::replace`].
    async fn exchange(
        &self,
        from: Side<'_>,
        (moved, akeys): Entry,
        to: Side<'_>,
        (other, other_akeys): Entry,
    ) -> Result<Option<Epoch>> {
        if moved.inode.oid == other.inode.oid {
            return Ok(None);
        }
        self.check_moves(from, &moved, to)?;
        self.check_moves(to, &other, from)?;
        let shared = &self.shared;
        let mut chain = self.ancestors_if_moving(from, &moved, to).await?;
        chain.extend(self.ancestors_if_moving(to, &other, from).await?);
        let xattrs = self.entry_xattrs(from, akeys).await?;
        let other_xattrs = self.entry_xattrs(to, other_akeys).await?;
        let only_in = |a: &Xattrs, b: &Xattrs| -> Vec<Vec<u8>> {
            let missing = |akey: &Vec<u8>| b.iter().all(|(kept, _)| kept != akey);
            a.iter().map(|(akey, _)| akey.clone()).filter(missing).collect()
        };
        let stale_from = only_in(&xattrs, &other_xattrs);
        let stale_to = only_in(&other_xattrs, &xattrs);
        let (raw, other_raw) = (self.moved_record(&moved), self.moved_record(&other));
        let (to_raw, from_raw) = (to.dir.to_bytes(), from.dir.to_bytes());
        let record = self.moved_inode(&moved);
        let other_record = self.moved_inode(&other);
        let mut batch = shared.cont.batch();
        check_entry(&mut batch, from, moved.entry_epoch);
        check_entry(&mut batch, to, other.entry_epoch);
        check_chain(&mut batch, &chain);
        for (side, stale) in [(from, &stale_from), (to, &stale_to)] {
            if !stale.is_empty() {
                let akeys = stale.iter().map(|akey| akey.as_slice().into()).collect();
                let (oid, dkey) = (side.dir, side.name);
                batch.op(Op::PunchAkeys { unit: oid.first_unit(), dkey, cond: Cond::NONE, akeys });
            }
        }
        put_entry(&mut batch, to, &raw, &xattrs);
        put_entry(&mut batch, from, &other_raw, &other_xattrs);
        set_parent(&mut batch, from, &moved, to, &to_raw);
        set_parent(&mut batch, to, &other, from, &from_raw);
        put_record(&mut batch, &moved, record.as_deref());
        put_record(&mut batch, &other, other_record.as_deref());
        let epoch = batch.run().await?.epoch;
        self.note_moved(from, &moved, to);
        self.note_moved(to, &other, from);
        Ok(Some(epoch))
    }

    /// Permission to take something out of `from` and put it into `to`.
    fn check_moves(&self, from: Side<'_>, moved: &Found, to: Side<'_>) -> Result<()> {
        if from.dir_inode.mode & S_ISVTX != 0 {
            self.check_sticky(from.dir_inode, &moved.inode)?;
        }
        // The directory's own `..` changes.
        if moved.inode.is_dir() && from.dir != to.dir {
            self.check_access(&moved.inode, Access::WRITE)?;
        }
        Ok(())
    }

    /// The directories from `to` up to the root, each with its parent's epoch, when a directory
    /// is about to get a new parent. `Inval` when it is among them.
    async fn ancestors_if_moving(
        &self,
        from: Side<'_>,
        moved: &Found,
        to: Side<'_>,
    ) -> Result<Vec<(Oid, Epoch)>> {
        let mut chain = Vec::new();
        if !moved.inode.is_dir() || from.dir == to.dir {
            return Ok(chain);
        }
        let mut at = to.dir;
        loop {
            if at == moved.inode.oid {
                return Err(Error::new(Code::Inval, "a directory cannot be moved below itself"));
            }
            if chain.len() > DEPTH_MAX {
                return Err(Error::new(Code::Io, "the tree has a cycle; run the checker"));
            }
            let (parent, epoch) = self.parent_of(at).await?;
            chain.push((at, epoch));
            if self.shared.is_root(at) {
                return Ok(chain);
            }
            at = parent;
        }
    }

    /// Attributes kept in the entry itself.
    async fn entry_xattrs(&self, side: Side<'_>, akeys: Vec<Vec<u8>>) -> Result<Xattrs> {
        self.shared.fetch_xattrs_of(Place { oid: side.dir, dkey: side.name }, akeys).await
    }

    /// The entry's value under its new name.
    fn moved_record(&self, found: &Found) -> Vec<u8> {
        let inode = Inode { ctime_ns: self.shared.now_ns(), ..found.inode };
        inode.encode(if inode.hard { b"" } else { &found.target })
    }

    /// The inode of a file with several names as it is after the move; none for anything else,
    /// whose inode is in the entry.
    fn moved_inode(&self, found: &Found) -> Option<Vec<u8>> {
        let inode = Inode { hard: false, ctime_ns: self.shared.now_ns(), ..found.inode };
        found.inode.hard.then(|| inode.encode(&found.target))
    }

    /// Open handles follow their file.
    fn note_moved(&self, from: Side<'_>, moved: &Found, to: Side<'_>) {
        if let Some(node) = self.shared.open_node(moved.inode.oid)
            && node.is_at(from.dir, from.name)
        {
            node.set_location(Location { parent: to.dir, name: Key::new(to.name) });
        }
    }
}

fn check_entry<'a>(batch: &mut Batch<'a>, side: Side<'a>, seen: Epoch) {
    batch.check(ReadCheck {
        unit: side.dir.first_unit(),
        of: ReadScope::Akey(side.name, INODE),
        seen,
    });
}

fn check_chain(batch: &mut Batch<'_>, chain: &[(Oid, Epoch)]) {
    for &(oid, seen) in chain {
        batch.check(ReadCheck {
            unit: oid.first_unit(),
            of: ReadScope::Akey(MARKER, PARENT),
            seen,
        });
    }
}

/// Writes an entry whether or not the name is taken; the directory must exist.
fn put_entry<'a>(batch: &mut Batch<'a>, to: Side<'a>, raw: &'a [u8], xattrs: &'a Xattrs) {
    let Op::Update { unit, dkey, mut iods, .. } = insert(to.dir, to.name, raw) else {
        return;
    };
    iods.extend(xattrs.iter().map(|(akey, value)| xattr_iod(akey, value, Cond::NONE)));
    batch.op(Op::Update { unit, dkey, cond: Cond::OBJ_EXISTS, iods });
    for (_, value) in xattrs.iter().filter(|(_, value)| is_bulk(value)) {
        batch.bulk_out(value);
    }
}

/// Writes the inode of a file with several names, which must be what was read.
fn put_record<'a>(batch: &mut Batch<'a>, moved: &Found, raw: Option<&'a [u8]>) {
    let Some(raw) = raw else { return };
    let oid = moved.inode.oid;
    batch.check(ReadCheck {
        unit: oid.first_unit(),
        of: ReadScope::Akey(RECORD, INODE),
        seen: moved.epoch,
    });
    let iods = vec![inline(INODE, raw)];
    batch.op(Op::Update { unit: oid.first_unit(), dkey: RECORD, cond: Cond::NONE, iods });
}

/// Rewrites the marker of a directory that gets a new parent.
fn set_parent<'a>(
    batch: &mut Batch<'a>,
    from: Side<'_>,
    moved: &Found,
    to: Side<'_>,
    parent_raw: &'a [u8],
) {
    if moved.inode.is_dir() && from.dir != to.dir {
        let iods = vec![inline(PARENT, parent_raw)];
        let (oid, cond) = (moved.inode.oid, Cond::OBJ_EXISTS);
        batch.op(Op::Update { unit: oid.first_unit(), dkey: MARKER, cond, iods });
    }
}

/// Frees what had the new name.
fn dispose<'a>(batch: &mut Batch<'a>, found: &Found, fewer: &'a [u8], units: &[Unit]) {
    let oid = found.inode.oid;
    if found.inode.is_dir() {
        punch_dir(batch, units);
    } else if found.inode.hard {
        drop_name(batch, found, fewer, true);
    } else if found.inode.is_regular() {
        batch.op(Op::PunchUnlessOpen { unit: oid.first_unit() });
    }
}
