/* Programs that close everything, as daemons do, and reuse numbers.
   usage: descriptors MODE DIR BYTES */
#include "program.h"
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void put(const char *name) {
    int fd = file(name);
    MUST(write(fd, data, bytes) == (ssize_t)bytes);
    close(fd);
}

/* The number of the library's socket: the only one so high. */
static int library_socket(void) {
    for (int fd = 100; fd < 5000; fd++) {
        struct stat status;
        if (fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode)) {
            MUST(fcntl(fd, F_GETFD) & FD_CLOEXEC);
            return fd;
        }
    }
    MUST(!"there is no connection");
    return -1;
}

static void close_all(void) {
    put("one");
    library_socket();
    for (int fd = 3; fd < 5000; fd++) close(fd);
    put("two");
    MUST(close_range(3, ~0u, 0) == 0);
    put("three");
}

/* The library's number is given to a file, then to a socket of the program's. */
static void reuse(void) {
    put("one");
    int mine = file("mine");
    int number = library_socket();
    MUST(dup2(mine, number) == number);
    put("two");
    MUST(write(number, "still mine", 10) == 10);
    close(number);
    int ends[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    number = library_socket();
    MUST(dup2(ends[0], number) == number);
    put("three");
    char byte;
    MUST(recv(ends[1], &byte, 1, MSG_DONTWAIT) == -1);
    MUST(send(ends[1], "x", 1, 0) == 1 && recv(number, &byte, 1, 0) == 1);
}

static void daemonize(void) {
    put("one");
    int told[2];
    MUST(pipe(told) == 0);
    pid_t child = fork();
    if (child == 0) {
        setsid();
        if (fork() > 0) _exit(0);
        for (int fd = 0; fd < 5000; fd++) if (fd != told[1]) close(fd);
        MUST(open("/dev/null", O_RDWR) == 0 && dup(0) == 1 && dup(0) == 2);
        put("two");
        MUST(write(told[1], "x", 1) == 1);
        _exit(0);
    }
    MUST(waitpid(child, NULL, 0) == child);
    char byte;
    close(told[1]);
    MUST(read(told[0], &byte, 1) == 1);
}

int main(int argc, char **argv) {
    const char *mode = prepare(argc, argv);
    if (!strcmp(mode, "close-all")) close_all();
    else if (!strcmp(mode, "reuse")) reuse();
    else if (!strcmp(mode, "daemonize")) daemonize();
    else return 2;
    return 0;
}
