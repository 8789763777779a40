/* Basic types: handles, events, anchors, keys, epochs, object ids. */
#ifndef AZK_DAOS_TYPES_H
#define AZK_DAOS_TYPES_H

#include <ctype.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <uuid/uuid.h>
#include <daos_errno.h>
#include <gurt/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Longest name of a system. */
#define DAOS_SYS_NAME_MAX 15
#define DAOS_SYS_INFO_STRING_MAX 63
/* Longest name of an attribute of a pool or container. */
#define DAOS_ATTR_NAME_MAX 511

/* Sizes and offsets in bytes. */
typedef uint64_t daos_size_t;
typedef uint64_t daos_off_t;

/* Longest hashed key in an anchor. */
#define DAOS_HKEY_MAX 32

typedef enum {
	DAOS_ANCHOR_TYPE_ZERO = 0,
	DAOS_ANCHOR_TYPE_HKEY = 1,
	DAOS_ANCHOR_TYPE_KEY = 2,
	DAOS_ANCHOR_TYPE_EOF = 3
} daos_anchor_type_t;

#define DAOS_ANCHOR_BUF_MAX 104

/* Where a listing stands. Zero it before the first call, pass it on unchanged, stop when
 * daos_anchor_is_eof(). */
typedef struct {
	uint16_t da_type;
	uint16_t da_shard;
	uint32_t da_flags;
	uint64_t da_sub_anchors;
	uint8_t da_buf[DAOS_ANCHOR_BUF_MAX];
} daos_anchor_t;

#define DAOS_ANCHOR_INIT { DAOS_ANCHOR_TYPE_ZERO, 0, 0, 0, { 0 } }

/* A handle. One that was closed gives an error, wherever it is used. */
typedef struct {
	uint64_t cookie;
} daos_handle_t;

#ifdef __cplusplus
#define DAOS_HDL_INVAL (daos_handle_t{0})
#else
#define DAOS_HDL_INVAL ((daos_handle_t){0})
#endif

/* No transaction: the operation stands alone. */
#define DAOS_TX_NONE DAOS_HDL_INVAL

static inline bool daos_handle_is_inval(daos_handle_t hdl)
{
	return hdl.cookie == 0;
}

static inline bool daos_handle_is_valid(daos_handle_t hdl)
{
	return hdl.cookie != 0;
}

/* How to connect to a pool: read, read and write, exclusively. */
#define DAOS_PC_RO (1U << 0)
#define DAOS_PC_RW (1U << 1)
#define DAOS_PC_EX (1U << 2)
#define DAOS_PC_NBITS 3
#define DAOS_PC_MASK ((1U << DAOS_PC_NBITS) - 1)

/* A moment of a container's history: a hybrid logical clock. */
typedef uint64_t daos_epoch_t;

#define DAOS_EPOCH_MAX (~0ULL)

/* Both ends included. */
typedef struct {
	daos_epoch_t epr_lo;
	daos_epoch_t epr_hi;
} daos_epoch_range_t;

/* What is known of a container. Times are hybrid logical clocks, see daos_hlc2timespec(). */
typedef struct {
	uuid_t ci_uuid;
	/* Newest snapshot, 0 if there is none. */
	daos_epoch_t ci_lsnapshot;
	uint32_t ci_nhandles;
	uint32_t ci_nsnapshots;
	/* Last opened. */
	uint64_t ci_md_otime;
	/* Last changed. */
	uint64_t ci_md_mtime;
} daos_cont_info_t;

/* A key: iov_len bytes at iov_buf. */
typedef d_iov_t daos_key_t;

static inline bool daos_key_is_null(daos_key_t key)
{
	return key.iov_buf == NULL || key.iov_buf_len == 0;
}

