/* What the programs of this directory share: a check that says where it failed. */
#ifndef CHECK_H
#define CHECK_H
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, strerror(errno)); \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

#define FAILS(call, error)                                                                 \
    do {                                                                                   \
        errno = 0;                                                                         \
        long result_ = (long)(call);                                                       \
        if (result_ != -1 || errno != (error)) {                                           \
            fprintf(stderr, "%s:%d: %s: %ld, %s\n", __FILE__, __LINE__, #call, result_, strerror(errno)); \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)
#endif
