/* Properties of pools and containers. */
#ifndef AZK_DAOS_PROP_H
#define AZK_DAOS_PROP_H

#include <ctype.h>
#include <daos_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Properties of a pool. */
enum daos_pool_props {
	DAOS_PROP_PO_MIN = 0,
	DAOS_PROP_PO_LABEL,
	DAOS_PROP_PO_ACL,
	DAOS_PROP_PO_SPACE_RB,
	DAOS_PROP_PO_SELF_HEAL,
	DAOS_PROP_PO_RECLAIM,
	DAOS_PROP_PO_OWNER,
	DAOS_PROP_PO_OWNER_GROUP,
	DAOS_PROP_PO_SVC_LIST,
	DAOS_PROP_PO_EC_CELL_SZ,
	DAOS_PROP_PO_DATA_THRESH,
	DAOS_PROP_PO_REDUN_FAC,
	DAOS_PROP_PO_EC_PDA,
	DAOS_PROP_PO_RP_PDA,
	DAOS_PROP_PO_GLOBAL_VERSION,
	DAOS_PROP_PO_UPGRADE_STATUS,
	DAOS_PROP_PO_SCRUB_MODE,
	DAOS_PROP_PO_SCRUB_FREQ,
	DAOS_PROP_PO_SCRUB_THRESH,
	DAOS_PROP_PO_SVC_REDUN_FAC,
	DAOS_PROP_PO_OBJ_VERSION,
	DAOS_PROP_PO_PERF_DOMAIN,
	DAOS_PROP_PO_CHECKPOINT_MODE,
	DAOS_PROP_PO_CHECKPOINT_FREQ,
	DAOS_PROP_PO_CHECKPOINT_THRESH,
	DAOS_PROP_PO_REINT_MODE,
	DAOS_PROP_PO_SVC_OPS_ENABLED,
	DAOS_PROP_PO_SVC_OPS_ENTRY_AGE,
	DAOS_PROP_PO_MAX
};

#define DAOS_PROP_PO_NUM (DAOS_PROP_PO_MAX - DAOS_PROP_PO_MIN - 1)

#define DAOS_PROP_PO_EC_CELL_SZ_MIN (1UL << 10)
#define DAOS_PROP_PO_EC_CELL_SZ_MAX (1UL << 30)
#define DAOS_PROP_PO_REDUN_FAC_MAX 4
#define DAOS_PROP_PO_SVC_REDUN_FAC_MAX 4
#define DAOS_PROP_PDA_MAX ((uint32_t)-1)

/* Whether a redundancy factor has a name here. Values above 4 are an extension of this library. */
static inline bool daos_rf_is_valid(unsigned long long rf)
{
	return rf <= DAOS_PROP_PO_REDUN_FAC_MAX;
}

static inline bool daos_svc_rf_is_valid(uint64_t svc_rf)
{
	return svc_rf <= DAOS_PROP_PO_SVC_REDUN_FAC_MAX;
}

enum {
	DAOS_PROP_PERF_DOMAIN_ROOT = 255,
	DAOS_PROP_PERF_DOMAIN_GROUP = 200
};

enum {
	DAOS_RECLAIM_DISABLED = 0,
	DAOS_RECLAIM_LAZY,
	DAOS_RECLAIM_SNAPSHOT,
	DAOS_RECLAIM_BATCH,
	DAOS_RECLAIM_TIME
};

#define DAOS_SELF_HEAL_AUTO_EXCLUDE (1U << 0)
#define DAOS_SELF_HEAL_AUTO_REBUILD (1U << 1)
#define DAOS_SELF_HEAL_DELAY_REBUILD (1U << 2)

