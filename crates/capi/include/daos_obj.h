/* Objects: dkeys, akeys in each, and under an akey one value or an array of records. */
#ifndef AZK_DAOS_OBJ_H
#define AZK_DAOS_OBJ_H

#include <daos_event.h>
#include <daos_obj_class.h>
#include <daos_prop.h>
#include <daos_types.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __cplusplus
#define DAOS_OBJ_NIL (daos_obj_id_t{0, 0})
#else
#define DAOS_OBJ_NIL ((daos_obj_id_t){0, 0})
#endif

/*
 * Parts of daos_obj_id_t.hi, from the top: placed by hint (1 bit), type (7), redundancy of the class (8),
 * groups of the class (8), placement epoch (8). The low 32 bits, and lo, are the caller's. The two parts of
 * the class have codes of their own: use daos_obj_id2class().
 */
#define OID_FMT_INTR_BITS 32
#define OID_FMT_TYPE_BITS 8
#define OID_FMT_CLASS_BITS 8
#define OID_FMT_META_BITS 16
#define OID_FMT_TYPE_SHIFT (64 - OID_FMT_TYPE_BITS)
#define OID_FMT_CLASS_SHIFT (OID_FMT_TYPE_SHIFT - OID_FMT_CLASS_BITS)
#define OID_FMT_META_SHIFT (OID_FMT_CLASS_SHIFT - OID_FMT_META_BITS)
#define OID_FMT_TYPE_MAX 0x7fULL
#define OID_FMT_CLASS_MAX ((1ULL << OID_FMT_CLASS_BITS) - 1)
#define OID_FMT_META_MAX ((1ULL << OID_FMT_META_BITS) - 1)
#define OID_FMT_TYPE_MASK (OID_FMT_TYPE_MAX << OID_FMT_TYPE_SHIFT)
#define OID_FMT_CLASS_MASK (OID_FMT_CLASS_MAX << OID_FMT_CLASS_SHIFT)
#define OID_FMT_META_MASK (OID_FMT_META_MAX << OID_FMT_META_SHIFT)

/* What kinds of keys an object has, and what it is used for. */
enum daos_otype_t {
	/* Both kinds of keys are bytes without order. */
	DAOS_OT_MULTI_HASHED = 0,
	DAOS_OT_OIT = 1,
	/* Keys that are 64-bit integers, in order. */
	DAOS_OT_DKEY_UINT64 = 2,
	DAOS_OT_AKEY_UINT64 = 3,
	DAOS_OT_MULTI_UINT64 = 4,
	/* Keys that are bytes, in order. */
	DAOS_OT_DKEY_LEXICAL = 5,
	DAOS_OT_AKEY_LEXICAL = 6,
	DAOS_OT_MULTI_LEXICAL = 7,
	/* Key-value stores. */
	DAOS_OT_KV_HASHED = 8,
	DAOS_OT_KV_UINT64 = 9,
	DAOS_OT_KV_LEXICAL = 10,
	/* Arrays: with attributes stored, with the user's attributes, of bytes. */
	DAOS_OT_ARRAY = 11,
	DAOS_OT_ARRAY_ATTR = 12,
	DAOS_OT_ARRAY_BYTE = 13,
	DAOS_OT_OIT_V2 = 14,
	DAOS_OT_MAX = 14
};

static inline bool daos_otype_t_is_valid(enum daos_otype_t type)
{
	return (unsigned int)type <= DAOS_OT_MAX;
}

static inline bool daos_pa_domain_is_valid(uint32_t pa_domain)
{
	return pa_domain == DAOS_PROP_CO_REDUN_RANK || pa_domain == DAOS_PROP_CO_REDUN_NODE;
}

static inline enum daos_otype_t daos_obj_id2type(daos_obj_id_t oid)
{
	return (enum daos_otype_t)(oid.hi >> OID_FMT_TYPE_SHIFT & OID_FMT_TYPE_MAX);
}

/* The class of an id, OC_UNKNOWN if daos_obj_generate_oid() did not make it. */
daos_oclass_id_t daos_obj_id2class(daos_obj_id_t oid);

static inline enum daos_obj_redun daos_obj_id2ord(daos_obj_id_t oid)
{
	return (enum daos_obj_redun)(daos_obj_id2class(oid) >> OC_REDUN_SHIFT);
}

/* MAX_NUM_GROUPS for as many as the pool has targets for. */
static inline uint32_t daos_obj_id2grp_nr(daos_obj_id_t oid)
{
	return daos_obj_id2class(oid) & MAX_NUM_GROUPS;
}

static inline bool daos_obj_id_is_nil(daos_obj_id_t oid)
{
	return oid.lo == 0 && oid.hi == 0;
}

