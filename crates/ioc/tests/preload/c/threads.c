/* Threads, processes, and threads that do not come back.
   usage: threads MODE DIR BYTES */
#include "program.h"
#include <pthread.h>
#include <sys/wait.h>

static void *writer(void *number) {
    char name[32];
    snprintf(name, sizeof name, "thread%ld", (long)number);
    int fd = file(name);
    for (int round = 0; round < 5; round++) MUST(write(fd, data, bytes) == (ssize_t)bytes);
    close(fd);
    return NULL;
}

static void threads(void) {
    pthread_t all[8];
    for (long at = 0; at < 8; at++) MUST(!pthread_create(&all[at], NULL, writer, (void *)at));
    for (int at = 0; at < 8; at++) MUST(!pthread_join(all[at], NULL));
}

/* The parent has a connection when it forks; child and grandchild make their own. */
static void forks(void) {
    MUST(write(file("parent"), data, bytes) == (ssize_t)bytes);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        MUST(write(file("child"), data, bytes) == (ssize_t)bytes);
        pid_t grandchild = fork();
        MUST(grandchild >= 0);
        if (grandchild == 0) {
            MUST(write(file("grandchild"), data, bytes) == (ssize_t)bytes);
            _exit(0);
        }
        int status;
        MUST(waitpid(grandchild, &status, 0) == grandchild && status == 0);
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    MUST(write(file("parent2"), data, bytes) == (ssize_t)bytes);
}

/* Leaves a child behind that only ends when its standard input does. The parent dies within a
   call, killed by the test. */
static void orphan(void) {
    MUST(write(file("before"), data, bytes) == (ssize_t)bytes);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        char byte;
        while (read(0, &byte, 1) > 0) {}
        _exit(0);
    }
    MUST(write(file("after"), data, bytes) == (ssize_t)bytes);
}

static void *cancelled(void *unused) {
    int fd = file("cancelled");
    for (;;) write(fd, data, bytes);
    return unused;
}

/* A thread is cancelled somewhere in its calls; its permission must not be lost. */
static void cancel(void) {
    for (int round = 0; round < 20; round++) {
        pthread_t thread;
        void *result;
        MUST(!pthread_create(&thread, NULL, cancelled, NULL));
        usleep((useconds_t)(round * 500));
        MUST(!pthread_cancel(thread));
        MUST(!pthread_join(thread, &result) && result == PTHREAD_CANCELED);
    }
    MUST(write(file("main"), data, bytes) == (ssize_t)bytes);
}

int main(int argc, char **argv) {
    const char *mode = prepare(argc, argv);
    if (!strcmp(mode, "threads")) threads();
    else if (!strcmp(mode, "forks")) forks();
    else if (!strcmp(mode, "orphan")) orphan();
    else if (!strcmp(mode, "cancel")) cancel();
    else return 2;
    return 0;
}
