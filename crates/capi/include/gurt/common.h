/* Memory, locks, hashes, lists of ranks, lists of pieces of memory, the environment. */
#ifndef AZK_GURT_COMMON_H
#define AZK_GURT_COMMON_H

#include <daos_errno.h>
#include <gurt/debug.h>
#include <gurt/types.h>

/* Whether the compiler knows a warning, or is GCC of at least this version. */
#ifndef D_HAS_WARNING
#ifdef __has_warning
#define D_HAS_WARNING(gcc_version, warning) __has_warning(warning)
#elif defined(__GNUC__)
#define D_HAS_WARNING(gcc_version, warning) ((gcc_version) <= __GNUC__)
#else
#define D_HAS_WARNING(gcc_version, warning) 0
#endif
#endif

#ifndef NSEC_PER_SEC
#define NSEC_PER_SEC 1000000000
#endif
#ifndef NSEC_PER_MSEC
#define NSEC_PER_MSEC 1000000
#endif
#ifndef NSEC_PER_USEC
#define NSEC_PER_USEC 1000
#endif

#ifdef __cplusplus
extern "C" {
#endif

#ifndef likely
#define likely(x) __builtin_expect(!!(x), 1)
#endif
#ifndef unlikely
#define unlikely(x) __builtin_expect(!!(x), 0)
#endif
#ifndef container_of
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))
#endif
#ifndef ARRAY_SIZE
#define ARRAY_SIZE(arr) (sizeof(arr) / sizeof((arr)[0]))
#endif
#ifndef MIN
#define MIN(a, b) (((a) < (b)) ? (a) : (b))
#endif
#ifndef MAX
#define MAX(a, b) (((a) > (b)) ? (a) : (b))
#endif
#define D_ALIGNUP(x, a) (((x) + ((a) - 1)) & ~((a) - 1))
#define D_SWAP16(x) bswap_16(x)
#define D_SWAP32(x) bswap_32(x)
#define D_SWAP64(x) bswap_64(x)
#define D_SWAP16S(x) (*(x) = D_SWAP16(*(x)))
#define D_SWAP32S(x) (*(x) = D_SWAP32(*(x)))
#define D_SWAP64S(x) (*(x) = D_SWAP64(*(x)))

/* Memory of malloc(): free() and d_free() both take it. NULL if there is none. */
void d_free(void *ptr);
void *d_calloc(size_t nmemb, size_t size) __attribute__((malloc, alloc_size(1, 2)));
void *d_malloc(size_t size) __attribute__((malloc, alloc_size(1)));
void *d_realloc(void *ptr, size_t size) __attribute__((alloc_size(2)));
/* A copy of at most `n` bytes of a string, zero-terminated. */
char *d_strndup(const char *s, size_t n) __attribute__((malloc));
void *d_aligned_alloc(size_t alignment, size_t size, bool zero) __attribute__((malloc, alloc_size(2)));

