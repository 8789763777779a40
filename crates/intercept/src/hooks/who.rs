//! Calls after which the caller is somebody else, or makes files with other permission bits.

use crate::{caller, config, inside, real};
use libc::{c_char, c_int, gid_t, mode_t, size_t, uid_t};
use preload::hook;

/// Remembers that something changed.
fn after(done: c_int) -> c_int {
    if done == 0 {
        caller::changed();
    }
    done
}

hook!([umask](mask: mode_t) -> mode_t {
    let before = real::umask(mask);
    if config::get().is_some() && !inside::is_inside() {
        caller::set_mask(mask);
    }
    before
});

hook!([setuid](uid: uid_t) -> c_int {
    after(real::setuid(uid))
});

hook!([seteuid](uid: uid_t) -> c_int {
    after(real::seteuid(uid))
});

hook!([setreuid](real_one: uid_t, effective: uid_t) -> c_int {
    after(real::setreuid(real_one, effective))
});

hook!([setresuid](real_one: uid_t, effective: uid_t, saved: uid_t) -> c_int {
    after(real::setresuid(real_one, effective, saved))
});

hook!([setgid](gid: gid_t) -> c_int {
    after(real::setgid(gid))
});

hook!([setegid](gid: gid_t) -> c_int {
    after(real::setegid(gid))
});

hook!([setregid](real_one: gid_t, effective: gid_t) -> c_int {
    after(real::setregid(real_one, effective))
});

hook!([setresgid](real_one: gid_t, effective: gid_t, saved: gid_t) -> c_int {
    after(real::setresgid(real_one, effective, saved))
});

hook!([setgroups](count: size_t, list: *const gid_t) -> c_int {
    after(real::setgroups(count, list))
});

hook!([initgroups](user: *const c_char, group: gid_t) -> c_int {
    after(real::initgroups(user, group))
});

hook!([sigaction](
    signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction
) -> c_int {
    // Before: from the moment it is installed it may be called.
    if let Some(new) = new.as_ref()
        && !is_plain(new.sa_sigaction)
    {
        inside::handled(signal, true);
    }
    let done = real::sigaction(signal, new, old);
    noted(signal);
    done
});

hook!([signal ssignal bsd_signal](signal_: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    if !is_plain(handler) {
        inside::handled(signal_, true);
    }
    let before = real::signal(signal_, handler);
    noted(signal_);
    before
});

fn is_plain(handler: libc::sighandler_t) -> bool {
    handler == libc::SIG_DFL || handler == libc::SIG_IGN
}

/// Looks what the kernel has now.
fn noted(signal: c_int) {
    // SAFETY: asks only, into a valid place.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        if real::sigaction(signal, std::ptr::null(), &mut now) == 0 {
            inside::handled(signal, !is_plain(now.sa_sigaction));
        }
    }
}
