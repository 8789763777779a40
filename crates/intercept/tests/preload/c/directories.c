/* Listing directories, by every form of a call. */
#include "check.h"
#include <dirent.h>
#include <ftw.h>
#include <glob.h>

static int seen, depth_max;

static int visit(const char *path, const struct stat *st, int kind, struct FTW *place) {
    CHECK(path[place->base - 1] == '/' || place->level == 0);
    CHECK(kind == FTW_F || kind == FTW_D || kind == FTW_DP || kind == FTW_SL);
    CHECK(kind != FTW_F || S_ISREG(st->st_mode));
    seen++;
    if (place->level > depth_max) depth_max = place->level;
    return 0;
}

static int only_numbered(const struct dirent *entry) { return entry->d_name[0] == 'n'; }

int main(int argc, char **argv) {
    CHECK(argc == 3 && chdir(argv[1]) == 0 && mkdir("d", 0755) == 0 && mkdir("d/sub", 0755) == 0);
    char name[64];
    for (int i = 0; i < 2500; i++) {
        snprintf(name, sizeof name, "d/n%04d", i);
        CHECK(mknod(name, S_IFREG | 0644, 0) == 0);
    }
    CHECK(symlink("sub", "d/link") == 0);
    DIR *dir = opendir("d");
    CHECK(dir);
    struct dirent *entry;
    int files = 0, dots = 0, others = 0;
    long middle = -1;
    char after[256] = "";
    static char have[2500];
    while ((entry = readdir(dir))) {
        struct stat st;
        CHECK(fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0);
        if (entry->d_name[0] == '.') {
            dots++;
            CHECK(entry->d_type == DT_DIR);
        } else if (entry->d_name[0] == 'n') {
            CHECK(entry->d_type == DT_REG && st.st_ino == entry->d_ino && !have[atoi(entry->d_name + 1)]);
            have[atoi(entry->d_name + 1)] = 1;
            files++;
        } else {
            CHECK(entry->d_type == (entry->d_name[0] == 's' ? DT_DIR : DT_LNK));
            others++;
        }
        if (middle >= 0 && !after[0]) strcpy(after, entry->d_name);
        if (files == 1200 && middle < 0) middle = telldir(dir);
    }
    CHECK(files == 2500 && dots == 2 && others == 2);
    seekdir(dir, middle);
    CHECK((entry = readdir(dir)) && strcmp(entry->d_name, after) == 0);
    rewinddir(dir);
    CHECK((entry = readdir(dir)) && strcmp(entry->d_name, ".") == 0);
    rewinddir(dir);
    seekdir(dir, middle);
    CHECK((entry = readdir(dir)) && strcmp(entry->d_name, after) == 0);
    CHECK(closedir(dir) == 0);

    int fd = open("d", O_RDONLY | O_DIRECTORY);
    char room[4096];
    int records = 0;
    ssize_t got;
    while ((got = getdents64(fd, room, sizeof room)) > 0)
        for (char *at = room; at < room + got; at += ((struct dirent64 *)at)->d_reclen) records++;
    CHECK(got == 0 && records == 2504);
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && getdents64(fd, room, sizeof room) > 0 && lseek(fd, 0, SEEK_SET) == 0);
    dir = fdopendir(fd);
    CHECK(dir && dirfd(dir) == fd);
    struct dirent kept, *result;
    int count = 0;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    while (readdir_r(dir, &kept, &result) == 0 && result) count++;
#pragma GCC diagnostic pop
    CHECK(count == 2504 && closedir(dir) == 0);
    CHECK(opendir("nope") == NULL && errno == ENOENT);
    CHECK(opendir("d/n0001") == NULL && errno == ENOTDIR);

    struct dirent **list;
    int chosen = scandir("d", &list, only_numbered, alphasort);
    CHECK(chosen == 2500 && strcmp(list[0]->d_name, "n0000") == 0 && strcmp(list[2499]->d_name, "n2499") == 0);
    for (int i = 0; i < chosen; i++) free(list[i]);
    free(list);
    glob_t found;
    CHECK(glob("d/n00*5", 0, NULL, &found) == 0 && found.gl_pathc == 10 && strcmp(found.gl_pathv[1], "d/n0015") == 0);
    globfree(&found);
    snprintf(room, sizeof room, "%s/*/s?b", argv[1]);
    CHECK(glob(room, GLOB_MARK, NULL, &found) == 0 && found.gl_pathc == 1 && strstr(found.gl_pathv[0], "d/sub/"));
    globfree(&found);
    CHECK(glob("/etc/host*", 0, NULL, &found) == 0 && found.gl_pathc >= 1);
    globfree(&found);
    CHECK(nftw(argv[1], visit, 10, FTW_PHYS) == 0 && seen == 2504 && depth_max == 2);
    seen = 0;
    CHECK(nftw("/etc/default", visit, 10, FTW_PHYS | FTW_DEPTH) == 0 && seen > 0);
    return 0;
}