/* Properties of a container. */
enum daos_cont_props {
	DAOS_PROP_CO_MIN = 0x1000,
	/* A string. */
	DAOS_PROP_CO_LABEL,
	/* DAOS_PROP_CO_LAYOUT_*. */
	DAOS_PROP_CO_LAYOUT_TYPE,
	DAOS_PROP_CO_LAYOUT_VER,
	/* DAOS_PROP_CO_CSUM_*. */
	DAOS_PROP_CO_CSUM,
	/* Bytes. */
	DAOS_PROP_CO_CSUM_CHUNK_SIZE,
	DAOS_PROP_CO_CSUM_SERVER_VERIFY,
	/* How many failures data survive. */
	DAOS_PROP_CO_REDUN_FAC,
	/* What fails as one: DAOS_PROP_CO_REDUN_RANK, _NODE. */
	DAOS_PROP_CO_REDUN_LVL,
	DAOS_PROP_CO_SNAPSHOT_MAX,
	/* struct daos_acl. */
	DAOS_PROP_CO_ACL,
	DAOS_PROP_CO_COMPRESS,
	DAOS_PROP_CO_ENCRYPT,
	/* Strings. */
	DAOS_PROP_CO_OWNER,
	DAOS_PROP_CO_OWNER_GROUP,
	DAOS_PROP_CO_DEDUP,
	DAOS_PROP_CO_DEDUP_THRESHOLD,
	/* struct daos_prop_co_roots. */
	DAOS_PROP_CO_ROOTS,
	/* DAOS_PROP_CO_STATUS_VAL(). */
	DAOS_PROP_CO_STATUS,
	DAOS_PROP_CO_ALLOCED_OID,
	/* Bytes. */
	DAOS_PROP_CO_EC_CELL_SZ,
	DAOS_PROP_CO_EC_PDA,
	DAOS_PROP_CO_RP_PDA,
	DAOS_PROP_CO_GLOBAL_VERSION,
	DAOS_PROP_CO_SCRUBBER_DISABLED,
	DAOS_PROP_CO_OBJ_VERSION,
	DAOS_PROP_CO_PERF_DOMAIN,
	DAOS_PROP_CO_MAX
};

#define DAOS_PROP_CO_NUM (DAOS_PROP_CO_MAX - DAOS_PROP_CO_MIN - 1)

/* Well-known objects of a container: superblock, root, and two more. */
struct daos_prop_co_roots {
	daos_obj_id_t cr_oids[4];
};

/* What a container holds. */
typedef uint16_t daos_cont_layout_t;

enum {
	DAOS_PROP_CO_LAYOUT_UNKNOWN = 0,
	DAOS_PROP_CO_LAYOUT_UNKOWN = DAOS_PROP_CO_LAYOUT_UNKNOWN,
	DAOS_PROP_CO_LAYOUT_POSIX,
	DAOS_PROP_CO_LAYOUT_HDF5,
	DAOS_PROP_CO_LAYOUT_PYTHON,
	DAOS_PROP_CO_LAYOUT_SPARK,
	DAOS_PROP_CO_LAYOUT_DATABASE,
	DAOS_PROP_CO_LAYOUT_ROOT,
	DAOS_PROP_CO_LAYOUT_SEISMIC,
	DAOS_PROP_CO_LAYOUT_METEO,
	DAOS_PROP_CO_LAYOUT_MAX
};

enum {
	DAOS_PROP_CO_CSUM_OFF,
	DAOS_PROP_CO_CSUM_CRC16,
	DAOS_PROP_CO_CSUM_CRC32,
	DAOS_PROP_CO_CSUM_CRC64,
	DAOS_PROP_CO_CSUM_SHA1,
	DAOS_PROP_CO_CSUM_SHA256,
	DAOS_PROP_CO_CSUM_SHA512,
	DAOS_PROP_CO_CSUM_ADLER32
};

enum { DAOS_PROP_CO_CSUM_SV_OFF, DAOS_PROP_CO_CSUM_SV_ON };

enum { DAOS_PROP_CO_DEDUP_OFF, DAOS_PROP_CO_DEDUP_MEMCMP, DAOS_PROP_CO_DEDUP_HASH };

