/* Fork, vfork, exec and spawn with open files. */
#include "check.h"
#include <sys/file.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

static int wait_for(pid_t pid) {
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

static void contains(const char *path, const char *want) {
    char text[4096] = {0};
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) >= 0 && close(fd) == 0);
    if (strcmp(text, want)) {
        fprintf(stderr, "%s holds '%s', not '%s'\n", path, text, want);
        exit(1);
    }
}

int main(int argc, char **argv) {
    char text[64] = {0};
    if (argc == 4 && !strcmp(argv[3], "inherited")) {
        /* 7 was inherited: it stands where the parent left it, and has no name any more. */
        CHECK(read(7, text, 3) == 3 && memcmp(text, "def", 3) == 0 && write(7, "G", 1) == 1);
        return 0;
    }
    CHECK(argc == 3 && chdir(argv[1]) == 0);
    int fd = open("f", O_RDWR | O_CREAT, 0600);
    CHECK(write(fd, "abcdefghi", 9) == 9 && lseek(fd, 0, SEEK_SET) == 0 && read(fd, text, 1) == 1);

    pid_t pid = fork();
    if (pid == 0) {
        CHECK(read(fd, text, 2) == 2 && memcmp(text, "bc", 2) == 0);
        int own = open("child", O_WRONLY | O_CREAT, 0600);
        CHECK(own >= 0 && write(own, "child", 5) == 5);
        pid_t grand = fork();
        if (grand == 0) {
            CHECK(write(own, "grand", 5) == 5);
            _exit(0);
        }
        CHECK(wait_for(grand) == 0 && write(own, "end", 3) == 3);
        _exit(0);
    }
    CHECK(wait_for(pid) == 0 && lseek(fd, 0, SEEK_CUR) == 3);
    contains("child", "childgrandend");

    CHECK(unlink("f") == 0 && dup2(fd, 7) == 7);
    pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", argv[0], argv[1], argv[2], "inherited", NULL);
        _exit(9);
    }
    CHECK(wait_for(pid) == 0 && lseek(fd, 0, SEEK_CUR) == 7 && pread(fd, text, 1, 6) == 1 && text[0] == 'G');

    pid = vfork();
    if (pid == 0) {
        int out = open("vforked", O_WRONLY | O_CREAT, 0600);
        dup2(out, 1);
        close(fd);
        execlp("echo", "echo", "by vfork", NULL);
        _exit(9);
    }
    CHECK(wait_for(pid) == 0 && pread(fd, text, 1, 6) == 1);
    contains("vforked", "by vfork\n");

    posix_spawn_file_actions_t actions;
    char *arguments[] = {"cat", "-", "here", NULL};
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawn_file_actions_addopen(&actions, 0, "vforked", O_RDONLY, 0) == 0);
    CHECK(posix_spawn_file_actions_addopen(&actions, 1, "spawned", O_WRONLY | O_CREAT | O_TRUNC, 0600) == 0);
    int here = open("here", O_RDWR | O_CREAT, 0600);
    CHECK(write(here, "relative\n", 9) == 9);
    CHECK(posix_spawnp(&pid, "cat", &actions, NULL, arguments, environ) == 0 && wait_for(pid) == 0);
    CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
    contains("spawned", "by vfork\nrelative\n");

    CHECK(system("echo by system > sys; cat here >> sys; pwd >> sys") == 0);
    snprintf(text, sizeof text, "by system\nrelative\n%s\n", argv[1]);
    contains("sys", text);
    FILE *pipe = popen("cat sys | wc -l", "r");
    CHECK(pipe && fgets(text, sizeof text, pipe) && atoi(text) == 3 && pclose(pipe) == 0);

    /* Locks are the process's: a child is somebody else, and they end with the process. */
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 4};
    CHECK(fcntl(here, F_SETLK, &lock) == 0);
    pid = fork();
    if (pid == 0) {
        FAILS(fcntl(here, F_SETLK, &lock), EAGAIN);
        struct flock other = lock;
        CHECK(fcntl(here, F_GETLK, &other) == 0 && other.l_type == F_WRLCK && other.l_pid == getppid() && other.l_len == 4);
        other.l_start = 4;
        other.l_type = F_WRLCK;
        CHECK(fcntl(here, F_SETLK, &other) == 0);
        _exit(0);
    }
    CHECK(wait_for(pid) == 0);
    lock.l_len = 8;
    CHECK(fcntl(here, F_SETLKW, &lock) == 0);
    lock.l_type = F_UNLCK;
    CHECK(fcntl(here, F_SETLK, &lock) == 0);

    /* An environment without anything, as some programs give their children. */
    char *nothing[] = {NULL}, *list[] = {"sh", "-c", "cat here > bare; exec cat <&7 > seven", NULL};
    pid = fork();
    if (pid == 0) {
        lseek(7, 0, SEEK_SET);
        execve("/bin/sh", list, nothing);
        _exit(9);
    }
    CHECK(wait_for(pid) == 0);
    contains("bare", "relative\n");
    contains("seven", "abcdefGhi");
    return 0;
}
