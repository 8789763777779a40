//! What the dynamic linker calls when the library is loaded and when the process ends, and what
//! `fork` calls on its way.

use super::{exec, stream};
use crate::{config, cwd, inside, open, program, real, report, table};
use libc::{c_char, c_int};

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
        table::hold_unlinked();
    }
}

extern "C" fn end() {
    report::summary();
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
        report::reset();
        report::in_child();
        Ok(())
    });
}