enum {
	DAOS_PROP_CO_COMPRESS_OFF,
	DAOS_PROP_CO_COMPRESS_LZ4,
	DAOS_PROP_CO_COMPRESS_DEFLATE,
	DAOS_PROP_CO_COMPRESS_DEFLATE1,
	DAOS_PROP_CO_COMPRESS_DEFLATE2,
	DAOS_PROP_CO_COMPRESS_DEFLATE3,
	DAOS_PROP_CO_COMPRESS_DEFLATE4
};

enum {
	DAOS_PROP_CO_ENCRYPT_OFF,
	DAOS_PROP_CO_ENCRYPT_AES_XTS128,
	DAOS_PROP_CO_ENCRYPT_AES_XTS256,
	DAOS_PROP_CO_ENCRYPT_AES_CBC128,
	DAOS_PROP_CO_ENCRYPT_AES_CBC192,
	DAOS_PROP_CO_ENCRYPT_AES_CBC256,
	DAOS_PROP_CO_ENCRYPT_AES_GCM128,
	DAOS_PROP_CO_ENCRYPT_AES_GCM256
};

enum {
	DAOS_PROP_CO_REDUN_RF0 = 0,
	DAOS_PROP_CO_REDUN_RF1 = 1,
	DAOS_PROP_CO_REDUN_RF2 = 2,
	DAOS_PROP_CO_REDUN_RF3 = 3,
	DAOS_PROP_CO_REDUN_RF4 = 4,
	DAOS_RF_MAX = 4
};

enum {
	DAOS_PROP_CO_REDUN_MIN = 1,
	DAOS_PROP_CO_REDUN_RANK = 1,
	DAOS_PROP_CO_REDUN_NODE = 2,
	DAOS_PROP_CO_REDUN_FAULT = 3,
	DAOS_PROP_CO_REDUN_MAX = 254
};

#define DAOS_PROP_CO_REDUN_DEFAULT DAOS_PROP_CO_REDUN_NODE

enum {
	DAOS_PROP_CO_HEALTHY,
	/* Data may have been lost. */
	DAOS_PROP_CO_UNCLEAN
};

/* Flag that clears the status. */
#define DAOS_PROP_CO_CLEAR 0x1

struct daos_co_status {
	uint16_t dcs_status;
	uint16_t dcs_flags;
	uint32_t dcs_pm_ver;
};

/* A status as the number that a property holds, and back. */
#define DAOS_PROP_CO_STATUS_VAL(status, flag, pm_ver) \
	((uint64_t)(flag) << 48 | ((uint64_t)(status) & 0xffff) << 32 | (uint64_t)(pm_ver))

static inline uint64_t daos_prop_co_status_2_val(struct daos_co_status *co_status)
{
	return DAOS_PROP_CO_STATUS_VAL(co_status->dcs_status, co_status->dcs_flags, co_status->dcs_pm_ver);
}

static inline void daos_prop_val_2_co_status(uint64_t val, struct daos_co_status *co_status)
{
	co_status->dcs_pm_ver = (uint32_t)val;
	co_status->dcs_status = (uint16_t)(val >> 32);
	co_status->dcs_flags = (uint16_t)(val >> 48);
}

/* dpe_flags: the property has no value. */
enum { DAOS_PROP_ENTRY_NOT_SET = 1 << 0 };

/* One property. Strings and memory belong to it and are freed with the list. */
struct daos_prop_entry {
	uint32_t dpe_type;
	uint16_t dpe_flags;
	uint16_t dpe_reserv;
	__extension__ union {
		uint64_t dpe_val;
		d_string_t dpe_str;
		void *dpe_val_ptr;
	};
};

/* Bytes as a value. */
struct daos_prop_byteval {
	void *dpb_data;
	size_t dpb_len;
};

#define DAOS_PROP_ENTRIES_MAX_NR 128
/* Longest label of a pool or container. */
#define DAOS_PROP_LABEL_MAX_LEN 127
#define DAOS_PROP_MAX_LABEL_BUF_LEN (DAOS_PROP_LABEL_MAX_LEN + 1)
#define DAOS_PROP_CO_LABEL_DEFAULT "container_label_not_set"
#define DAOS_PROP_PO_LABEL_DEFAULT "pool_label_not_set"
#define DAOS_PROP_NO_PO_LABEL DAOS_PROP_PO_LABEL_DEFAULT
#define DAOS_PROP_NO_CO_LABEL DAOS_PROP_CO_LABEL_DEFAULT
#define DEFAULT_CONT_LABEL DAOS_PROP_CO_LABEL_DEFAULT

