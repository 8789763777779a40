//! Making entries, and opening files.
//!
//! A file is made in one round trip: entry, "the directory exists", "the name is free" and the
//! open handle go to one target, because the file's id is chosen to live there. The object
//! itself comes into being with its first byte.

use crate::acl::Attributes;
use crate::conflict::retry;
use crate::entry::Found;
use crate::even::Beside;
use crate::flags::{Access, CreateOptions, NodeKind, OpenFlags, check_chunk_bytes};
use crate::fs::{Dfs, inline};
use crate::inode::{FileKind, Inode, S_IFDIR, S_IFREG, S_ISGID};
use crate::layout::{INODE, MARKER, PARENT};
use crate::node::{Location, Obj};
use crate::walk::{Step, WalkHow};
use crate::xattr::{is_bulk, xattr_iod};
use async_recursion::async_recursion as boxed;
use client::Batch;
use std::cell::Cell;
use types::limits::{PATH_BYTES_MAX, SYMLINK_DEPTH_MAX, check_name};
use types::{Code, Epoch, Error, GroupCount, Key, ObjClass, Oid, Result, Scheme, Unit};
use wire::obj::{Cond, Op};

/// Of a file that is in one group so much counts as its first part.
const FIRST_BYTES: u64 = 1 << 20;
/// Times an open runs again because the entry changed under it.
pub(crate) const RACES_MAX: u32 = 100;

impl Dfs {
    /// Opens, or with `CREATE` makes and opens, a file; opens any other existing object.
    ///
    /// `mode` gives the permission bits of a new file; `options` its class and chunk size. Both
    /// are ignored when the file exists. Errors: `Exist` with `CREATE` and `EXCL`; `NonExist`
    /// also when the directory was removed; `IsDir` for a directory opened for writing;
    /// `TooManyLinks` for a symbolic link with `NOFOLLOW`; `Access`.
    #[boxed(?Send)]
    pub async fn open(
        &self,
        parent: &Obj,
        name: &[u8],
        flags: OpenFlags,
        mode: u32,
        options: &CreateOptions,
    ) -> Result<Obj> {
        let dir = parent.require_dir()?;
        check_name(name)?;
        self.check_access(&dir, Access::EXECUTE)?;
        let mut at = Step::of(parent);
        let mut name = Key::new(name);
        let mut links = 0;
        for _ in 0..RACES_MAX {
            if flags.has(OpenFlags::CREATE) {
                let made = self.try_create(&at, &name, flags, mode, options).await?;
                if let Some((obj, _)) = made {
                    return Ok(obj);
                }
            }
            let wants_handle = !flags.has(OpenFlags::PATH);
            let found = match self.shared.fetch_entry(at.oid, &name, wants_handle).await? {
                Some(found) => found,
                None if flags.has(OpenFlags::CREATE) && self.may_create(&at).is_ok() => continue,
                None if flags.has(OpenFlags::CREATE) => {
                    return Err(self.may_create(&at).err().unwrap_or(Code::NonExist.into()));
                }
                None => return Err(Error::bare(Code::NonExist)),
            };
            if found.inode.is_symlink() && !flags.has(OpenFlags::NOFOLLOW) {
                links += 1;
                if links > SYMLINK_DEPTH_MAX {
                    return Err(Error::bare(Code::TooManyLinks));
                }
                let how = WalkHow { follow: true, open: false, links };
                let mut walked = Box::pin(self.walk(vec![at], &found.target, how)).await?;
                links = walked.links;
                let Some(top) = walked.steps.pop() else {
                    return Err(Error::bare(Code::Inval));
                };
                match walked.last {
                    None => {
                        self.check_open(&top.inode, flags)?;
                        return Ok(self.step_obj(&top, flags));
                    }
                    // A dangling link with a trailing slash cannot make a file.
                    Some((_, None)) if walked.wants_dir => {
                        let create = flags.has(OpenFlags::CREATE);
                        return Err((if create { Code::IsDir } else { Code::NonExist }).into());
                    }
                    Some((last, _)) => {
                        at = top;
                        name = last;
                    }
                }
                continue;
            }
            let location = Location { parent: at.oid, name: name.clone() };
            if let Some(obj) = self.open_found(location, found, flags).await? {
                return Ok(obj);
            }
        }
        Err(Error::new(Code::Busy, "the name changes faster than it can be opened"))
    }

