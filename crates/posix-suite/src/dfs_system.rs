//! The calls as calls of `dfs`.

use crate::system::{
    Attrs, Fd, LockAsked, LockWanted, NewTime, OpenHow, Outcome, System, Times, User,
};
use dfs::sys::Sys;
use dfs::{
    Access, AllocateFlags, CreateOptions, Credentials, Dfs, FileKind, LockAsk, LockKind, LockMode,
    LockRange, NodeKind, Obj, OpenFlags, RenameFlags, SetAttr, SetTime, Stat, XattrMode,
};

/// A file system mounted through the library.
pub struct DfsSystem<W> {
    fs: Dfs,
    wait: W,
    caller: Credentials,
    files: Vec<Option<(Obj, Dfs)>>,
    tick: Box<dyn Fn()>,
}

/// Runs a future of the library to its end.
pub trait Wait {
    fn on<T>(&self, future: impl Future<Output = T>) -> T;
}

impl<W: Wait> DfsSystem<W> {
    /// A mount, how its futures are run, and how its clock is moved on.
    pub fn new(fs: Dfs, wait: W, tick: impl Fn() + 'static) -> DfsSystem<W> {
        let (caller, files) = (Credentials::root(), Vec::new());
        DfsSystem { fs, wait, caller, files, tick: Box::new(tick) }
    }

    fn sys(&self) -> Sys {
        Sys::new(self.fs.with_credentials(self.caller.clone()))
    }

    fn run<T>(&self, call: impl Future<Output = dfs::Result<T>>) -> Outcome<T> {
        self.wait.on(call).map_err(|error| error.errno())
    }

    fn file(&self, fd: Fd) -> Outcome<&(Obj, Dfs)> {
        self.files.get(fd).and_then(Option::as_ref).ok_or(libc::EBADF)
    }

    fn keep(&mut self, file: Obj) -> Fd {
        let fs = self.fs.with_credentials(self.caller.clone());
        self.files.push(Some((file, fs)));
        self.files.len() - 1
    }
}

fn attrs(stat: &Stat) -> Attrs {
    Attrs {
        ino: stat.ino,
        mode: stat.mode,
        nlink: stat.nlink as u64,
        uid: stat.uid,
        gid: stat.gid,
        rdev: stat.rdev,
        size: stat.size,
        blocks: stat.stored_bytes.div_ceil(512),
        times: Times { atime: stat.atime_ns, mtime: stat.mtime_ns, ctime: stat.ctime_ns },
    }
}

fn size_of(size: i64) -> Outcome<u64> {
    u64::try_from(size).map_err(|_| libc::EINVAL)
}

fn range((first, bytes): (u64, u64)) -> LockRange {
    let last = if bytes == 0 { u64::MAX } else { first + bytes - 1 };
    LockRange { first, last }
}

fn lock_ask(fd: Fd, kind: LockKind, range: LockRange, mode: LockMode) -> LockAsk {
    LockAsk { kind, owner: fd as u64, range, mode, pid: std::process::id(), wait: false }
}

fn kind_of(mode: u32) -> FileKind {
    FileKind::from_mode(mode).unwrap_or(FileKind::Regular)
}

impl<W: Wait> System for DfsSystem<W> {
    fn be(&mut self, user: User) {
        let groups = user.group.into_iter().collect();
        let umask = self.caller.umask;
        self.caller = Credentials { groups, umask, ..Credentials::new(user.id, user.id) };
    }

    fn umask(&mut self, bits: u32) {
        self.caller.umask = bits;
    }

    fn lacks(&self, what: &str) -> bool {
        // Fifos and sockets are names here; what opening one means, a kernel knows.
        what == "special-open"
    }

    fn tick(&mut self) {
        (self.tick)();
    }

    fn mkdir(&mut self, path: &str, mode: u32) -> Outcome<()> {
        self.run(self.sys().mkdir(path.as_bytes(), mode))
    }

    fn mknod(&mut self, path: &str, mode: u32, rdev: u64) -> Outcome<()> {
        let node = NodeKind { kind: kind_of(mode), rdev };
        self.run(self.sys().mknod(path.as_bytes(), mode & 0o7777, node))
    }

    fn symlink(&mut self, target: &str, path: &str) -> Outcome<()> {
        self.run(self.sys().symlink(target.as_bytes(), path.as_bytes()))
    }

    fn link(&mut self, path: &str, new_path: &str) -> Outcome<()> {
        self.run(self.sys().link(path.as_bytes(), new_path.as_bytes()))
    }

