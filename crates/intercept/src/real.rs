//! The C library's functions that ours stand in front of.
//!
//! All are found when the library is loaded; a call before that (another library's start-up code)
//! looks its own up. A function that this C library does not have fails with `ENOSYS`.

use libc::{
    DIR, FILE, c_char, c_int, c_long, c_uint, c_ulong, c_void, dev_t, dirent, gid_t, iovec, mode_t,
    off_t, size_t, ssize_t, statfs, statvfs, timespec, timeval, uid_t, utimbuf,
};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The next function of a name behind ours.
pub struct Real {
    address: AtomicPtr<c_void>,
    name: &'static str,
}

impl Real {
    const fn new(name: &'static str) -> Real {
        Real { address: AtomicPtr::new(std::ptr::null_mut()), name }
    }

    /// Its address; null when there is none.
    #[inline]
    fn find(&self) -> *mut c_void {
        let address = self.address.load(Ordering::Relaxed);
        if address.is_null() { self.look() } else { address }
    }

    #[cold]
    fn look(&self) -> *mut c_void {
        // SAFETY: names are written with a zero at the end.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr().cast()) };
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// What a function that is not there returns.
trait Missing {
    const VALUE: Self;
}

impl Missing for c_int {
    const VALUE: c_int = -1;
}

impl Missing for c_long {
    const VALUE: c_long = -1;
}

impl Missing for ssize_t {
    const VALUE: ssize_t = -1;
}

impl Missing for size_t {
    const VALUE: size_t = 0;
}

impl Missing for c_uint {
    const VALUE: c_uint = 0;
}

impl Missing for () {
    const VALUE: () = ();
}

impl<T> Missing for *mut T {
    const VALUE: *mut T = std::ptr::null_mut();
}

macro_rules! real {
    ($($name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        #[allow(non_upper_case_globals, reason = "named as the functions are")]
        mod at {
            $(pub static $name: super::Real = super::Real::new(concat!(stringify!($name), "\0"));)*
        }

        $(
            #[doc = concat!("`", stringify!($name), "`.")]
            ///
            /// # Safety
            /// As for the C library's.
            #[inline]
            #[allow(clippy::too_many_arguments, reason = "as many as the function has")]
            pub unsafe fn $name($($arg: $type),*) $(-> $result)? {
                let address = at::$name.find();
                if address.is_null() {
                    crate::errno::set(libc::ENOSYS);
                    return Missing::VALUE;
                }
                type Form = unsafe extern "C-unwind" fn($($type),*) $(-> $result)?;
                // SAFETY: the address is that of the function of this name, which has this form.
                let function: Form = unsafe { std::mem::transmute(address) };
                // SAFETY: the caller's promise.
                unsafe { function($($arg),*) }
            }
        )*

        /// Finds all functions. Called once, when the library is loaded.
        pub fn find_all() {
            $(at::$name.look();)*
        }
    };
}

/// A wide character, or `WEOF`.
#[allow(non_camel_case_types, reason = "named as in C")]
pub type wint_t = c_uint;

/// `int (*)(const char *, const struct stat *, int)` and the like: passed on only.
pub type Callback = *mut c_void;

real! {
    syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long;
    open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    close(fd: c_int) -> c_int;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    read(fd: c_int, data: *mut c_void, bytes: size_t) -> ssize_t;
    pread64(fd: c_int, data: *mut c_void, bytes: size_t, offset: off_t) -> ssize_t;
    readv(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    preadv64(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    preadv64v2(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    write(fd: c_int, data: *const c_void, bytes: size_t) -> ssize_t;
    pwrite64(fd: c_int, data: *const c_void, bytes: size_t, offset: off_t) -> ssize_t;
    writev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    pwritev64(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    pwritev64v2(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    __read_chk(fd: c_int, data: *mut c_void, bytes: size_t, room: size_t) -> ssize_t;
    __pread64_chk(fd: c_int, data: *mut c_void, bytes: size_t, offset: off_t, room: size_t) -> ssize_t;
    lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    sendfile64(to: c_int, from: c_int, offset: *mut off_t, bytes: size_t) -> ssize_t;
    copy_file_range(from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, bytes: size_t, flags: c_uint) -> ssize_t;
    splice(from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, bytes: size_t, flags: c_uint) -> ssize_t;
    stat64(path: *const c_char, out: *mut libc::stat) -> c_int;
    lstat64(path: *const c_char, out: *mut libc::stat) -> c_int;
    fstat64(fd: c_int, out: *mut libc::stat) -> c_int;
    fstatat64(dir: c_int, path: *const c_char, out: *mut libc::stat, flags: c_int) -> c_int;
    __xstat64(version: c_int, path: *const c_char, out: *mut libc::stat) -> c_int;
    __lxstat64(version: c_int, path: *const c_char, out: *mut libc::stat) -> c_int;
    __fxstat64(version: c_int, fd: c_int, out: *mut libc::stat) -> c_int;
    __fxstatat64(version: c_int, dir: c_int, path: *const c_char, out: *mut libc::stat, flags: c_int) -> c_int;
    statx(dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, out: *mut libc::statx) -> c_int;
    statfs64(path: *const c_char, out: *mut statfs) -> c_int;
    fstatfs64(fd: c_int, out: *mut statfs) -> c_int;
    statvfs64(path: *const c_char, out: *mut statvfs) -> c_int;
    fstatvfs64(fd: c_int, out: *mut statvfs) -> c_int;
    access(path: *const c_char, mode: c_int) -> c_int;
    faccessat(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int;
    euidaccess(path: *const c_char, mode: c_int) -> c_int;
    opendir(path: *const c_char) -> *mut DIR;
    fdopendir(fd: c_int) -> *mut DIR;
    closedir(dir: *mut DIR) -> c_int;
    readdir64(dir: *mut DIR) -> *mut dirent;
    readdir64_r(dir: *mut DIR, entry: *mut dirent, out: *mut *mut dirent) -> c_int;
    rewinddir(dir: *mut DIR);
    seekdir(dir: *mut DIR, place: c_long);
    telldir(dir: *mut DIR) -> c_long;
    dirfd(dir: *mut DIR) -> c_int;
    getdents64(fd: c_int, out: *mut c_void, bytes: size_t) -> ssize_t;
    scandirat64(dir: c_int, path: *const c_char, out: *mut *mut *mut dirent, select: Callback, compare: Callback) -> c_int;
    mkdir(path: *const c_char, mode: mode_t) -> c_int;
    mkdirat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int;
    rmdir(path: *const c_char) -> c_int;
    unlink(path: *const c_char) -> c_int;
    unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    remove(path: *const c_char) -> c_int;
    rename(from: *const c_char, to: *const c_char) -> c_int;
    renameat2(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_uint) -> c_int;
    linkat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_int) -> c_int;
    symlinkat(target: *const c_char, dir: c_int, path: *const c_char) -> c_int;
    readlinkat(dir: c_int, path: *const c_char, out: *mut c_char, bytes: size_t) -> ssize_t;
    mknodat(dir: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int;
    fchmodat(dir: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int;
    fchmod(fd: c_int, mode: mode_t) -> c_int;
    fchownat(dir: c_int, path: *const c_char, uid: uid_t, gid: gid_t, flags: c_int) -> c_int;
    fchown(fd: c_int, uid: uid_t, gid: gid_t) -> c_int;
    utimensat(dir: c_int, path: *const c_char, times: *const timespec, flags: c_int) -> c_int;
    futimens(fd: c_int, times: *const timespec) -> c_int;
    utime(path: *const c_char, times: *const utimbuf) -> c_int;
    utimes(path: *const c_char, times: *const timeval) -> c_int;
    lutimes(path: *const c_char, times: *const timeval) -> c_int;
    futimes(fd: c_int, times: *const timeval) -> c_int;
    futimesat(dir: c_int, path: *const c_char, times: *const timeval) -> c_int;
    truncate64(path: *const c_char, size: off_t) -> c_int;
    ftruncate64(fd: c_int, size: off_t) -> c_int;
    setxattr(path: *const c_char, name: *const c_char, value: *const c_void, bytes: size_t, flags: c_int) -> c_int;
    lsetxattr(path: *const c_char, name: *const c_char, value: *const c_void, bytes: size_t, flags: c_int) -> c_int;
    fsetxattr(fd: c_int, name: *const c_char, value: *const c_void, bytes: size_t, flags: c_int) -> c_int;
    getxattr(path: *const c_char, name: *const c_char, out: *mut c_void, bytes: size_t) -> ssize_t;
    lgetxattr(path: *const c_char, name: *const c_char, out: *mut c_void, bytes: size_t) -> ssize_t;
    fgetxattr(fd: c_int, name: *const c_char, out: *mut c_void, bytes: size_t) -> ssize_t;
    listxattr(path: *const c_char, out: *mut c_char, bytes: size_t) -> ssize_t;
    llistxattr(path: *const c_char, out: *mut c_char, bytes: size_t) -> ssize_t;
    flistxattr(fd: c_int, out: *mut c_char, bytes: size_t) -> ssize_t;
    removexattr(path: *const c_char, name: *const c_char) -> c_int;
    lremovexattr(path: *const c_char, name: *const c_char) -> c_int;
    fremovexattr(fd: c_int, name: *const c_char) -> c_int;
    chdir(path: *const c_char) -> c_int;
    fchdir(fd: c_int) -> c_int;
    getcwd(out: *mut c_char, bytes: size_t) -> *mut c_char;
    realpath(path: *const c_char, out: *mut c_char) -> *mut c_char;
    umask(mask: mode_t) -> mode_t;
    dup(fd: c_int) -> c_int;
    dup2(fd: c_int, to: c_int) -> c_int;
    dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int;
    ioctl(fd: c_int, request: c_ulong, argument: c_ulong) -> c_int;
    flock(fd: c_int, operation: c_int) -> c_int;
    lockf64(fd: c_int, command: c_int, bytes: off_t) -> c_int;
    isatty(fd: c_int) -> c_int;
    fsync(fd: c_int) -> c_int;
    fdatasync(fd: c_int) -> c_int;
    syncfs(fd: c_int) -> c_int;
    sync_file_range(fd: c_int, offset: off_t, bytes: off_t, flags: c_uint) -> c_int;
    fallocate64(fd: c_int, mode: c_int, offset: off_t, bytes: off_t) -> c_int;
    posix_fallocate64(fd: c_int, offset: off_t, bytes: off_t) -> c_int;
    posix_fadvise64(fd: c_int, offset: off_t, bytes: off_t, advice: c_int) -> c_int;
    readahead(fd: c_int, offset: off_t, bytes: size_t) -> ssize_t;
    mmap64(address: *mut c_void, bytes: size_t, access: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void;
    poll(fds: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int;
    ppoll(fds: *mut libc::pollfd, count: libc::nfds_t, timeout: *const timespec, mask: *const libc::sigset_t) -> c_int;
    select(count: c_int, reads: *mut libc::fd_set, writes: *mut libc::fd_set, excepts: *mut libc::fd_set, timeout: *mut timeval) -> c_int;
    fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE;
    fdopen(fd: c_int, mode: *const c_char) -> *mut FILE;
    freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE;
    fclose(stream: *mut FILE) -> c_int;
    fileno(stream: *mut FILE) -> c_int;
    fgetwc(stream: *mut FILE) -> wint_t;
    fgetws(out: *mut libc::wchar_t, count: c_int, stream: *mut FILE) -> *mut libc::wchar_t;
    fputwc(wide: libc::wchar_t, stream: *mut FILE) -> wint_t;
    fputws(text: *const libc::wchar_t, stream: *mut FILE) -> c_int;
    mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int;
    mkdtemp(template: *mut c_char) -> *mut c_char;
    execve(path: *const c_char, arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int;
    execvpe(name: *const c_char, arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int;
    recvmsg(socket: c_int, message: *mut libc::msghdr, flags: c_int) -> ssize_t;
    sendmsg(socket: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t;
    fexecve(fd: c_int, arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int;
    posix_spawn(pid: *mut libc::pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int;
    posix_spawnp(pid: *mut libc::pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int;
    posix_spawn_file_actions_addopen(actions: *mut c_void, fd: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    posix_spawn_file_actions_adddup2(actions: *mut c_void, fd: c_int, to: c_int) -> c_int;
    posix_spawn_file_actions_destroy(actions: *mut c_void) -> c_int;
    fork() -> libc::pid_t;
    waitpid(pid: libc::pid_t, status: *mut c_int, options: c_int) -> libc::pid_t;
    wait(status: *mut c_int) -> libc::pid_t;
    wait3(status: *mut c_int, options: c_int, usage: *mut libc::rusage) -> libc::pid_t;
    wait4(pid: libc::pid_t, status: *mut c_int, options: c_int, usage: *mut libc::rusage) -> libc::pid_t;
    waitid(kind: libc::idtype_t, id: libc::id_t, info: *mut libc::siginfo_t, options: c_int) -> c_int;
    system(command: *const c_char) -> c_int;
    popen(command: *const c_char, mode: *const c_char) -> *mut FILE;
    sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
    signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t;
    glob64(pattern: *const c_char, flags: c_int, error: Callback, out: *mut libc::glob_t) -> c_int;
    nftw64(path: *const c_char, each: Callback, depth: c_int, flags: c_int) -> c_int;
    ftw64(path: *const c_char, each: Callback, depth: c_int) -> c_int;
    setuid(uid: uid_t) -> c_int;
    seteuid(uid: uid_t) -> c_int;
    setreuid(real: uid_t, effective: uid_t) -> c_int;
    setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int;
    setgid(gid: gid_t) -> c_int;
    setegid(gid: gid_t) -> c_int;
    setregid(real: gid_t, effective: gid_t) -> c_int;
    setresgid(real: gid_t, effective: gid_t, saved: gid_t) -> c_int;
    setgroups(count: size_t, list: *const gid_t) -> c_int;
    initgroups(user: *const c_char, group: gid_t) -> c_int;
}
