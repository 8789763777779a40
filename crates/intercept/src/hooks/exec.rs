//! Executing programs: descriptors, current directory and settings go on with them.

use super::names::read_target;
use crate::act::Answer;
use crate::path::{self, Spot};
use crate::report::{self, Family, Why};
use crate::{config, cwd, errno, inside, open, program, real};
use libc::{AT_FDCWD, FILE, c_char, c_int, c_void, mode_t, pid_t};
use parking_lot::Mutex;
use perthread::ForkLock;
use preload::hook;
use std::collections::HashMap;
use std::ffi::{CStr, CString};

type Strings = *const *mut c_char;

// SAFETY: the variable is the C library's.
unsafe extern "C" {
    static mut environ: Strings;
}

hook!([execve](path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    if config::get().is_none() || inside::is_inside() {
        return real::execve(path, arguments, environment);
    }
    let made = Environment::of(environment);
    publish();
    match path::locate_end(AT_FDCWD, path, true) {
        None => real::execve(path, arguments, made.pointers()),
        Some(spot) => match Program::find(&spot, arguments) {
            Ok(program) => {
                real::execve(program.path.as_ptr(), program.arguments(), made.pointers())
            }
            Err(error) => errno::zero(Err(error)),
        },
    }
});

hook!([execv](path: *const c_char, arguments: Strings) -> c_int {
    execve(path, arguments, environ)
});

hook!([execvp](name: *const c_char, arguments: Strings) -> c_int {
    execvpe(name, arguments, environ)
});

hook!([execvpe](name: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    let bytes = path::bytes(name).unwrap_or_default();
    if config::get().is_none() || inside::is_inside() || bytes.is_empty() {
        return real::execvpe(name, arguments, environment);
    }
    if bytes.contains(&b'/') {
        let done = execve(name, arguments, environment);
        return if errno::get() == libc::ENOEXEC {
            by_shell(name, arguments, environment)
        } else {
            done
        };
    }
    let mut denied = false;
    for candidate in candidates(bytes) {
        execve(candidate.as_ptr(), arguments, environment);
        match errno::get() {
            libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
            libc::EACCES => denied = true,
            libc::ENOEXEC => return by_shell(candidate.as_ptr(), arguments, environment),
            _ => return -1,
        }
    }
    errno::zero(Err(if denied { libc::EACCES } else { libc::ENOENT }))
});

hook!([fexecve](fd: c_int, arguments: Strings, environment: Strings) -> c_int {
    let Some(open) = crate::table::get(fd) else {
        if config::get().is_none() || inside::is_inside() {
            return real::fexecve(fd, arguments, environment);
        }
        let made = Environment::of(environment);
        publish();
        return real::fexecve(fd, arguments, made.pointers());
    };
    let path = [&open.prefix.path[..], &open.path()].concat();
    match CString::new(path) {
        Ok(path) => execve(path.as_ptr(), arguments, environment),
        Err(_) => errno::zero(Err(libc::ENOENT)),
    }
});

hook!([posix_spawn](
    pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
    arguments: Strings, environment: Strings
) -> c_int {
    if config::get().is_none() || inside::is_inside() {
        return real::posix_spawn(pid, path, actions, attributes, arguments, environment);
    }
    let made = Environment::of(environment);
    publish();
    let Some(spot) = path::locate_end(AT_FDCWD, path, true) else {
        return real::posix_spawn(pid, path, actions, attributes, arguments, made.pointers());
    };
    match Program::find(&spot, arguments) {
        Ok(program) => real::posix_spawn(
            pid,
            program.path.as_ptr(),
            actions,
            attributes,
            program.arguments(),
            made.pointers(),
        ),
        Err(error) => error,
    }
});

hook!([posix_spawnp](
    pid: *mut pid_t, name: *const c_char, actions: *const c_void, attributes: *const c_void,
    arguments: Strings, environment: Strings
) -> c_int {
    let bytes = path::bytes(name).unwrap_or_default();
    let config = config::get().filter(|_| !inside::is_inside());
    let Some(config) = config else {
        return real::posix_spawnp(pid, name, actions, attributes, arguments, environment);
    };
    if bytes.contains(&b'/') {
        return posix_spawn(pid, name, actions, attributes, arguments, environment);
    }
    let ours = candidates(bytes).into_iter().find(|candidate| {
        path::locate_bytes(config, AT_FDCWD, candidate.to_bytes()).is_some()
            && super::stat::access(candidate.as_ptr(), libc::X_OK) == 0
    });
    if let Some(candidate) = ours {
        // Only when nothing before it on the way is the kernel's.
        let first = candidates(bytes)
            .into_iter()
            .find(|other| super::stat::access(other.as_ptr(), libc::X_OK) == 0);
        if first.as_deref() == Some(&*candidate) {
            let path = candidate.as_ptr();
            return posix_spawn(pid, path, actions, attributes, arguments, environment);
        }
    }
    let made = Environment::of(environment);
    publish();
    real::posix_spawnp(pid, name, actions, attributes, arguments, made.pointers())
});

