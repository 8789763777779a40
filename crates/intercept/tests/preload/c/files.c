/* Reading, writing, examining, by every form of a call. */
#include "check.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <utime.h>

static char big[3 << 20], back[3 << 20];

int main(int argc, char **argv) {
    CHECK(argc == 3 && chdir(argv[1]) == 0);
    int fd = open("f", O_RDWR | O_CREAT | O_EXCL, 0640);
    CHECK(fd >= 0);
    FAILS(open("f", O_RDWR | O_CREAT | O_EXCL, 0640), EEXIST);
    CHECK(write(fd, "hello", 5) == 5 && pwrite(fd, "HE", 2, 0) == 2);
    struct iovec pieces[3] = {{" wor", 4}, {"", 0}, {"ld", 2}};
    CHECK(writev(fd, pieces, 3) == 6 && lseek(fd, 0, SEEK_CUR) == 11);
    char text[64] = {0};
    CHECK(pread(fd, text, sizeof text, 0) == 11 && strcmp(text, "HEllo world") == 0);
    CHECK(lseek(fd, -5, SEEK_END) == 6 && read(fd, text, 3) == 3 && memcmp(text, "wor", 3) == 0);
    char a[4] = {0}, b[8] = {0};
    struct iovec into[2] = {{a, 3}, {b, 7}};
    CHECK(preadv(fd, into, 2, 2) == 9 && memcmp(a, "llo", 3) == 0 && memcmp(b, " world", 6) == 0);
    CHECK(preadv2(fd, into, 1, -1, 0) == 2 && lseek(fd, 0, SEEK_CUR) == 11);
    CHECK(pwritev2(fd, pieces, 1, 20, 0) == 4 && lseek(fd, 0, SEEK_END) == 24);
    CHECK(pwritev(fd, pieces, 3, 30) == 6 && read(fd, text, 1) == 1 && text[0] == 0);
    CHECK(read(fd, text, 0) == 0 && write(fd, text, 0) == 0);
    FAILS(lseek(fd, -1, SEEK_SET), EINVAL);
    FAILS(lseek(fd, 0, 99), EINVAL);
    FAILS(pread(fd, text, 1, -1), EINVAL);
    FAILS(readv(fd, into, -1), EINVAL);
    FAILS(readv(fd, into, 2000), EINVAL);
    CHECK(lseek(fd, 1000, SEEK_SET) == 1000 && read(fd, text, 5) == 0);
    CHECK(lseek(fd, 5, SEEK_DATA) >= 5 && lseek(fd, 0, SEEK_HOLE) > 0);
    FAILS(lseek(fd, 4000, SEEK_DATA), ENXIO);

    struct stat st, st2;
    CHECK(fstat(fd, &st) == 0 && stat("f", &st2) == 0 && st.st_ino == st2.st_ino && st.st_dev == st2.st_dev);
    CHECK(S_ISREG(st.st_mode) && (st.st_mode & 07777) == 0640 && st.st_size == 36 && st.st_nlink == 1);
    CHECK(fstatat(AT_FDCWD, "f", &st2, 0) == 0 && st2.st_size == 36 && fstatat(fd, "", &st2, AT_EMPTY_PATH) == 0);
    struct statx stx;
    CHECK(statx(AT_FDCWD, "f", 0, STATX_BASIC_STATS, &stx) == 0 && stx.stx_size == 36 && stx.stx_ino == st.st_ino);
    CHECK(statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &stx) == 0 && stx.stx_size == 36);
    struct statfs sfs;
    struct statvfs svfs;
    CHECK(statfs("f", &sfs) == 0 && sfs.f_bsize > 0 && fstatfs(fd, &sfs) == 0 && sfs.f_blocks > 0);
    CHECK(statvfs(".", &svfs) == 0 && svfs.f_namemax == 255 && fstatvfs(fd, &svfs) == 0);
    CHECK(access("f", R_OK | W_OK) == 0 && faccessat(AT_FDCWD, "f", F_OK, 0) == 0 && euidaccess("f", R_OK) == 0);
    FAILS(access("nope", F_OK), ENOENT);
    FAILS(access("f", X_OK), EACCES);

    CHECK(ftruncate(fd, 4) == 0 && truncate("f", 8) == 0 && fstat(fd, &st) == 0 && st.st_size == 8);
    CHECK(pread(fd, text, 64, 0) == 8 && memcmp(text, "HEll\0\0\0\0", 8) == 0);
    FAILS(ftruncate(fd, -1), EINVAL);
    CHECK(fchmod(fd, 0600) == 0 && chmod("f", 0644) == 0 && fchmodat(AT_FDCWD, "f", 0604, 0) == 0);
    CHECK(fchown(fd, -1, -1) == 0 && chown("f", getuid(), getgid()) == 0 && lchown("f", -1, getgid()) == 0);
    struct timespec times[2] = {{1, 2}, {3, 4}};
    CHECK(futimens(fd, times) == 0 && fstat(fd, &st) == 0 && st.st_mtim.tv_nsec == 4 && st.st_atim.tv_sec == 1);
    times[0].tv_nsec = UTIME_OMIT;
    times[1].tv_sec = -5;
    CHECK(utimensat(AT_FDCWD, "f", times, 0) == 0 && stat("f", &st) == 0 && st.st_mtim.tv_sec == -5 && st.st_atim.tv_sec == 1);
    struct timeval tv[2] = {{7, 8}, {9, 10}};
    CHECK(utimes("f", tv) == 0 && futimes(fd, tv) == 0 && lutimes("f", tv) == 0 && stat("f", &st) == 0 && st.st_mtim.tv_nsec == 10000);
    struct utimbuf old = {11, 12};
    CHECK(utime("f", &old) == 0 && stat("f", &st) == 0 && st.st_mtime == 12 && utime("f", NULL) == 0);
    CHECK((st.st_mode & 07777) == 0604);

    CHECK(setxattr("f", "user.a", "value", 5, 0) == 0 && getxattr("f", "user.a", text, 64) == 5 && memcmp(text, "value", 5) == 0);
    CHECK(fsetxattr(fd, "user.b", "", 0, XATTR_CREATE) == 0 && fgetxattr(fd, "user.b", text, 64) == 0 && getxattr("f", "user.a", NULL, 0) == 5);
    FAILS(lsetxattr("f", "user.a", "x", 1, XATTR_CREATE), EEXIST);
    FAILS(getxattr("f", "user.a", text, 2), ERANGE);
    FAILS(lgetxattr("f", "user.none", text, 2), ENODATA);
    CHECK(listxattr("f", text, 64) == 14 && llistxattr("f", NULL, 0) == 14 && flistxattr(fd, text, 64) == 14);
    CHECK(removexattr("f", "user.a") == 0 && fremovexattr(fd, "user.b") == 0);
    FAILS(lremovexattr("f", "user.a"), ENODATA);

    CHECK(fsync(fd) == 0 && fdatasync(fd) == 0 && sync_file_range(fd, 0, 0, 0) == 0 && syncfs(fd) == 0);
    CHECK(posix_fallocate(fd, 0, 100) == 0 && fstat(fd, &st) == 0 && st.st_size == 100);
    CHECK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 500) == 0 && fstat(fd, &st) == 0 && st.st_size == 100);
    CHECK(pwrite(fd, "0123456789", 10, 0) == 10);
    CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2, 3) == 0 && pread(fd, text, 10, 0) == 10 && memcmp(text, "01\0\0\0" "56789", 10) == 0);
    CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL) == 0);

    for (size_t i = 0; i < sizeof big; i++) big[i] = (char)(i * 7 + i / 4096);
    int two = creat("g", 0600);
    CHECK(two >= 0 && write(two, big, sizeof big) == sizeof big);
    FAILS(read(two, back, 1), EBADF);
    CHECK(close(two) == 0);
    FAILS(write(two, "x", 1), EBADF);
    two = open("g", O_RDONLY);
    FAILS(write(two, "x", 1), EBADF);
    FAILS(ftruncate(two, 1), EINVAL);
    CHECK(read(two, back, sizeof back) == sizeof back && memcmp(big, back, sizeof big) == 0);

    char *map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, two, 4096);
    CHECK(map != MAP_FAILED && memcmp(map, big + 4096, 8192) == 0);
    map[0] = 'x';
    CHECK(munmap(map, 8192) == 0 && pread(two, text, 1, 4096) == 1 && text[0] == big[4096]);
    map = mmap(NULL, sizeof big, PROT_READ, MAP_SHARED, two, 0);
    CHECK(map != MAP_FAILED && memcmp(map, big, sizeof big) == 0 && munmap(map, sizeof big) == 0);
    FAILS(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, two, 0), EACCES);
    FAILS(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), ENODEV);

    int out = open("h", O_RDWR | O_CREAT | O_TRUNC, 0600);
    off_t from = 100, to = 50;
    CHECK(copy_file_range(two, &from, out, &to, 5000, 0) == 5000 && from == 5100 && to == 5050);
    CHECK(pread(out, back, 5000, 50) == 5000 && memcmp(back, big + 100, 5000) == 0);
    CHECK(lseek(two, 0, SEEK_SET) == 0 && sendfile(out, two, NULL, 2000000) == 2000000 && lseek(out, 0, SEEK_CUR) == 2000000);
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/kernel", argv[2]);
    int kernel = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    from = 0;
    CHECK(kernel >= 0 && sendfile(kernel, two, &from, sizeof big) == sizeof big && from == sizeof big);
    CHECK(lseek(kernel, 0, SEEK_SET) == 0 && copy_file_range(kernel, NULL, out, NULL, 777, 0) == 777);
    FAILS(splice(two, NULL, out, NULL, 10, 0), EINVAL);

    int ap = open("ap", O_WRONLY | O_CREAT | O_APPEND, 0600);
    CHECK(write(ap, "one", 3) == 3 && lseek(ap, 0, SEEK_SET) == 0 && write(ap, "two", 3) == 3 && lseek(ap, 0, SEEK_CUR) == 6);
    CHECK(fcntl(ap, F_GETFL) & O_APPEND && (fcntl(ap, F_GETFL) & O_ACCMODE) == O_WRONLY);
    CHECK(fcntl(ap, F_SETFL, 0) == 0 && lseek(ap, 0, SEEK_SET) == 0 && write(ap, "ONE", 3) == 3 && stat("ap", &st) == 0 && st.st_size == 6);

    struct pollfd pfd[2] = {{fd, POLLIN | POLLOUT, 0}, {-1, 0, 0}};
    CHECK(poll(pfd, 2, -1) == 1 && pfd[0].revents == (POLLIN | POLLOUT));
    fd_set reads;
    FD_ZERO(&reads);
    FD_SET(fd, &reads);
    CHECK(select(fd + 1, &reads, NULL, NULL, NULL) == 1 && FD_ISSET(fd, &reads));
    struct epoll_event event = {EPOLLIN, {0}};
    int ep = epoll_create1(0);
    FAILS(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event), EPERM);
    CHECK(!isatty(fd) && errno == ENOTTY);

    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 10};
    CHECK(fcntl(fd, F_SETLK, &lock) == 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
    lock.l_type = F_UNLCK;
    CHECK(fcntl(fd, F_SETLK, &lock) == 0 && flock(fd, LOCK_UN) == 0 && lockf(fd, F_TLOCK, 5) == 0);

    int hole = open("hole", O_RDWR | O_CREAT, 0600);
    CHECK(pwrite(hole, "x", 1, 2 << 20) == 1 && lseek(hole, 0, SEEK_DATA) == 2 << 20 && lseek(hole, 0, SEEK_HOLE) == 0);
    int nameless = open(".", O_TMPFILE | O_RDWR, 0600);
    CHECK(nameless >= 0 && write(nameless, "body", 4) == 4 && fstat(nameless, &st) == 0 && st.st_nlink == 0);
    char number[64];
    snprintf(number, sizeof number, "/proc/self/fd/%d", nameless);
    CHECK(linkat(AT_FDCWD, number, AT_FDCWD, "named", AT_SYMLINK_FOLLOW) == 0 && stat("named", &st) == 0 && st.st_size == 4);

    CHECK(unlink("f") == 0 && fstat(fd, &st) == 0 && st.st_nlink == 0 && pread(fd, text, 2, 0) == 2 && text[1] == '1');
    CHECK(pwrite(fd, "still", 5, 0) == 5 && pread(fd, text, 5, 0) == 5 && close(fd) == 0);

    char name[] = "tmpXXXXXX", suffixed[] = "tmpXXXXXX.c", dir[] = "dirXXXXXX";
    CHECK((fd = mkstemp(name)) >= 0 && strcmp(name, "tmpXXXXXX") && stat(name, &st) == 0 && (st.st_mode & 0777) == 0600);
    CHECK(mkostemps(suffixed, 2, O_CLOEXEC) >= 0 && mkdtemp(dir) == dir && stat(dir, &st) == 0 && (st.st_mode & 0777) == 0700);
    FAILS(mkstemp(path), EINVAL);
    int dirfd = open(".", O_RDONLY | O_DIRECTORY);
    FAILS(read(dirfd, text, 1), EISDIR);
    FAILS(open(".", O_RDWR), EISDIR);
    FAILS(open("g", O_RDONLY | O_DIRECTORY), ENOTDIR);
    FAILS(open("", O_RDONLY), ENOENT);
    FAILS(openat(dirfd, "g/x", O_RDONLY), ENOTDIR);
    FAILS(openat(two, "x", O_RDONLY), ENOTDIR);
    CHECK((fd = openat(dirfd, "g", O_RDONLY | O_NOFOLLOW)) >= 0 && (ap = open("g", O_PATH)) >= 0);
    FAILS(read(ap, text, 1), EBADF);
    CHECK(fstat(ap, &st) == 0 && st.st_size == sizeof big);
    return 0;
}