static inline bool daos_is_dkey_lexical_type(enum daos_otype_t type)
{
	return type == DAOS_OT_DKEY_LEXICAL || type == DAOS_OT_MULTI_LEXICAL || type == DAOS_OT_KV_LEXICAL;
}

static inline bool daos_is_dkey_lexical(daos_obj_id_t oid)
{
	return daos_is_dkey_lexical_type(daos_obj_id2type(oid));
}

static inline bool daos_is_akey_lexical_type(enum daos_otype_t type)
{
	return type == DAOS_OT_AKEY_LEXICAL || type == DAOS_OT_MULTI_LEXICAL;
}

static inline bool daos_is_akey_lexical(daos_obj_id_t oid)
{
	return daos_is_akey_lexical_type(daos_obj_id2type(oid));
}

static inline bool daos_is_array_type(enum daos_otype_t type)
{
	return type == DAOS_OT_ARRAY || type == DAOS_OT_ARRAY_ATTR || type == DAOS_OT_ARRAY_BYTE;
}

static inline bool daos_is_array(daos_obj_id_t oid)
{
	return daos_is_array_type(daos_obj_id2type(oid));
}

static inline bool daos_is_dkey_uint64_type(enum daos_otype_t type)
{
	return type == DAOS_OT_DKEY_UINT64 || type == DAOS_OT_MULTI_UINT64 || type == DAOS_OT_KV_UINT64 ||
	       daos_is_array_type(type);
}

static inline bool daos_is_dkey_uint64(daos_obj_id_t oid)
{
	return daos_is_dkey_uint64_type(daos_obj_id2type(oid));
}

static inline bool daos_is_akey_uint64_type(enum daos_otype_t type)
{
	return type == DAOS_OT_AKEY_UINT64 || type == DAOS_OT_MULTI_UINT64;
}

static inline bool daos_is_akey_uint64(daos_obj_id_t oid)
{
	return daos_is_akey_uint64_type(daos_obj_id2type(oid));
}

static inline bool daos_is_kv_type(enum daos_otype_t type)
{
	return type == DAOS_OT_KV_HASHED || type == DAOS_OT_KV_UINT64 || type == DAOS_OT_KV_LEXICAL;
}

static inline bool daos_is_kv(daos_obj_id_t oid)
{
	return daos_is_kv_type(daos_obj_id2type(oid));
}

/* The next of a series of 32-bit numbers in `hi` that spreads ids well. */
static inline void daos_obj_oid_cycle(daos_obj_id_t *oid)
{
	oid->hi = (oid->hi + 999999937) & 0xffffffff;
}

#define IO_FLAGS_COND_BITS 8

/* Conditions of an operation; -DER_EXIST or -DER_NONEXIST if one is not met. */
enum {
	/* What is punched must exist. */
	DAOS_COND_PUNCH = 1 << 0,
	/* The key must not exist (insert) or must exist (update, fetch). */
	DAOS_COND_DKEY_INSERT = 1 << 1,
	DAOS_COND_DKEY_UPDATE = 1 << 2,
	DAOS_COND_DKEY_FETCH = 1 << 3,
	DAOS_COND_AKEY_INSERT = 1 << 4,
	DAOS_COND_AKEY_UPDATE = 1 << 5,
	DAOS_COND_AKEY_FETCH = 1 << 6,
	/* Conditions on akeys are in iod_flags of each. */
	DAOS_COND_PER_AKEY = 1 << 7,
	DAOS_COND_MASK = (1 << IO_FLAGS_COND_BITS) - 1
};

/* How an object is opened. */
enum {
	DAOS_OO_RO = 1 << 1,
	DAOS_OO_RW = 1 << 2,
	DAOS_OO_EXCL = 1 << 3,
	/* Advice: reads and writes are at random places, or one after the other. */
	DAOS_OO_IO_RAND = 1 << 4,
	DAOS_OO_IO_SEQ = 1 << 5
};

struct daos_obj_attr {
	/* Engine that leads the first group. */
	d_rank_t oa_rank;
	struct daos_oclass_attr *oa_oa;
};

/* `rx_nr` records from the one with number `rx_idx` on. */
typedef struct {
	uint64_t rx_idx;
	uint64_t rx_nr;
} daos_recx_t;

typedef enum {
	DAOS_IOD_NONE = 0,
	/* One value, replaced as a whole. */
	DAOS_IOD_SINGLE = 1,
	/* An array of records of one size. */
	DAOS_IOD_ARRAY = 2
} daos_iod_type_t;

