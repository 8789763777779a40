//! Attributes: stat, access, chmod, chown, utimens, set_size, statfs.

use crate::cred::Credentials;
use crate::entry::Found;
use crate::file::mode_without_privileges;
use crate::flags::{Access, MountFlags, OpenFlags, SetAttr, SetTime};
use crate::fs::Dfs;
use crate::inode::{FileKind, Inode, S_IFMT, S_ISGID};
use crate::node::{Location, Obj};
use crate::page::Told;
use crate::sys::TRIES_MAX;
use async_recursion::async_recursion as boxed;
use types::limits::check_name;
use types::{Code, Epoch, Error, Oid, Result};
use wire::obj::Tail;

/// Attributes of a file, directory or whatever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Number of the object, for `st_ino`.
    pub ino: u64,
    pub oid: Oid,
    /// Type and permission bits.
    pub mode: u32,
    /// Names. Directories always say 1: "count your subdirectories yourself", as on btrfs, so
    /// that tools do not conclude from 2 that there are none.
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Device number of device nodes.
    pub rdev: u64,
    /// Size: of a file its bytes, of a symbolic link its target's, of a directory 0.
    pub size: u64,
    pub stored_bytes: u64,
    /// Chunk of a file, bytes: the transfer size that suits it.
    pub chunk_bytes: u64,
    /// Access time, nanoseconds since 1970. Set by reading only as [`MountFlags::RELATIME`] says.
    pub atime_ns: i64,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Change time, nanoseconds since 1970.
    pub ctime_ns: i64,
}

impl Stat {
    pub fn kind(&self) -> FileKind {
        FileKind::from_mode(self.mode).unwrap_or(FileKind::Regular)
    }

    /// True for a directory.
    pub fn is_dir(&self) -> bool {
        self.kind() == FileKind::Directory
    }

    /// The rule of `relatime`: a read at `now_ns` is to set the access time if that is not after
    /// the last change of data or inode, or a day old.
    pub fn is_atime_due(&self, now_ns: i64) -> bool {
        self.atime_ns <= self.mtime_ns
            || self.atime_ns <= self.ctime_ns
            || now_ns.saturating_sub(self.atime_ns) >= ATIME_AGE_MAX_NS
    }
}

/// An access time older than this is set anew by a read in any case, nanoseconds.
const ATIME_AGE_MAX_NS: i64 = 24 * 3600 * 1_000_000_000;

/// Space of the file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatFs {
    /// Both tiers, bytes.
    pub total_bytes: u64,
    pub free_bytes: u64,
    /// Of the free bytes, what data of new files may take: a tier does not lend to the other, and of files with copies, each of which takes its part,
    /// targets that are nearly full keep none.
    pub available_bytes: u64,
    /// Objects in the pool.
    pub object_count: u64,
    pub name_bytes_max: u64,
}

impl Dfs {
    /// Attributes of an entry; symbolic links are not followed.
    #[boxed(?Send)]
    pub async fn stat(&self, parent: &Obj, name: &[u8]) -> Result<Stat> {
        let dir = parent.require_dir()?;
        check_name(name)?;
        self.check_access(&dir, Access::EXECUTE)?;
        let found = self.shared.fetch_entry(parent.oid(), name, false).await?;
        let found = found.ok_or_else(|| Error::bare(Code::NonExist))?;
        self.stat_found(&found).await
    }

    /// Attributes of what an absolute path names, with symbolic links followed.
    pub async fn stat_path(&self, path: &[u8]) -> Result<Stat> {
        let obj = self.lookup(path, OpenFlags::PATH).await?;
        self.ostat(&obj).await
    }

    /// Attributes of an open object. A file without a name has link count 0.
    #[boxed(?Send)]
    pub async fn ostat(&self, obj: &Obj) -> Result<Stat> {
        self.tier_settled(obj.oid()).await;
        self.ostat_now(obj).await
    }

    /// The same, whether something is coming back from a tier or not.
    pub(crate) async fn ostat_now(&self, obj: &Obj) -> Result<Stat> {
        match self.shared.fetch_node(&obj.node).await? {
            Some((_, found)) => {
                if !obj.node.is_unlinked() {
                    obj.node.set_inode(found.inode);
                    return self.stat_found_now(&found).await;
                }
                // The record of a file that had several names is there as long as it is open.
                let stat = self.stat_found_now(&found).await?;
                Ok(Stat { nlink: 0, ..stat })
            }
            None => {
                let inode = obj.node.inode();
                if !inode.is_regular() {
                    return Ok(make_stat(&inode, 0, 0, &Tail::default(), Epoch::ZERO));
                }
                let tail = obj.node.array().stat().await?;
                Ok(make_stat(&inode, 0, 0, &tail, Epoch::ZERO))
            }
        }
    }