    /// Whether the caller may make entries in the directory.
    fn may_create(&self, at: &Step) -> Result<()> {
        self.require_writable()?;
        self.check_access(&at.inode, Access::WRITE | Access::EXECUTE)
    }

    /// A new file and the epoch it was made at. `None` when the name is taken (or the caller may
    /// make nothing here) and `flags` allow to open what is there.
    pub(crate) async fn try_create(
        &self,
        at: &Step,
        name: &Key,
        flags: OpenFlags,
        mode: u32,
        options: &CreateOptions,
    ) -> Result<Option<(Obj, Epoch)>> {
        let excl = flags.has(OpenFlags::EXCL);
        if let Err(error) = self.may_create(at) {
            if !excl {
                return Ok(None);
            }
            // That the name is taken is the better answer.
            let taken = Box::pin(self.shared.fetch_entry(at.oid, name, false)).await?.is_some();
            return Err(if taken { Code::Exist.into() } else { error });
        }
        match self.create_file(at, name, flags, mode, options).await {
            Ok(made) => Ok(Some(made)),
            Err(error) if error.code == Code::Exist && !excl => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn create_file(
        &self,
        at: &Step,
        name: &Key,
        flags: OpenFlags,
        mode: u32,
        options: &CreateOptions,
    ) -> Result<(Obj, Epoch)> {
        let shared = &self.shared;
        let class = options.class.or(at.inode.file_class).unwrap_or(shared.superblock.file_class);
        let unit = self.unit_of_new(at.oid, name, class).await?;
        let (hint, _) = self.hint_at(unit, class).await?;
        let oid = shared.file_oid(class, hint).await?;
        let mut inode = self.new_inode(at, oid, S_IFREG | mode & 0o7777);
        inode.chunk_bytes = self.chunk_of_new(at, options)?;
        let attributes = self.inherit(at, mode, &mut inode).await?;
        let raw = inode.encode(b"");
        let opens = !flags.has(OpenFlags::PATH);
        // Handles are registered on one target in one request with nothing on others. What is near may be
        // so no more by the time the request arrives: it is refused then, and looked at again.
        let opened_before = Cell::new(false);
        let made = retry(shared, async || {
            let must_open = opens && !opened_before.get();
            let first = oid.first_unit();
            let entry = shared.cont.unit_of(at.oid, name).await?;
            let opens_here = must_open && shared.cont.are_together(entry, first).unwrap_or(false);
            if must_open && !opens_here {
                let mut batch = shared.cont.batch();
                batch.op(Op::Open { unit: first });
                batch.run().await?;
                opened_before.set(true);
            }
            let mut batch = shared.cont.batch();
            insert_with(&mut batch, at.oid, name, &raw, &attributes);
            if opens_here {
                batch.op(Op::Open { unit: first });
            }
            Ok(batch.run().await?.epoch)
        })
        .await;
        if made.is_err() && opened_before.get() {
            shared.cont.release(oid);
        }
        let epoch = made?;
        let node = shared.node(Location { parent: at.oid, name: name.clone() }, inode);
        if at.oid.spreads() && first_bytes_of(class).is_some() {
            node.set_beside(Beside { dir: at.oid, group: unit.group, bytes: 0 });
        }
        if opens {
            node.add_handle();
        }
        Ok((Obj::new(node, flags), epoch))
    }

    /// The hint that puts a file near its entry, and whether it will be there.
    pub(crate) async fn hint_of_new(
        &self,
        dir: Oid,
        name: &[u8],
        class: ObjClass,
    ) -> Result<(u32, bool)> {
        let entry = self.shared.cont.unit_of(dir, name).await?;
        self.hint_at(entry, class).await
    }

    /// The unit of a directory beside which a file is to be made: the one that has the entry, or has got less.
    async fn unit_of_new(&self, dir: Oid, name: &[u8], class: ObjClass) -> Result<Unit> {
        let cont = &self.shared.cont;
        let entry = cont.unit_of(dir, name).await?;
        let Some(first_bytes) = first_bytes_of(class) else { return Ok(entry) };
        let Some(group_count) = cont.groups_of_spread(dir) else { return Ok(entry) };
        let mut written = self.shared.written.borrow_mut();
        Ok(dir.unit(written.choose(dir, entry.group, group_count, first_bytes)))
    }

    async fn hint_at(&self, entry: Unit, class: ObjClass) -> Result<(u32, bool)> {
        let cont = &self.shared.cont;
        let takes_room = class == ObjClass::S1
            || class.scheme == Scheme::Striped && class.first_part_bytes().is_some();
        match takes_room {
            true => cont.roomy_hint_near(entry).await,
            // A striped file is everywhere; it is near with its first group.
            false => cont.hint_near(entry, class),
        }
    }

    /// Chunk of a file made in a directory, bytes.
    pub(crate) fn chunk_of_new(&self, at: &Step, options: &CreateOptions) -> Result<u32> {
        Ok(match check_chunk_bytes(options.chunk_bytes)? {
            0 => self.shared.chunk_bytes_of(&at.inode) as u32,
            own => own,
        })
    }

    /// A handle on what was found, or `None` when it vanished meanwhile.
    pub(crate) async fn open_found(
        &self,
        location: Location,
        found: Found,
        flags: OpenFlags,
    ) -> Result<Option<Obj>> {
        let shared = &self.shared;
        let mut opened = found.opened;
        let release = |opened: bool| {
            if opened {
                shared.cont.release(found.inode.oid);
            }
        };
        if let Err(error) = self.check_open(&found.inode, flags) {
            release(opened);
            return Err(error);
        }
        if found.inode.is_regular() && !flags.has(OpenFlags::PATH) && !opened {
            let oid = found.inode.oid;
            if !Box::pin(shared.register_open(location.parent, &location.name, oid)).await? {
                return Ok(None);
            }
            opened = true;
        }
        let node = shared.node(location, found.inode);
        if opened {
            node.add_handle();
        }
        if flags.has(OpenFlags::READ) && self.is_atime_due(&found) {
            node.set_atime_due(true);
        }
        let obj = Obj::new(node, flags);
        if flags.has(OpenFlags::TRUNC) && found.inode.is_regular() {
            let tail = shared.tail(&found).await?;
            Box::pin(self.truncate_node(&obj.node, 0, Some(tail))).await?;
        }
        Ok(Some(obj))
    }

    /// Whether an existing object may be opened so.
    pub(crate) fn check_open(&self, inode: &Inode, flags: OpenFlags) -> Result<()> {
        let writes = flags.has(OpenFlags::WRITE) || flags.has(OpenFlags::TRUNC);
        match inode.kind() {
            // A handle on a directory opened for reading and writing is what DAOS callers ask
            // for; POSIX callers never get one, because the bits of `open(2)` say so.
            FileKind::Directory
                if flags.has(OpenFlags::CREATE) || (writes && !flags.has(OpenFlags::READ)) =>
            {
                return Err(Error::bare(Code::IsDir));
            }
            FileKind::Directory => {}
            FileKind::Symlink if !flags.has(OpenFlags::PATH) && !flags.has(OpenFlags::LINK) => {
                return Err(Error::bare(Code::TooManyLinks));
            }
            _ if flags.has(OpenFlags::DIRECTORY) => return Err(Error::bare(Code::NotDir)),
            _ => {}
        }
        if writes {
            self.require_writable()?;
        }
        let mut want = Access::NONE;
        if flags.has(OpenFlags::READ) {
            want = want | Access::READ;
        }
        if writes && !inode.is_dir() {
            want = want | Access::WRITE;
        }
        if want == Access::NONE { Ok(()) } else { self.check_access(inode, want) }
    }

    /// The inode of something new, with owner, group and mode bits as POSIX has it: in a
    /// set-group-id directory the group is the directory's, and directories inherit the bit.
    pub(crate) fn new_inode(&self, at: &Step, oid: Oid, mode: u32) -> Inode {
        let now = self.shared.now_ns();
        let is_dir = mode & crate::inode::S_IFMT == S_IFDIR;
        let is_symlink = mode & crate::inode::S_IFMT == crate::inode::S_IFLNK;
        let umask = if is_symlink { 0 } else { self.cred.umask & 0o777 };
        let mut mode = mode & !umask;
        let mut gid = self.cred.gid;
        if at.inode.mode & S_ISGID != 0 {
            gid = at.inode.gid;
            if is_dir {
                mode |= S_ISGID;
            }
        }
        let leaves_group = !is_dir && !self.is_privileged() && !self.cred.in_group(gid);
        if leaves_group && mode & 0o010 != 0 {
            mode &= !S_ISGID;
        }
        Inode {
            oid,
            hard: false,
            has_xattrs: false,
            quiet: false,
            mode,
            uid: self.cred.uid,
            gid,
            nlink: 1,
            chunk_bytes: 0,
            atime_ns: now,
            mtime_ns: now,
            ctime_ns: now,
            mtime_epoch: Epoch::ZERO,
            rdev: 0,
            file_class: None,
            dir_class: None,
        }
    }

    /// Common checks before something is made in a directory.
    async fn prepare_insert(&self, parent: &Obj, name: &[u8]) -> Result<Step> {
        parent.require_dir()?;
        check_name(name)?;
        let at = Step::of(parent);
        if let Err(error) = self.may_create(&at) {
            let searchable = self.check_access(&parent.node.inode(), Access::EXECUTE).is_ok();
            let taken = searchable
                && Box::pin(self.shared.fetch_entry(at.oid, name, false)).await?.is_some();
            return Err(if taken { Code::Exist.into() } else { error });
        }
        Ok(at)
    }

    /// Makes a directory. `class` is the class of its object; `None`: as set on the parent, then
    /// the container's.
    #[boxed(?Send)]
    pub async fn mkdir(
        &self,
        parent: &Obj,
        name: &[u8],
        mode: u32,
        class: Option<ObjClass>,
    ) -> Result<Obj> {
        let at = self.prepare_insert(parent, name).await?;
        let shared = &self.shared;
        let class = class.or(at.inode.dir_class).unwrap_or(shared.superblock.dir_class);
        let oid = shared.dir_oid(class).await?;
        let mut inode = self.new_inode(&at, oid, S_IFDIR | mode & 0o7777);
        inode.chunk_bytes = at.inode.chunk_bytes;
        inode.file_class = at.inode.file_class;
        inode.dir_class = at.inode.dir_class;
        let attributes = self.inherit(&at, mode, &mut inode).await?;
        let raw = inode.encode(b"");
        let parent_raw = at.oid.to_bytes();
        let units = shared.cont.units_in_use(oid).await?;
        retry(shared, async || {
            let mut batch = shared.cont.batch();
            insert_with(&mut batch, at.oid, name, &raw, &attributes);
            for &unit in &units {
                let iods = vec![inline(PARENT, &parent_raw)];
                let cond = Cond::NONE;
                batch.op_of_unit(Op::Update { unit, dkey: MARKER, cond, iods });
            }
            batch.run().await.map(|_| ())
        })
        .await?;
        let location = Location { parent: at.oid, name: Key::new(name) };
        Ok(Obj::new(shared.node(location, inode), OpenFlags::READ_WRITE))
    }

    /// Makes a symbolic link. `target` has 1 to 4,095 bytes and need not exist.
    #[boxed(?Send)]
    pub async fn symlink(&self, parent: &Obj, name: &[u8], target: &[u8]) -> Result<Obj> {
        if target.is_empty() {
            return Err(Error::new(Code::NonExist, "a symbolic link must point somewhere"));
        }
        if target.len() >= PATH_BYTES_MAX {
            return Err(Error::bare(Code::NameTooLong));
        }
        let mode = FileKind::Symlink.mode_bits() | 0o777;
        self.insert_without_object(parent, name, mode, 0, target).await
    }

    /// Makes a special file, or an empty regular one, without opening it.
    ///
    /// Errors: `Inval` for directories and symbolic links, `NoPerm` for device nodes unless the
    /// caller is the superuser.
    #[boxed(?Send)]
    pub async fn mknod(&self, parent: &Obj, name: &[u8], mode: u32, node: NodeKind) -> Result<Obj> {
        match node.kind {
            FileKind::Regular => {
                let at = self.prepare_insert(parent, name).await?;
                let options = CreateOptions::default();
                let name = Key::new(name);
                let made = self.create_file(&at, &name, OpenFlags::PATH, mode, &options).await?;
                Ok(made.0)
            }
            FileKind::Directory | FileKind::Symlink => {
                Err(Error::inval("mknod makes neither directories nor symbolic links"))
            }
            FileKind::CharDevice | FileKind::BlockDevice if !self.is_privileged() => {
                Err(Error::new(Code::NoPerm, "only the superuser makes device nodes"))
            }
            kind => {
                let rdev = match kind {
                    FileKind::CharDevice | FileKind::BlockDevice => node.rdev,
                    _ => 0,
                };
                let mode = kind.mode_bits() | mode & 0o7777;
                self.insert_without_object(parent, name, mode, rdev, b"").await
            }
        }
    }

    async fn insert_without_object(
        &self,
        parent: &Obj,
        name: &[u8],
        mode: u32,
        rdev: u64,
        target: &[u8],
    ) -> Result<Obj> {
        let at = self.prepare_insert(parent, name).await?;
        let shared = &self.shared;
        let class = shared.superblock.file_class;
        let (hint, _) = shared.cont.hint_near(shared.cont.unit_of(at.oid, name).await?, class)?;
        let oid = shared.file_oid(class, hint).await?;
        let mut inode = Inode { rdev, ..self.new_inode(&at, oid, mode) };
        let attributes = self.inherit(&at, mode, &mut inode).await?;
        let raw = inode.encode(target);
        retry(shared, async || {
            let mut batch = shared.cont.batch();
            insert_with(&mut batch, at.oid, name, &raw, &attributes);
            batch.run().await
        })
        .await?;
        let location = Location { parent: at.oid, name: Key::new(name) };
        Ok(Obj::new(shared.node(location, inode), OpenFlags::PATH))
    }
}

/// Bytes of the first part of files; `None` for those that have more in other groups than in the first.
fn first_bytes_of(class: ObjClass) -> Option<u64> {
    match class.groups {
        GroupCount::AllBeyond { first_log2 } => Some(1 << first_log2),
        GroupCount::Count(1) => Some(FIRST_BYTES),
        GroupCount::Count(_) | GroupCount::All | GroupCount::AllPast { .. } => None,
    }
}

/// A new entry: the directory must exist, the name must not.
pub(crate) fn insert<'a>(dir: Oid, name: &'a [u8], raw: &'a [u8]) -> Op<'a> {
    let cond = Cond::DKEY_INSERT.and(Cond::OBJ_EXISTS);
    Op::Update { unit: dir.first_unit(), dkey: name, cond, iods: vec![inline(INODE, raw)] }
}

/// The same with extended attributes.
fn insert_with<'a>(
    batch: &mut Batch<'a>,
    dir: Oid,
    name: &'a [u8],
    raw: &'a [u8],
    attributes: &'a Attributes,
) {
    let cond = Cond::DKEY_INSERT.and(Cond::OBJ_EXISTS);
    let attribute = |(akey, value): &'a (Vec<u8>, Vec<u8>)| xattr_iod(akey, value, Cond::NONE);
    let iods = attributes.iter().map(attribute).chain([inline(INODE, raw)]).collect();
    batch.op(Op::Update { unit: dir.first_unit(), dkey: name, cond, iods });
    for (_, value) in attributes.iter().filter(|(_, value)| is_bulk(value)) {
        batch.bulk_out(value);
    }
}
