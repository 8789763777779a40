//! A mounted file system: what all its handles share.

use crate::cred::Credentials;
use crate::entry::{Found, reply_kind};
use crate::even::Written;
use crate::flags::{Access, MountFlags, OpenFlags};
use crate::inode::{FileKind, INODE_BYTES_MAX, Inode, S_IFDIR};
use crate::layout::{
    INODE, MARKER, NUMBER_FIRST, PARENT, ROOT, SUPERBLOCK, SUPERBLOCK_RECORD, Superblock,
    root_number, superblock_places,
};
use crate::node::{Location, Node, Obj};
use crate::tier::{Known, Returns};
use async_recursion::async_recursion as boxed;
use client::{ArrayObj, Container};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use types::map::HashMap;
use types::{Code, ContLayout, Epoch, Error, Key, ObjClass, ObjType, Oid, Result};
use wire::obj::{Cond, FetchIod, FetchWant, Fetched, Op, OpReply, UpdateIod, UpdateValue};

/// Object numbers reserved at first; doubled with each further range.
const NUMBERS_FIRST: u64 = 256;
/// Object numbers reserved at most at a time.
const NUMBERS_MAX: u64 = 65_536;

/// A mounted file system, as one caller sees it. Cheap to clone; not `Send`.
#[derive(Clone)]
pub struct Dfs {
    pub(crate) shared: Rc<Shared>,
    pub(crate) cred: Rc<Credentials>,
}

/// What all callers and handles of a mount share.
pub(crate) struct Shared {
    pub cont: Container,
    pub flags: MountFlags,
    pub superblock: Superblock,
    pub superblock_oid: Oid,
    /// What is known of the container's tier.
    pub tier: Known,
    /// What comes back from it.
    pub returns: RefCell<Returns>,
    numbers: RefCell<std::ops::Range<u64>>,
    numbers_next: Cell<u64>,
    nodes: RefCell<HashMap<Oid, Weak<Node>>>,
    /// What of new files was written where.
    pub written: RefCell<Written>,
    prefix: RefCell<Vec<u8>>,
}

/// The root directory of a new file system.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

impl Default for FormatOptions {
    fn default() -> FormatOptions {
        FormatOptions { mode: 0o755, uid: 0, gid: 0 }
    }
}

/// The superblock in an object, if it is there, and what is known of the container's tier.
async fn read_superblock(cont: &Container, oid: Oid) -> Result<Option<(Superblock, Known)>> {
    let mut batch = cont.batch();
    let want = FetchWant::Single { bytes_max: 4096, inline_bytes_max: 4096 };
    let iods = [FetchIod { akey: SUPERBLOCK_RECORD, want }].into_iter().chain(Known::iods());
    batch.op(Op::Fetch {
        unit: oid.first_unit(),
        dkey: SUPERBLOCK,
        cond: Cond::NONE,
        iods: iods.collect(),
    });
    let result = batch.run().await?;
    let replies = result.replies()?;
    let Some(OpReply::Fetched(iods)) = replies.first() else { return Err(reply_kind()) };
    match iods.first().map(|iod| &iod.value) {
        Some(Fetched::Inline(raw)) => {
            let tier = Known::default();
            tier.learn(&iods[1..], cont.client().env().now())?;
            Ok(Some((Superblock::decode(raw)?, tier)))
        }
        Some(Fetched::Absent) => Ok(None),
        _ => Err(reply_kind()),
    }
}

