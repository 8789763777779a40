/*
 * Descriptors that are used again instead of being made anew.
 *
 * What was given back is reset when somebody restocks, or when nothing else is left.
 */
#ifndef AZK_GURT_SLAB_H
#define AZK_GURT_SLAB_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <gurt/list.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a kind of descriptors is like. The functions may be NULL. */
struct d_slab_reg {
	/* Called once for each descriptor, with the argument of the registration. */
	void (*sr_init)(void *desc, void *handle);
	/* Makes a descriptor ready for use; false when it cannot be. */
	bool (*sr_reset)(void *desc);
	/* Called once, before the memory of a descriptor goes. */
	void (*sr_release)(void *desc);
	char *sr_name;
	int sr_size;
	/* Where in a descriptor there is a d_list_t for the library. */
	int sr_offset;
	/* Most descriptors that exist, and that wait to be used; 0 for no limit. */
	int sr_max_desc;
	int sr_max_free_desc;
};

/* The first members of a registration of descriptors `struct itype` with a d_list_t `imember`. */
#define POOL_TYPE_INIT(itype, imember)                                                             \
	.sr_name = (char *)#itype, .sr_size = sizeof(struct itype),                                \
	.sr_offset = offsetof(struct itype, imember),

/* Descriptors of one kind. */
struct d_slab_type;

/* Kinds of descriptors. Declared for its user's memory; members are the library's. */
struct d_slab {
	struct d_slab_type *slab_types;
	void *slab_arg;
	pthread_mutex_t slab_lock;
	bool slab_init;
};

/* Begins with no kind of descriptors. 0, -DER_INVAL or -DER_NOMEM. */
int d_slab_init(struct d_slab *slab, void *arg);

/* Frees all kinds and what nobody uses of them. */
void d_slab_destroy(struct d_slab *slab);

/* Adds a kind and makes a descriptor of it. 0 or -DER_INVAL. */
int d_slab_register(struct d_slab *slab, struct d_slab_reg *reg, void *arg, struct d_slab_type **type);

/* Takes a descriptor, NULL when there is none and none may be made; gives it back. */
void *d_slab_acquire(struct d_slab_type *type);
void d_slab_release(struct d_slab_type *type, void *desc);

/* Makes ready as many as were taken at once before. For when there is time. */
void d_slab_restock(struct d_slab_type *type);

/* Frees what nobody uses of all kinds. Whether some are in use. */
bool d_slab_reclaim(struct d_slab *slab);

#ifdef __cplusplus
}
#endif

#endif