/// Descriptors opened for actions of a spawn, by the actions' address.
static ACTIONS: ForkLock<Option<HashMap<usize, Vec<c_int>>>> = ForkLock::new(None);

hook!([posix_spawn_file_actions_addopen](
    actions: *mut c_void, fd: c_int, path: *const c_char, flags: c_int, mode: mode_t
) -> c_int {
    if path::locate_end(AT_FDCWD, path, true).is_none() {
        return real::posix_spawn_file_actions_addopen(actions, fd, path, flags, mode);
    }
    // The child cannot open it: it is opened here, a little early, and handed on.
    let made = super::open::open(path, flags | libc::O_CLOEXEC, mode);
    if made < 0 {
        return errno::get();
    }
    let high = super::descriptor::fcntl(made, libc::F_DUPFD_CLOEXEC, 64);
    super::descriptor::close(made);
    if high < 0 {
        return errno::get();
    }
    ACTIONS.lock().get_or_insert_default().entry(actions.addr()).or_default().push(high);
    real::posix_spawn_file_actions_adddup2(actions, high, fd)
});

hook!([posix_spawn_file_actions_destroy](actions: *mut c_void) -> c_int {
    let opened = ACTIONS.lock().as_mut().and_then(|all| all.remove(&actions.addr()));
    for fd in opened.unwrap_or_default() {
        super::descriptor::close(fd);
    }
    real::posix_spawn_file_actions_destroy(actions)
});

hook!([system](command: *const c_char) -> c_int {
    publish();
    let status = real::system(command);
    super::start::waited(1);
    status
});

hook!([popen](command: *const c_char, mode: *const c_char) -> *mut FILE {
    publish();
    real::popen(command, mode)
});

hook!([vfork]() -> pid_t {
    // A child that borrows its parent's memory would change the parent's table of descriptors.
    super::start::fork()
});

/// Makes open files ones that a program can inherit.
fn publish() {
    if config::get().is_some() {
        crate::locks::look();
        let _ = inside::run(|| {
            open::publish_all();
            Ok(())
        });
    }
}

/// Paths at which a name may be a program.
fn candidates(name: &[u8]) -> Vec<CString> {
    use std::os::unix::ffi::OsStringExt;
    let path = std::env::var_os("PATH").map_or(b"/bin:/usr/bin".to_vec(), OsStringExt::into_vec);
    let dirs = path.split(|byte| *byte == b':');
    let at = |dir: &[u8]| if dir.is_empty() { name.to_vec() } else { path::join(dir, name) };
    dirs.filter_map(|dir| CString::new(at(dir)).ok()).collect()
}

/// Strings for a program, and pointers to them.
struct Environment {
    _strings: Vec<CString>,
    pointers: Vec<*mut c_char>,
}

impl Environment {
    /// # Safety
    /// Null or a list that ends with null.
    unsafe fn of(given: Strings) -> Environment {
        // SAFETY: by the caller's promise.
        let given = unsafe { strings(given) };
        let cwd = if cwd::is_virtual() { cwd::ours() } else { None };
        let strings = program::environment(given, cwd);
        let pointers = pointers(&strings);
        Environment { _strings: strings, pointers }
    }

    fn pointers(&self) -> Strings {
        self.pointers.as_ptr()
    }
}

/// # Safety
/// Null or a list that ends with null.
unsafe fn strings<'a>(list: Strings) -> Vec<&'a CStr> {
    let mut all = Vec::new();
    if !list.is_null() {
        // SAFETY: by the caller's promise.
        unsafe {
            let mut at = list;
            while !(*at).is_null() {
                all.push(CStr::from_ptr(*at));
                at = at.add(1);
            }
        }
    }
    all
}

fn pointers(strings: &[CString]) -> Vec<*mut c_char> {
    let all = strings.iter().map(|one| one.as_ptr().cast_mut());
    all.chain([std::ptr::null_mut()]).collect()
}

/// Runs what is no program by the shell, as `execvp` does.
///
/// # Safety
/// Strings and lists that end with null.
unsafe fn by_shell(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe {
        let mut list = vec![c"/bin/sh".as_ptr().cast_mut(), path.cast_mut()];
        list.extend(strings(arguments).iter().skip(1).map(|one| one.as_ptr().cast_mut()));
        list.push(std::ptr::null_mut());
        execve(c"/bin/sh".as_ptr(), list.as_ptr(), environment)
    }
}

/// Scripts that are each other's interpreters: as many as the kernel allows.
const SCRIPTS_MAX: u32 = 5;

/// A program on a prefix, as the kernel can execute it.
struct Program {
    path: CString,
    _strings: Vec<CString>,
    pointers: Vec<*mut c_char>,
}

impl Program {
    fn arguments(&self) -> Strings {
        self.pointers.as_ptr()
    }

