//! Descriptors: closing, duplicating, flags; and sending them to other processes.

use super::{lock, stream};
use crate::open;
use crate::report::{self, Family, Why};
use crate::{config, errno, inside, locks, real, table};
use libc::{c_int, c_uint, c_ulong, msghdr, ssize_t};
use preload::hook;
use rustix::fd::IntoRawFd;
use std::sync::atomic::Ordering::Relaxed;

hook!([close](fd: c_int) -> c_int {
    inside::cancellation_point();
    if table::is_internal(fd) {
        if inside::is_inside() {
            table::unkeep(fd);
            return real::close(fd);
        }
        // To the program it does not exist.
        return errno::zero(Err(libc::EBADF));
    }
    if table::is_ours(fd) {
        forget(fd);
    }
    real::close(fd)
});

hook!([close_range](first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if config::get().is_none() || first > last {
        return real::close_range(first, last, flags);
    }
    let only_marks = flags & libc::CLOSE_RANGE_CLOEXEC as c_int != 0;
    if !only_marks {
        for fd in table::numbers_from(c_int::try_from(first).unwrap_or(c_int::MAX)) {
            if fd as c_uint <= last {
                forget(fd);
            }
        }
    }
    // Around what is this library's own.
    let mut from = first;
    for fd in first..=last.min(table::NUMBERS as c_uint - 1) {
        if table::is_internal(fd as c_int) {
            if from < fd && real::close_range(from, fd - 1, flags) != 0 {
                return -1;
            }
            from = fd + 1;
        }
    }
    if from <= last { real::close_range(from, last, flags) } else { 0 }
});

hook!([closefrom](first: c_int) -> () {
    let _ = close_range(c_uint::try_from(first).unwrap_or(0), c_uint::MAX, 0);
});

hook!([dup](fd: c_int) -> c_int {
    let copy = real::dup(fd);
    copied(fd, copy);
    copy
});

hook!([dup2](fd: c_int, to: c_int) -> c_int {
    if table::is_internal(to) || table::is_internal(fd) {
        return errno::zero(Err(libc::EBADF));
    }
    let copy = real::dup2(fd, to);
    if copy >= 0 && fd != to {
        replaced(fd, to);
    }
    copy
});

hook!([dup3](fd: c_int, to: c_int, flags: c_int) -> c_int {
    if !inside::is_inside() && (table::is_internal(to) || table::is_internal(fd)) {
        return errno::zero(Err(libc::EBADF));
    }
    let copy = real::dup3(fd, to, flags);
    if copy >= 0 {
        replaced(fd, to);
    }
    copy
});

hook!([fcntl fcntl64](fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    if table::is_internal(fd) && !inside::is_inside() {
        return errno::zero(Err(libc::EBADF));
    }
    let Some(open) = table::get(fd) else { return real::fcntl64(fd, command, argument) };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            let copy = real::fcntl64(fd, command, argument);
            copied(fd, copy);
            copy
        }
        libc::F_GETFD | libc::F_SETFD => real::fcntl64(fd, command, argument),
        libc::F_GETFL => {
            (open.head().status.load(Relaxed) | libc::O_LARGEFILE as u32) as c_int
        }
        // A name only: nothing else is to be done with it.
        _ if open.head().status.load(Relaxed) & libc::O_PATH as u32 != 0 => {
            errno::zero(Err(libc::EBADF))
        }
        libc::F_SETFL => {
            let changing = libc::O_APPEND | libc::O_NONBLOCK | libc::O_DIRECT | libc::O_NOATIME;
            let kept = open.head().status.load(Relaxed) & !(changing as u32);
            open.head().status.store(kept | argument as u32 & changing as u32, Relaxed);
            0
        }
        libc::F_GETLK | libc::F_SETLK | libc::F_SETLKW | libc::F_OFD_GETLK | libc::F_OFD_SETLK
        | libc::F_OFD_SETLKW => lock::record(&open, command, argument as *mut libc::flock),
        libc::F_GETOWN => 0,
        libc::F_GETLEASE => libc::F_UNLCK,
        // Others may have the file open, here or elsewhere, and would not be held up.
        libc::F_SETLEASE => match argument as c_int {
            libc::F_RDLCK | libc::F_WRLCK | libc::F_UNLCK => errno::zero(Err(libc::EAGAIN)),
            _ => errno::zero(Err(libc::EINVAL)),
        },
        libc::F_GETPIPE_SZ | libc::F_SETPIPE_SZ => errno::zero(Err(libc::EBADF)),
        _ => errno::zero(Err(libc::EINVAL)),
    }
});

hook!([ioctl](fd: c_int, request: c_ulong, argument: c_ulong) -> c_int {
    if !table::is_ours(fd) {
        return real::ioctl(fd, request, argument);
    }
    match request {
        libc::FIOCLEX => real::fcntl64(fd, libc::F_SETFD, libc::FD_CLOEXEC as c_ulong),
        libc::FIONCLEX => real::fcntl64(fd, libc::F_SETFD, 0),
        FICLONE | FICLONERANGE => errno::zero(Err(libc::EOPNOTSUPP)),
        _ => errno::zero(Err(libc::ENOTTY)),
    }
});

/// Requests to share blocks between files, from `<linux/fs.h>`.
const FICLONE: c_ulong = 0x4004_9409;
const FICLONERANGE: c_ulong = 0x4020_940d;