    fn unlink(&mut self, path: &str) -> Outcome<()> {
        self.run(self.sys().unlink(path.as_bytes()))
    }

    fn rmdir(&mut self, path: &str) -> Outcome<()> {
        self.run(self.sys().rmdir(path.as_bytes()))
    }

    fn rename(&mut self, path: &str, new_path: &str, flags: u32) -> Outcome<()> {
        self.run(self.sys().rename(path.as_bytes(), new_path.as_bytes(), RenameFlags(flags)))
    }

    fn readlink(&mut self, path: &str) -> Outcome<String> {
        let target = self.run(self.sys().readlink(path.as_bytes()))?;
        Ok(String::from_utf8_lossy(&target).into_owned())
    }

    fn list(&mut self, path: &str) -> Outcome<Vec<String>> {
        let sys = self.sys();
        let call = async {
            let flags = OpenFlags::READ | OpenFlags::DIRECTORY;
            let dir = sys.open(path.as_bytes(), flags, 0, &CreateOptions::default()).await?;
            sys.fs().list(&dir).await
        };
        let entries = self.run(call)?;
        Ok(entries.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned()).collect())
    }

    fn stat(&mut self, path: &str, follow: bool) -> Outcome<Attrs> {
        let sys = self.sys();
        let stat = match follow {
            true => self.run(sys.stat(path.as_bytes()))?,
            false => self.run(sys.lstat(path.as_bytes()))?,
        };
        Ok(attrs(&stat))
    }

    fn access(&mut self, path: &str, bits: u32) -> Outcome<()> {
        self.run(self.sys().access(path.as_bytes(), Access(bits)))
    }

    fn chmod(&mut self, path: &str, mode: u32) -> Outcome<()> {
        self.run(self.sys().chmod(path.as_bytes(), mode))
    }

    fn chown(
        &mut self,
        path: &str,
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    ) -> Outcome<()> {
        self.run(self.sys().chown(path.as_bytes(), uid, gid, follow))
    }

    fn utimens(&mut self, path: &str, times: [NewTime; 2], follow: bool) -> Outcome<()> {
        let [atime, mtime] = times.map(|time| match time {
            NewTime::Now => Some(SetTime::Now),
            NewTime::Omit => None,
            NewTime::At(ns) => Some(SetTime::At(ns)),
        });
        self.run(self.sys().utimens(path.as_bytes(), atime, mtime, follow))
    }

    fn truncate(&mut self, path: &str, size: i64) -> Outcome<()> {
        let size = size_of(size)?;
        self.run(self.sys().truncate(path.as_bytes(), size))
    }

    fn setxattr(&mut self, path: &str, name: &str, value: &[u8], flags: u32) -> Outcome<()> {
        let mode = match flags {
            1 => XattrMode::Create,
            2 => XattrMode::Replace,
            _ => XattrMode::Set,
        };
        self.run(self.sys().setxattr(path.as_bytes(), name.as_bytes(), value, mode, true))
    }

    fn getxattr(&mut self, path: &str, name: &str) -> Outcome<Vec<u8>> {
        self.run(self.sys().getxattr(path.as_bytes(), name.as_bytes(), true))
    }

    fn listxattr(&mut self, path: &str) -> Outcome<Vec<String>> {
        let names = self.run(self.sys().listxattr(path.as_bytes(), true))?;
        Ok(names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect())
    }

    fn removexattr(&mut self, path: &str, name: &str) -> Outcome<()> {
        self.run(self.sys().removexattr(path.as_bytes(), name.as_bytes(), true))
    }

    fn open(&mut self, path: &str, how: OpenHow) -> Outcome<Fd> {
        let flags = OpenFlags::from_posix(how.flags);
        let options = CreateOptions::default();
        let file = self.run(self.sys().open(path.as_bytes(), flags, how.mode, &options))?;
        // What a kernel does with the bits of `open(2)`; see `Dfs::open`.
        if file.is_dir() && flags.has(OpenFlags::WRITE) {
            return Err(libc::EISDIR);
        }
        Ok(self.keep(file))
    }

    fn tmpfile(&mut self, path: &str, how: OpenHow) -> Outcome<Fd> {
        let sys = self.sys();
        let call = async {
            let dir = sys.lookup(path.as_bytes(), true).await?;
            let flags = OpenFlags::from_posix(how.flags);
            sys.fs().tmpfile(&dir, flags, how.mode, &CreateOptions::default()).await
        };
        let file = self.run(call)?;
        Ok(self.keep(file))
    }

    fn link_fd(&mut self, fd: Fd, path: &str) -> Outcome<()> {
        let (file, _) = self.file(fd)?.clone();
        let sys = self.sys();
        let call =
            sys.at(path.as_bytes(), async |dir, name| sys.fs().link_open(&file, dir, name).await);
        self.run(call)?.ok_or(libc::EEXIST)
    }

    fn close(&mut self, fd: Fd) -> Outcome<()> {
        let (file, fs) = self.files.get_mut(fd).and_then(Option::take).ok_or(libc::EBADF)?;
        self.run(fs.unlock_owner(&file, fd as u64))
    }

    fn fstat(&mut self, fd: Fd) -> Outcome<Attrs> {
        let (file, fs) = self.file(fd)?;
        Ok(attrs(&self.run(fs.ostat(file))?))
    }

    fn read(&mut self, fd: Fd, offset: u64, bytes: usize) -> Outcome<Vec<u8>> {
        let (file, fs) = self.file(fd)?;
        let mut room = vec![0; bytes];
        let read = self.run(fs.read(file, offset, &mut room))?;
        room.truncate(read);
        Ok(room)
    }

    fn write(&mut self, fd: Fd, offset: Option<u64>, data: &[u8]) -> Outcome<usize> {
        let (file, fs) = self.file(fd)?;
        self.run(fs.write(file, offset.unwrap_or(0), data))
    }

    fn ftruncate(&mut self, fd: Fd, size: i64) -> Outcome<()> {
        let (file, fs) = self.file(fd)?;
        // As Linux has it: a descriptor that does not write is no good for this.
        self.run(fs.truncate(file, size_of(size)?)).map_err(|errno| match errno {
            libc::EBADF => libc::EINVAL,
            errno => errno,
        })
    }

    fn fchmod(&mut self, fd: Fd, mode: u32) -> Outcome<()> {
        let (file, _) = self.file(fd)?;
        let fs = self.fs.with_credentials(self.caller.clone());
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        self.run(fs.setattr(file, &set)).map(|_| ())
    }

    fn fsync(&mut self, fd: Fd) -> Outcome<()> {
        let (_, fs) = self.file(fd)?;
        fs.sync();
        Ok(())
    }

    fn fallocate(&mut self, fd: Fd, flags: u32, offset: i64, bytes: i64) -> Outcome<()> {
        let (file, fs) = self.file(fd)?;
        let (offset, bytes) = (size_of(offset)?, size_of(bytes)?);
        self.run(fs.fallocate(file, AllocateFlags(flags), offset, bytes))
    }

    fn seek(&mut self, fd: Fd, hole: bool, offset: u64) -> Outcome<u64> {
        let (file, fs) = self.file(fd)?;
        match hole {
            true => self.run(fs.seek_hole(file, offset)),
            false => self.run(fs.seek_data(file, offset)),
        }
    }

    fn copy(&mut self, from: Fd, at: u64, to: Fd, to_at: u64, bytes: usize) -> Outcome<usize> {
        let ((from, _), (to, fs)) = (self.file(from)?, self.file(to)?);
        let copied = self.run(fs.copy_range(from, at, to, to_at, bytes as u64))?;
        Ok(copied as usize)
    }

    fn lock(&mut self, fd: Fd, asked: LockAsked, wanted: LockWanted) -> Outcome<()> {
        let (file, fs) = self.file(fd)?;
        let (kind, range) = match asked {
            LockAsked::Whole => (LockKind::Flock, LockRange::WHOLE),
            LockAsked::Range(first, bytes) => (LockKind::Ofd, range((first, bytes))),
        };
        let mode = match wanted {
            LockWanted::Unlock => return self.run(fs.unlock(file, kind, fd as u64, range)),
            LockWanted::Shared => LockMode::Shared,
            LockWanted::Exclusive => LockMode::Exclusive,
        };
        self.run(fs.lock(file, &lock_ask(fd, kind, range, mode), None))
    }

    fn test_lock(
        &mut self,
        fd: Fd,
        asked: (u64, u64),
        wanted: LockWanted,
    ) -> Outcome<Option<LockWanted>> {
        let (file, fs) = self.file(fd)?;
        let mode = match wanted {
            LockWanted::Shared => LockMode::Shared,
            _ => LockMode::Exclusive,
        };
        let ask = lock_ask(fd, LockKind::Ofd, range(asked), mode);
        let holder = self.run(fs.test_lock(file, &ask))?;
        Ok(holder.map(|holder| match holder.mode {
            LockMode::Shared => LockWanted::Shared,
            LockMode::Exclusive => LockWanted::Exclusive,
        }))
    }
}
