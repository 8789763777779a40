/* Classes and chunk sizes as attributes: of a directory set and taken away, of a file told. */
#include "check.h"
#include <sys/xattr.h>

#define CLASS "user.azekura.oclass"
#define CHUNK "user.azekura.chunk_size"

static int tells(const char *path, const char *name, const char *wanted) {
    char text[200] = {0};
    ssize_t length = getxattr(path, name, text, sizeof text - 1);
    return length == (ssize_t)strlen(wanted) && strcmp(text, wanted) == 0;
}

int main(int argc, char **argv) {
    char text[200];
    CHECK(argc == 3 && chdir(argv[1]) == 0 && mkdir("d", 0755) == 0);
    CHECK(tells("d", CLASS, "SX+1MiB") && tells("d", CHUNK, "1048576"));
    CHECK(setxattr("d", CLASS, "RP_2G1", 6, 0) == 0);
    int dir = open("d", O_RDONLY | O_DIRECTORY);
    CHECK(dir >= 0 && fsetxattr(dir, CHUNK, "64KiB", 5, 0) == 0);
    int fd = open("d/f", O_RDWR | O_CREAT | O_EXCL, 0644);
    CHECK(fd >= 0 && write(fd, "data", 4) == 4 && tells("d/f", CLASS, "RP_2G1") && tells("d/f", CHUNK, "65536"));
    CHECK(fgetxattr(fd, "user.azekura.layout", text, sizeof text) > 0 && listxattr("d", text, sizeof text) == 0);
    FAILS(setxattr("d/f", CLASS, "S1", 2, 0), EOPNOTSUPP);
    FAILS(setxattr("d", CLASS, "RP_9G1", 6, 0), EINVAL);
    FAILS(setxattr("d", CLASS, "RP_6G1", 6, 0), EINVAL);
    CHECK(removexattr("d", CLASS) == 0 && fremovexattr(dir, CHUNK) == 0);
    CHECK(tells("d", CLASS, "SX+1MiB") && tells("d", CHUNK, "1048576") && tells("d/f", CLASS, "RP_2G1"));
    CHECK(close(fd) == 0 && close(dir) == 0);
    return 0;
}
