//! Bytes from the kernel become an [`Operation`].
//!
//! `/dev/fuse` gives a request in one piece; io_uring gives the fixed struct and the rest in two.
//! Both are decoded by the same code. The kernel is trusted with its promises, but not with our
//! memory: whatever the bytes, decoding ends in an operation or an error.

use super::abi::{self, InHeader, flag, op, take};
use super::operation::{Forgets, NewNode, Operation};
use super::{
    CopyRange, Fallocate, Fh, Ioctl, Lock, LockKind, LockOwner, LockRequest, NodeId, OpenFlags,
    Release, Rename, SetAttr, SetTime, SetXattr, Transfer,
};
use smallvec::SmallVec;

/// What is wrong with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Malformed {
    /// Fewer bytes than the operation has.
    Short,
    /// A name without its end, an empty one, or one with a `/`.
    Name,
    /// A field with a value that means nothing.
    Field,
}

/// What was agreed on that changes the form of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Dialect {
    /// SETXATTR has the longer struct.
    pub setxattr_ext: bool,
}

/// The fixed struct of a request, and what follows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body<'a> {
    pub fixed: &'a [u8],
    pub rest: &'a [u8],
}

impl<'a> Body<'a> {
    /// Cuts a request that came in one piece (header taken off).
    pub fn split(opcode: u32, dialect: Dialect, raw: &'a [u8]) -> Result<Body<'a>, Malformed> {
        let at = fixed_bytes(opcode, dialect);
        let (fixed, rest) = raw.split_at_checked(at).ok_or(Malformed::Short)?;
        Ok(Body { fixed, rest })
    }

    fn fixed<T: abi::Pod>(&self) -> Result<T, Malformed> {
        take(self.fixed).map(|(value, _)| value).ok_or(Malformed::Short)
    }

    /// The next NUL-ended string.
    fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let end = self.rest.iter().position(|&byte| byte == 0).ok_or(Malformed::Name)?;
        let (text, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        Ok(text)
    }

    /// The next string, which is one component of a path.
    fn name(&mut self) -> Result<&'a [u8], Malformed> {
        let name = self.string()?;
        if name.is_empty() || name.contains(&b'/') {
            return Err(Malformed::Name);
        }
        Ok(name)
    }

    fn data(&self, bytes: u32) -> Result<&'a [u8], Malformed> {
        self.rest.get(..bytes as usize).ok_or(Malformed::Short)
    }
}

/// Size of the fixed struct that begins a request of this kind.
fn fixed_bytes(opcode: u32, dialect: Dialect) -> usize {
    match opcode {
        op::FORGET => size_of::<abi::ForgetIn>(),
        op::GETATTR => size_of::<abi::GetattrIn>(),
        op::SETATTR => size_of::<abi::SetattrIn>(),
        op::MKNOD => size_of::<abi::MknodIn>(),
        op::MKDIR => size_of::<abi::MkdirIn>(),
        op::RENAME => size_of::<abi::RenameIn>(),
        op::RENAME2 => size_of::<abi::Rename2In>(),
        op::LINK => size_of::<abi::LinkIn>(),
        op::OPEN | op::OPENDIR => size_of::<abi::OpenIn>(),
        op::CREATE | op::TMPFILE => size_of::<abi::CreateIn>(),
        op::READ | op::READDIR | op::READDIRPLUS => size_of::<abi::ReadIn>(),
        op::WRITE => size_of::<abi::WriteIn>(),
        op::RELEASE | op::RELEASEDIR => size_of::<abi::ReleaseIn>(),
        op::FSYNC | op::FSYNCDIR => size_of::<abi::FsyncIn>(),
        op::SETXATTR if dialect.setxattr_ext => size_of::<abi::SetxattrIn>(),
        op::SETXATTR => size_of::<abi::SetxattrInShort>(),
        op::GETXATTR | op::LISTXATTR => size_of::<abi::GetxattrIn>(),
        op::FLUSH => size_of::<abi::FlushIn>(),
        op::GETLK | op::SETLK | op::SETLKW => size_of::<abi::LkIn>(),
        op::ACCESS => size_of::<abi::AccessIn>(),
        op::INTERRUPT => size_of::<abi::InterruptIn>(),
        op::IOCTL => size_of::<abi::IoctlIn>(),
        op::POLL => size_of::<abi::PollIn>(),
        op::BATCH_FORGET => size_of::<abi::BatchForgetIn>(),
        op::FALLOCATE => size_of::<abi::FallocateIn>(),
        op::LSEEK => size_of::<abi::LseekIn>(),
        op::COPY_FILE_RANGE | op::COPY_FILE_RANGE_64 => size_of::<abi::CopyFileRangeIn>(),
        op::SYNCFS => size_of::<abi::SyncfsIn>(),
        _ => 0,
    }
}

