/* Files on a mount: what the library cannot do, the kernel does there. */
#include "check.h"
#include <sys/mman.h>
#include <sys/wait.h>

static int has(int fd, off_t at, const char *want) {
    char text[64] = {0};
    size_t bytes = strlen(want);
    return pread(fd, text, bytes, at) == (ssize_t)bytes && memcmp(text, want, bytes) == 0;
}

int main(int argc, char **argv) {
    static char block[8192];
    CHECK(argc == 3 && chdir(argv[1]) == 0);
    memset(block, 'a', sizeof block);
    int fd = open("f", O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && write(fd, block, sizeof block) == sizeof block);

    /* A shared mapping that writes. */
    char *map = mmap(NULL, sizeof block, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && map[0] == 'a' && map[8191] == 'a');
    memcpy(map + 4096, "mapped", 6);
    CHECK(msync(map, sizeof block, MS_SYNC) == 0 && has(fd, 4096, "mapped"));
    /* Two processes share it. */
    pid_t pid = fork();
    if (pid == 0) {
        memcpy(map + 100, "child", 5);
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0 && memcmp(map + 100, "child", 5) == 0);
    CHECK(msync(map, sizeof block, MS_SYNC) == 0 && munmap(map, sizeof block) == 0);
    CHECK(has(fd, 100, "child"));
    /* What was written since is seen by the next mapping. */
    CHECK(pwrite(fd, "written", 7, 200) == 7);
    map = mmap(NULL, sizeof block, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && memcmp(map + 200, "written", 7) == 0 && munmap(map, sizeof block) == 0);

    /* It is found where it was moved to. */
    CHECK(rename("f", "g") == 0);
    map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && memcmp(map + 200, "written", 7) == 0 && munmap(map, 4096) == 0);
    /* Another file that has its path now is not taken for it. */
    CHECK(unlink("g") == 0);
    int other = open("g", O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(other >= 0 && write(other, "another file", 12) == 12);
    FAILS(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), ENODEV);
    map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(map != MAP_FAILED && memcmp(map + 200, "written", 7) == 0 && munmap(map, 4096) == 0);

    /* A pipe is the kernel's. */
    CHECK(mkfifo("pipe", 0600) == 0);
    int both = open("pipe", O_RDWR);
    char text[5] = {0};
    CHECK(both >= 0 && write(both, "pipe", 4) == 4 && read(both, text, 4) == 4 && !strcmp(text, "pipe"));
    CHECK(close(both) == 0 && close(other) == 0 && close(fd) == 0);
    CHECK(open("null", O_RDWR) == -1 && errno == ENOENT);
    return 0;
}