    /// # Safety
    /// A list that ends with null.
    unsafe fn find(spot: &Spot, arguments: Strings) -> Result<Program, c_int> {
        // SAFETY: by the caller's promise.
        unsafe { Program::find_below(spot, arguments, 0) }
    }

    /// [`Program::find`] for a script's interpreter, that many scripts down.
    ///
    /// # Safety
    /// A list that ends with null.
    unsafe fn find_below(spot: &Spot, arguments: Strings, depth: u32) -> Result<Program, c_int> {
        if depth > SCRIPTS_MAX {
            return Err(libc::ELOOP);
        }
        let full = CString::new(spot.full()).map_err(|_| libc::ENOENT)?;
        // SAFETY: by the caller's promise.
        let given = unsafe { strings(arguments) };
        let plain = |path: CString| {
            let strings: Vec<CString> = given.iter().map(|one| (*one).to_owned()).collect();
            Program { path, pointers: pointers(&strings), _strings: strings }
        };
        if spot.prefix.is_mount {
            report::passed(Family::Exec, Why::Mount, format_args!("{}", full.to_string_lossy()));
            return Ok(plain(full));
        }
        if let Ok(Answer::Outside(path)) = read_target(spot) {
            return Ok(plain(path));
        }
        // SAFETY: a string.
        if unsafe { super::stat::access(full.as_ptr(), libc::X_OK) } != 0 {
            return Err(errno::get());
        }
        // SAFETY: strings and valid memory.
        let (fd, head) = unsafe {
            let fd = super::open::open(full.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC, 0);
            if fd < 0 {
                return Err(errno::get());
            }
            let mut head = vec![0u8; 256];
            let got = super::data::pread(fd, head.as_mut_ptr().cast(), head.len(), 0);
            head.truncate(usize::try_from(got).unwrap_or(0));
            (fd, head)
        };
        report::taken(Family::Exec);
        let found = match program::interpreter(&head) {
            Some((name, argument)) => {
                let name = CString::new(name).map_err(|_| libc::ENOEXEC)?;
                let mut strings = vec![name.clone()];
                strings.extend(argument.and_then(|argument| CString::new(argument).ok()));
                strings.push(full);
                strings.extend(given.iter().skip(1).map(|one| (*one).to_owned()));
                let pointers = pointers(&strings);
                // SAFETY: a string.
                match unsafe { path::locate(AT_FDCWD, name.as_ptr()) } {
                    Some(inner) => {
                        let list = pointers.as_ptr();
                        // SAFETY: a list that ends with null and outlives the call.
                        unsafe { Program::find_below(&inner, list, depth + 1) }
                    }
                    None => Ok(Program { path: name, pointers, _strings: strings }),
                }
            }
            None if head.starts_with(b"\x7fELF") => in_memory(fd).map(plain),
            None => Err(libc::ENOEXEC),
        };
        // SAFETY: opened above.
        unsafe { super::descriptor::close(fd) };
        found
    }
}

/// A copy of a program in memory, by a path for the kernel. The copy's descriptor stays open:
/// whoever executes it is gone then, or was a spawn, which has begun when it returns.
fn in_memory(fd: c_int) -> Result<CString, c_int> {
    use rustix::fd::{AsRawFd, IntoRawFd};
    /// The copy made last, to be let go with the next.
    static LAST: Mutex<Option<rustix::fd::OwnedFd>> = Mutex::new(None);
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let memory =
        rustix::fs::memfd_create("azekura-program", flags).map_err(|e| e.raw_os_error())?;
    let mut offset = 0;
    let mut room = vec![0u8; 1 << 20];
    loop {
        // SAFETY: the room is as long.
        let got = unsafe { super::data::pread(fd, room.as_mut_ptr().cast(), room.len(), offset) };
        match usize::try_from(got) {
            Ok(0) => break,
            Ok(got) => {
                if !crate::size::fits(offset as u64 + got as u64) {
                    return Err(libc::EFBIG);
                }
                let put = rustix::io::pwrite(&memory, &room[..got], offset as u64);
                offset += put.map_err(|error| error.raw_os_error())? as i64;
            }
            Err(_) => return Err(errno::get()),
        }
    }
    // What is executed may not be open for writing.
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let copy = rustix::fs::open(&*path, flags, rustix::fs::Mode::empty());
    let copy = copy.map_err(|error| error.raw_os_error())?;
    drop(memory);
    let number = copy.as_raw_fd();
    let old = LAST.lock().replace(copy);
    if let Some(old) = old {
        // SAFETY: nobody uses it any more.
        unsafe { real::close(old.into_raw_fd()) };
    }
    CString::new(format!("/proc/self/fd/{number}")).map_err(|_| libc::ENOENT)
}

/// Before a fork.
pub fn fork_lock() {
    ACTIONS.hold();
}

/// After it, on both sides.
///
/// # Safety
/// By the thread that called [`fork_lock`], or its copy.
pub unsafe fn fork_unlock() {
    // SAFETY: by the caller's promise.
    unsafe { ACTIONS.release() };
}