/// Supplementary groups that came with a request, in the order of the kernel.
pub(crate) type Groups = SmallVec<[u32; 2]>;

/// Decodes a request, without its header.
pub(crate) fn decode<'a>(
    header: &InHeader,
    dialect: Dialect,
    mut body: Body<'a>,
) -> Result<(Operation<'a>, Groups), Malformed> {
    let extension_bytes = usize::from(header.extension_words) * 8;
    let data_bytes = body.rest.len().checked_sub(extension_bytes).ok_or(Malformed::Short)?;
    let (rest, extensions) = body.rest.split_at(data_bytes);
    body.rest = rest;
    Ok((operation(header, dialect, body)?, groups(extensions)?))
}

fn operation<'a>(
    header: &InHeader,
    dialect: Dialect,
    mut body: Body<'a>,
) -> Result<Operation<'a>, Malformed> {
    let node = NodeId(header.nodeid);
    Ok(match header.opcode {
        op::LOOKUP => Operation::Lookup { name: body.name()? },
        op::FORGET => {
            Operation::Forget { lookup_count: body.fixed::<abi::ForgetIn>()?.lookup_count }
        }
        op::BATCH_FORGET => {
            let count = body.fixed::<abi::BatchForgetIn>()?.count as usize;
            let bytes = count.checked_mul(size_of::<abi::ForgetOne>()).ok_or(Malformed::Short)?;
            Operation::BatchForget(Forgets(body.rest.get(..bytes).ok_or(Malformed::Short)?))
        }
        op::GETATTR => {
            let raw: abi::GetattrIn = body.fixed()?;
            Operation::Getattr { fh: given(raw.flags, flag::GETATTR_FH, Fh(raw.fh)) }
        }
        op::SETATTR => Operation::Setattr(set_attr(&body.fixed()?)),
        op::READLINK => Operation::Readlink,
        op::SYMLINK => Operation::Symlink { name: body.name()?, target: body.string()? },
        op::MKNOD => {
            let raw: abi::MknodIn = body.fixed()?;
            let new = NewNode { mode: raw.mode, umask: raw.umask, rdev: raw.rdev };
            Operation::Mknod { name: body.name()?, new }
        }
        op::MKDIR => {
            let raw: abi::MkdirIn = body.fixed()?;
            let new = NewNode { mode: raw.mode, umask: raw.umask, rdev: 0 };
            Operation::Mkdir { name: body.name()?, new }
        }
        op::UNLINK => Operation::Unlink { name: body.name()? },
        op::RMDIR => Operation::Rmdir { name: body.name()? },
        op::RENAME => {
            let raw: abi::RenameIn = body.fixed()?;
            rename(node, raw.newdir, 0, &mut body)?
        }
        op::RENAME2 => {
            let raw: abi::Rename2In = body.fixed()?;
            rename(node, raw.newdir, raw.flags, &mut body)?
        }
        op::LINK => {
            let raw: abi::LinkIn = body.fixed()?;
            Operation::Link { node: NodeId(raw.oldnodeid), name: body.name()? }
        }
        op::OPEN => Operation::Open { flags: open_flags(&body.fixed()?) },
        op::OPENDIR => Operation::Opendir { flags: open_flags(&body.fixed()?) },
        op::CREATE => {
            let (new, flags) = create(&body.fixed()?);
            Operation::Create { name: body.name()?, new, flags }
        }
        op::TMPFILE => {
            let (new, flags) = create(&body.fixed()?);
            Operation::Tmpfile { new, flags }
        }
        op::READ => {
            let raw: abi::ReadIn = body.fixed()?;
            let transfer = Transfer {
                offset: raw.offset,
                flags: OpenFlags { bits: raw.flags, kill_suidgid: false },
                lock_owner: given(raw.read_flags, flag::READ_LOCKOWNER, LockOwner(raw.lock_owner)),
                from_page_cache: false,
                kill_suidgid: false,
            };
            Operation::Read { fh: Fh(raw.fh), transfer, bytes: raw.size }
        }
        op::WRITE => {
            let raw: abi::WriteIn = body.fixed()?;
            let owner = LockOwner(raw.lock_owner);
            let transfer = Transfer {
                offset: raw.offset,
                flags: OpenFlags { bits: raw.flags, kill_suidgid: false },
                lock_owner: given(raw.write_flags, flag::WRITE_LOCKOWNER, owner),
                from_page_cache: raw.write_flags & flag::WRITE_CACHE != 0,
                kill_suidgid: raw.write_flags & flag::WRITE_KILL_SUIDGID != 0,
            };
            Operation::Write { fh: Fh(raw.fh), transfer, data: body.data(raw.size)? }
        }
        op::STATFS => Operation::Statfs,
        op::RELEASE => {
            let (fh, release) = release(&body.fixed()?);
            Operation::Release { fh, release }
        }
        op::RELEASEDIR => {
            let (fh, release) = release(&body.fixed()?);
            Operation::Releasedir { fh, release }
        }
        op::FLUSH => {
            let raw: abi::FlushIn = body.fixed()?;
            Operation::Flush { fh: Fh(raw.fh), owner: LockOwner(raw.lock_owner) }
        }
        op::FSYNC => {
            let (fh, data_only) = fsync(&body.fixed()?);
            Operation::Fsync { fh, data_only }
        }
        op::FSYNCDIR => {
            let (fh, data_only) = fsync(&body.fixed()?);
            Operation::Fsyncdir { fh, data_only }
        }
        op::SETXATTR => set_xattr(dialect, &mut body)?,
        op::GETXATTR => {
            let raw: abi::GetxattrIn = body.fixed()?;
            Operation::Getxattr { name: xattr_name(&mut body)?, bytes: raw.size }
        }
        op::LISTXATTR => Operation::Listxattr { bytes: body.fixed::<abi::GetxattrIn>()?.size },
        op::REMOVEXATTR => Operation::Removexattr { name: xattr_name(&mut body)? },
        op::READDIR | op::READDIRPLUS => {
            let raw: abi::ReadIn = body.fixed()?;
            let plus = header.opcode == op::READDIRPLUS;
            Operation::Readdir { fh: Fh(raw.fh), offset: raw.offset, bytes: raw.size, plus }
        }
        op::GETLK | op::SETLK | op::SETLKW => {
            let raw: abi::LkIn = body.fixed()?;
            let wait = header.opcode == op::SETLKW;
            let (fh, request) = (Fh(raw.fh), lock_request(&raw, wait)?);
            match header.opcode {
                op::GETLK => Operation::Getlk { fh, request },
                _ => Operation::Setlk { fh, request },
            }
        }
        op::ACCESS => Operation::Access { mask: body.fixed::<abi::AccessIn>()?.mask },
        op::FALLOCATE => {
            let raw: abi::FallocateIn = body.fixed()?;
            let range = Fallocate { offset: raw.offset, len: raw.length, mode: raw.mode };
            Operation::Fallocate { fh: Fh(raw.fh), range }
        }
        op::LSEEK => {
            let raw: abi::LseekIn = body.fixed()?;
            Operation::Lseek { fh: Fh(raw.fh), offset: raw.offset, whence: raw.whence }
        }
        op::COPY_FILE_RANGE | op::COPY_FILE_RANGE_64 => {
            let raw: abi::CopyFileRangeIn = body.fixed()?;
            let copy = CopyRange {
                fh_in: Fh(raw.fh_in),
                offset_in: raw.off_in,
                node_out: NodeId(raw.nodeid_out),
                fh_out: Fh(raw.fh_out),
                offset_out: raw.off_out,
                len: raw.len,
                flags: raw.flags,
            };
            Operation::CopyRange { copy, wide: header.opcode == op::COPY_FILE_RANGE_64 }
        }
        op::SYNCFS => Operation::Syncfs,
        op::IOCTL => {
            let raw: abi::IoctlIn = body.fixed()?;
            let data = body.data(raw.in_size)?;
            let ioctl = Ioctl {
                cmd: raw.cmd,
                flags: raw.flags,
                arg: raw.arg,
                data,
                out_bytes_max: raw.out_size,
            };
            Operation::Ioctl { fh: Fh(raw.fh), ioctl }
        }
        op::POLL => {
            let raw: abi::PollIn = body.fixed()?;
            Operation::Poll { fh: Fh(raw.fh), events: raw.events }
        }
        op::INIT => Operation::Init,
        op::INTERRUPT => Operation::Interrupt { unique: body.fixed::<abi::InterruptIn>()?.unique },
        op::DESTROY => Operation::Destroy,
        op::NOTIFY_REPLY => Operation::NotifyReply,
        _ => Operation::Unknown,
    })
}

