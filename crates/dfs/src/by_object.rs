//! Calls for those that know objects rather than paths: a kernel mount.
//!
//! A mount keeps its own table of objects (described by [`crate::SharedObj`]) and asks of each
//! call what it needs to keep that table right: attributes together with the object, and which
//! object lost or changed its name.

use crate::attr::{Stat, stat_from};
use crate::create::RACES_MAX;
use crate::dir::DirAnchor;
use crate::entry::Found;
use crate::flags::{Access, CreateOptions, OpenFlags, RenameFlags};
use crate::fs::Dfs;
use crate::inode::{FileKind, Inode, epoch_ns};
use crate::node::{Location, Obj};
use crate::page::Told;
use crate::share::SharedObj;
use crate::tier::Returning;
use crate::walk::Step;
use async_recursion::async_recursion as boxed;
use types::limits::check_name;
use types::{Code, Error, Key, Oid, Result};
use wire::obj::{Op, Recx};

/// What a removal took away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Removed {
    /// The object that lost the name.
    pub oid: Oid,
    pub kind: FileKind,
    /// Names it has left.
    pub nlink: u32,
    /// What the directory's mtime is by it, nanoseconds since 1970; `None` where the engines did
    /// not say.
    pub changed_ns: Option<i64>,
}

/// A file that was opened, or made.
pub struct Created {
    pub obj: Obj,
    pub stat: Stat,
    /// When it was made: what the directory's mtime is by it, nanoseconds since 1970; `None` when
    /// it was there.
    pub changed_ns: Option<i64>,
}

/// What a rename did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Renamed {
    /// The object that has the new name now; nil when nothing was to be done.
    pub moved: Oid,
    /// What had the new name before and lost it.
    pub replaced: Option<Removed>,
    /// What has the old name now, after an exchange.
    pub swapped: Option<Oid>,
    /// Neither a directory nor a symbolic link took part: no other paths than the two may lead
    /// elsewhere now.
    pub only_files: bool,
}

/// How an object may be opened that the name it was last seen under does not lead to any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unnamed {
    /// Not at all: the path by which the caller came may lead elsewhere.
    Refused,
    /// If it has other names.
    Linked,
    /// The caller has it open, whether or not it has a name.
    Held,
}

impl Dfs {
    /// An entry, to be named only, and its attributes. One round trip for files on the entry's
    /// target; directories and striped files need a second. Symbolic links are not followed.
    #[boxed(?Send)]
    pub async fn lookup_stat(&self, parent: &Obj, name: &[u8]) -> Result<(Obj, Stat)> {
        let dir = parent.require_dir()?;
        check_name(name)?;
        self.check_access(&dir, Access::EXECUTE)?;
        let found = self.shared.fetch_entry(parent.oid(), name, false).await?;
        let found = found.ok_or_else(|| Error::bare(Code::NonExist))?;
        let stat = self.stat_found(&found).await?;
        let location = Location { parent: parent.oid(), name: Key::new(name) };
        Ok((Obj::new(self.shared.node(location, found.inode), OpenFlags::PATH), stat))
    }

    /// Makes a file and opens it, or without `EXCL` opens the one that is there; symbolic links
    /// are not followed. Making takes one round trip.
    #[boxed(?Send)]
    pub async fn create_stat(
        &self,
        parent: &Obj,
        name: &[u8],
        flags: OpenFlags,
        mode: u32,
    ) -> Result<Created> {
        let dir = parent.require_dir()?;
        check_name(name)?;
        self.check_access(&dir, Access::EXECUTE)?;
        let (at, key) = (Step::of(parent), Key::new(name));
        let flags = flags | OpenFlags::CREATE | OpenFlags::NOFOLLOW;
        for _ in 0..RACES_MAX {
            let made = self.try_create(&at, &key, flags, mode, &CreateOptions::default()).await?;
            if let Some((obj, epoch)) = made {
                let stat = stat_from(&Found::fresh(obj.node.inode(), epoch), &Told::empty());
                return Ok(Created { obj, stat, changed_ns: Some(epoch_ns(epoch)) });
            }
            let found = match self.lookup_stat(parent, name).await {
                Err(error) if error.code == Code::NonExist => continue,
                other => other?.0,
            };
            match self.open_obj(&found, flags.without(OpenFlags::CREATE), Unnamed::Refused).await {
                Err(error) if error.code == Code::NonExist => {}
                other => {
                    let (obj, stat) = other?;
                    return Ok(Created { obj, stat, changed_ns: None });
                }
            }
        }
        Err(Error::new(Code::Busy, "the name changes faster than it can be opened"))
    }