impl Dfs {
    /// Makes an empty file system in a container of layout `posix`. Classes and chunk size are
    /// those of the container's properties.
    ///
    /// Errors: `Exist` when there is one already; `Inval` for a container of another layout.
    #[boxed(?Send)]
    pub async fn format(cont: &Container, options: &FormatOptions) -> Result<()> {
        require_posix(cont)?;
        let props = &cont.info().props;
        let root = cont.generate_oid(ObjType::MultiHashed, props.dir_oclass, 0, root_number())?;
        let superblock = Superblock {
            version: 0,
            file_class: props.file_oclass,
            dir_class: props.dir_oclass,
            chunk_bytes: crate::flags::check_chunk_bytes(props.chunk_bytes)?,
            root,
        }
        .versioned(props.rd_fac);
        let now = cont.client().env().wall_ns() as i64;
        let inode = Inode {
            oid: root,
            hard: false,
            has_xattrs: false,
            quiet: false,
            mode: S_IFDIR | options.mode & 0o7777,
            uid: options.uid,
            gid: options.gid,
            nlink: 1,
            chunk_bytes: 0,
            atime_ns: now,
            mtime_ns: now,
            ctime_ns: now,
            mtime_epoch: Epoch::ZERO,
            rdev: 0,
            file_class: None,
            dir_class: None,
        };
        let (record, inode) = (superblock.encode(), inode.encode(b""));
        let parent = root.to_bytes();
        let oid = superblock.oid(props.rd_fac);
        let mut batch = cont.batch();
        batch.op(Op::Update {
            unit: oid.first_unit(),
            dkey: SUPERBLOCK,
            cond: Cond::DKEY_INSERT,
            iods: vec![inline(SUPERBLOCK_RECORD, &record)],
        });
        batch.op(Op::Update {
            unit: oid.first_unit(),
            dkey: ROOT,
            cond: Cond::NONE,
            iods: vec![inline(INODE, &inode)],
        });
        for unit in cont.units_in_use(root).await? {
            let (cond, iods) = (Cond::NONE, vec![inline(PARENT, &parent)]);
            batch.op_of_unit(Op::Update { unit, dkey: MARKER, cond, iods });
        }
        batch.run().await.map(|_| ()).map_err(|error| match error.code {
            Code::Exist => Error::new(Code::Exist, "the container holds a file system already"),
            _ => error,
        })
    }

    /// Opens the file system of a container.
    ///
    /// Errors: `NonExist` when it was never formatted; `Inval` for a container of another layout;
    /// `Version` when it was made by a newer version.
    #[boxed(?Send)]
    pub async fn mount(cont: &Container, flags: MountFlags, cred: Credentials) -> Result<Dfs> {
        require_posix(cont)?;
        let props = &cont.info().props;
        let mut places = superblock_places(props);
        let mut found = match places.next() {
            Some(likeliest) => read_superblock(cont, likeliest).await?,
            None => None,
        };
        // Made by an earlier version, or when directories were of another class.
        for place in places {
            if found.is_some() {
                break;
            }
            found = match read_superblock(cont, place).await {
                // The pool is too small for so many copies: nothing is there.
                Err(error) if matches!(error.code, Code::Redundancy | Code::Inval) => None,
                other => other?,
            };
        }
        let Some((stored, tier)) = found else {
            return Err(Error::new(
                Code::NonExist,
                "the container holds no file system: it was made with another type, or its pool has \
                 durability 'memory' and the engines were restarted; make it anew",
            ));
        };
        // Defaults may have been changed since it was made.
        let superblock = Superblock {
            file_class: props.file_oclass,
            dir_class: props.dir_oclass,
            chunk_bytes: crate::flags::check_chunk_bytes(props.chunk_bytes)?,
            ..stored
        };
        Ok(Dfs::with_superblock(cont, flags, cred, superblock, tier))
    }

    pub(crate) fn with_superblock(
        cont: &Container,
        flags: MountFlags,
        cred: Credentials,
        superblock: Superblock,
        tier: Known,
    ) -> Dfs {
        let flags = if cont.is_read_only() { flags | MountFlags::READ_ONLY } else { flags };
        Dfs {
            shared: Rc::new(Shared {
                cont: cont.clone(),
                flags,
                superblock,
                superblock_oid: superblock.oid(cont.info().props.rd_fac),
                tier,
                returns: RefCell::default(),
                numbers: RefCell::new(0..0),
                numbers_next: Cell::new(NUMBERS_FIRST),
                nodes: RefCell::new(HashMap::default()),
                written: RefCell::default(),
                prefix: RefCell::new(Vec::new()),
            }),
            cred: Rc::new(cred),
        }
    }

    /// [`Dfs::mount`], after [`Dfs::format`] if nobody has formatted the container yet.
    #[boxed(?Send)]
    pub async fn mount_or_format(
        cont: &Container,
        flags: MountFlags,
        cred: Credentials,
        options: &FormatOptions,
    ) -> Result<Dfs> {
        match Dfs::mount(cont, flags, cred.clone()).await {
            Err(error) if error.code == Code::NonExist => {}
            other => return other,
        }
        match Dfs::format(cont, options).await {
            // Somebody else was faster: that one is as good.
            Err(error) if error.code != Code::Exist => return Err(error),
            _ => {}
        }
        Dfs::mount(cont, flags, cred).await
    }

