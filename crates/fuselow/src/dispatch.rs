//! From a request to the file system's method, and from its result to the answer.

use super::abi::{self, bytes_of};
use super::carrier::Carrier;
use super::decode::{Malformed, decode};
use super::operation::Operation;
use super::worker::Core;
use super::{DirSink, Entry, Errno, FileSystem, Lock, NodeId, Opened, Release, Request, Stat};
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;

/// Answers one request. A panic of the file system is its request's `EIO` and nobody else's.
pub(crate) async fn serve<F: FileSystem>(core: Rc<Core>, fs: Rc<F>, mut carrier: Carrier) {
    let answer = AssertUnwindSafe(answer(&core, &*fs, &mut carrier)).catch_unwind().await;
    if answer.is_err() {
        let header = *carrier.header();
        tracing::error!(opcode = header.opcode, node = header.nodeid, "a request panicked: EIO");
    }
}

async fn answer<F: FileSystem>(core: &Rc<Core>, fs: &F, carrier: &mut Carrier) {
    let header = *carrier.header();
    let unique = header.unique & !abi::UNIQUE_RESEND;
    let decoded = carrier.body(core.dialect).and_then(|body| decode(&header, core.dialect, body));
    let (operation, groups) = match decoded {
        Ok(decoded) => decoded,
        Err(Malformed::Name) => return carrier.answer_error(-libc::EINVAL),
        Err(error) => {
            tracing::error!(opcode = header.opcode, "malformed request: {error:?}");
            return carrier.answer_error(-libc::EIO);
        }
    };
    let live = core.enter(unique, header.pid);
    let req = &Request::new(header, groups, live.interruption.clone());
    let node = NodeId(header.nodeid);
    match operation {
        Operation::Lookup { name } => {
            let found = fs.lookup(req, node, name).await;
            entry(fs, carrier, found);
        }
        Operation::Getattr { fh } => {
            let found = fs.getattr(req, node, fh).await;
            stat(carrier, found);
        }
        Operation::Setattr(set) => {
            let found = fs.setattr(req, node, &set).await;
            stat(carrier, found);
        }
        Operation::Readlink => {
            let found = fs.readlink(req, node).await;
            plain(carrier, found, |target, carrier| carrier.answer(&[&target]));
        }
        Operation::Symlink { name, target } => {
            let made = fs.symlink(req, node, name, target).await;
            entry(fs, carrier, made);
        }
        Operation::Mknod { name, new } => {
            let made = fs.mknod(req, node, name, new).await;
            entry(fs, carrier, made);
        }
        Operation::Mkdir { name, new } => {
            let made = fs.mkdir(req, node, name, new).await;
            entry(fs, carrier, made);
        }
        Operation::Link { node: old, name } => {
            let made = fs.link(req, old, node, name).await;
            entry(fs, carrier, made);
        }
        Operation::Unlink { name } => {
            let done = fs.unlink(req, node, name).await;
            nothing(carrier, done);
        }
        Operation::Rmdir { name } => {
            let done = fs.rmdir(req, node, name).await;
            nothing(carrier, done);
        }
        Operation::Rename(rename) => {
            let done = fs.rename(req, rename).await;
            nothing(carrier, done);
        }
        Operation::Open { flags } => {
            let opened = fs.open(req, node, flags).await;
            if let Some(unwanted) = open(carrier, opened) {
                fs.release(req, node, unwanted.fh, Release { flags, ..Release::default() }).await;
            }
        }
        Operation::Opendir { flags } => {
            let opened = fs.opendir(req, node, flags).await;
            if let Some(unwanted) = open(carrier, opened) {
                let release = Release { flags, ..Release::default() };
                fs.releasedir(req, node, unwanted.fh, release).await;
            }
        }
        Operation::Create { name, new, flags } => {
            let made = fs.create(req, node, name, new, flags).await;
            if let Some((entry, opened)) = create(carrier, made) {
                let release = Release { flags, ..Release::default() };
                fs.release(req, entry.node, opened.fh, release).await;
                fs.forget(entry.node, 1);
            }
        }
        Operation::Tmpfile { new, flags } => {
            let made = fs.tmpfile(req, node, new, flags).await;
            if let Some((entry, opened)) = create(carrier, made) {
                let release = Release { flags, ..Release::default() };
                fs.release(req, entry.node, opened.fh, release).await;
                fs.forget(entry.node, 1);
            }
        }
        Operation::Read { fh, transfer, bytes } => {
            let room = carrier.room(bytes);
            let limit = room.len();
            match fs.read(req, node, fh, transfer, room).await {
                Ok(count) => {
                    carrier.answer_room(count.min(limit));
                }
                Err(error) => carrier.answer_error(error.for_kernel()),
            }
        }
        Operation::Readdir { fh, offset, bytes, plus } => {
            let mut sink = DirSink::new(carrier.room(bytes), plus);
            let listed = fs.readdir(req, node, fh, offset, &mut sink).await;
            let used = sink.used();
            match listed {
                // Entries that were taken have raised lookup counts: they go out in any case.
                Err(error) if used == 0 => carrier.answer_error(error.for_kernel()),
                _ => {
                    carrier.answer_room(used);
                }
            }
        }
        Operation::Write { fh, transfer, data } => {
            let limit = data.len();
            let written = fs.write(req, node, fh, transfer, data).await;
            plain(carrier, written, |count, carrier| {
                let size = count.min(limit) as u32;
                carrier.answer(&[bytes_of(&abi::WriteOut { size, padding: 0 })])
            });
        }
        Operation::Statfs => {
            let found = fs.statfs(req, node).await;
            plain(carrier, found, |found, carrier| {
                carrier.answer(&[bytes_of(&found.for_kernel())])
            });
        }
        Operation::Release { fh, release } => {
            fs.release(req, node, fh, release).await;
            carrier.answer(&[]);
        }
        Operation::Releasedir { fh, release } => {
            fs.releasedir(req, node, fh, release).await;
            carrier.answer(&[]);
        }
        Operation::Flush { fh, owner } => {
            let done = fs.flush(req, node, fh, owner).await;
            nothing(carrier, done);
        }
        Operation::Fsync { fh, data_only } => {
            let done = fs.fsync(req, node, fh, data_only).await;
            nothing(carrier, done);
        }
        Operation::Fsyncdir { fh, data_only } => {
            let done = fs.fsyncdir(req, node, fh, data_only).await;
            nothing(carrier, done);
        }
        Operation::Setxattr(set) => {
            let done = fs.setxattr(req, node, set).await;
            nothing(carrier, done);
        }
        Operation::Getxattr { name, bytes } => {
            let found = fs.getxattr(req, node, name).await;
            sized(carrier, found, bytes);
        }
        Operation::Listxattr { bytes } => {
            let found = fs.listxattr(req, node).await;
            sized(carrier, found, bytes);
        }
        Operation::Removexattr { name } => {
            let done = fs.removexattr(req, node, name).await;
            nothing(carrier, done);
        }
        Operation::Getlk { fh, request } => {
            let found = fs.getlk(req, node, fh, request).await;
            plain(carrier, found, |lock, carrier| carrier.answer(&[bytes_of(&lock_out(lock))]));
        }
        Operation::Setlk { fh, request } => {
            let done = fs.setlk(req, node, fh, request).await;
            nothing(carrier, done);
        }
        Operation::Access { mask } => {
            let done = fs.access(req, node, mask).await;
            nothing(carrier, done);
        }
        Operation::Fallocate { fh, range } => {
            let done = fs.fallocate(req, node, fh, range).await;
            nothing(carrier, done);
        }
        Operation::Lseek { fh, offset, whence } => {
            let found = fs.lseek(req, node, fh, offset, whence).await;
            plain(carrier, found, |offset, carrier| {
                carrier.answer(&[bytes_of(&abi::LseekOut { offset })])
            });
        }
        Operation::CopyRange { copy, wide } => {
            let copied = fs.copy_range(req, node, copy).await;
            plain(carrier, copied, |bytes_copied, carrier| match wide {
                true => carrier.answer(&[bytes_of(&abi::CopyFileRangeOut { bytes_copied })]),
                false => {
                    let size = bytes_copied.min(u64::from(u32::MAX)) as u32;
                    carrier.answer(&[bytes_of(&abi::WriteOut { size, padding: 0 })])
                }
            });
        }
        Operation::Syncfs => {
            let done = fs.syncfs(req, node).await;
            nothing(carrier, done);
        }
        Operation::Ioctl { fh, ioctl } => {
            let limit = ioctl.out_bytes_max as usize;
            let done = fs.ioctl(req, node, fh, ioctl).await;
            plain(carrier, done, |(result, data), carrier| {
                let head = abi::IoctlOut { result, ..abi::IoctlOut::default() };
                carrier.answer(&[bytes_of(&head), &data[..data.len().min(limit)]])
            });
        }
        Operation::Destroy => {
            carrier.answer(&[]);
        }
        // Poll and bmap: the kernel then does as for any local file.
        Operation::Poll { .. } | Operation::Unknown | Operation::Init => {
            carrier.answer_error(-libc::ENOSYS);
        }
        // They are taken before they get here; over io_uring they do not come.
        Operation::Forget { .. }
        | Operation::BatchForget(_)
        | Operation::Interrupt { .. }
        | Operation::NotifyReply => carrier.no_answer(),
    }
}