/* What to read or write of an akey. */
typedef struct {
	daos_key_t iod_name;
	daos_iod_type_t iod_type;
	/* Bytes of the value or of a record. Out of a fetch: what is stored, 0 if nothing is. */
	daos_size_t iod_size;
	/* DAOS_COND_AKEY_* with DAOS_COND_PER_AKEY. */
	uint64_t iod_flags;
	/* Ranges; 1 for a single value. */
	uint32_t iod_nr;
	/* NULL for a single value. */
	daos_recx_t *iod_recxs;
} daos_iod_t;

/* iom_flags: fill in all ranges. */
#define DAOS_IOMF_DETAIL 0x1U

/* Which records exist in what was fetched. */
typedef struct {
	daos_iod_type_t iom_type;
	uint32_t iom_nr;
	uint32_t iom_nr_out;
	uint32_t iom_flags;
	daos_size_t iom_size;
	/* First and last range. */
	daos_recx_t iom_recx_lo;
	daos_recx_t iom_recx_hi;
	daos_recx_t *iom_recxs;
} daos_iom_t;

/* iod_size of a fetch: whatever is stored. */
enum { DAOS_REC_ANY = 0 };

/* Flags of daos_obj_query_key(). */
enum {
	DAOS_GET_MAX = 1 << 0,
	DAOS_GET_MIN = 1 << 1,
	DAOS_GET_DKEY = 1 << 2,
	DAOS_GET_AKEY = 1 << 3,
	DAOS_GET_RECX = 1 << 4
};

/* A key of a listing: its length, in the order in which the keys lie in the buffer. */
typedef struct {
	daos_size_t kd_key_len;
	uint32_t kd_val_type;
} daos_key_desc_t;

/* Hints for a class: redundancy and spread, one of each. */
#define DAOS_OCH_RDD_BITS 4
#define DAOS_OCH_SHD_BITS 6
#define DAOS_OCH_RDD_SHIFT 0
#define DAOS_OCH_SHD_SHIFT DAOS_OCH_RDD_BITS
#define DAOS_OCH_RDD_MAX_VAL ((1ULL << DAOS_OCH_RDD_BITS) - 1)
#define DAOS_OCH_SHD_MAX_VAL ((1ULL << DAOS_OCH_SHD_BITS) - 1)
#define DAOS_OCH_RDD_MASK (DAOS_OCH_RDD_MAX_VAL << DAOS_OCH_RDD_SHIFT)
#define DAOS_OCH_SHD_MASK (DAOS_OCH_SHD_MAX_VAL << DAOS_OCH_SHD_SHIFT)
enum {
	DAOS_OCH_RDD_DEF = 1 << 0,
	DAOS_OCH_RDD_NO = 1 << 1,
	DAOS_OCH_RDD_RP = 1 << 2,
	DAOS_OCH_RDD_EC = 1 << 3,
	DAOS_OCH_SHD_DEF = 1 << 4,
	DAOS_OCH_SHD_TINY = 1 << 5,
	DAOS_OCH_SHD_REG = 1 << 6,
	DAOS_OCH_SHD_HI = 1 << 7,
	DAOS_OCH_SHD_EXT = 1 << 8,
	DAOS_OCH_SHD_MAX = 1 << 9
};

/* Completes an id with type and class; with OC_UNKNOWN a class is chosen by type, hints and the
 * container's redundancy factor, which no hint weakens. -DER_INVAL if the class has less redundancy than
 * that, or more copies than there are targets. `args` is 0. */
int daos_obj_generate_oid(daos_handle_t coh, daos_obj_id_t *oid, enum daos_otype_t type,
			  daos_oclass_id_t cid, daos_oclass_hints_t hints, uint32_t args);
int daos_obj_generate_oid2(daos_handle_t coh, daos_obj_id_t *oid, enum daos_otype_t type,
			   daos_oclass_id_t cid, daos_oclass_hints_t hints, uint32_t args);

/* Opens an object; it need not exist. No message is sent. */
int daos_obj_open(daos_handle_t coh, daos_obj_id_t oid, unsigned int mode, daos_handle_t *oh,
		  daos_event_t *ev);
int daos_obj_close(daos_handle_t oh, daos_event_t *ev);

/* Punch: the object, dkeys, or akeys of a dkey are gone, with all below them. `flags` are DAOS_COND_*. */
int daos_obj_punch(daos_handle_t oh, daos_handle_t th, uint64_t flags, daos_event_t *ev);
int daos_obj_punch_dkeys(daos_handle_t oh, daos_handle_t th, uint64_t flags, unsigned int nr,
			 daos_key_t *dkeys, daos_event_t *ev);
int daos_obj_punch_akeys(daos_handle_t oh, daos_handle_t th, uint64_t flags, daos_key_t *dkey,
			 unsigned int nr, daos_key_t *akeys, daos_event_t *ev);

