/* The limit of file sizes: what is written before it, and the signal behind it. */
#include "check.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/uio.h>

static volatile int signals;

static void count(int signal) {
    signals += signal == SIGXFSZ;
}

#define HITS(call)                                          \
    do {                                                    \
        signals = 0;                                        \
        FAILS(call, EFBIG);                                 \
        CHECK(signals == 1);                                \
    } while (0)

int main(int argc, char **argv) {
    static char text[4000];
    struct stat st;
    CHECK(argc == 3 && chdir(argv[1]) == 0 && signal(SIGXFSZ, count) != SIG_ERR);
    int before = open("before", O_RDWR | O_CREAT, 0600);
    CHECK(before >= 0 && write(before, text, 4000) == 4000);
    struct rlimit limit = {1000, 1000};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    int f = open("f", O_RDWR | O_CREAT, 0600), a = open("f", O_WRONLY | O_APPEND);
    CHECK(write(f, text, 990) == 990 && write(f, text, 20) == 10 && lseek(f, 0, SEEK_CUR) == 1000 && signals == 0);
    HITS(write(f, text, 1));
    HITS(write(a, text, 1));
    HITS(pwrite(f, text, 1, 5000));
    CHECK(write(f, text, 0) == 0 && pwrite(f, text, 9, 100) == 9 && ftruncate(f, 900) == 0);
    struct iovec pieces[3] = {{text, 60}, {text, 60}, {text, 60}};
    CHECK(writev(a, pieces, 3) == 100 && fstat(f, &st) == 0 && st.st_size == 1000);
    HITS(ftruncate(f, 1001));
    HITS(truncate("f", 1001));
    CHECK(ftruncate(f, 1000) == 0 && truncate("before", 3000) == 0);
    HITS(write(before, text, 1));
    CHECK(pwrite(before, text, 10, 995) == 5 && fstat(before, &st) == 0 && st.st_size == 3000);
    signals = 0;
    CHECK(posix_fallocate(f, 0, 2000) == EFBIG && signals == 1 && posix_fallocate(f, 0, 1000) == 0);
    CHECK(lseek(f, 0, SEEK_SET) == 0 && lseek(before, 995, SEEK_SET) == 995);
    CHECK(copy_file_range(f, NULL, before, NULL, 100, 0) == 5);
    HITS(copy_file_range(f, NULL, before, NULL, 100, 0));
    return 0;
}
