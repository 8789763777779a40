/*
 * A binary heap whose places sit in the caller's records: the least record is the first.
 *
 * A record is known by the node in it. The heap calls back to compare two of them.
 */
#ifndef AZK_GURT_HEAP_H
#define AZK_GURT_HEAP_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <daos_errno.h>
#include <gurt/hash.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The place of a record; DBH_POISON when it was taken out. */
struct d_binheap_node {
	uint32_t chn_idx;
};

#define DBH_POISON (0xdeadbeef)

enum d_bh_feats {
	/* The caller locks; the default is a mutex. */
	DBH_FT_NOLOCK = 1 << 0,
	/* A lock that many may hold to read. */
	DBH_FT_RWLOCK = 1 << 1
};

struct d_binheap;

/* What a heap asks of its user, under its lock. Only hop_compare must be there. */
struct d_binheap_ops {
	/* Before a node is inserted; what is not 0 forbids it, and is returned. */
	int (*hop_enter)(struct d_binheap *h, struct d_binheap_node *e);
	/* After a node was taken out. */
	int (*hop_exit)(struct d_binheap *h, struct d_binheap_node *e);
	/* Whether a is less than b. */
	bool (*hop_compare)(struct d_binheap_node *a, struct d_binheap_node *b);
};

/* A heap. Declared for d_binheap_create_inplace(); members are the library's, but for d_bh_priv. */
struct d_binheap {
	union d_hash_lock d_bh_lock;
	uint32_t d_bh_feats;
	uint32_t d_bh_nodes_cnt;
	uint32_t d_bh_hwm;
	uint32_t d_bh_pad32;
	struct d_binheap_node **d_bh_nodes;
	struct d_binheap_ops *d_bh_ops;
	void *d_bh_priv;
};

/* Makes a heap with room for `count` nodes at first. 0, -DER_INVAL or -DER_NOMEM. */
int d_binheap_create(uint32_t feats, uint32_t count, void *priv, struct d_binheap_ops *ops,
		     struct d_binheap **h);
int d_binheap_create_inplace(uint32_t feats, uint32_t count, void *priv, struct d_binheap_ops *ops,
			     struct d_binheap *h);

/* Frees a heap, or (in place) what it holds. Nodes that are left are not touched. */
void d_binheap_destroy(struct d_binheap *h);
void d_binheap_destroy_inplace(struct d_binheap *h);

/* The node at a place, NULL beyond the last. */
struct d_binheap_node *d_binheap_find(struct d_binheap *h, uint32_t idx);

/* Inserts a node that is in no heap. 0, -DER_INVAL, -DER_NOMEM, or what hop_enter() returned. */
int d_binheap_insert(struct d_binheap *h, struct d_binheap_node *e);

/* Takes a node out, or the least one: NULL if there is none. */
void d_binheap_remove(struct d_binheap *h, struct d_binheap_node *e);
struct d_binheap_node *d_binheap_remove_root(struct d_binheap *h);

/* How many nodes there are, -DER_INVAL for NULL. */
static inline int d_binheap_size(struct d_binheap *h)
{
	return h == NULL ? -DER_INVAL : (int)h->d_bh_nodes_cnt;
}

static inline bool d_binheap_is_empty(struct d_binheap *h)
{
	return h == NULL || h->d_bh_nodes_cnt == 0;
}

/* The least node, NULL if there is none. */
static inline struct d_binheap_node *d_binheap_root(struct d_binheap *h)
{
	return d_binheap_find(h, 0);
}

#ifdef __cplusplus
}
#endif

#endif
