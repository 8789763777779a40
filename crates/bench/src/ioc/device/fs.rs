//! The modelled file system as the kernel sees it through FUSE.
//!
//! Reads and writes take the model's time; names and attributes take none. Files bypass the page
//! cache, so each call reaches the model. An open file is one client of its target. Data are
//! stored when they come; only the answer waits.

use super::clockwork::{Ask, Reply, Targets};
use super::model::Kind;
use super::params::Params;
use super::tree::{Change, Maker, NAME_BYTES_MAX, Tree};
use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// How long the kernel may believe names and attributes: nobody else changes them.
const BELIEVED: Duration = Duration::from_secs(60);
/// What `df` shows of each kind of room, blocks or files: more than anybody fills.
const ROOM: u64 = 1 << 40;

/// The file system.
pub struct ModelFs {
    params: Params,
    targets: Arc<Targets>,
    tree: Mutex<Tree>,
    /// Open files, counted: the next client's number.
    next_client: AtomicU64,
}

impl ModelFs {
    /// A file system over running targets.
    pub fn new(params: Params, targets: Arc<Targets>, tree: Tree) -> ModelFs {
        ModelFs { params, targets, tree: Mutex::new(tree), next_client: AtomicU64::new(1) }
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_handle(&self) -> FileHandle {
        FileHandle(self.next_client.fetch_add(1, Ordering::Relaxed))
    }

    /// Answers when the client has nothing on its way.
    fn settle(&self, ino: INodeNo, fh: FileHandle, reply: ReplyEmpty) {
        let target = match self.tree().data(ino.0) {
            Ok((target, _)) => target,
            Err(error) => return reply.error(error),
        };
        let ask = Ask { client: fh.0, kind: Kind::Flush, file: ino.0, offset: 0, bytes: 0 };
        self.targets.ask(target, ask, Box::new(move || reply.ok()));
    }
}

fn opened_flags() -> FopenFlags {
    FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
}

fn maker(request: &Request, mode: u32, umask: u32) -> Maker {
    Maker { uid: request.uid(), gid: request.gid(), mode: mode & !umask }
}

fn time_of(time: TimeOrNow) -> SystemTime {
    match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    }
}

fn answer(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

fn answer_entry(reply: ReplyEntry, result: Result<fuser::FileAttr, Errno>) {
    match result {
        Ok(attr) => reply.entry(&BELIEVED, &attr, Generation(0)),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for ModelFs {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A piece is at most 1 MiB, within what the library takes.
        let piece_bytes = u32::try_from(self.params.piece_bytes).unwrap_or(u32::MAX);
        config
            .set_max_write(piece_bytes)
            .map(|_| ())
            .map_err(|most| io::Error::other(format!("the kernel takes at most {most} bytes")))
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.tree().lookup(parent.0, name);
        answer_entry(reply, found);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let found = self.tree().attr(ino.0);
        match found {
            Ok(attr) => reply.attr(&BELIEVED, &attr),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (atime, mtime) = (atime.map(time_of), mtime.map(time_of));
        let changed = self.tree().change(ino.0, Change { mode, uid, gid, size, atime, mtime });
        match changed {
            Ok(attr) => reply.attr(&BELIEVED, &attr),
            Err(error) => reply.error(error),
        }
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.tree().make_dir(parent.0, name, maker(req, mode, umask));
        answer_entry(reply, made);
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.tree().unlink(parent.0, name);
        answer(reply, removed);
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.tree().remove_dir(parent.0, name);
        answer(reply, removed);
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !RenameFlags::RENAME_NOREPLACE.contains(flags) {
            return reply.error(Errno::EINVAL);
        }
        let replace = flags.is_empty();
        let renamed = self.tree().rename((parent.0, name), (newparent.0, newname), replace);
        answer(reply, renamed);
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.tree().create(parent.0, name, maker(req, mode, umask));
        match made {
            Ok(attr) => {
                let handle = self.new_handle();
                reply.created(&BELIEVED, &attr, Generation(0), handle, opened_flags());
            }
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let opened = self.tree().open(ino.0);
        match opened {
            Ok(()) => reply.opened(self.new_handle(), opened_flags()),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let (target, data, file_bytes) = {
            let tree = self.tree();
            match (tree.data(ino.0), tree.attr(ino.0)) {
                (Ok((target, data)), Ok(attr)) => (target, data, attr.size),
                (Err(error), _) | (_, Err(error)) => return reply.error(error),
            }
        };
        let bytes = u64::from(size).min(file_bytes.saturating_sub(offset));
        if bytes == 0 {
            return reply.data(&[]);
        }
        let ask = Ask { client: fh.0, kind: Kind::Read, file: ino.0, offset, bytes };
        let answer: Reply = Box::new(move || {
            let mut buf = vec![0; bytes as usize];
            match data.read_exact_at(&mut buf, offset) {
                Ok(()) => reply.data(&buf),
                Err(error) => reply.error(Errno::from(error)),
            }
        });
        self.targets.ask(target, ask, answer);
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let found = self.tree().data(ino.0);
        let (target, file) = match found {
            Ok(found) => found,
            Err(error) => return reply.error(error),
        };
        let Some(end) = offset.checked_add(data.len() as u64) else {
            return reply.error(Errno::EFBIG);
        };
        if let Err(error) = file.write_all_at(data, offset) {
            return reply.error(Errno::from(error));
        }
        self.tree().wrote(ino.0, end);
        // The kernel counts in 32 bits.
        let count = data.len() as u32;
        if count == 0 {
            return reply.written(0);
        }
        let bytes = u64::from(count);
        let ask = Ask { client: fh.0, kind: Kind::Write, file: ino.0, offset, bytes };
        self.targets.ask(target, ask, Box::new(move || reply.written(count)));
    }

    fn flush(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.settle(ino, fh, reply);
    }

    fn fsync(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.settle(ino, fh, reply);
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let mut tree = self.tree();
        if let Ok((target, _)) = tree.data(ino.0) {
            self.targets.close(target, fh.0);
        }
        tree.close(ino.0);
        drop(tree);
        reply.ok();
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let list = match self.tree().list(ino.0) {
            Ok(list) => list,
            Err(error) => return reply.error(error),
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, (name, ino, kind)) in list.into_iter().enumerate().skip(from) {
            if reply.add(INodeNo(ino), at as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let files = self.tree().len() as u64;
        let (block, name) = (4096, NAME_BYTES_MAX as u32);
        reply.statfs(ROOM, ROOM, ROOM, files + ROOM, ROOM, block, name, block);
    }
}