    /// What a record and its data tell. While chunks come back from a tier the data are newer than the file, and its time of modification is not put back
    /// yet: that is waited for, and looked at again.
    pub(crate) async fn stat_found(&self, found: &Found) -> Result<Stat> {
        if let Some(file) = self.tier_settled(found.inode.oid).await
            && let Some((_, later)) = Box::pin(self.shared.fetch_node(&file.node)).await?
        {
            return self.stat_found_now(&later).await;
        }
        self.stat_found_now(found).await
    }

    async fn stat_found_now(&self, found: &Found) -> Result<Stat> {
        let shared = &self.shared;
        let told = if found.inode.is_dir() {
            Box::pin(shared.merged(found)).await?
        } else {
            Told { tail: shared.tail(found).await?, directories: None }
        };
        Ok(stat_from(found, &told))
    }

    /// Whether the caller may do all of `want` with an entry; symbolic links are followed.
    /// Errors: `Access`, `ReadOnly`, `NonExist` and the like.
    #[boxed(?Send)]
    pub async fn access(&self, parent: &Obj, name: &[u8], want: Access) -> Result<()> {
        let obj = self.lookup_rel(parent, name, OpenFlags::PATH).await?;
        self.oaccess(&obj, want)
    }

    /// Whether the caller may do all of `want` with an open object.
    pub fn oaccess(&self, obj: &Obj, want: Access) -> Result<()> {
        let inode = obj.node.inode();
        let stored =
            matches!(inode.kind(), FileKind::Regular | FileKind::Directory | FileKind::Symlink);
        if want.has(Access::WRITE) && stored {
            self.require_writable()?;
        }
        if want == Access::NONE { Ok(()) } else { self.check_access(&inode, want) }
    }

    /// [`Dfs::oaccess`] for another caller, by mode bits even where the mount does not enforce
    /// them.
    pub fn oaccess_as(&self, obj: &Obj, want: Access, cred: &Credentials) -> Result<()> {
        self.oaccess(obj, want)?;
        if want == Access::NONE { Ok(()) } else { cred.check(&obj.node.inode(), want) }
    }

    /// Changes permission bits of an entry; symbolic links are followed.
    #[boxed(?Send)]
    pub async fn chmod(&self, parent: &Obj, name: &[u8], mode: u32) -> Result<()> {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        self.setattr_named(parent, name, OpenFlags::PATH, &set).await
    }

    /// Changes attributes of what a name leads to; of what it leads to then when that is replaced in between.
    async fn setattr_named(
        &self,
        parent: &Obj,
        name: &[u8],
        flags: OpenFlags,
        set: &SetAttr,
    ) -> Result<()> {
        let mut tries = 0;
        loop {
            let obj = self.lookup_rel(parent, name, flags).await?;
            match self.setattr(&obj, set).await {
                Err(error) if error.code == Code::NonExist && tries < TRIES_MAX => tries += 1,
                outcome => return outcome.map(|_| ()),
            }
        }
    }

    /// Changes owner and group of an entry; `None` leaves one alone. With `follow`, symbolic
    /// links are followed.
    #[boxed(?Send)]
    pub async fn chown(
        &self,
        parent: &Obj,
        name: &[u8],
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    ) -> Result<()> {
        let flags = if follow { OpenFlags::PATH } else { OpenFlags::PATH | OpenFlags::NOFOLLOW };
        let set = SetAttr { uid, gid, ..SetAttr::default() };
        self.setattr_named(parent, name, flags, &set).await
    }

