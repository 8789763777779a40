/*
 * A hash table with chains, whose links sit in the caller's records.
 *
 * A record is known by its d_list_t link. The table calls back to compare keys, to count references
 * and to free a record whose last reference has gone.
 */
#ifndef AZK_GURT_HASH_H
#define AZK_GURT_HASH_H

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <gurt/atomic.h>
#include <gurt/list.h>
#include <gurt/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct d_hash_table;

/* What a table asks of its user. Members may be NULL except hop_key_cmp; insertion without a key needs
 * hop_key_init, and a record that is found by its link alone needs hop_rec_hash. */
typedef struct {
	/* Whether the record has this key. */
	bool (*hop_key_cmp)(struct d_hash_table *htable, d_list_t *link, const void *key,
			    unsigned int ksize);
	/* Gives the record a key, for d_hash_rec_insert_anonym(). */
	void (*hop_key_init)(struct d_hash_table *htable, d_list_t *link, void *arg);
	/* Hash of a key; NULL takes the table's own. */
	uint32_t (*hop_key_hash)(struct d_hash_table *htable, const void *key, unsigned int ksize);
	/* Hash of a record's key, the same as hop_key_hash() of the key. */
	uint32_t (*hop_rec_hash)(struct d_hash_table *htable, d_list_t *link);
	/* Takes a reference. */
	void (*hop_rec_addref)(struct d_hash_table *htable, d_list_t *link);
	/* Drops a reference; true if it was the last. */
	bool (*hop_rec_decref)(struct d_hash_table *htable, d_list_t *link);
	/* Drops `count` references; 1 if none is left, 0 if some are, or a negative error. */
	int (*hop_rec_ndecref)(struct d_hash_table *htable, d_list_t *link, int count);
	/* Frees a record that has no reference and is in no table. */
	void (*hop_rec_free)(struct d_hash_table *htable, d_list_t *link);
} d_hash_table_ops_t;

enum d_hash_feats {
	/* The caller locks. */
	D_HASH_FT_NOLOCK = 1 << 0,
	/* A mutex; the default is a spinning lock. */
	D_HASH_FT_MUTEX = 1 << 1,
	/* A lock that many may hold to read. */
	D_HASH_FT_RWLOCK = 1 << 2,
	/* The table holds no reference of its own: a record whose last one is dropped leaves it. */
	D_HASH_FT_EPHEMERAL = 1 << 3,
	/* Found records move to the front of their chain. */
	D_HASH_FT_LRU = 1 << 4,
	/* hop_key_init() runs without the lock. */
	D_HASH_FT_NO_KEYINIT_LOCK = 1 << 5,
	/* One lock for the table; the default is one per chain. */
	D_HASH_FT_GLOCK = 1 << 15
};

/* Room for a lock of any kind. */
union d_hash_lock {
	pthread_mutex_t mutex;
	uint64_t space[7];
};

struct d_hash_bucket {
	d_list_t hb_head;
};

/* A table. Declared for d_hash_table_create_inplace(); members are the library's. */
struct d_hash_table {
	union d_hash_lock ht_lock;
	uint32_t ht_bits;
	uint32_t ht_feats;
	void *ht_priv;
	d_hash_table_ops_t *ht_ops;
	struct d_hash_bucket *ht_buckets;
	union d_hash_lock *ht_locks;
};

/* Makes a table of 2^bits chains. `priv` is kept for the callbacks, `hops` must outlive the table.
 * 0, -DER_INVAL or -DER_NOMEM. */
int d_hash_table_create(uint32_t feats, uint32_t bits, void *priv, d_hash_table_ops_t *hops,
			struct d_hash_table **htable_pp);

/* The same in the caller's memory. */
int d_hash_table_create_inplace(uint32_t feats, uint32_t bits, void *priv, d_hash_table_ops_t *hops,
				struct d_hash_table *htable);

/* Called for each record; nonzero ends the traversal and is returned. */
typedef int (*d_hash_traverse_cb_t)(d_list_t *link, void *arg);

/* Visits every record. The callback may not change the table. */
int d_hash_table_traverse(struct d_hash_table *htable, d_hash_traverse_cb_t cb, void *arg);

/* Frees the table. -DER_BUSY if it has records and `force` is false; with `force` they are dropped. */
int d_hash_table_destroy(struct d_hash_table *htable, bool force);

/* The same for a table made in place: the struct itself stays the caller's. */
int d_hash_table_destroy_inplace(struct d_hash_table *htable, bool force);

/* Finds the record of a key and takes a reference. NULL if there is none. */
d_list_t *d_hash_rec_find(struct d_hash_table *htable, const void *key, unsigned int ksize);

/* Finds the record of a key, or inserts `link` under it; takes a reference in both cases. */
d_list_t *d_hash_rec_find_insert(struct d_hash_table *htable, const void *key, unsigned int ksize,
				 d_list_t *link);

