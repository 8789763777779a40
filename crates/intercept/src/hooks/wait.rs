//! `poll`, `select` and `epoll` on files of ours, which are always ready, as regular files are.

use crate::{errno, inside, real, table};
use libc::{c_int, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use preload::hook;

/// What a regular file is ready for.
const READY: i16 = libc::POLLIN | libc::POLLOUT | libc::POLLRDNORM | libc::POLLWRNORM;

hook!([poll](fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    inside::cancellation_point();
    if !any_ours(fds, count) {
        return real::poll(fds, count, timeout);
    }
    with_ours(fds, count, |fds, at_once| {
        real::poll(fds, count, if at_once { 0 } else { timeout })
    })
});

hook!([ppoll](
    fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t
) -> c_int {
    inside::cancellation_point();
    if !any_ours(fds, count) {
        return real::ppoll(fds, count, timeout, mask);
    }
    let zero = timespec { tv_sec: 0, tv_nsec: 0 };
    with_ours(fds, count, |fds, at_once| {
        real::ppoll(fds, count, if at_once { &zero } else { timeout }, mask)
    })
});

hook!([__poll_chk](fds: *mut pollfd, count: nfds_t, timeout: c_int, room: libc::size_t) -> c_int {
    if room / size_of::<pollfd>() < count as usize {
        libc::abort();
    }
    poll(fds, count, timeout)
});

hook!([select](
    count: c_int, reads: *mut fd_set, writes: *mut fd_set, excepts: *mut fd_set,
    timeout: *mut timeval
) -> c_int {
    inside::cancellation_point();
    let ours: Vec<c_int> = (0..count.clamp(0, libc::FD_SETSIZE as c_int))
        .filter(|fd| table::is_ours(*fd))
        .filter(|fd| is_set(*fd, reads) || is_set(*fd, writes) || is_set(*fd, excepts))
        .collect();
    if ours.is_empty() {
        drop(ours);
        return real::select(count, reads, writes, excepts, timeout);
    }
    let ready: Vec<(c_int, bool, bool)> =
        ours.iter().map(|fd| (*fd, is_set(*fd, reads), is_set(*fd, writes))).collect();
    for set in [reads, writes, excepts].into_iter().filter(|set| !set.is_null()) {
        ours.iter().for_each(|fd| libc::FD_CLR(*fd, set));
    }
    let mut zero = timeval { tv_sec: 0, tv_usec: 0 };
    let at_once = ready.iter().any(|(_, read, write)| *read || *write);
    let timeout = if at_once { &raw mut zero } else { timeout };
    let mut found = real::select(count, reads, writes, excepts, timeout);
    if found >= 0 {
        for (fd, read, write) in ready {
            if read {
                libc::FD_SET(fd, reads);
                found += 1;
            }
            if write {
                libc::FD_SET(fd, writes);
                found += 1;
            }
        }
    }
    found
});

hook!([epoll_ctl](
    epoll: c_int, operation: c_int, fd: c_int, event: *mut libc::epoll_event
) -> c_int {
    if table::is_ours(fd) {
        // What the kernel says to regular files.
        return errno::zero(Err(libc::EPERM));
    }
    errno::zero(match libc::syscall(libc::SYS_epoll_ctl, epoll, operation, fd, event) {
        0 => Ok(()),
        _ => Err(errno::get()),
    })
});

/// # Safety
/// So many elements.
unsafe fn any_ours(fds: *const pollfd, count: nfds_t) -> bool {
    // SAFETY: by the caller's promise.
    !fds.is_null() && (0..count as usize).any(|at| table::is_ours(unsafe { (*fds.add(at)).fd }))
}

/// Polls the others, and not long if one of ours is waited for.
///
/// # Safety
/// So many elements.
unsafe fn with_ours(
    fds: *mut pollfd,
    count: nfds_t,
    poll: impl FnOnce(*mut pollfd, bool) -> c_int,
) -> c_int {
    // SAFETY: by the caller's promise.
    let all = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    let mut others: Vec<pollfd> = all.to_vec();
    let mut at_once = false;
    for one in others.iter_mut().filter(|one| table::is_ours(one.fd)) {
        at_once |= one.events & READY != 0;
        one.fd = -1;
    }
    let found = poll(others.as_mut_ptr(), at_once);
    if found < 0 {
        return found;
    }
    let mut ready = 0;
    for (one, other) in all.iter_mut().zip(&others) {
        one.revents = if table::is_ours(one.fd) { one.events & READY } else { other.revents };
        ready += c_int::from(one.revents != 0);
    }
    ready
}

/// # Safety
/// Null or a set.
unsafe fn is_set(fd: c_int, set: *const fd_set) -> bool {
    // SAFETY: by the caller's promise; the number is below the set's size.
    !set.is_null() && unsafe { libc::FD_ISSET(fd, set) }
}
