/* What the programs of this directory share: called as PROGRAM MODE DIR BYTES, they work in the
   directory with data that follow from their position. */
#ifndef PROGRAM_H
#define PROGRAM_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MUST(what) do { if (!(what)) { perror(#what); _exit(1); } } while (0)

static char *data;
static size_t bytes;

static inline int file(const char *name) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    MUST(fd >= 0);
    return fd;
}

/* Goes to the directory and makes the data; returns the mode. */
static inline const char *prepare(int argc, char **argv) {
    MUST(argc == 4 && chdir(argv[2]) == 0);
    bytes = strtoul(argv[3], NULL, 10);
    data = malloc(bytes);
    for (size_t at = 0; at < bytes; at++) data[at] = (char)(at * 7 + at / 251);
    return argv[1];
}
#endif
