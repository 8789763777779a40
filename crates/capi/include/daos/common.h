/* Small helpers that programs take from DAOS: clocks, and lists of memory. */
#ifndef AZK_DAOS_COMMON_H
#define AZK_DAOS_COMMON_H

#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <daos_errno.h>
#include <daos_obj.h>
#include <daos_types.h>
#include <daos/debug.h>
#include <gurt/common.h>
#include <gurt/hash.h>
#include <gurt/list.h>

#ifdef __cplusplus
extern "C" {
#endif

#define daos_errno2der d_errno2der

/* Seconds since the epoch; times since some moment. Not in strict C, which has no such clocks. */
#ifdef CLOCK_MONOTONIC_COARSE
static inline uint64_t daos_wallclock_secs(void)
{
	struct timespec now;

	return clock_gettime(CLOCK_REALTIME, &now) == 0 ? (uint64_t)now.tv_sec : 0;
}

static inline uint64_t daos_getutime(void)
{
	struct timespec now;

	if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
		return 0;
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static inline uint64_t daos_getntime_coarse(void)
{
	struct timespec now;

	if (clock_gettime(CLOCK_MONOTONIC_COARSE, &now) != 0)
		return 0;
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline uint64_t daos_getmtime_coarse(void)
{
	return daos_getntime_coarse() / 1000000;
}

static inline uint64_t daos_gettime_coarse(void)
{
	return daos_getntime_coarse() / 1000000000;
}

#endif

/* A list of `nr` pieces, without memory in them. 0 or -DER_NOMEM. */
static inline int daos_sgl_init(d_sg_list_t *sgl, unsigned int nr)
{
	sgl->sg_nr = nr;
	sgl->sg_nr_out = 0;
	sgl->sg_iovs = NULL;
	if (nr == 0)
		return 0;
	sgl->sg_iovs = (d_iov_t *)calloc(nr, sizeof(*sgl->sg_iovs));
	return sgl->sg_iovs == NULL ? -DER_NOMEM : 0;
}

/* Frees the pieces and, if asked, the memory in them. */
static inline void daos_sgl_fini(d_sg_list_t *sgl, bool free_iovs)
{
	uint32_t at;

	if (sgl == NULL || sgl->sg_iovs == NULL)
		return;
	for (at = 0; free_iovs && at < sgl->sg_nr; at++)
		free(sgl->sg_iovs[at].iov_buf);
	free(sgl->sg_iovs);
	memset(sgl, 0, sizeof(*sgl));
}

/* Bytes of room, and bytes held, of all pieces. */
static inline daos_size_t daos_sgl_buf_size(d_sg_list_t *sgl)
{
	daos_size_t bytes = 0;
	uint32_t at;

	for (at = 0; sgl != NULL && sgl->sg_iovs != NULL && at < sgl->sg_nr; at++)
		bytes += sgl->sg_iovs[at].iov_buf_len;
	return bytes;
}

static inline daos_size_t daos_sgl_data_len(d_sg_list_t *sgl)
{
	daos_size_t bytes = 0;
	uint32_t at;

	for (at = 0; sgl != NULL && sgl->sg_iovs != NULL && at < sgl->sg_nr; at++)
		bytes += sgl->sg_iovs[at].iov_len;
	return bytes;
}

/* True when both keys are the same bytes. */
static inline bool daos_key_match(const daos_key_t *one, const daos_key_t *other)
{
	return one->iov_len == other->iov_len &&
	       (one->iov_len == 0 || memcmp(one->iov_buf, other->iov_buf, one->iov_len) == 0);
}

static inline void daos_iov_free(d_iov_t *iov)
{
	if (iov == NULL)
		return;
	free(iov->iov_buf);
	memset(iov, 0, sizeof(*iov));
}

/* A deep copy, with memory of its own. 0 or -DER_NOMEM. */
static inline int daos_iov_copy(d_iov_t *to, d_iov_t *from)
{
	memset(to, 0, sizeof(*to));
	if (from->iov_buf_len == 0)
		return 0;
	to->iov_buf = malloc(from->iov_buf_len);
	if (to->iov_buf == NULL)
		return -DER_NOMEM;
	to->iov_buf_len = from->iov_buf_len;
	to->iov_len = from->iov_len;
	memcpy(to->iov_buf, from->iov_buf, from->iov_len);
	return 0;
}

#ifdef __cplusplus
}
#endif

#endif