int daos_obj_query(daos_handle_t oh, struct daos_obj_attr *oa, d_rank_list_t *ranks, daos_event_t *ev);

/* Reads `nr` akeys of a dkey. `sgls`, if not NULL, holds a list of memory for each; NULL only asks for
 * sizes. -DER_REC2BIG if a value does not fit, with iod_size set. `ioms` may be NULL. */
int daos_obj_fetch(daos_handle_t oh, daos_handle_t th, uint64_t flags, daos_key_t *dkey, unsigned int nr,
		   daos_iod_t *iods, d_sg_list_t *sgls, daos_iom_t *ioms, daos_event_t *ev);

/* Writes `nr` akeys of a dkey at one moment (more than 32 MiB: in parts). iod_size 0 punches. */
int daos_obj_update(daos_handle_t oh, daos_handle_t th, uint64_t flags, daos_key_t *dkey, unsigned int nr,
		    daos_iod_t *iods, d_sg_list_t *sgls, daos_event_t *ev);

/* List keys: `*nr` is the room in `kds` in, the number of keys out. -DER_KEY2BIG if not even one fits
 * into `sgl`, with its length in kds[0]. */
int daos_obj_list_dkey(daos_handle_t oh, daos_handle_t th, uint32_t *nr, daos_key_desc_t *kds,
		       d_sg_list_t *sgl, daos_anchor_t *anchor, daos_event_t *ev);
int daos_obj_list_akey(daos_handle_t oh, daos_handle_t th, daos_key_t *dkey, uint32_t *nr,
		       daos_key_desc_t *kds, d_sg_list_t *sgl, daos_anchor_t *anchor, daos_event_t *ev);

/* Lists ranges of records; `*size` gets the bytes of a record. `eprs` may be NULL. */
int daos_obj_list_recx(daos_handle_t oh, daos_handle_t th, daos_key_t *dkey, daos_key_t *akey,
		       daos_size_t *size, uint32_t *nr, daos_recx_t *recxs, daos_epoch_range_t *eprs,
		       daos_anchor_t *anchor, bool incr_order, daos_event_t *ev);

/* Largest or smallest integer dkey, akey, or range of records, DAOS_GET_* flags. */
int daos_obj_query_key(daos_handle_t oh, daos_handle_t th, uint64_t flags, daos_key_t *dkey,
		       daos_key_t *akey, daos_recx_t *recx, daos_event_t *ev);

/* Last change of an object, 0 if there was none. */
int daos_obj_query_max_epoch(daos_handle_t oh, daos_handle_t th, daos_epoch_t *epoch, daos_event_t *ev);

/* Whether all copies are the same. */
int daos_obj_verify(daos_handle_t coh, daos_obj_id_t oid, daos_epoch_t epoch);

/* Splits a listing of dkeys: `*nr` parts, 0 for as many as there are shards. */
int daos_obj_anchor_split(daos_handle_t oh, uint32_t *nr, daos_anchor_t *anchors);
int daos_obj_anchor_set(daos_handle_t oh, uint32_t index, daos_anchor_t *anchor);
/* The anchor at which a listing goes on from a key. */
int daos_obj_key2anchor(daos_handle_t oh, daos_handle_t th, daos_key_t *dkey, daos_key_t *akey,
			daos_anchor_t *anchor, daos_event_t *ev);

/* Tables of objects: with epoch 0 or DAOS_EPOCH_MAX the objects that are there while it is listed, in the
 * order of their ids; -DER_NONEXIST for an epoch that is no snapshot. Marks belong to the handle. */
int daos_oit_open(daos_handle_t coh, daos_epoch_t epoch, daos_handle_t *oh, daos_event_t *ev);
int daos_oit_close(daos_handle_t oh, daos_event_t *ev);
int daos_oit_list(daos_handle_t oh, daos_obj_id_t *oids, uint32_t *oids_nr, daos_anchor_t *anchor,
		  daos_event_t *ev);

/* Longest mark, bytes. */
#define DAOS_OIT_MARKER_MAX_LEN 32
int daos_oit_mark(daos_handle_t oh, daos_obj_id_t oid, d_iov_t *marker, daos_event_t *ev);
int daos_oit_list_unmarked(daos_handle_t oh, daos_obj_id_t *oids, uint32_t *oids_nr,
			   daos_anchor_t *anchor, daos_event_t *ev);
typedef int(daos_oit_filter_cb)(daos_obj_id_t oid, d_iov_t *marker);
int daos_oit_list_filter(daos_handle_t oh, daos_obj_id_t *oids, uint32_t *oids_nr, daos_anchor_t *anchor,
			 daos_oit_filter_cb filter, daos_event_t *ev);

#ifdef __cplusplus
}
#endif

#endif