fn plain<T>(
    carrier: &mut Carrier,
    result: Result<T, Errno>,
    send: impl FnOnce(T, &mut Carrier) -> bool,
) {
    match result {
        Ok(value) => {
            send(value, carrier);
        }
        Err(error) => carrier.answer_error(error.for_kernel()),
    }
}

fn nothing(carrier: &mut Carrier, result: Result<(), Errno>) {
    plain(carrier, result, |(), carrier| carrier.answer(&[]));
}

fn stat(carrier: &mut Carrier, result: Result<Stat, Errno>) {
    plain(carrier, result, |stat, carrier| carrier.answer(&[bytes_of(&stat.for_kernel())]));
}

fn entry<F: FileSystem>(fs: &F, carrier: &mut Carrier, result: Result<Entry, Errno>) {
    plain(carrier, result, |entry, carrier| {
        let sent = carrier.answer(&[bytes_of(&entry.for_kernel())]);
        if !sent && entry.node != NodeId(0) {
            fs.forget(entry.node, 1);
        }
        sent
    });
}

/// What was opened, when the kernel no longer wanted it.
fn open(carrier: &mut Carrier, result: Result<Opened, Errno>) -> Option<Opened> {
    let mut unwanted = None;
    plain(carrier, result, |opened, carrier| {
        let sent = carrier.answer(&[bytes_of(&opened.for_kernel())]);
        unwanted = (!sent).then_some(opened);
        sent
    });
    unwanted
}