/* An operation that runs. The memory is the caller's and stays where it is until the event is finished. */
typedef struct daos_event {
	/* Result once complete: of a dfs_ or dfs_sys_ function an errno, of a daos_ function 0 or -DER_. */
	int ev_error;
	/* The library's. */
	struct {
		uint64_t space[20];
	} ev_private;
	uint64_t ev_debug;
} daos_event_t;

/* Timeouts: wait for ever, do not wait. Others are microseconds. */
#define DAOS_EQ_WAIT -1
#define DAOS_EQ_NOWAIT 0

typedef enum {
	DAOS_EQR_COMPLETED = 1 << 0,
	DAOS_EQR_WAITING = 1 << 1,
	DAOS_EQR_ALL = DAOS_EQR_COMPLETED | DAOS_EQR_WAITING
} daos_eq_query_t;

typedef enum {
	DAOS_EVS_READY,
	DAOS_EVS_RUNNING,
	DAOS_EVS_COMPLETED,
	DAOS_EVS_ABORTED
} daos_ev_status_t;

/* Kinds of handles. */
enum {
	DAOS_HTYPE_EQ = 1,
	DAOS_HTYPE_POOL = 3,
	DAOS_HTYPE_CO = 5,
	DAOS_HTYPE_OBJ = 7,
	DAOS_HTYPE_ARRAY = 9,
	DAOS_HTYPE_TX = 11,
	DAOS_HTYPE_KV = 13
};

/* An object id: lo and the low 32 bits of hi are the caller's, the rest is set by
 * daos_obj_generate_oid(). */
typedef struct {
	uint64_t lo;
	uint64_t hi;
} daos_obj_id_t;

/* Bytes of a uuid as text, with the zero at the end. */
#define DAOS_UUID_STR_SIZE 37
#define UUID_SST_UPPER 1
#define UUID_SST_LOWER -1
#define UUID_SST_NONE 0

/* Whether the text begins with a uuid, in upper case only, lower case only, or either. */
static inline bool daos_is_valid_uuid_string(const char *uuid, int sensitive)
{
	int i;

	for (i = 0; i < DAOS_UUID_STR_SIZE - 1; i++) {
		unsigned char c = (unsigned char)uuid[i];

		if (i == 8 || i == 13 || i == 18 || i == 23) {
			if (c != '-')
				return false;
		} else if (!isxdigit(c) || (sensitive > 0 && islower(c)) || (sensitive < 0 && isupper(c))) {
			return false;
		}
	}
	return true;
}

/* Where an engine listens. */
struct daos_rank_uri {
	uint32_t dru_rank;
	char *dru_uri;
};

/* What is known of a system. */
struct daos_sys_info {
	char dsi_system_name[DAOS_SYS_INFO_STRING_MAX + 1];
	char dsi_fabric_provider[DAOS_SYS_INFO_STRING_MAX + 1];
	char dsi_agent_path[4096];
	uint32_t dsi_nr_ranks;
	struct daos_rank_uri *dsi_ranks;
	uint32_t dsi_nr_ms_ranks;
	uint32_t *dsi_ms_ranks;
};

#ifndef __cplusplus
/* Pools and containers are named by a label or a uuid as text. In C a uuid_t is taken as well where
 * AZK_NAME stands. */
static inline const char *azk_name_text(const char *name, char *text)
{
	(void)text;
	return name;
}

static inline const char *azk_name_uuid(const unsigned char *name, char *text)
{
	static const char digits[] = "0123456789abcdef";
	int i, at = 0;

	if (name == NULL)
		return NULL;
	for (i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			text[at++] = '-';
		text[at++] = digits[name[i] >> 4];
		text[at++] = digits[name[i] & 15];
	}
	text[at] = '\0';
	return text;
}

#define AZK_NAME(name)                                                                           \
	(__extension__ _Generic((name), unsigned char *: azk_name_uuid, const unsigned char *: azk_name_uuid, \
				default: azk_name_text)((name), (char[DAOS_UUID_STR_SIZE]){0}))
#endif

#ifdef __cplusplus
}
#endif

#endif
