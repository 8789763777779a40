/* Every function of the write and read families once, on more bytes than ask and on fewer.
   usage: calls DIR BYTES. The files' contents follow from their names; the test compares. */
#include "program.h"
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

/* Data in three pieces. */
static struct iovec *pieces(void) {
    static struct iovec all[3];
    size_t third = bytes / 3;
    all[0] = (struct iovec){data, third};
    all[1] = (struct iovec){data + third, third};
    all[2] = (struct iovec){data + 2 * third, bytes - 2 * third};
    return all;
}

static void large(void) {
    ssize_t all = (ssize_t)bytes;
    errno = 77;
    MUST(write(file("write"), data, bytes) == all);
    MUST(pwrite(file("pwrite"), data, bytes, 0) == all);
    MUST(pwrite64(file("pwrite64"), data, bytes, 0) == all);
    MUST(writev(file("writev"), pieces(), 3) == all);
    MUST(pwritev(file("pwritev"), pieces(), 3, 0) == all);
    MUST(pwritev64(file("pwritev64"), pieces(), 3, 0) == all);
    MUST(pwritev2(file("pwritev2"), pieces(), 3, 0, 0) == all);
    MUST(pwritev64v2(file("pwritev64v2"), pieces(), 3, -1, 0) == all);
    int source = open("write", O_RDONLY);
    off_t from = 0;
    MUST(copy_file_range(source, &from, file("copy_file_range"), NULL, 1 << 30, 0) == all);
    MUST(from == all);
    MUST(sendfile(file("sendfile"), source, NULL, 1 << 30) == all);
    MUST(errno == 77);
}

static void reads(void) {
    char *room = malloc(2 * bytes);
    ssize_t all = (ssize_t)bytes;
    int fd = open("write", O_RDONLY);
    struct iovec two[2] = {{room, 10}, {room + 10, 2 * bytes - 10}};
#define SAME(call) do { memset(room, 0, 2 * bytes); MUST((call) == all); \
        MUST(memcmp(room, data, bytes) == 0); MUST(lseek(fd, 0, SEEK_SET) == 0); } while (0)
    SAME(read(fd, room, bytes));
    SAME(read(fd, room, 2 * bytes));
    SAME(pread(fd, room, bytes, 0));
    SAME(pread64(fd, room, bytes, 0));
    SAME(readv(fd, two, 2));
    SAME(preadv(fd, two, 2, 0));
    SAME(preadv64(fd, two, 2, 0));
    SAME(preadv2(fd, two, 2, 0, 0));
    SAME(preadv64v2(fd, two, 2, -1, 0));
    /* At the end there is nothing to ask for, nor in a small file. */
    MUST(lseek(fd, 0, SEEK_END) == all && read(fd, room, bytes) == 0);
    MUST(read(open("small", O_RDONLY), room, bytes) == 10);
}

static void others(void) {
    int ends[2];
    MUST(pipe2(ends, O_NONBLOCK) == 0);
    MUST(write(ends[1], data, bytes) > 0);
    MUST(write(open("/dev/null", O_WRONLY), data, bytes) == (ssize_t)bytes);
    MUST(write(file("small"), data, 10) == 10);
    MUST(write(file("empty"), data, 0) == 0);
    MUST(write(-1, data, bytes) == -1 && errno == EBADF);
    MUST(write(4000, data, bytes) == -1 && errno == EBADF);
    MUST(writev(file("none"), pieces(), -1) == -1 && errno == EINVAL);
    MUST(write(open("small", O_RDONLY), data, bytes) == -1 && errno == EBADF);
}

/* A write that fails half-way and one that fails at once, with the system's own errno. */
static void limits(void) {
    struct rlimit limit = {bytes / 2, bytes / 2};
    int fd = file("limited");
    MUST(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    MUST(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    MUST(write(fd, data, bytes) == (ssize_t)(bytes / 2));
    errno = 0;
    MUST(write(fd, data, bytes) == -1 && errno == EFBIG);
}

int main(int argc, char **argv) {
    const char *mode = prepare(argc, argv);
    if (!strcmp(mode, "large")) large();
    else if (!strcmp(mode, "others")) others();
    else if (!strcmp(mode, "limits")) limits();
    else if (!strcmp(mode, "reads")) { others(); large(); reads(); }
    else return 2;
    return 0;
}