    /// The same mount as another caller sees it.
    pub fn with_credentials(&self, cred: Credentials) -> Dfs {
        Dfs { shared: self.shared.clone(), cred: Rc::new(cred) }
    }

    /// A mount of the same file system with other flags. Objects of one are none of the other.
    pub fn with_flags(&self, flags: MountFlags) -> Dfs {
        let cred = (*self.cred).clone();
        let tier = self.shared.tier.copy();
        Dfs::with_superblock(&self.shared.cont, flags, cred, self.shared.superblock, tier)
    }

    pub fn credentials(&self) -> &Credentials {
        &self.cred
    }

    pub fn container(&self) -> &Container {
        &self.shared.cont
    }

    /// Flags of the mount.
    pub fn flags(&self) -> MountFlags {
        self.shared.flags
    }

    /// What the file system is, with the container's defaults as they were when it was opened.
    pub fn superblock(&self) -> &Superblock {
        &self.shared.superblock
    }

    /// Paths given to lookups lose this prefix (whole components) first; empty: none.
    pub fn set_prefix(&self, prefix: &[u8]) -> Result<()> {
        if !prefix.is_empty() {
            crate::path::check(prefix)?;
            if prefix[0] != b'/' {
                return Err(Error::inval("a prefix must be an absolute path"));
            }
        }
        self.shared.prefix.replace(prefix.to_vec());
        Ok(())
    }

    pub(crate) fn prefix(&self) -> std::cell::Ref<'_, Vec<u8>> {
        self.shared.prefix.borrow()
    }

    #[boxed(?Send)]
    pub async fn root(&self) -> Result<Obj> {
        let inode = self.shared.fetch_root().await?.inode;
        Ok(Obj::new(self.shared.node(self.shared.root_location(), inode), OpenFlags::READ_WRITE))
    }

    /// Sends what is held back. Data are durable, as the pool promises, when a write returns.
    pub fn sync(&self) {
        self.shared.cont.client().flush();
    }

    pub(crate) fn require_writable(&self) -> Result<()> {
        if self.shared.flags.has(MountFlags::READ_ONLY) {
            return Err(Error::bare(Code::ReadOnly));
        }
        Ok(())
    }

    pub(crate) fn check_access(&self, inode: &Inode, want: Access) -> Result<()> {
        if self.shared.flags.has(MountFlags::NO_PERM_CHECK) {
            return Ok(());
        }
        self.cred.check(inode, want)
    }

    pub(crate) fn check_sticky(&self, dir: &Inode, entry: &Inode) -> Result<()> {
        if self.shared.flags.has(MountFlags::NO_PERM_CHECK) {
            return Ok(());
        }
        self.cred.check_sticky(dir, entry)
    }

    /// `NoPerm` unless the caller owns the inode.
    pub(crate) fn check_owner(&self, inode: &Inode) -> Result<()> {
        let trusted = self.shared.flags.has(MountFlags::NO_PERM_CHECK);
        if trusted || self.cred.owns(inode) { Ok(()) } else { Err(Error::bare(Code::NoPerm)) }
    }

    /// True when no rule about owners and groups binds the caller.
    pub(crate) fn is_privileged(&self) -> bool {
        self.cred.uid == 0 || self.shared.flags.has(MountFlags::NO_PERM_CHECK)
    }
}

impl Shared {
    /// The present, nanoseconds since 1970.
    pub fn now_ns(&self) -> i64 {
        self.cont.client().env().wall_ns() as i64
    }

    /// A number no object of the container has.
    pub async fn next_number(&self) -> Result<u64> {
        loop {
            if let Some(number) = self.numbers.borrow_mut().next() {
                return Ok(number + NUMBER_FIRST);
            }
            let count = self.numbers_next.get();
            self.numbers_next.set((count * 2).min(NUMBERS_MAX));
            let first = self.cont.alloc_oids(count).await?;
            // Of two tasks that come here together one throws its range away; numbers are many.
            self.numbers.replace(first..first.saturating_add(count));
        }
    }