hook!([isatty](fd: c_int) -> c_int {
    if table::is_ours(fd) {
        errno::set(libc::ENOTTY);
        return 0;
    }
    real::isatty(fd)
});

hook!([recvmsg](socket: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    inside::cancellation_point();
    let got = real::recvmsg(socket, message, flags);
    if got >= 0 && config::get().is_some() && !inside::is_inside() {
        adopt_received(message);
    }
    got
});

hook!([sendmsg](socket: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    inside::cancellation_point();
    if message.is_null()
        || (*message).msg_control.is_null()
        || !table::any()
        || inside::is_inside()
    {
        return real::sendmsg(socket, message, flags);
    }
    let mut parcel = Parcel::new();
    let _ = inside::run(|| {
        open::publish_all();
        parcel.pack(&*message);
        Ok(())
    });
    let sent = real::sendmsg(socket, &parcel.message(&*message), flags);
    let error = errno::get();
    let _ = inside::run(|| {
        parcel.empty();
        Ok(())
    });
    errno::set(error);
    sent
});

/// What goes with a message in place of what the program gave: a door means nothing to who gets
/// it, so the page goes. Nothing of it needs dropping.
struct Parcel {
    /// Room for as many descriptors as the kernel sends at once, and what precedes them.
    room: [u64; PARCEL_BYTES / 8],
    /// Bytes used; 0: what the program gave is sent.
    bytes: usize,
    /// Descriptors made for it.
    made: [c_int; 256],
    count: usize,
}

const PARCEL_BYTES: usize = 2048;

impl Parcel {
    fn new() -> Parcel {
        Parcel { room: [0; PARCEL_BYTES / 8], bytes: 0, made: [-1; 256], count: 0 }
    }

    /// # Safety
    /// A message that can be sent.
    unsafe fn pack(&mut self, message: &msghdr) {
        let bytes = message.msg_controllen;
        if bytes > PARCEL_BYTES {
            return;
        }
        // SAFETY: so many bytes by the caller's promise, and there is room for them.
        unsafe {
            let room = self.room.as_mut_ptr().cast::<u8>();
            std::ptr::copy_nonoverlapping(message.msg_control.cast::<u8>(), room, bytes);
        }
        self.bytes = bytes;
        let copy = self.message(message);
        // SAFETY: a copy of a message that can be sent.
        unsafe {
            each_descriptor(&copy, |place| {
                let name = table::find(place.read_unaligned())
                    .and_then(|open| open.name_for_others())
                    .filter(|_| self.count < self.made.len());
                if let Some(name) = name {
                    let name = name.into_raw_fd();
                    self.made[self.count] = name;
                    self.count += 1;
                    place.write_unaligned(name);
                }
            });
        }
    }

    fn message(&mut self, given: &msghdr) -> msghdr {
        let mut message = *given;
        if self.bytes > 0 {
            message.msg_control = self.room.as_mut_ptr().cast();
        }
        message
    }

    fn empty(&mut self) {
        for fd in &self.made[..self.count] {
            // SAFETY: made by `pack`, and known to nobody here.
            unsafe { real::close(*fd) };
        }
    }
}

/// Calls a function with the place of each descriptor in a message.
///
/// # Safety
/// A message as the kernel has filled it, or one that can be sent.
unsafe fn each_descriptor(message: *const msghdr, mut each: impl FnMut(*mut c_int)) {
    // SAFETY: the macros walk through what is there.
    unsafe {
        let mut part = libc::CMSG_FIRSTHDR(message);
        while !part.is_null() {
            let head = &*part;
            if (head.cmsg_level, head.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let bytes = head.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                let list = libc::CMSG_DATA(part).cast::<c_int>();
                for at in 0..bytes / size_of::<c_int>() {
                    each(list.add(at));
                }
            }
            part = libc::CMSG_NXTHDR(message, part);
        }
    }
}

/// Takes descriptors of ours that came with a message into the table.
///
/// # Safety
/// A message just received.
unsafe fn adopt_received(message: *const msghdr) {
    // SAFETY: by the caller's promise.
    unsafe {
        each_descriptor(message, |place| {
            let fd = place.read_unaligned();
            let _ = inside::run(|| {
                table::adopt(fd);
                Ok(())
            });
        });
    }
}

/// A descriptor of ours goes.
pub fn forget(fd: c_int) {
    report::taken(Family::Descriptor);
    let taken = table::take(fd);
    if let Some(open) = taken {
        locks::closed(&open);
        let _ = inside::run(|| {
            drop(open);
            Ok(())
        });
    }
}

/// A descriptor was duplicated to a number that was free.
fn copied(fd: c_int, copy: c_int) {
    if copy < 0 {
        return;
    }
    if let Some(open) = table::get(fd) {
        if copy as usize >= table::NUMBERS {
            report::passed(Family::Descriptor, Why::Refused, format_args!("number {copy}"));
            return;
        }
        report::taken(Family::Descriptor);
        table::put(copy, open);
        stream::descriptor_changed(copy);
    }
}

/// A descriptor was duplicated to a number that may have been used.
fn replaced(fd: c_int, to: c_int) {
    let open = table::get(fd);
    if table::is_ours(to) {
        forget(to);
    }
    if let Some(open) = open {
        report::taken(Family::Descriptor);
        table::put(to, open);
        stream::descriptor_changed(to);
    }
}
