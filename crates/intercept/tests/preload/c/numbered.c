/* Paths that name a descriptor: what opens, examines and changes by them. */
#include "check.h"
#include <dirent.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>

static char path[64];

static const char *named(const char *form, int fd) {
    if (strstr(form, "%d/"))
        snprintf(path, sizeof path, form, (int)getpid(), fd);
    else
        snprintf(path, sizeof path, form, fd);
    return path;
}

int main(int argc, char **argv) {
    const char *forms[] = {"/dev/fd/%d", "/proc/self/fd/%d", "/proc/thread-self/fd/%d", "/proc/%d/fd/%d", "//proc/./self//fd/%d"};
    char text[PATH_MAX] = {0}, want[PATH_MAX];
    struct stat one, two, sub;
    CHECK(argc == 3 && chdir(argv[1]) == 0 && mkdir("d", 0700) == 0);
    int inner = open("d/inner", O_RDWR | O_CREAT, 0600), dir = open("d", O_RDONLY | O_DIRECTORY);
    CHECK(write(inner, "inner", 5) == 5 && fstat(inner, &sub) == 0);
    for (int at = 0; at < 5; at++) {
        int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0640);
        const char *name = named(forms[at], fd);
        CHECK(fd > 2 && write(fd, "0123456789", 10) == 10 && fstat(fd, &one) == 0);

        /* A description of its own: offset, mode, and what the flags say. */
        int again = open(name, O_RDONLY);
        CHECK(again >= 0 && read(again, text, 4) == 4 && memcmp(text, "0123", 4) == 0 && lseek(fd, 0, SEEK_CUR) == 10);
        FAILS(write(again, "x", 1), EBADF);
        CHECK(close(again) == 0);
        again = openat(AT_FDCWD, name, O_WRONLY | O_APPEND | O_CREAT, 0600);
        CHECK(again >= 0 && write(again, "ab", 2) == 2 && pread(fd, text, 20, 0) == 12 && close(again) == 0);
        again = creat(name, 0600);
        CHECK(again >= 0 && fstat(fd, &two) == 0 && two.st_size == 0 && two.st_ino == one.st_ino && close(again) == 0);
        FAILS(open(name, O_RDONLY | O_NOFOLLOW), ELOOP);
        FAILS(open(name, O_RDWR | O_CREAT | O_EXCL, 0600), EEXIST);
        FAILS(open(name, O_RDONLY | O_DIRECTORY), ENOTDIR);
        again = open(name, O_PATH);
        CHECK(again >= 0 && fstat(again, &two) == 0 && two.st_ino == one.st_ino);
        FAILS(read(again, text, 1), EBADF);
        CHECK(close(again) == 0);

        /* Streams. */
        FILE *stream = fopen(name, "w");
        CHECK(stream && fputs("stream", stream) >= 0 && fclose(stream) == 0 && pread(fd, text, 20, 0) == 6);
        stream = fopen(name, "r");
        CHECK(stream && fgets(text, 20, stream) && !strcmp(text, "stream") && fclose(stream) == 0);

        /* Attributes. */
        struct statx more;
        struct statvfs space;
        CHECK(stat(name, &two) == 0 && two.st_ino == one.st_ino && S_ISREG(two.st_mode) && two.st_size == 6);
        CHECK(fstatat(AT_FDCWD, name, &two, 0) == 0 && two.st_ino == one.st_ino && two.st_dev == one.st_dev);
        CHECK(statx(AT_FDCWD, name, 0, STATX_BASIC_STATS, &more) == 0 && more.stx_ino == one.st_ino);
        CHECK(lstat(name, &two) == 0 && S_ISLNK(two.st_mode) && two.st_ino != one.st_ino);
        CHECK(statvfs(name, &space) == 0 && space.f_namemax > 0 && access(name, R_OK | W_OK) == 0);
        if (geteuid() != 0) FAILS(access(name, X_OK), EACCES);
        CHECK(chmod(name, 0604) == 0 && fstat(fd, &two) == 0 && (two.st_mode & 07777) == 0604);
        CHECK(chown(name, -1, getegid()) == 0 && truncate(name, 3) == 0 && fstat(fd, &two) == 0 && two.st_size == 3);
        struct timespec times[2] = {{7, 8}, {9, 10}};
        CHECK(utimensat(AT_FDCWD, name, times, 0) == 0 && fstat(fd, &two) == 0 && two.st_mtim.tv_sec == 9 && two.st_mtim.tv_nsec == 10);
        CHECK(setxattr(name, "user.a", "v", 1, 0) == 0 && getxattr(name, "user.a", text, 9) == 1 && text[0] == 'v');

        /* The link itself says where the file is. */
        snprintf(want, sizeof want, "%s/f", argv[1]);
        ssize_t bytes = readlink(name, text, sizeof text);
        CHECK(bytes == (ssize_t)strlen(want) && memcmp(text, want, bytes) == 0);
        CHECK(realpath(name, text) && !strcmp(text, want));
        CHECK(linkat(AT_FDCWD, name, AT_FDCWD, "linked", AT_SYMLINK_FOLLOW) == 0 && unlink("linked") == 0);

        /* Without a name. */
        CHECK(unlink("f") == 0);
        again = open(name, O_RDWR);
        CHECK(again >= 0 && write(again, "GONE", 4) == 4 && pread(fd, text, 9, 0) == 4 && memcmp(text, "GONE", 4) == 0);
        bytes = readlink(name, text, sizeof text);
        CHECK(bytes > 10 && memcmp(text + bytes - 10, " (deleted)", 10) == 0);
        CHECK(close(fd) == 0 && pread(again, text, 9, 0) == 4 && close(again) == 0);
        FAILS(open(name, O_RDONLY), ENOENT);

        /* Through a directory. */
        snprintf(want, sizeof want, "%s/inner", named(forms[at], dir));
        CHECK(stat(want, &two) == 0 && two.st_ino == sub.st_ino && lstat(want, &two) == 0 && two.st_ino == sub.st_ino);
        CHECK(rename(want, "d/other") == 0 && rename("d/other", want) == 0);
        DIR *list = opendir(path);
        CHECK(list && readdir(list) && closedir(list) == 0);
        snprintf(want, sizeof want, "%s/x", named(forms[at], inner));
        FAILS(open(want, O_RDONLY), ENOTDIR);
        snprintf(want, sizeof want, "%s/", named(forms[at], inner));
        FAILS(open(want, O_RDONLY), ENOTDIR);
    }

    /* As the standard input, by all the names it has, and by a link outside that leads there. */
    CHECK(dup2(inner, 0) == 0 && snprintf(want, sizeof want, "%s/link", argv[2]) > 0 && symlink("/dev/stdin", want) == 0);
    const char *names[] = {"/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", want};
    for (int at = 0; at < 4; at++) {
        int again = open(names[at], O_RDONLY);
        CHECK(again >= 0 && read(again, text, 9) == 5 && memcmp(text, "inner", 5) == 0 && close(again) == 0);
    }
    FAILS(unlink("/proc/self/fd/0"), EPERM);
    FAILS(mkdir("/dev/stdin", 0700), EEXIST);

    /* After a fork, when the descriptor is one that other processes share. */
    pid_t child = fork();
    if (child == 0) {
        int again = open("/dev/stdin", O_WRONLY);
        CHECK(again >= 0 && write(again, "child", 5) == 5);
        /* Without the library nothing is taken or given. */
        FAILS(syscall(SYS_open, "/dev/stdin", O_RDONLY), ENXIO);
        FAILS(syscall(SYS_open, "/dev/stdin", O_RDWR | O_TRUNC), ENXIO);
        FAILS(syscall(SYS_read, 0, text, 1), EBADF);
        FAILS(syscall(SYS_write, 0, text, 1), EBADF);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    FAILS(syscall(SYS_open, "/dev/stdin", O_RDWR | O_TRUNC), ENXIO);
    CHECK(pread(inner, text, 9, 0) == 5 && memcmp(text, "child", 5) == 0);
    return 0;
}