    /// An id for a file, placed by a hint of the container: near its entry.
    pub async fn file_oid(&self, class: ObjClass, hint: u32) -> Result<Oid> {
        let number = self.next_number().await?;
        let oid = self.cont.new_oid(ObjType::ArrayByte, class, number)?;
        Ok(oid.with_placement_hint(hint))
    }

    /// An id for a directory; directories spread over all targets.
    pub async fn dir_oid(&self, class: ObjClass) -> Result<Oid> {
        let number = self.next_number().await?;
        self.cont.new_oid(ObjType::MultiHashed, class, number)
    }

    /// Chunk of a file, or of files made in a directory, bytes.
    pub fn chunk_bytes_of(&self, inode: &Inode) -> u64 {
        let own = inode.chunk_bytes;
        if own == 0 { self.superblock.chunk_bytes as u64 } else { own as u64 }
    }

    /// The data of a regular file.
    pub fn array(&self, inode: &Inode) -> ArrayObj {
        ArrayObj {
            cont: self.cont.clone(),
            oid: inode.oid,
            record_bytes: 1,
            chunk_records: self.chunk_bytes_of(inode),
        }
    }

    pub fn root_location(&self) -> Location {
        Location { parent: self.superblock.root, name: Key::new(MARKER) }
    }

    pub fn is_root(&self, oid: Oid) -> bool {
        oid == self.superblock.root
    }

    pub async fn fetch_root(&self) -> Result<Found> {
        let mut batch = self.cont.batch();
        batch.op(fetch_inode(self.superblock_oid, ROOT));
        let result = batch.run().await?;
        let replies = result.replies()?;
        Found::from_fetch(replies.first())?
            .ok_or_else(|| Error::new(Code::Io, "the root directory has no inode"))
    }

    /// The node of an inode just read: the one that is open already, brought up to date, or a
    /// new one.
    pub fn node(self: &Rc<Self>, location: Location, inode: Inode) -> Rc<Node> {
        let mut nodes = self.nodes.borrow_mut();
        if let Some(node) = nodes.get(&inode.oid).and_then(Weak::upgrade) {
            if node.is_nameless() {
                // Another mirror of the mount has given it a name.
                node.set_named(location, inode);
            } else {
                node.set_inode(inode);
                node.set_location(location);
            }
            return node;
        }
        let node = Rc::new(Node::new(self.clone(), location, inode));
        nodes.insert(inode.oid, Rc::downgrade(&node));
        node
    }

    /// The node of an object, if this mount has it open.
    pub fn open_node(&self, oid: Oid) -> Option<Rc<Node>> {
        self.nodes.borrow().get(&oid).and_then(Weak::upgrade)
    }

    /// From a node that is being dropped.
    pub fn forget_node(&self, oid: Oid) {
        let mut nodes = self.nodes.borrow_mut();
        // A successor may have taken the place already.
        if nodes.get(&oid).is_some_and(|node| node.strong_count() == 0) {
            nodes.remove(&oid);
        }
    }

    /// An entry's inode went away or lost a name; open handles must know.
    pub fn note_unlinked(&self, inode: &Inode, parent: Oid, name: &[u8]) {
        if let Some(node) = self.open_node(inode.oid)
            && (inode.kind() == FileKind::Directory || !inode.hard)
            && node.is_at(parent, name)
        {
            node.set_unlinked();
        }
    }
}

fn require_posix(cont: &Container) -> Result<()> {
    if cont.info().props.layout != ContLayout::Posix {
        return Err(Error::inval(
            "the container's layout is not posix; make one with --type posix",
        ));
    }
    Ok(())
}

/// Update of one akey with a short value.
pub(crate) fn inline<'a>(akey: &'a [u8], value: &'a [u8]) -> UpdateIod<'a> {
    UpdateIod { akey, cond: Cond::NONE, value: UpdateValue::Inline(value) }
}

/// Fetch of an inode.
pub(crate) fn fetch_inode(oid: Oid, dkey: &[u8]) -> Op<'_> {
    let room = INODE_BYTES_MAX as u32;
    let want = FetchWant::Single { bytes_max: room as u64, inline_bytes_max: room };
    Op::Fetch {
        unit: oid.first_unit(),
        dkey,
        cond: Cond::NONE,
        iods: vec![FetchIod { akey: INODE, want }],
    }
}