/* Inserts a record. With `exclusive`, -DER_EXIST if the key is there already. */
int d_hash_rec_insert(struct d_hash_table *htable, const void *key, unsigned int ksize, d_list_t *link,
		      bool exclusive);

/* Inserts a record whose key hop_key_init() makes from `arg`. */
int d_hash_rec_insert_anonym(struct d_hash_table *htable, d_list_t *link, void *arg);

/* Takes the record of a key out. Whether there was one. */
bool d_hash_rec_delete(struct d_hash_table *htable, const void *key, unsigned int ksize);

/* Takes this record out. Whether it was in. */
bool d_hash_rec_delete_at(struct d_hash_table *htable, d_list_t *link);

/* Moves the record of a key to the end of its chain, in a table with D_HASH_FT_LRU. */
bool d_hash_rec_evict(struct d_hash_table *htable, const void *key, unsigned int ksize);

/* The same for this record. */
bool d_hash_rec_evict_at(struct d_hash_table *htable, d_list_t *link);

/* Takes a reference. */
void d_hash_rec_addref(struct d_hash_table *htable, d_list_t *link);

/* Drops a reference; frees the record if it was the last. */
void d_hash_rec_decref(struct d_hash_table *htable, d_list_t *link);

/* Drops `count` references. */
int d_hash_rec_ndecref(struct d_hash_table *htable, int count, d_list_t *link);

/* Whether the record is in no table. */
bool d_hash_rec_unlinked(d_list_t *link);

/* Any record, or NULL if there is none. Takes no reference. */
d_list_t *d_hash_rec_first(struct d_hash_table *htable);

/* Nothing here: counts of chains are not kept. */
void d_hash_table_debug(struct d_hash_table *htable);

/*
 * Handle tables: records under numbers that the table makes and gives once, with the record's type in
 * their lowest bits. Types are odd; D_HTYPE_PTR is for records under their address.
 */
#define D_HTYPE_BITS 4
#define D_HTYPE_MASK ((1ULL << D_HTYPE_BITS) - 1)

enum {
	D_HTYPE_PTR = 0
};

struct d_hlink;

struct d_hlink_ops {
	/* Called when nobody has a reference to the record any more; may be NULL. */
	void (*hop_free)(struct d_hlink *hlink);
};

struct d_rlink {
	d_list_t rl_link;
	uint32_t rl_ref;
	uint32_t rl_initialized;
};

/* What a record has inside. Members are the library's. */
struct d_hlink {
	struct d_rlink hl_link;
	uint64_t hl_key;
	struct d_hlink_ops *hl_ops;
};

/* A handle table. */
struct d_hhash;

/* Makes a table of 2^bits chains; `feats` as for d_hash_table_create(). Frees it: records in it lose
 * the table's reference. */
int d_hhash_create(uint32_t feats, uint32_t bits, struct d_hhash **hhash);
void d_hhash_destroy(struct d_hhash *hhash);

/* Makes a record ready; its maker has a reference. */
void d_hhash_hlink_init(struct d_hlink *hlink, struct d_hlink_ops *hl_ops);

/* Puts a record in, under a new number of a type; the table takes a reference. */
void d_hhash_link_insert(struct d_hhash *hhash, struct d_hlink *hlink, int type);

/* Finds a record and takes a reference; NULL if there is none. */
struct d_hlink *d_hhash_link_lookup(struct d_hhash *hhash, uint64_t key);

/* Takes and drops a reference. */
void d_hhash_link_getref(struct d_hhash *hhash, struct d_hlink *hlink);
void d_hhash_link_putref(struct d_hhash *hhash, struct d_hlink *hlink);

/* Takes a record out, with the table's reference. Whether it was in. */
bool d_hhash_link_delete(struct d_hhash *hhash, struct d_hlink *hlink);

/* Whether a record is in no table under a number. */
bool d_hhash_link_empty(struct d_hlink *hlink);

/* The number (or address) of a record; its type; whether it is an address. */
void d_hhash_link_key(struct d_hlink *hlink, uint64_t *key);
int d_hhash_key_type(uint64_t key);
bool d_hhash_key_isptr(uint64_t key);

/* Has a table take records under their address as well. -DER_ALREADY if it has records. */
int d_hhash_set_ptrtype(struct d_hhash *hhash);
bool d_hhash_is_ptrtype(struct d_hhash *hhash);

/* Visits the records of a type that are under numbers; nonzero ends the traversal and is returned. */
typedef int (*d_hhash_traverse_cb_t)(struct d_hlink *link, void *arg);
int d_hhash_traverse(struct d_hhash *hhash, int type, d_hhash_traverse_cb_t cb, void *arg);

#ifdef __cplusplus
}
#endif

#endif