/* Whether this can be a label: 1 to 127 letters, digits, and any of . _ : -, and not a uuid. */
static inline bool daos_label_is_valid(const char *label)
{
	int len;

	if (label == NULL)
		return false;
	for (len = 0; label[len] != '\0'; len++) {
		unsigned char c = (unsigned char)label[len];

		if (len == DAOS_PROP_LABEL_MAX_LEN || (!isalnum(c) && strchr("._:-", c) == NULL))
			return false;
	}
	return len > 0 && !daos_is_valid_uuid_string(label, UUID_SST_NONE);
}

static inline bool daos_perf_domain_is_valid(const char *perf_domain)
{
	return daos_label_is_valid(perf_domain);
}

/* A list of properties. */
typedef struct {
	uint32_t dpp_nr;
	uint32_t dpp_reserv;
	struct daos_prop_entry *dpp_entries;
} daos_prop_t;

/* A new list of empty entries, to be freed with daos_prop_free(). NULL if there is no memory or
 * there are too many. */
daos_prop_t *daos_prop_alloc(uint32_t entries_nr);

/* Frees the entries, or the entries and the list. NULL is allowed. */
void daos_prop_fini(daos_prop_t *prop);
void daos_prop_free(daos_prop_t *prop);

/* A new list from text "name:value;name:value" of `len` bytes. */
int daos_prop_from_str(const char *str, daos_size_t len, daos_prop_t **prop);

/* A new list: the old entries, replaced or extended by the new ones. */
int daos_prop_merge2(daos_prop_t *old_prop, daos_prop_t *new_prop, daos_prop_t **out_prop);
daos_prop_t *daos_prop_merge(daos_prop_t *old_prop, daos_prop_t *new_prop);

/* The entry of a type, or NULL. It stays the list's. */
struct daos_prop_entry *daos_prop_entry_get(daos_prop_t *prop, uint32_t type);

/* Replace a value by a copy of a string, of memory, or of bytes. 0, -DER_NONEXIST, -DER_INVAL or
 * -DER_NOMEM. */
int daos_prop_set_str(daos_prop_t *prop, uint32_t type, const char *str, daos_size_t len);
int daos_prop_entry_set_str(struct daos_prop_entry *entry, const char *str, daos_size_t len);
int daos_prop_set_ptr(daos_prop_t *prop, uint32_t type, const void *ptr, daos_size_t size);
int daos_prop_entry_set_ptr(struct daos_prop_entry *entry, const void *ptr, daos_size_t size);
int daos_prop_set_byteval(daos_prop_t *prop, uint32_t type, const void *data, size_t len);
int daos_prop_entry_set_byteval(struct daos_prop_entry *entry, const void *data, size_t len);

/* Copy a value from one entry to another. */
int daos_prop_entry_dup_ptr(struct daos_prop_entry *entry_dst, struct daos_prop_entry *entry_src,
			    size_t len);
int daos_prop_entry_dup_byteval(struct daos_prop_entry *entry_dst, struct daos_prop_entry *entry_src);
int daos_prop_entry_dup_co_roots(struct daos_prop_entry *dst, struct daos_prop_entry *src);

/* 0 if two access control lists are the same. */
int daos_prop_entry_cmp_acl(struct daos_prop_entry *entry1, struct daos_prop_entry *entry2);

/* A copy of a list, for a pool or a container; with `input` only what can be set. NULL on error. */
daos_prop_t *daos_prop_dup(daos_prop_t *prop, bool pool, bool input);

/* Copies the values that `prop_req` asks for from `prop_reply`, or one value. */
int daos_prop_copy(daos_prop_t *prop_req, daos_prop_t *prop_reply);
int daos_prop_entry_copy(struct daos_prop_entry *entry, struct daos_prop_entry *entry_dup);

