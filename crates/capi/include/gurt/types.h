/* Pieces of memory, lists of them, and ranks of engines. */
#ifndef AZK_GURT_TYPES_H
#define AZK_GURT_TYPES_H

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <byteswap.h>
#include <uuid/uuid.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef __cplusplus
/* Whether an expression has the type of a uuid_t, or of a string. */
#define d_is_uuid(var)                                                         \
	(__builtin_types_compatible_p(__typeof__(var), uuid_t) ||              \
	 __builtin_types_compatible_p(__typeof__(var), const uuid_t) ||        \
	 __builtin_types_compatible_p(__typeof__(var), unsigned char *) ||     \
	 __builtin_types_compatible_p(__typeof__(var), const unsigned char *))
#define d_is_string(var)                                                       \
	(__builtin_types_compatible_p(__typeof__(var), char *) ||              \
	 __builtin_types_compatible_p(__typeof__(var), const char *) ||        \
	 __builtin_types_compatible_p(__typeof__(var), char[]) ||              \
	 __builtin_types_compatible_p(__typeof__(var), const char[]))
#endif

struct d_uuid {
	uuid_t uuid;
};

/* One piece of memory. Sizes in bytes; the memory is the caller's. */
typedef struct {
	void *iov_buf;
	/* Room at iov_buf. */
	size_t iov_buf_len;
	/* Bytes in use, or to be transferred. */
	size_t iov_len;
} d_iov_t;

/* A list of pieces; sg_nr_out is set by functions that fill it. */
typedef struct {
	uint32_t sg_nr;
	uint32_t sg_nr_out;
	d_iov_t *sg_iovs;
} d_sg_list_t;

/* Rank of an engine in its system. */
typedef uint32_t d_rank_t;

typedef struct {
	d_rank_t *rl_ranks;
	uint32_t rl_nr;
} d_rank_list_t;

typedef d_rank_list_t *d_rank_list_ptr_t;

typedef struct {
	d_rank_t lo;
	d_rank_t hi;
} d_rank_range_t;

typedef struct {
	d_rank_range_t *rrl_ranges;
	uint32_t rrl_nr;
} d_rank_range_list_t;

typedef char *d_string_t;
typedef const char *d_const_string_t;

/* Makes `iov` stand for `size` bytes in use at `buf`. */
static inline void d_iov_set(d_iov_t *iov, void *buf, size_t size)
{
	iov->iov_buf = buf;
	iov->iov_buf_len = size;
	iov->iov_len = size;
}

#ifdef __cplusplus
}
#endif

#endif