/* Formats into new memory: its length in `*len` and the text, or -1 and NULL. */
static inline char *d_asprintf2(int *len, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline char *d_asprintf2(int *len, const char *fmt, ...)
{
	va_list args;
	char *text = NULL;

	va_start(args, fmt);
	*len = vsnprintf(NULL, 0, fmt, args);
	va_end(args);
	if (*len >= 0)
		text = (char *)d_malloc((size_t)*len + 1);
	if (text == NULL) {
		*len = -1;
		return NULL;
	}
	va_start(args, fmt);
	*len = vsnprintf(text, (size_t)*len + 1, fmt, args);
	va_end(args);
	return text;
}

/* New memory for `ptr`: zeroed, or not (_NZ). `ptr` is NULL if there is none. */
#define D_ALLOC(ptr, size) ((ptr) = (__typeof__(ptr))d_calloc(1, (size)))
#define D_ALLOC_NZ(ptr, size) ((ptr) = (__typeof__(ptr))d_malloc((size)))
#define D_ALLOC_PTR(ptr) D_ALLOC(ptr, sizeof(*(ptr)))
#define D_ALLOC_PTR_NZ(ptr) D_ALLOC_NZ(ptr, sizeof(*(ptr)))
#define D_ALLOC_ARRAY(ptr, count) ((ptr) = (__typeof__(ptr))d_calloc((count), sizeof(*(ptr))))
#define D_ALLOC_ARRAY_NZ(ptr, count) ((ptr) = (__typeof__(ptr))d_malloc((count) * sizeof(*(ptr))))
#define D_ALIGNED_ALLOC(ptr, alignment, size) \
	((ptr) = (__typeof__(ptr))d_aligned_alloc((alignment), (size), true))
#define D_ALIGNED_ALLOC_NZ(ptr, alignment, size) \
	((ptr) = (__typeof__(ptr))d_aligned_alloc((alignment), (size), false))
#define D_STRNDUP(ptr, s, n) ((ptr) = d_strndup((s), (n)))
#define D_STRNDUP_S(ptr, s) ((ptr) = d_strndup((s), sizeof(s)))
#define D_ASPRINTF(ptr, ...)                                \
	do {                                                \
		int azk_len;                                \
		(ptr) = d_asprintf2(&azk_len, __VA_ARGS__); \
	} while (0)

/* realloc() to `size` bytes, at least 1; zeros what was added to `oldsize`. */
static inline void *azk_realloc(void *old, size_t oldsize, size_t size)
{
	char *memory = (char *)d_realloc(old, size == 0 ? 1 : size);

	if (memory != NULL && oldsize < size)
		memset(memory + oldsize, 0, size - oldsize);
	return memory;
}

/* Resize `oldptr` into `newptr`, another variable. If there is memory `oldptr` becomes NULL, and what
 * was added is zero (D_REALLOC), everything from 0 on is zero (_Z), or nothing is (_NZ). If there is
 * none `newptr` is NULL and `oldptr` stays as it was. */
#define D_REALLOC(newptr, oldptr, oldsize, size)                                            \
	do {                                                                                \
		(newptr) = (__typeof__(newptr))azk_realloc((oldptr), (oldsize), (size));    \
		if ((newptr) != NULL)                                                       \
			(oldptr) = NULL;                                                    \
	} while (0)
#define D_REALLOC_NZ(newptr, oldptr, size) D_REALLOC(newptr, oldptr, size, size)
#define D_REALLOC_Z(newptr, oldptr, size) D_REALLOC(newptr, oldptr, 0, size)
#define D_REALLOC_ARRAY(newptr, oldptr, oldcount, count) \
	D_REALLOC(newptr, oldptr, (oldcount) * sizeof(*(oldptr)), (count) * sizeof(*(oldptr)))
#define D_REALLOC_ARRAY_NZ(newptr, oldptr, count) \
	D_REALLOC_NZ(newptr, oldptr, (count) * sizeof(*(oldptr)))
#define D_REALLOC_ARRAY_Z(newptr, oldptr, count) \
	D_REALLOC_Z(newptr, oldptr, (count) * sizeof(*(oldptr)))

/* Frees and sets to NULL. */
#define D_FREE(ptr)                                 \
	do {                                        \
		d_free((void *)(ptr));              \
		(ptr) = NULL;                       \
	} while (0)

/* Jumps, and evaluates `rc` on the way: D_GOTO(out, rc = -DER_NOMEM). */
#define D_GOTO(label, rc)   \
	do {                \
		(void)(rc); \
		goto label; \
	} while (0)

/* An errno as a negative DAOS error. */
static inline int d_errno2der(int err)
{
	switch (err) {
	case 0:
		return 0;
	case EPERM:
	case EACCES:
		return -DER_NO_PERM;
	case ENOMEM:
		return -DER_NOMEM;
	case ENOSPC:
	case EDQUOT:
		return -DER_NOSPACE;
	case EEXIST:
		return -DER_EXIST;
	case ENOENT:
		return -DER_NONEXIST;
	case ECANCELED:
		return -DER_CANCELED;
	case EBUSY:
		return -DER_BUSY;
	default:
		return -DER_MISC;
	}
}

/* What a pthread function said, as a DAOS error; the program ends if it may not fail. */
static inline int azk_lock_result(int err, int may_fail, const char *call, const char *file, int line)
{
	if (err != 0 && !may_fail) {
		azk_logf(DLOG_EMERG, file, line, call, "%s\n", strerror(err));
		azk_assert_failed(call, file, line, call);
	}
	return d_errno2der(err);
}

#define AZK_LOCK(call) azk_lock_result(call, 0, #call, __FILE__, __LINE__)
#define AZK_TRY(call) azk_lock_result(call, 1, #call, __FILE__, __LINE__)

/* Locks of pthread. They give 0 or a negative DAOS error; misuse ends the program. */
#define D_MUTEX_INIT(x, y) AZK_TRY(pthread_mutex_init(x, y))
#define D_MUTEX_DESTROY(x) AZK_LOCK(pthread_mutex_destroy(x))
#define D_MUTEX_LOCK(x) AZK_LOCK(pthread_mutex_lock(x))
#define D_MUTEX_TRYLOCK(x) AZK_TRY(pthread_mutex_trylock(x))
#define D_MUTEX_UNLOCK(x) AZK_LOCK(pthread_mutex_unlock(x))
#define D_SPIN_INIT(x, y) AZK_TRY(pthread_spin_init(x, y))
#define D_SPIN_DESTROY(x) AZK_LOCK(pthread_spin_destroy(x))
#define D_SPIN_LOCK(x) AZK_LOCK(pthread_spin_lock(x))
#define D_SPIN_UNLOCK(x) AZK_LOCK(pthread_spin_unlock(x))
#define D_RWLOCK_INIT(x, y) AZK_TRY(pthread_rwlock_init(x, y))
#define D_RWLOCK_DESTROY(x) AZK_LOCK(pthread_rwlock_destroy(x))
#define D_RWLOCK_RDLOCK(x) AZK_LOCK(pthread_rwlock_rdlock(x))
#define D_RWLOCK_WRLOCK(x) AZK_LOCK(pthread_rwlock_wrlock(x))
#define D_RWLOCK_TRYWRLOCK(x) AZK_TRY(pthread_rwlock_trywrlock(x))
#define D_RWLOCK_UNLOCK(x) AZK_LOCK(pthread_rwlock_unlock(x))
#define D_COND_INIT(x, y) AZK_TRY(pthread_cond_init(x, y))
#define D_COND_DESTROY(x) AZK_LOCK(pthread_cond_destroy(x))

/* The upper `bits` bits of a multiplicative hash, 1 to 64 or 1 to 32. */
static inline uint64_t d_u64_hash(uint64_t val, unsigned int bits)
{
	return val * 0xcbf29ce484222325ULL >> (64 - bits);
}

static inline uint32_t d_u32_hash(uint64_t key, unsigned int bits)
{
	return (uint32_t)(key * 0x9e370001ULL) >> (32 - bits);
}

/* Hashes; not for security. */
uint64_t d_hash_mix64(uint64_t key);
uint32_t d_hash_mix96(uint32_t a, uint32_t b, uint32_t c);
uint32_t d_hash_string_u32(const char *string, unsigned int len);
uint64_t d_hash_murmur64(const unsigned char *key, unsigned int key_len, unsigned int seed);
/* Consistent hash: which of `num_buckets` a key belongs to. */
uint32_t d_hash_jump(uint64_t key, uint32_t num_buckets);
/* Where a value belongs in an ascending array of hashes. */
unsigned int d_hash_srch_u64(uint64_t *hashes, unsigned int nhashes, uint64_t value);

/* Lists of ranks. Lists that are returned are the caller's, to be freed with d_rank_list_free(). */
d_rank_list_t *d_rank_list_alloc(uint32_t size);
void d_rank_list_free(d_rank_list_t *rank_list);
int d_rank_list_dup(d_rank_list_t **dst, const d_rank_list_t *src);
int d_rank_list_dup_sort_uniq(d_rank_list_t **dst, const d_rank_list_t *src);
int d_rank_list_copy(d_rank_list_t *dst, d_rank_list_t *src);
int d_rank_list_resize(d_rank_list_t *ptr, uint32_t size);
int d_rank_list_append(d_rank_list_t *rank_list, d_rank_t rank);
int d_rank_list_del(d_rank_list_t *rank_list, d_rank_t rank);
void d_rank_list_sort(d_rank_list_t *rank_list);
void d_rank_list_shuffle(d_rank_list_t *rank_list);
void d_rank_list_del_at(d_rank_list_t *list, int idx);
/* Keeps in `dst_set` what is in `src_set` too, or with `exclude` what is not. */
void d_rank_list_filter(d_rank_list_t *src_set, d_rank_list_t *dst_set, bool exclude);
/* Adds to `src_set` what `merge_set` has and it has not. */
int d_rank_list_merge(d_rank_list_t *src_set, d_rank_list_t *merge_set);
bool d_rank_list_find(d_rank_list_t *rank_list, d_rank_t rank, int *idx);
/* The same in a list that is sorted. */
bool d_rank_list_bsearch(d_rank_list_t *rank_list, d_rank_t rank, int *idx);
bool d_rank_in_rank_list(d_rank_list_t *rank_list, d_rank_t rank);
/* -DER_NONEXIST if it is not there. */
int d_idx_in_rank_list(d_rank_list_t *rank_list, d_rank_t rank, uint32_t *idx);
bool d_rank_list_identical(d_rank_list_t *rank_list1, d_rank_list_t *rank_list2);
/* The ranks as text in new memory, e.g. "[0-3,7]". */
int d_rank_list_to_str(d_rank_list_t *rank_list, char **rank_str);
int d_rank_list_dump(d_rank_list_t *rank_list, d_string_t name, int name_len);
d_rank_list_t *uint32_array_to_rank_list(uint32_t *ints, size_t len);
int rank_list_to_uint32_array(d_rank_list_t *rl, uint32_t **ints, size_t *len);

/* Ranges of ranks, ascending. */
d_rank_range_list_t *d_rank_range_list_alloc(uint32_t size);
d_rank_range_list_t *d_rank_range_list_realloc(d_rank_range_list_t *range_list, uint32_t size);
d_rank_range_list_t *d_rank_range_list_create_from_ranks(d_rank_list_t *rank_list);
int d_rank_range_list_str(d_rank_range_list_t *list, char **ranks_str);
void d_rank_range_list_free(d_rank_range_list_t *range_list);

/* Makes a list of `nr` empty pieces. 0 or -DER_NOMEM. */
static inline int d_sgl_init(d_sg_list_t *sgl, unsigned int nr)
{
	sgl->sg_nr_out = 0;
	sgl->sg_nr = nr;
	sgl->sg_iovs = NULL;
	if (nr != 0)
		D_ALLOC_ARRAY(sgl->sg_iovs, nr);
	return nr != 0 && sgl->sg_iovs == NULL ? -DER_NOMEM : 0;
}

/* Frees the list, and the pieces' memory if `free_iovs`. */
static inline void d_sgl_fini(d_sg_list_t *sgl, bool free_iovs)
{
	uint32_t i;

	if (sgl == NULL || sgl->sg_iovs == NULL)
		return;
	for (i = 0; free_iovs && i < sgl->sg_nr; i++)
		d_free(sgl->sg_iovs[i].iov_buf);
	D_FREE(sgl->sg_iovs);
	sgl->sg_nr = 0;
	sgl->sg_nr_out = 0;
}

/* Room of all pieces together, bytes. */
static inline size_t d_sgl_buf_size(d_sg_list_t *sgl)
{
	size_t size = 0;
	uint32_t i;

	for (i = 0; sgl->sg_iovs != NULL && i < sgl->sg_nr; i++)
		size += sgl->sg_iovs[i].iov_buf_len;
	return size;
}

/* Copies piece by piece; `dst_sgl` has at least as many, each at least as large. */
static inline void d_sgl_buf_copy(d_sg_list_t *dst_sgl, d_sg_list_t *src_sgl)
{
	uint32_t i;

	D_ASSERT(dst_sgl->sg_nr >= src_sgl->sg_nr);
	for (i = 0; i < src_sgl->sg_nr; i++) {
		d_iov_t *dst = &dst_sgl->sg_iovs[i];
		d_iov_t *src = &src_sgl->sg_iovs[i];

		D_ASSERT(dst->iov_buf_len >= src->iov_buf_len);
		memcpy(dst->iov_buf, src->iov_buf, src->iov_buf_len);
		dst->iov_buf_len = src->iov_buf_len;
		dst->iov_len = src->iov_len;
	}
}

/* The environment. The d_getenv_ functions leave the value as it is and give -DER_NONEXIST if the
 * variable is not set, -DER_INVAL if it cannot be read. */
bool d_isenv_def(char *name);
int d_getenv_str(char *str_val, size_t str_size, const char *name);
int d_getenv_bool(const char *name, bool *bool_val);
int d_getenv_char(const char *name, char *char_val);
int d_getenv_int(const char *name, unsigned int *uint_val);
int d_getenv_uint(const char *name, unsigned int *uint_val);
int d_getenv_uint32_t(const char *name, uint32_t *uint32_val);
int d_getenv_uint64_t(const char *name, uint64_t *uint64_val);
/* A copy of the variable, to be freed with d_freeenv_str(). */
int d_agetenv_str(char **str_val, const char *name);
void d_freeenv_str(char **str_val);
/* 0 or a negative DAOS error. */
int d_putenv(char *name);
int d_setenv(const char *name, const char *value, int overwrite);
int d_unsetenv(const char *name);
int d_clearenv(void);

/* An absolute path without links in new memory, or NULL and errno. */
char *d_realpath(const char *path, char *resolved_path);

/* Pseudorandom numbers: from 0 to D_RAND_MAX, and from 0 up to 1. */
#define D_RAND_MAX 0x7fffffff
void d_srand(long int seed);
long int d_rand(void);
double d_randd(void);

/* Waiting times that grow: some zeros, then `next`, each `factor` times the one before, up to `max`;
 * d_backoff_seq_next() picks one at random up to that. */
struct d_backoff_seq {
	uint8_t bos_flags;
	uint8_t bos_nzeros;
	uint16_t bos_factor;
	uint32_t bos_max;
	uint32_t bos_next;
};

int d_backoff_seq_init(struct d_backoff_seq *seq, uint8_t nzeros, uint16_t factor, uint32_t next,
		       uint32_t max);
void d_backoff_seq_fini(struct d_backoff_seq *seq);
uint32_t d_backoff_seq_next(struct d_backoff_seq *seq);

/* An array of pointers that grows. */
struct d_vec_pointers {
	void **p_buf;
	uint32_t p_cap;
	uint32_t p_len;
};

int d_vec_pointers_init(struct d_vec_pointers *pointers, uint32_t cap);
void d_vec_pointers_fini(struct d_vec_pointers *pointers);
int d_vec_pointers_append(struct d_vec_pointers *pointers, void *pointer);

/* Hybrid logical clocks, and nanoseconds, of their own epoch or (unix) since 1970. */
uint64_t d_hlc_get(void);
/* Takes note of another clock; -DER_HLC_SYNC if it is too far ahead. */
int d_hlc_get_msg(uint64_t msg, uint64_t *hlc_out, uint64_t *offset);
uint64_t d_hlc2nsec(uint64_t hlc);
uint64_t d_nsec2hlc(uint64_t nsec);
uint64_t d_hlc2unixnsec(uint64_t hlc);
uint64_t d_unixnsec2hlc(uint64_t unixnsec);
int d_hlc2timespec(uint64_t hlc, struct timespec *ts);
int d_timespec2hlc(struct timespec ts, uint64_t *hlc);
/* How far ahead another clock may be, nanoseconds. */
void d_hlc_epsilon_set(uint64_t epsilon);
uint64_t d_hlc_epsilon_get(void);
uint64_t d_hlc_epsilon_get_bound(uint64_t hlc);
/* Seconds since that moment. */
uint64_t d_hlc_age2sec(uint64_t hlc);

/* Accepted and without effect: the library handles no signals. */
void d_signal_stack_enable(bool enabled);
void d_signal_register(void);

#ifdef __cplusplus
}
#endif

#endif
