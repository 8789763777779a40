//! The C library's functions that ours stand in front of, found when the library is loaded.

use libc::{c_char, c_int, c_uint, c_void, iovec, off_t, size_t, ssize_t};

/// A stream of standard I/O.
pub type Stream = *mut libc::FILE;

preload::real! {
    write(fd: c_int, data: *const c_void, bytes: size_t) -> ssize_t;
    pwrite(fd: c_int, data: *const c_void, bytes: size_t, offset: off_t) -> ssize_t;
    writev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    pwritev(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    pwritev2(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    read(fd: c_int, data: *mut c_void, bytes: size_t) -> ssize_t;
    pread(fd: c_int, data: *mut c_void, bytes: size_t, offset: off_t) -> ssize_t;
    readv(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    preadv(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    preadv2(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    __read_chk(fd: c_int, data: *mut c_void, bytes: size_t, room: size_t) -> ssize_t;
    __pread_chk(fd: c_int, data: *mut c_void, bytes: size_t, offset: off_t, room: size_t) -> ssize_t;
    copy_file_range(from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, bytes: size_t, flags: c_uint) -> ssize_t;
    sendfile(to: c_int, from: c_int, offset: *mut off_t, bytes: size_t) -> ssize_t;
    fwrite(data: *const c_void, size: size_t, count: size_t, stream: Stream) -> size_t;
    fwrite_unlocked(data: *const c_void, size: size_t, count: size_t, stream: Stream) -> size_t;
    fputs(text: *const c_char, stream: Stream) -> c_int;
    fputs_unlocked(text: *const c_char, stream: Stream) -> c_int;
    fflush(stream: Stream) -> c_int;
    fflush_unlocked(stream: Stream) -> c_int;
    fclose(stream: Stream) -> c_int;
    fread(data: *mut c_void, size: size_t, count: size_t, stream: Stream) -> size_t;
    fread_unlocked(data: *mut c_void, size: size_t, count: size_t, stream: Stream) -> size_t;
    __fread_chk(data: *mut c_void, room: size_t, size: size_t, count: size_t, stream: Stream) -> size_t;
    __fread_unlocked_chk(data: *mut c_void, room: size_t, size: size_t, count: size_t, stream: Stream) -> size_t;
}
