/* Locks of descriptions that processes share, and of processes that end. */
#include "check.h"
#include <sys/file.h>
#include <sys/wait.h>

static void wait_for(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 3 && chdir(argv[1]) == 0);
    int fd = open("f", O_RDWR | O_CREAT, 0600), other = open("f", O_RDWR);
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 10};

    /* What a process held is free when it has ended, in whatever way it ends. */
    for (int way = 0; way < 4; way++) {
        pid_t child = fork();
        if (child == 0) {
            int own = open("f", O_RDWR);
            CHECK(flock(own, LOCK_EX | LOCK_NB) == 0 && fcntl(own, F_SETLK, &range) == 0);
            if (way == 0) _exit(0);
            if (way == 1) _Exit(0);
            if (way == 2) exit(0);
            execlp("true", "true", NULL);
        }
        wait_for(child);
        if (way == 3) continue;
        CHECK(flock(other, LOCK_EX | LOCK_NB) == 0 && fcntl(other, F_SETLK, &range) == 0);
        range.l_type = F_UNLCK;
        CHECK(flock(other, LOCK_UN) == 0 && fcntl(other, F_SETLK, &range) == 0);
        range.l_type = F_WRLCK;
    }
    CHECK(flock(other, LOCK_EX) == 0 && flock(other, LOCK_UN) == 0);

    /* A child that locks what it shares locks it for its parent, and has it from its parent. */
    pid_t child = fork();
    if (child == 0) {
        CHECK(flock(fd, LOCK_EX | LOCK_NB) == 0);
        FAILS(flock(other, LOCK_EX | LOCK_NB), EWOULDBLOCK);
        _exit(0);
    }
    wait_for(child);
    CHECK(flock(fd, LOCK_EX | LOCK_NB) == 0);
    FAILS(flock(other, LOCK_SH | LOCK_NB), EWOULDBLOCK);
    child = fork();
    if (child == 0) {
        CHECK(flock(fd, LOCK_SH | LOCK_NB) == 0 && flock(other, LOCK_SH | LOCK_NB) == 0 && flock(other, LOCK_UN) == 0);
        CHECK(flock(fd, LOCK_UN) == 0 && flock(other, LOCK_EX | LOCK_NB) == 0);
        _exit(0);
    }
    wait_for(child);
    FAILS(flock(fd, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    CHECK(flock(other, LOCK_UN) == 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);

    /* The lock lasts as long as one process has the description. */
    int go[2];
    char byte;
    CHECK(pipe(go) == 0);
    child = fork();
    if (child == 0) {
        CHECK(close(go[1]) == 0 && read(go[0], &byte, 1) == 0);
        _exit(0);
    }
    CHECK(close(fd) == 0);
    FAILS(flock(other, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    CHECK(sleep(3) == 0);
    FAILS(flock(other, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    CHECK(close(go[1]) == 0);
    wait_for(child);
    CHECK(flock(other, LOCK_EX | LOCK_NB) == 0 && close(other) == 0);

    /* Ranges of a description are its processes' together. */
    fd = open("f", O_RDWR), other = open("f", O_RDWR);
    CHECK(fcntl(fd, F_OFD_SETLK, &range) == 0);
    child = fork();
    if (child == 0) {
        CHECK(fcntl(fd, F_OFD_SETLK, &range) == 0);
        FAILS(fcntl(other, F_OFD_SETLK, &range), EAGAIN);
        range.l_type = F_UNLCK;
        CHECK(fcntl(fd, F_OFD_SETLK, &range) == 0);
        _exit(0);
    }
    wait_for(child);
    CHECK(fcntl(other, F_OFD_SETLK, &range) == 0);

    /* They stay when the process that took them has ended: as long as one has the description. The
     * pause is longer than servers wait for a client that has gone. */
    range.l_type = F_UNLCK;
    CHECK(fcntl(other, F_OFD_SETLK, &range) == 0);
    range.l_type = F_WRLCK;
    for (int round = 0; round < 2; round++) {
        range.l_start = 20 * round;
        child = fork();
        if (child == 0) {
            CHECK(fcntl(fd, F_OFD_SETLK, &range) == 0);
            _exit(0);
        }
        wait_for(child);
        FAILS(fcntl(other, F_OFD_SETLK, &range), EAGAIN);
    }
    CHECK(sleep(3) == 0);
    FAILS(fcntl(other, F_OFD_SETLK, &range), EAGAIN);
    range.l_start = 0;
    FAILS(fcntl(other, F_OFD_SETLK, &range), EAGAIN);
    CHECK(close(fd) == 0 && fcntl(other, F_OFD_SETLK, &range) == 0);

    /* Record locks of a process that is killed are free, without any call of its own. */
    CHECK(close(other) == 0);
    int ready[2];
    CHECK(pipe(ready) == 0);
    child = fork();
    if (child == 0) {
        int own = open("f", O_RDWR);
        CHECK(fcntl(own, F_SETLK, &range) == 0 && write(ready[1], "", 1) == 1);
        for (;;) pause();
    }
    char done;
    CHECK(read(ready[0], &done, 1) == 1);
    fd = open("f", O_RDWR);
    FAILS(fcntl(fd, F_SETLK, &range), EAGAIN);
    CHECK(kill(child, SIGKILL) == 0 && fcntl(fd, F_SETLKW, &range) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    return 0;
}