    /// Changes attributes of an open object and returns what they are now.
    ///
    /// The size changes first, so that an mtime given with it stays. Errors: `NoPerm` when the
    /// caller does not own the object; `Access` for times set to now without write permission;
    /// `Inval` for other type bits; `NotSupported` for the mode of a symbolic link; `IsDir` or
    /// `Inval` for the size of what is no regular file.
    #[boxed(?Send)]
    pub async fn setattr(&self, obj: &Obj, set: &SetAttr) -> Result<Stat> {
        self.require_writable()?;
        let shared = &self.shared;
        if let Some(size) = set.size {
            obj.require_regular()?;
            if !obj.flags.has(OpenFlags::WRITE) {
                self.check_access(&obj.node.inode(), Access::WRITE)?;
            }
            let _held = match obj.flags.has(OpenFlags::WRITE) && !obj.flags.has(OpenFlags::PATH) {
                true => None,
                false => self.hold_named(&obj.node).await?,
            };
            self.truncate_node(&obj.node, size, None).await?;
        }
        let inode_too = set.mode.is_some()
            || set.uid.is_some()
            || set.gid.is_some()
            || set.atime.is_some()
            || set.mtime.is_some()
            || set.drop_privileges;
        if !inode_too {
            return self.ostat(obj).await;
        }
        let mut now = shared.fetch_node(&obj.node).await?;
        if let (Some(mode), Some((_, found))) = (set.mode, &now)
            && found.inode.has_xattrs
        {
            self.check_owner(&found.inode)?;
            if self.acl_follows(obj, mode).await? {
                now = shared.fetch_node(&obj.node).await?;
            }
        }
        let Some((location, found)) = now else {
            return self.setattr_unlinked(obj, set).await;
        };
        let Location { parent, name } = &location;
        let data = if set.mtime.is_none() {
            Epoch::ZERO
        } else if found.inode.is_dir() {
            shared.merged_tail(&found).await?.epoch
        } else {
            shared.tail(&found).await?.epoch
        };
        let writable = obj.flags.has(OpenFlags::WRITE);
        let found = shared
            .update_inode(*parent, name, found, |found| {
                self.changed(&found.inode, set, data, writable)
            })
            .await?;
        // A tail read before the change still tells the size; the data did not change.
        self.stat_found(&found).await
    }

    /// A file without a name: only this mount's handles still see it, so they share its inode.
    async fn setattr_unlinked(&self, obj: &Obj, set: &SetAttr) -> Result<Stat> {
        if !obj.node.is_unlinked() {
            return Err(Error::new(
                Code::NonExist,
                "the file was renamed or removed by another client",
            ));
        }
        let tail = obj.node.array().stat().await?;
        let writable = obj.flags.has(OpenFlags::WRITE);
        let inode = self.changed(&obj.node.inode(), set, tail.epoch, writable)?;
        obj.node.set_inode(inode);
        Ok(make_stat(&inode, 0, 0, &tail, Epoch::ZERO))
    }

    /// The inode after a permitted change.
    fn changed(&self, old: &Inode, set: &SetAttr, data: Epoch, writable: bool) -> Result<Inode> {
        let now = self.shared.now_ns();
        let mut inode = Inode { ctime_ns: now, ..*old };
        if let Some(mode) = set.mode {
            if mode & S_IFMT != 0 && mode & S_IFMT != old.mode & S_IFMT {
                return Err(Error::inval("the type of an object cannot be changed"));
            }
            if old.is_symlink() {
                return Err(Error::bare(Code::NotSupported));
            }
            self.check_owner(old)?;
            inode.mode = old.mode & S_IFMT | mode & 0o7777;
            let gid = set.gid.unwrap_or(old.gid);
            if !self.is_privileged() && !self.cred.in_group(gid) {
                inode.mode &= !S_ISGID;
            }
        }
        if set.uid.is_some() || set.gid.is_some() {
            let (uid, gid) = (set.uid.unwrap_or(old.uid), set.gid.unwrap_or(old.gid));
            if !self.is_privileged() {
                self.check_owner(old)?;
                if uid != old.uid || (gid != old.gid && !self.cred.in_group(gid)) {
                    return Err(Error::bare(Code::NoPerm));
                }
            }
            (inode.uid, inode.gid) = (uid, gid);
            let trusted = self.shared.flags.has(MountFlags::NO_PERM_CHECK);
            // A program must not stay set-user-id for an owner who did not make it so.
            if !old.is_dir() && set.mode.is_none() && !trusted {
                inode.mode = mode_without_privileges(inode.mode);
            }
        }
        if set.drop_privileges && !old.is_dir() {
            inode.mode = mode_without_privileges(inode.mode);
        }
        // Both set to now together is what reading and writing may do, too; so is the time that
        // goes with a change of the size.
        let both_now = set.atime == Some(SetTime::Now) && set.mtime == Some(SetTime::Now);
        let lenient = both_now || set.size.is_some();
        for time in [set.atime, set.mtime].into_iter().flatten() {
            match time {
                SetTime::Now if lenient && (writable || self.check_owner(old).is_ok()) => {}
                SetTime::Now if lenient => self.check_access(old, Access::WRITE)?,
                _ => self.check_owner(old)?,
            }
        }
        let resolve = |time: SetTime| match time {
            SetTime::Now => now,
            SetTime::At(ns) => ns,
        };
        if let Some(atime) = set.atime {
            inode.atime_ns = resolve(atime);
        }
        if let Some(mtime) = set.mtime {
            inode.mtime_ns = resolve(mtime);
            inode.mtime_epoch = old.mtime_epoch.max(data);
        }
        Ok(inode)
    }

