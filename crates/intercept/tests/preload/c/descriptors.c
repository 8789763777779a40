/* Descriptors: numbers, duplicates, flags, closing everything, sending. */
#include "check.h"
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

static void send_fd(int socket, int fd) {
    char byte = 'x', room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(part), &fd, sizeof fd);
    CHECK(sendmsg(socket, &message, 0) == 1);
}

static int receive_fd(int socket) {
    char byte, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    int fd;
    CHECK(recvmsg(socket, &message, 0) == 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

int main(int argc, char **argv) {
    char text[16] = {0};
    CHECK(argc == 3 && chdir(argv[1]) == 0);
    int zero = open("/dev/null", O_RDONLY), a = open("a", O_RDWR | O_CREAT, 0600), b = open("b", O_RDWR | O_CREAT, 0600);
    CHECK(a == zero + 1 && b == a + 1);
    CHECK(close(a) == 0 && open("a", O_RDWR) == a);
    int c = dup(a);
    CHECK(c == b + 1 && write(a, "abc", 3) == 3 && lseek(c, 0, SEEK_CUR) == 3 && write(c, "d", 1) == 1);
    CHECK(dup2(a, b) == b && lseek(b, 0, SEEK_CUR) == 4 && dup2(a, a) == a && close(a) == 0 && pread(b, text, 9, 0) == 4);
    FAILS(read(a, text, 1), EBADF);
    FAILS(dup2(a, b), EBADF);
    CHECK(dup3(c, a, O_CLOEXEC) == a && fcntl(a, F_GETFD) == FD_CLOEXEC && fcntl(c, F_GETFD) == 0);
    FAILS(dup3(a, a, 0), EINVAL);
    int high = fcntl(c, F_DUPFD, 200), high2 = fcntl(c, F_DUPFD_CLOEXEC, 200);
    CHECK(high >= 200 && high2 > high && fcntl(high2, F_GETFD) == FD_CLOEXEC && pread(high, text, 9, 0) == 4);
    CHECK(fcntl(c, F_SETFL, O_APPEND) == 0 && fcntl(high, F_GETFL) & O_APPEND);
    int n = dup2(zero, high);
    CHECK(n == high && read(high, text, 1) == 0 && dup2(c, zero) == zero && pread(zero, text, 9, 0) == 4);

    /* What a daemon does at its start must not end our connections. */
    for (int fd = 3; fd < 1024; fd++) close(fd);
    CHECK((a = open("a", O_RDWR)) == 3 && read(a, text, 9) == 4 && memcmp(text, "abcd", 4) == 0);
    CHECK(close_range(3, ~0U, 0) == 0 && (a = open("a", O_RDWR)) == 3 && read(a, text, 9) == 4);
    closefrom(3);
    CHECK((a = open("a", O_RDWR)) == 3 && read(a, text, 9) == 4);
    for (int fd = 4; fd < 1024; fd++) CHECK(fcntl(fd, F_GETFD) == -1 && errno == EBADF);

    struct rlimit few = {16, 16};
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    int count = 0;
    while ((b = open("a", O_RDONLY)) >= 0) count++;
    CHECK(errno == EMFILE && count >= 10);
    closefrom(4);

    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && lseek(a, 1, SEEK_SET) == 1);
    pid_t child = fork();
    if (child == 0) {
        int got = receive_fd(pair[1]);
        CHECK(read(got, text, 2) == 2 && memcmp(text, "bc", 2) == 0);
        _exit(0);
    }
    b = open("a", O_RDONLY);
    CHECK(lseek(b, 1, SEEK_SET) == 1);
    send_fd(pair[0], b);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0 && lseek(b, 0, SEEK_CUR) == 3);
    return 0;
}
