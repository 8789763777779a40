/* Calls by number, splicing, leases and flags: what the kernel answers for its own files. */
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#ifndef SYS_faccessat2
#define SYS_faccessat2 439
#endif

int main(int argc, char **argv) {
    static char text[200000], back[200000];
    CHECK(argc == 3 && chdir(argv[1]) == 0);
    for (size_t at = 0; at < sizeof text; at++) text[at] = at % 251;

    /* By number. */
    int f = syscall(SYS_openat, AT_FDCWD, "f", O_RDWR | O_CREAT, 0640), g = open("g", O_RDWR | O_CREAT, 0600);
    CHECK(f >= 0 && g >= 0 && write(f, text, 100000) == 100000);
    off_t from = 10, to = 5;
    CHECK(syscall(SYS_copy_file_range, f, &from, g, &to, (size_t)5000, 0) == 5000 && from == 5010 && to == 5005);
    CHECK(pread(g, back, 6000, 5) == 5000 && memcmp(back, text + 10, 5000) == 0 && lseek(g, 0, SEEK_CUR) == 0);
    FAILS(syscall(SYS_copy_file_range, f, &from, g, &to, (size_t)5, 1), EINVAL);
    from = 0, to = 10;
    FAILS(syscall(SYS_copy_file_range, f, &from, f, &to, (size_t)20, 0), EINVAL);
    int appends = open("g", O_WRONLY | O_APPEND);
    FAILS(syscall(SYS_copy_file_range, f, &from, appends, NULL, (size_t)5, 0), EBADF);
    FAILS(copy_file_range(f, &from, appends, NULL, 5, 0), EBADF);
    struct statx more;
    CHECK(syscall(SYS_statx, AT_FDCWD, "f", 0, STATX_SIZE, &more) == 0 && more.stx_size == 100000);
    CHECK(syscall(SYS_renameat2, AT_FDCWD, "g", AT_FDCWD, "h", RENAME_NOREPLACE) == 0 && access("h", F_OK) == 0);
    CHECK(syscall(SYS_faccessat2, AT_FDCWD, "h", R_OK, 0) == 0);
    int dir = open(".", O_RDONLY | O_DIRECTORY);
    CHECK(syscall(SYS_getdents64, dir, back, sizeof back) > 0 && syscall(SYS_getdents64, dir, back, sizeof back) == 0);

    /* From a file into a pipe, no more than the pipe takes; and from a pipe into a file. */
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    from = 100;
    ssize_t put = splice(f, &from, pipes[1], NULL, sizeof text, 0);
    CHECK(put > 0 && put <= 65536 && from == 100 + put && lseek(f, 0, SEEK_CUR) == 100000);
    CHECK(read(pipes[0], back, put) == put && memcmp(back, text + 100, put) == 0);
    CHECK(lseek(f, 0, SEEK_SET) == 0 && splice(f, NULL, pipes[1], NULL, 300, SPLICE_F_MOVE) == 300 && lseek(f, 0, SEEK_CUR) == 300);
    CHECK(splice(pipes[0], NULL, g, NULL, 1000, 0) == 300 && lseek(g, 0, SEEK_CUR) == 300);
    CHECK(pread(g, back, 300, 0) == 300 && memcmp(back, text, 300) == 0);
    CHECK(write(pipes[1], "abc", 3) == 3);
    to = 7;
    CHECK(syscall(SYS_splice, pipes[0], NULL, g, &to, (size_t)10, 0) == 3 && to == 10 && pread(g, back, 3, 7) == 3 && memcmp(back, "abc", 3) == 0);
    FAILS(splice(pipes[0], NULL, g, NULL, 10, SPLICE_F_NONBLOCK), EAGAIN);
    FAILS(splice(f, NULL, g, NULL, 10, 0), EINVAL);
    FAILS(splice(f, NULL, pipes[1], &to, 10, 0), ESPIPE);
    FAILS(splice(f, NULL, pipes[1], NULL, 10, 0x1000), EINVAL);
    FAILS(splice(pipes[0], NULL, appends, NULL, 10, SPLICE_F_NONBLOCK), EINVAL);
    FAILS(splice(appends, NULL, pipes[1], NULL, 10, 0), EBADF);
    CHECK(lseek(f, 0, SEEK_END) == 100000 && splice(f, NULL, pipes[1], NULL, 10, 0) == 0);

    /* Flags that contradict each other, leases, and what only pipes have. */
    FAILS(open("new", O_RDWR | O_CREAT | O_DIRECTORY, 0600), EINVAL);
    FAILS(open(".", O_RDONLY | O_CREAT | O_DIRECTORY, 0600), EINVAL);
    FAILS(access("new", F_OK), ENOENT);
    CHECK(fcntl(f, F_GETLEASE) == F_UNLCK && open("f", O_RDONLY) >= 0);
    FAILS(fcntl(f, F_SETLEASE, F_WRLCK), EAGAIN);
    FAILS(fcntl(f, F_SETLEASE, F_RDLCK), EAGAIN);
    FAILS(fcntl(f, F_SETLEASE, F_UNLCK), EAGAIN);
    FAILS(fcntl(f, F_SETLEASE, 77), EINVAL);
    FAILS(fcntl(f, F_GETPIPE_SZ), EBADF);
    int name = open("f", O_PATH);
    FAILS(fcntl(name, F_SETFL, O_APPEND), EBADF);
    FAILS(fcntl(name, F_GETLEASE), EBADF);
    return 0;
}