    /// True when reading a file is to set its access time: this mount keeps access times, and
    /// that of the file is not after its last change, or a day old.
    pub(crate) fn is_atime_due(&self, found: &Found) -> bool {
        let flags = self.shared.flags;
        if !flags.has(MountFlags::RELATIME) || flags.has(MountFlags::READ_ONLY) {
            return false;
        }
        let tail = found.tail.unwrap_or_default();
        let stat = stat_from(found, &Told { tail, directories: None });
        found.inode.is_regular() && stat.is_atime_due(self.shared.now_ns())
    }

    /// Sets the access time of an object to the present, as reading does; nothing else changes,
    /// whoever asks. For mounts that decide themselves when: see [`Stat::is_atime_due`].
    #[boxed(?Send)]
    pub async fn touch_atime(&self, obj: &Obj) -> Result<()> {
        let shared = &self.shared;
        if self.require_writable().is_err() {
            return Ok(());
        }
        let now = shared.now_ns();
        let Some((location, found)) = shared.fetch_node(&obj.node).await? else {
            obj.node.set_inode(Inode { atime_ns: now, ..obj.node.inode() });
            return Ok(());
        };
        let touched = shared
            .update_inode(location.parent, &location.name, found, |found| {
                // Writing the record shall not look like a change of the inode.
                let ctime_ns = found.inode.ctime_with(found.changed, Epoch::ZERO);
                Ok(Inode { atime_ns: now, ctime_ns, quiet: true, ..found.inode })
            })
            .await;
        match touched {
            // It lost its name meanwhile.
            Err(error) if error.code == Code::NonExist => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// The target of a symbolic link. Errors: `Inval` for anything else.
    #[boxed(?Send)]
    pub async fn readlink(&self, obj: &Obj) -> Result<Vec<u8>> {
        if !obj.node.inode().is_symlink() {
            return Err(Error::bare(Code::Inval));
        }
        let found = self.shared.fetch_node(&obj.node).await?;
        let (_, found) = found.ok_or_else(|| Error::bare(Code::NonExist))?;
        Ok(found.target.into_vec())
    }

    /// The target of the symbolic link at an entry, in one round trip.
    #[boxed(?Send)]
    pub async fn readlink_at(&self, parent: &Obj, name: &[u8]) -> Result<Vec<u8>> {
        let dir = parent.require_dir()?;
        check_name(name)?;
        self.check_access(&dir, Access::EXECUTE)?;
        let found = self.shared.fetch_entry(parent.oid(), name, false).await?;
        let found = found.ok_or_else(|| Error::bare(Code::NonExist))?;
        if found.inode.is_symlink() {
            Ok(found.target.into_vec())
        } else {
            Err(Error::bare(Code::Inval))
        }
    }

    /// Space, asked of all targets.
    #[boxed(?Send)]
    pub async fn statfs(&self) -> Result<StatFs> {
        let found = self.shared.cont.pool().query().await?;
        let space = found.total;
        let props = &self.shared.cont.info().props;
        let has_copies = props.file_oclass.scheme.redundancy_factor().max(props.rd_fac) > 0;
        Ok(StatFs {
            available_bytes: match has_copies {
                true => found.available_with_copies(),
                false => found.available_bytes(),
            },
            total_bytes: space.scm_bytes + space.nvme_bytes,
            free_bytes: space.scm_free_bytes + space.nvme_free_bytes,
            object_count: space.object_count,
            name_bytes_max: types::limits::NAME_BYTES_MAX as u64,
        })
    }
}

/// Attributes of an entry, given what its data say. The link count of a directory is 2 and one for each directory in it, and 1 when
/// their number is not known, which tells programs that walk trees to look for themselves.
pub(crate) fn stat_from(found: &Found, told: &Told) -> Stat {
    let inode = &found.inode;
    let nlink = match told.directories {
        _ if !inode.is_dir() => inode.nlink,
        Some(directories) => u32::try_from(directories).unwrap_or(u32::MAX).saturating_add(2),
        None => 1,
    };
    make_stat(inode, nlink, found.target.len() as u64, &told.tail, found.changed)
}

/// Puts together what the inode, the symbolic link and the data say.
fn make_stat(inode: &Inode, nlink: u32, target_bytes: u64, tail: &Tail, record: Epoch) -> Stat {
    Stat {
        ino: inode.oid.lo,
        oid: inode.oid,
        mode: inode.mode,
        nlink,
        uid: inode.uid,
        gid: inode.gid,
        rdev: inode.rdev,
        size: if inode.is_regular() { tail.end } else { target_bytes },
        stored_bytes: tail.bytes_used,
        chunk_bytes: inode.chunk_bytes as u64,
        atime_ns: inode.atime_ns,
        mtime_ns: inode.mtime_with(tail.epoch),
        ctime_ns: inode.ctime_with(record, tail.epoch),
    }
}