fn given<T>(flags: u32, flag: u32, value: T) -> Option<T> {
    (flags & flag != 0).then_some(value)
}

fn rename<'a>(
    parent: NodeId,
    new_parent: u64,
    flags: u32,
    body: &mut Body<'a>,
) -> Result<Operation<'a>, Malformed> {
    let new_parent = NodeId(new_parent);
    let (name, new_name) = (body.name()?, body.name()?);
    Ok(Operation::Rename(Rename { parent, name, new_parent, new_name, flags }))
}

fn open_flags(raw: &abi::OpenIn) -> OpenFlags {
    let kill_suidgid = raw.open_flags & flag::OPEN_KILL_SUIDGID != 0;
    OpenFlags { bits: raw.flags, kill_suidgid }
}

fn create(raw: &abi::CreateIn) -> (NewNode, OpenFlags) {
    let kill_suidgid = raw.open_flags & flag::OPEN_KILL_SUIDGID != 0;
    let new = NewNode { mode: raw.mode, umask: raw.umask, rdev: 0 };
    (new, OpenFlags { bits: raw.flags, kill_suidgid })
}

fn release(raw: &abi::ReleaseIn) -> (Fh, Release) {
    let flock_unlock = raw.release_flags & flag::RELEASE_FLOCK_UNLOCK != 0;
    let release = Release {
        flags: OpenFlags { bits: raw.flags, kill_suidgid: false },
        flush: raw.release_flags & flag::RELEASE_FLUSH != 0,
        flock_unlock,
        lock_owner: flock_unlock.then_some(LockOwner(raw.lock_owner)),
    };
    (Fh(raw.fh), release)
}

