//! What the dynamic linker calls when the library is loaded and when the process ends, and what
//! `fork` calls on its way.

use super::{exec, stream};
use crate::{config, cwd, inside, locks, open, program, real, report, table};
use libc::{c_char, c_int, pid_t};
use preload::hook;

type Strings = *const *mut c_char;

// SAFETY: the variable is the C library's.
unsafe extern "C" {
    static mut environ: Strings;
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn(c_int, Strings, Strings) = start;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn start(_: c_int, _: Strings, environment: Strings) {
    // So early the C library has not set this yet; it will, to the same.
    // SAFETY: the variable is the C library's, and there is one thread.
    unsafe {
        if environ.is_null() {
            environ = environment;
        }
    }
    real::find_all();
    // Inside: what is read here is the kernel's.
    let _ = inside::run(|| {
        config::load();
        if let Some(config) = config::get() {
            report::keep_stderr(config);
            program::load();
            cwd::load(config);
            table::adopt_inherited();
            // SAFETY: the functions have the form asked for and may run in any process.
            unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
        }
        Ok(())
    });
    if config::get().is_some() {
        stream::load();
        table::hold_inherited();
    }
}

extern "C" fn end() {
    if table::any() && !inside::is_inside() && locks::may_end() {
        // What was printed is written before others may have the lock.
        // SAFETY: writes all streams.
        unsafe { libc::fflush(std::ptr::null_mut()) };
    }
    ending();
    report::summary();
}

/// The process ends; for good, so it happens once.
fn ending() {
    if config::get().is_some() && table::any() && !inside::is_inside() {
        locks::ending();
    }
}

// What is left to `exit` ends here as well, but through `end`.
hook!([_exit _Exit](status: c_int) -> () {
    ending();
    libc::syscall(libc::SYS_exit_group, status);
    // Never come to.
    libc::abort();
});

hook!([fork]() -> pid_t {
    // Not on the way of `fork` itself, where nothing is asked.
    locks::look();
    real::fork()
});

hook!([waitpid](pid: pid_t, status: *mut c_int, options: c_int) -> pid_t {
    let ended = real::waitpid(pid, status, options);
    waited(ended);
    ended
});

hook!([wait](status: *mut c_int) -> pid_t {
    let ended = real::wait(status);
    waited(ended);
    ended
});

hook!([wait3](status: *mut c_int, options: c_int, usage: *mut libc::rusage) -> pid_t {
    let ended = real::wait3(status, options, usage);
    waited(ended);
    ended
});

hook!([wait4](
    pid: pid_t, status: *mut c_int, options: c_int, usage: *mut libc::rusage
) -> pid_t {
    let ended = real::wait4(pid, status, options, usage);
    waited(ended);
    ended
});

hook!([waitid](
    kind: libc::idtype_t, id: libc::id_t, info: *mut libc::siginfo_t, options: c_int
) -> c_int {
    let done = real::waitid(kind, id, info, options);
    waited(if done == 0 { 1 } else { -1 });
    done
});

/// Programs wait in signal handlers, too: nothing is done but to take a note.
pub fn waited(ended: pid_t) {
    if ended > 0 && table::any() {
        locks::child_ended();
    }
}

extern "C" fn before_fork() {
    if !inside::is_inside() {
        let _ = inside::run(|| {
            open::publish_all();
            Ok(())
        });
    }
    table::fork_lock();
    cwd::fork_lock();
    stream::fork_lock();
    exec::fork_lock();
}

fn unlock() {
    // SAFETY: `before_fork` ran on this thread, or on the one this is a copy of.
    unsafe {
        exec::fork_unlock();
        stream::fork_unlock();
        cwd::fork_unlock();
        table::fork_unlock();
    }
}

extern "C" fn in_parent() {
    unlock();
}

extern "C" fn in_child() {
    unlock();
    let _ = inside::run(|| {
        table::in_child();
        locks::in_child();
        report::reset();
        report::in_child();
        Ok(())
    });
}
