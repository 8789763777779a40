/* Sixteen threads, and signal handlers that use files meanwhile. */
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

static int shared, log_fd;
static volatile sig_atomic_t signals;

static void handler(int number) {
    (void)number;
    int before = errno;
    if (write(log_fd, "s", 1) != 1) _exit(3);
    signals++;
    errno = before;
}

static void *work(void *argument) {
    long number = (long)argument;
    char name[64], text[256], back[256];
    for (int round = 0; round < 12; round++) {
        snprintf(name, sizeof name, "t%ld-%d", number, round);
        int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        CHECK(fd >= 0);
        memset(text, 'a' + (int)(number % 26), sizeof text);
        CHECK(write(fd, text, sizeof text) == sizeof text && pread(fd, back, sizeof back, 0) == sizeof back);
        CHECK(memcmp(text, back, sizeof text) == 0 && close(fd) == 0);
        struct stat st;
        CHECK(stat(name, &st) == 0 && st.st_size == sizeof text);
        CHECK(write(shared, text, 100) == 100);
        if (round % 3 == 0) CHECK(unlink(name) == 0);
    }
    return NULL;
}

static void *sleeper(void *argument) {
    char byte;
    for (;;) pread(*(int *)argument, &byte, 1, 0);
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 3 && chdir(argv[1]) == 0);
    shared = open("shared", O_RDWR | O_CREAT, 0600);
    log_fd = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);
    CHECK(shared >= 0 && log_fd >= 0);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval often = {{0, 3000}, {0, 3000}}, never = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    pthread_t threads[16];
    for (long i = 0; i < 16; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < 16; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    while (!signals) pause();
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    struct stat st;
    /* Threads that share a descriptor write one behind the other. */
    CHECK(fstat(shared, &st) == 0 && st.st_size == 16 * 12 * 100 && lseek(shared, 0, SEEK_CUR) == st.st_size);
    CHECK(fstat(log_fd, &st) == 0 && st.st_size >= 1);
    char line[100];
    for (off_t at = 0; at < 16 * 12 * 100; at += 100) {
        CHECK(pread(shared, line, 100, at) == 100);
        for (int i = 1; i < 100; i++) CHECK(line[i] == line[0]);
    }
    pthread_t victim;
    CHECK(pthread_create(&victim, NULL, sleeper, &shared) == 0);
    usleep(20000);
    CHECK(pthread_cancel(victim) == 0 && pthread_join(victim, NULL) == 0);
    CHECK(pread(shared, line, 1, 0) == 1);
    return 0;
}