fn fsync(raw: &abi::FsyncIn) -> (Fh, bool) {
    (Fh(raw.fh), raw.fsync_flags & flag::FSYNC_DATA_ONLY != 0)
}

fn set_attr(raw: &abi::SetattrIn) -> SetAttr {
    use abi::fattr;
    let given_time = |set: u32, now: u32, secs: u64, ns: u32| match raw.valid {
        valid if valid & now != 0 => Some(SetTime::Now),
        valid if valid & set != 0 => Some(SetTime::At { secs: secs as i64, ns }),
        _ => None,
    };
    SetAttr {
        mode: given(raw.valid, fattr::MODE, raw.mode),
        uid: given(raw.valid, fattr::UID, raw.uid),
        gid: given(raw.valid, fattr::GID, raw.gid),
        size: given(raw.valid, fattr::SIZE, raw.size),
        atime: given_time(fattr::ATIME, fattr::ATIME_NOW, raw.atime, raw.atimensec),
        mtime: given_time(fattr::MTIME, fattr::MTIME_NOW, raw.mtime, raw.mtimensec),
        ctime: given_time(fattr::CTIME, 0, raw.ctime, raw.ctimensec),
        fh: given(raw.valid, fattr::FH, Fh(raw.fh)),
        lock_owner: given(raw.valid, fattr::LOCKOWNER, LockOwner(raw.lock_owner)),
        kill_suidgid: raw.valid & fattr::KILL_SUIDGID != 0,
    }
}