/// What was made and opened, when the kernel no longer wanted it.
fn create(
    carrier: &mut Carrier,
    result: Result<(Entry, Opened), Errno>,
) -> Option<(Entry, Opened)> {
    let mut unwanted = None;
    plain(carrier, result, |(entry, opened), carrier| {
        let out = abi::CreateOut { entry: entry.for_kernel(), open: opened.for_kernel() };
        let sent = carrier.answer(&[bytes_of(&out)]);
        unwanted = (!sent).then_some((entry, opened));
        sent
    });
    unwanted
}

/// Extended attributes: asked with size 0, the size is the answer.
fn sized(carrier: &mut Carrier, result: Result<Vec<u8>, Errno>, bytes: u32) {
    plain(carrier, result, |value, carrier| {
        if bytes == 0 {
            let size = value.len() as u32;
            carrier.answer(&[bytes_of(&abi::GetxattrOut { size, padding: 0 })])
        } else if value.len() > bytes as usize {
            carrier.answer_error(-libc::ERANGE);
            true
        } else {
            carrier.answer(&[&value])
        }
    });
}

fn lock_out(lock: Lock) -> abi::LkOut {
    let kind = lock.kind.for_kernel();
    abi::LkOut { lk: abi::FileLock { start: lock.start, end: lock.end, kind, pid: lock.pid } }
}
