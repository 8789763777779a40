/* Names: making, linking, renaming, removing; what they lead to. */
#include "check.h"

int main(int argc, char **argv) {
    char path[PATH_MAX], text[PATH_MAX];
    struct stat st, other;
    CHECK(argc == 3 && mkdir("nothing-to-do-with-us", 0755) == 0 && rmdir("nothing-to-do-with-us") == 0);
    CHECK(chdir(argv[1]) == 0 && getcwd(text, sizeof text) && strcmp(text, argv[1]) == 0);
    umask(027);
    CHECK(mkdir("d", 0777) == 0 && stat("d", &st) == 0 && (st.st_mode & 0777) == 0750);
    umask(022);
    int dir = open("d", O_RDONLY | O_DIRECTORY);
    CHECK(mkdirat(dir, "e", 0755) == 0 && symlinkat("../d/e", dir, "l") == 0 && readlinkat(dir, "l", text, sizeof text) == 6);
    CHECK(readlink("d/l", text, 3) == 3 && memcmp(text, "../", 3) == 0);
    FAILS(readlink("d", text, 3), EINVAL);
    int fd = openat(dir, "f", O_CREAT | O_RDWR, 0644);
    CHECK(fd >= 0 && write(fd, "x", 1) == 1 && link("d/f", "d/l/g") == 0 && fstat(fd, &st) == 0 && st.st_nlink == 2);
    CHECK(stat("d/e/g", &other) == 0 && other.st_ino == st.st_ino);
    FAILS(link("d", "dd"), EPERM);
    FAILS(link("d/f", "d/e/g"), EEXIST);
    FAILS(symlink("x", "d/l"), EEXIST);
    FAILS(symlink("", "empty"), ENOENT);

    CHECK(rename("d/f", "d/h") == 0 && fstat(fd, &st) == 0 && st.st_nlink == 2 && fchmod(fd, 0600) == 0);
    CHECK(stat("d/h", &other) == 0 && (other.st_mode & 0777) == 0600);
    CHECK(renameat(dir, "h", AT_FDCWD, "top") == 0 && renameat2(AT_FDCWD, "top", dir, "h", RENAME_NOREPLACE) == 0);
    CHECK(mknod("fifo", S_IFIFO | 0600, 0) == 0 && mkfifo("fifo2", 0600) == 0 && stat("fifo", &st) == 0 && S_ISFIFO(st.st_mode));
    CHECK(renameat2(AT_FDCWD, "fifo", dir, "h", RENAME_EXCHANGE) == 0 && stat("fifo", &st) == 0 && S_ISREG(st.st_mode));
    FAILS(renameat2(AT_FDCWD, "fifo", dir, "h", RENAME_NOREPLACE), EEXIST);
    FAILS(rename("d", "d/e/x"), EINVAL);
    FAILS(rename("d/e", "d"), ENOTEMPTY);
    FAILS(rename("fifo", "d"), EISDIR);
    FAILS(rename("d", "fifo"), ENOTDIR);
    FAILS(rename("nope", "x"), ENOENT);
    snprintf(path, sizeof path, "%s/x", argv[2]);
    FAILS(rename("fifo", path), EXDEV);
    FAILS(link("fifo", path), EXDEV);

    FAILS(rmdir("d"), ENOTEMPTY);
    FAILS(rmdir("fifo"), ENOTDIR);
    FAILS(rmdir("d/."), EINVAL);
    FAILS(unlink("d"), EISDIR);
    FAILS(unlink("nope"), ENOENT);
    FAILS(unlinkat(dir, "e", 0), EISDIR);
    FAILS(mkdir("d", 0755), EEXIST);
    FAILS(mkdir("fifo/x", 0755), ENOTDIR);
    memset(text, 'n', 300);
    text[300] = 0;
    FAILS(mkdir(text, 0755), ENAMETOOLONG);
    FAILS(stat(text, &st), ENAMETOOLONG);
    memset(text, '/', 4000);
    for (int i = 0; i < 4090; i += 2) memcpy(text + i, "d/", 2);
    text[4095] = 0;
    strcpy(text + 4090, "xxxxx");
    FAILS(stat(text, &st), ENOENT);

    CHECK(realpath("d/l/g", text) == text);
    snprintf(path, sizeof path, "%s/d/e/g", argv[1]);
    CHECK(strcmp(text, path) == 0);
    char *made = realpath("d/../d/l/..", NULL);
    snprintf(path, sizeof path, "%s/d", argv[1]);
    CHECK(made && strcmp(made, path) == 0);
    free(made);
    CHECK(realpath("nope", NULL) == NULL && errno == ENOENT);
    made = canonicalize_file_name("d");
    CHECK(made && strcmp(made, path) == 0);
    free(made);

    CHECK(chdir("d/l") == 0);
    made = getcwd(NULL, 0);
    snprintf(path, sizeof path, "%s/d/e", argv[1]);
    CHECK(made && strcmp(made, path) == 0 && access("g", F_OK) == 0 && access("../h", F_OK) == 0);
    free(made);
    CHECK(getcwd(text, 3) == NULL && errno == ERANGE);
    CHECK(fchdir(dir) == 0 && access("h", F_OK) == 0 && chdir("..") == 0 && access("d/h", F_OK) == 0);
    CHECK(chdir(argv[2]) == 0 && access("d", F_OK) != 0 && chdir(argv[1]) == 0);
    CHECK(remove("d/e/g") == 0 && remove("d/e") == 0 && unlinkat(dir, "l", 0) == 0 && unlinkat(dir, "h", 0) == 0);
    CHECK(rmdir("d") == 0);
    FAILS(openat(dir, "x", O_CREAT | O_RDWR, 0600), ENOENT);
    return 0;
}