/// Names of extended attributes may have slashes.
fn xattr_name<'a>(body: &mut Body<'a>) -> Result<&'a [u8], Malformed> {
    let name = body.string()?;
    if name.is_empty() { Err(Malformed::Name) } else { Ok(name) }
}

fn set_xattr<'a>(dialect: Dialect, body: &mut Body<'a>) -> Result<Operation<'a>, Malformed> {
    let raw = if dialect.setxattr_ext {
        body.fixed::<abi::SetxattrIn>()?
    } else {
        let short: abi::SetxattrInShort = body.fixed()?;
        abi::SetxattrIn { size: short.size, flags: short.flags, ..Default::default() }
    };
    let name = xattr_name(body)?;
    Ok(Operation::Setxattr(SetXattr {
        name,
        value: body.data(raw.size)?,
        flags: raw.flags,
        acl_kill_sgid: raw.setxattr_flags & flag::SETXATTR_ACL_KILL_SGID != 0,
    }))
}

fn lock_request(raw: &abi::LkIn, wait: bool) -> Result<LockRequest, Malformed> {
    let lock = Lock {
        start: raw.lk.start,
        end: raw.lk.end,
        kind: LockKind::of_kernel(raw.lk.kind).ok_or(Malformed::Field)?,
        pid: raw.lk.pid,
    };
    let flock = raw.lk_flags & flag::LK_FLOCK != 0;
    Ok(LockRequest { owner: LockOwner(raw.owner), lock, flock, wait })
}

/// Finds the groups among the extensions; skips other kinds.
fn groups(mut raw: &[u8]) -> Result<Groups, Malformed> {
    let mut found = Groups::new();
    while !raw.is_empty() {
        let (header, _) = take::<abi::ExtHeader>(raw).ok_or(Malformed::Short)?;
        let bytes = (header.size as usize).next_multiple_of(8);
        if bytes < size_of::<abi::ExtHeader>() {
            return Err(Malformed::Field);
        }
        let (one, rest) = raw.split_at_checked(bytes).ok_or(Malformed::Short)?;
        raw = rest;
        if header.kind == flag::EXT_GROUPS {
            let (count, mut ids) = take::<u32>(&one[8..]).ok_or(Malformed::Short)?;
            for _ in 0..count {
                let (id, rest) = take::<u32>(ids).ok_or(Malformed::Short)?;
                found.push(id);
                ids = rest;
            }
        }
    }
    Ok(found)
}

/// Decodes a whole request as `/dev/fuse` would give it, for fuzzing: the text of what it says,
/// or `None` when it is malformed. Both forms of requests must agree.
pub fn decode_bytes(raw: &[u8], setxattr_ext: bool) -> Option<String> {
    let dialect = Dialect { setxattr_ext };
    let (header, rest) = take::<InHeader>(raw)?;
    if header.opcode == op::INIT {
        return super::init::Offer::parse(raw).ok().map(|offer| format!("{offer:?}"));
    }
    let body = Body::split(header.opcode, dialect, rest).ok()?;
    let decoded = decode(&header, dialect, body).ok();
    // As over io_uring: the fixed struct in a block of its own.
    let mut block = [0u8; 128];
    block[..body.fixed.len()].copy_from_slice(body.fixed);
    let apart = decode(&header, dialect, Body { fixed: &block, rest: body.rest }).ok();
    assert_eq!(apart, decoded, "the two forms of one request differ");
    let (operation, groups) = decoded?;
    if let Operation::BatchForget(forgets) = operation {
        return Some(format!("{:?}", forgets.collect::<Vec<_>>()));
    }
    Some(format!("{operation:?} {groups:?}"))
}