/* Whether all types and values have a meaning. */
bool daos_prop_valid(daos_prop_t *prop, bool pool, bool input);

/* What kind of value the entry's type has. */
bool daos_prop_has_str(struct daos_prop_entry *entry);
bool daos_prop_has_ptr(struct daos_prop_entry *entry);
bool daos_prop_has_byteval(struct daos_prop_entry *entry);

static inline bool daos_prop_is_set(struct daos_prop_entry *entry)
{
	return (entry->dpe_flags & DAOS_PROP_ENTRY_NOT_SET) == 0;
}

/* Values of properties that mean nothing here, and defaults as DAOS has them. */
#define DAOS_PROP_PO_REDUN_FAC_DEFAULT 3
#define DAOS_PROP_PO_RP_PDA_DEFAULT DAOS_PROP_PDA_MAX
#define DAOS_PROP_PO_EC_PDA_DEFAULT ((uint32_t)1)
#define DAOS_PROP_PO_SVC_REDUN_FAC_DEFAULT 2
#define DAOS_PROP_PO_PERF_DOMAIN_DEFAULT DAOS_PROP_PERF_DOMAIN_ROOT
#define DAOS_PROP_CO_PERF_DOMAIN_DEFAULT DAOS_PROP_PERF_DOMAIN_ROOT
#define DAOS_PROP_PO_DATA_THRESH_DEFAULT (1UL << 12)

enum {
	DAOS_UPGRADE_STATUS_NOT_STARTED = 0,
	DAOS_UPGRADE_STATUS_IN_PROGRESS = 1,
	DAOS_UPGRADE_STATUS_COMPLETED = 2,
	DAOS_UPGRADE_STATUS_FAILED = 3
};

enum {
	DAOS_REINT_MODE_DATA_SYNC = 0,
	DAOS_REINT_MODE_NO_DATA_SYNC = 1,
	DAOS_REINT_MODE_INCREMENTAL = 2
};
#define DAOS_PROP_PO_REINT_MODE_DEFAULT DAOS_REINT_MODE_DATA_SYNC

enum {
	DAOS_SCRUB_MODE_OFF = 0,
	DAOS_SCRUB_MODE_LAZY = 1,
	DAOS_SCRUB_MODE_TIMED = 2,
	DAOS_SCRUB_MODE_INVALID = 3
};
#define DAOS_PROP_PO_SCRUB_MODE_DEFAULT DAOS_SCRUB_MODE_OFF
#define DAOS_PROP_PO_SCRUB_FREQ_DEFAULT 604800
#define DAOS_PROP_PO_SCRUB_THRESH_DEFAULT 0

enum { DAOS_CHECKPOINT_DISABLED = 0, DAOS_CHECKPOINT_TIMED = 1, DAOS_CHECKPOINT_LAZY = 2 };
#define DAOS_PROP_PO_CHECKPOINT_MODE_DEFAULT DAOS_CHECKPOINT_TIMED
#define DAOS_PROP_PO_CHECKPOINT_FREQ_DEFAULT 5
#define DAOS_PROP_PO_CHECKPOINT_FREQ_MIN 1
#define DAOS_PROP_PO_CHECKPOINT_FREQ_MAX (1 << 20)
#define DAOS_PROP_PO_CHECKPOINT_THRESH_DEFAULT 50
#define DAOS_PROP_PO_CHECKPOINT_THRESH_MIN 10
#define DAOS_PROP_PO_CHECKPOINT_THRESH_MAX 75
#define DAOS_PROP_PO_SVC_OPS_ENABLED_DEFAULT 1
#define DAOS_PROP_PO_SVC_OPS_ENTRY_AGE_DEFAULT 300
#define DAOS_PROP_PO_SVC_OPS_ENTRY_AGE_MIN 60
#define DAOS_PROP_PO_SVC_OPS_ENTRY_AGE_MAX 600

#ifdef __cplusplus
}
#endif

#endif