    /// Opens an object that is known already, and tells its attributes (with `TRUNC`: those
    /// from before, but for the size).
    ///
    /// Errors: `NonExist` when it has no name, or another than it was last seen under, unless `unnamed` may be opened; the
    /// caller should look the path up again.
    #[boxed(?Send)]
    pub async fn open_obj(
        &self,
        obj: &Obj,
        flags: OpenFlags,
        unnamed: Unnamed,
    ) -> Result<(Obj, Stat)> {
        let held = unnamed == Unnamed::Held;
        let shared = &self.shared;
        let oid = obj.oid();
        let wants_handle = !flags.has(OpenFlags::PATH) && obj.node.inode().is_regular();
        for _ in 0..RACES_MAX {
            let location = obj.node.location();
            if shared.is_root(oid) {
                let found = shared.fetch_root().await?;
                self.check_open(&found.inode, flags)?;
                let stat = self.stat_found(&found).await?;
                return Ok((Obj::new(shared.node(location, found.inode), flags), stat));
            }
            let found = if obj.node.is_unlinked() {
                None
            } else {
                shared.fetch_entry(location.parent, &location.name, wants_handle).await?
            };
            match found {
                Some(found) if found.inode.oid == oid => {
                    let stat = match self.stat_found(&found).await {
                        Ok(stat) => stat,
                        Err(error) => {
                            if found.opened {
                                shared.cont.release(oid);
                            }
                            return Err(error);
                        }
                    };
                    if let Some(opened) = self.open_found(location, found, flags).await? {
                        let cut = flags.has(OpenFlags::TRUNC) && opened.node.inode().is_regular();
                        let size = if cut { 0 } else { stat.size };
                        return Ok((opened, Stat { size, ..stat }));
                    }
                    continue;
                }
                Some(found) if found.opened => shared.cont.release(found.inode.oid),
                _ => {}
            }
            let inode = obj.node.inode();
            if unnamed == Unnamed::Refused || (!held && !inode.hard) {
                return Err(Error::new(Code::NonExist, "the object lost the name it was known by"));
            }
            let stat = self.ostat(obj).await?;
            self.check_open(&obj.node.inode(), flags)?;
            if wants_handle {
                let mut batch = shared.cont.batch();
                batch.op(Op::Open { unit: oid.first_unit() });
                batch.run().await?;
                // The last of its names may be gone, or lead to another object.
                if !held && !matches!(shared.fetch_hard(oid).await, Ok(Some(_))) {
                    shared.cont.release(oid);
                    return Err(Error::new(Code::NonExist, "the object has no name any more"));
                }
                obj.node.add_handle();
            }
            let opened = obj.dup(flags);
            if flags.has(OpenFlags::TRUNC) && inode.is_regular() {
                self.truncate_node(&opened.node, 0, None).await?;
                return Ok((opened, Stat { size: 0, ..stat }));
            }
            return Ok((opened, stat));
        }
        Err(Error::new(Code::Busy, "the name changes faster than it can be opened"))
    }

    /// Attributes of an object; `NonExist` when its entry, as far as is known, names it no more
    /// (renamed or removed by somebody else).
    #[boxed(?Send)]
    pub async fn stat_named(&self, obj: &Obj) -> Result<Stat> {
        match self.shared.fetch_node(&obj.node).await? {
            Some((_, found)) => {
                obj.node.set_inode(found.inode);
                self.stat_found(&found).await
            }
            None => Err(Error::new(Code::NonExist, "the object lost the name it was known by")),
        }
    }

    /// [`Dfs::read`] of a range that probably reaches the end of the file: asks for the size at the
    /// same time.
    #[boxed(?Send)]
    pub async fn read_to_end(&self, file: &Obj, offset: u64, memory: &mut [u8]) -> Result<usize> {
        file.require_regular()?;
        if !file.flags.has(OpenFlags::READ) {
            return Err(Error::bare(Code::BadHandle));
        }
        let count = memory.len() as u64;
        let ranges = [Recx { index: offset, count }];
        let array = file.node.array();
        let size = match array.read_and_size(&ranges, &mut [&mut *memory]).await {
            Err(error) if error.code == Code::Inval => {
                let size_min =
                    self.read_tiered(file, &ranges, &mut [memory], Returning::Behind).await?;
                array.size().await?.max(size_min)
            }
            outcome => outcome?,
        };
        Ok(size.saturating_sub(offset).min(count) as usize)
    }

    /// [`Dfs::readdirplus`], each entry also as an object to be named only.
    #[boxed(?Send)]
    pub async fn readdir_objs(
        &self,
        dir: &Obj,
        anchor: &mut DirAnchor,
        count_max: u32,
    ) -> Result<Vec<(Key, SharedObj, Stat)>> {
        self.check_access(&dir.require_dir()?, Access::EXECUTE)?;
        let page = self.read_page(dir, anchor, count_max, true).await?;
        let names: Vec<Key> = page.iter().map(|(name, _)| name.clone()).collect();
        let stats = self.shared.stat_page(dir.oid(), page).await?;
        let told = names.into_iter().zip(stats).filter_map(|(name, told)| {
            let (inode, stat) = told?;
            let location = Location { parent: dir.oid(), name: name.clone() };
            Some((name, SharedObj::new(location, inode, OpenFlags::PATH), stat))
        });
        Ok(told.collect())
    }

    /// [`Dfs::unlink`], telling what lost its name.
    #[boxed(?Send)]
    pub async fn unlink_told(&self, parent: &Obj, name: &[u8]) -> Result<Removed> {
        self.unlink_inode(parent, name).await
    }

    /// [`Dfs::rmdir`], telling what lost its name.
    #[boxed(?Send)]
    pub async fn rmdir_told(&self, parent: &Obj, name: &[u8]) -> Result<Removed> {
        self.rmdir_inode(parent, name).await
    }

    /// [`Dfs::rename`], telling what moved and what was replaced.
    #[boxed(?Send)]
    pub async fn rename_told(
        &self,
        parent: &Obj,
        name: &[u8],
        new_parent: &Obj,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<Renamed> {
        self.rename_inodes(parent, name, new_parent, new_name, flags).await
    }
}

impl Removed {
    /// An inode that has just lost a name; `inode` is how it was before.
    pub(crate) fn from_inode(inode: &Inode) -> Removed {
        let nlink = if inode.is_dir() { 0 } else { inode.nlink.saturating_sub(1) };
        Removed { oid: inode.oid, kind: inode.kind(), nlink, changed_ns: None }
    }
}
