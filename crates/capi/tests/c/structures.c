/* Heaps, handle tables and descriptors that are used again, as a C program uses them. */

#include <daos.h>
#include <gurt/common.h>
#include <gurt/hash.h>
#include <gurt/heap.h>
#include <gurt/slab.h>
#include <pthread.h>
#include "check.h"

/* ---- heaps ---- */

#define JOBS 500

struct job {
	int priority;
	bool in;
	struct d_binheap_node node;
};

static struct job *job_of(struct d_binheap_node *node)
{
	return container_of(node, struct job, node);
}

static bool job_less(struct d_binheap_node *a, struct d_binheap_node *b)
{
	return job_of(a)->priority < job_of(b)->priority;
}

/* What is negative is not let in. */
static int job_enter(struct d_binheap *heap, struct d_binheap_node *node)
{
	if (job_of(node)->priority < 0)
		return -DER_INVAL;
	++*(int *)heap->d_bh_priv;
	return 0;
}

static int job_exit(struct d_binheap *heap, struct d_binheap_node *node)
{
	CHECK_EQ(node->chn_idx, DBH_POISON);
	--*(int *)heap->d_bh_priv;
	return 0;
}

static struct d_binheap_ops heap_ops;

/* Compared with a plain search for the least, under a long row of insertions and removals. */
static void heap(uint32_t feats, struct d_binheap *in_place)
{
	static struct job jobs[JOBS];
	struct d_binheap *made = in_place;
	unsigned int seed = 1, round;
	int inside = 0, at, least, refused = 0;

	memset(jobs, 0, sizeof(jobs));
	if (in_place != NULL)
		CHECK_EQ(d_binheap_create_inplace(feats, 0, &inside, &heap_ops, in_place), 0);
	else
		CHECK_EQ(d_binheap_create(feats, 3, &inside, &heap_ops, &made), 0);
	CHECK(d_binheap_is_empty(made) && d_binheap_root(made) == NULL);
	CHECK(d_binheap_remove_root(made) == NULL);
	for (round = 0; round < 20000; round++) {
		seed = seed * 1103515245 + 12345;
		at = (int)((seed >> 8) % JOBS);
		if (jobs[at].in) {
			CHECK(d_binheap_find(made, jobs[at].node.chn_idx) == &jobs[at].node);
			d_binheap_remove(made, &jobs[at].node);
			jobs[at].in = false;
		} else if (seed >> 28 < 13) {
			/* Many are equal. */
			jobs[at].priority = (int)((seed >> 20) % 100) - 1;
			if (jobs[at].priority < 0) {
				CHECK_EQ(d_binheap_insert(made, &jobs[at].node), -DER_INVAL);
				refused++;
			} else {
				CHECK_EQ(d_binheap_insert(made, &jobs[at].node), 0);
				jobs[at].in = true;
			}
		} else {
			struct d_binheap_node *root = d_binheap_remove_root(made);

			for (at = 0, least = 1000; at < JOBS; at++)
				if (jobs[at].in && jobs[at].priority < least)
					least = jobs[at].priority;
			CHECK_EQ(root == NULL, least == 1000);
			if (root != NULL) {
				CHECK(job_of(root)->in);
				CHECK_EQ(job_of(root)->priority, least);
				job_of(root)->in = false;
			}
		}
		CHECK_EQ(d_binheap_size(made), inside);
	}
	CHECK(refused > 0 && inside > 16);
	CHECK(d_binheap_find(made, (uint32_t)inside) == NULL);
	for (least = 0; !d_binheap_is_empty(made); least = job_of(d_binheap_remove_root(made))->priority)
		CHECK(job_of(d_binheap_root(made))->priority >= least);
	CHECK_EQ(inside, 0);
	if (in_place != NULL)
		d_binheap_destroy_inplace(in_place);
	else
		d_binheap_destroy(made);
}

static void heaps(void)
{
	struct d_binheap in_place, *made;
	struct d_binheap_ops none;

	memset(&none, 0, sizeof(none));
	heap_ops.hop_enter = job_enter;
	heap_ops.hop_exit = job_exit;
	heap_ops.hop_compare = job_less;
	heap(0, NULL);
	heap(DBH_FT_NOLOCK, &in_place);
	heap(DBH_FT_RWLOCK, &in_place);
	CHECK_EQ(d_binheap_create(0, 0, NULL, &none, &made), -DER_INVAL);
	CHECK_EQ(d_binheap_create(0, 0, NULL, NULL, &made), -DER_INVAL);
	CHECK_EQ(d_binheap_insert(NULL, NULL), -DER_INVAL);
	CHECK_EQ(d_binheap_size(NULL), -DER_INVAL);
	CHECK(d_binheap_is_empty(NULL) && d_binheap_remove_root(NULL) == NULL);
	d_binheap_remove(NULL, NULL);
	d_binheap_destroy(NULL);
}

/* ---- handle tables ---- */

struct record {
	struct d_hlink link;
	int *freed;
};

static void record_free(struct d_hlink *link)
{
	struct record *record = container_of(link, struct record, link);

	++*record->freed;
	D_FREE(record);
}

static struct d_hlink_ops record_ops;

static struct d_hlink *new_record(int *freed)
{
	struct record *record;

	D_ALLOC_PTR(record);
	CHECK(record != NULL);
	record->freed = freed;
	CHECK(d_hhash_link_empty(&record->link));
	d_hhash_hlink_init(&record->link, &record_ops);
	return &record->link;
}

static int count_until_three(struct d_hlink *link, void *arg)
{
	CHECK(link != NULL);
	return ++*(int *)arg == 3 ? 77 : 0;
}

static int count(struct d_hlink *link, void *arg)
{
	CHECK(!d_hhash_link_empty(link));
	++*(int *)arg;
	return 0;
}

static void handle_table(uint32_t feats)
{
	struct d_hhash *table = NULL;
	struct d_hlink *link, *by_address;
	uint64_t keys[100], key = 0;
	int freed = 0, seen = 0, at;

	record_ops.hop_free = record_free;
	CHECK_EQ(d_hhash_create(feats, 3, NULL), -DER_INVAL);
	CHECK_EQ(d_hhash_create(feats, 3, &table), 0);
	CHECK(!d_hhash_is_ptrtype(table));
	for (at = 0; at < 100; at++) {
		link = new_record(&freed);
		d_hhash_link_insert(table, link, at % 2 == 0 ? 3 : 15);
		d_hhash_link_key(link, &keys[at]);
		CHECK(!d_hhash_key_isptr(keys[at]) && !d_hhash_link_empty(link));
		CHECK_EQ(d_hhash_key_type(keys[at]), at % 2 == 0 ? 3 : 15);
		/* The table has a reference of its own. */
		d_hhash_link_putref(table, link);
	}
	CHECK_EQ(freed, 0);
	CHECK_EQ(d_hhash_traverse(table, 15, count, &seen), 0);
	CHECK_EQ(seen, 50);
	seen = 0;
	CHECK_EQ(d_hhash_traverse(table, 3, count_until_three, &seen), 77);
	CHECK_EQ(seen, 3);
	CHECK_EQ(d_hhash_traverse(table, 5, count, &seen), 0);
	CHECK_EQ(seen, 3);
	CHECK_EQ(d_hhash_set_ptrtype(table), -DER_ALREADY);
	for (at = 0; at < 100; at += 3) {
		link = d_hhash_link_lookup(table, keys[at]);
		CHECK(link != NULL);
		CHECK(d_hhash_link_delete(table, link) && !d_hhash_link_delete(table, link));
		CHECK(d_hhash_link_lookup(table, keys[at]) == NULL);
		CHECK_EQ(freed, at / 3);
		d_hhash_link_putref(table, link);
		CHECK_EQ(freed, at / 3 + 1);
	}
	CHECK(d_hhash_link_lookup(table, keys[99] + (1 << D_HTYPE_BITS)) == NULL);
	CHECK(d_hhash_link_lookup(table, 0) == NULL);
	/* No such type: it is not put in. */
	link = new_record(&freed);
	d_hhash_link_insert(table, link, 4);
	d_hhash_link_insert(table, link, 17);
	d_hhash_link_insert(table, link, D_HTYPE_PTR);
	CHECK(d_hhash_link_empty(link));
	d_hhash_link_putref(table, link);
	CHECK_EQ(freed, 35);
	d_hhash_destroy(table);
	CHECK_EQ(freed, 101);

	/* By address. */
	freed = 0;
	CHECK_EQ(d_hhash_create(feats, 1, &table), 0);
	CHECK_EQ(d_hhash_set_ptrtype(table), 0);
	CHECK(d_hhash_is_ptrtype(table));
	by_address = new_record(&freed);
	d_hhash_link_insert(table, by_address, D_HTYPE_PTR);
	link = new_record(&freed);
	d_hhash_link_insert(table, link, 1);
	d_hhash_link_key(by_address, &key);
	CHECK_EQ(key, (uintptr_t)by_address);
	CHECK_EQ(d_hhash_key_type(key), D_HTYPE_PTR);
	CHECK(d_hhash_link_lookup(table, key) == by_address);
	d_hhash_link_getref(table, by_address);
	d_hhash_link_putref(table, by_address);
	d_hhash_link_putref(table, by_address);
	CHECK(d_hhash_link_delete(table, by_address));
	CHECK(d_hhash_link_lookup(table, key) == NULL);
	CHECK_EQ(freed, 0);
	d_hhash_link_putref(table, by_address);
	CHECK_EQ(freed, 1);
	d_hhash_link_putref(table, link);
	d_hhash_destroy(table);
	CHECK_EQ(freed, 2);
}

struct shared {
	struct d_hhash *table;
	uint64_t key;
};

static void *look_up(void *arg)
{
	struct shared *shared = (struct shared *)arg;
	struct d_hlink *link;
	int at;

	for (at = 0; at < 2000; at++) {
		link = d_hhash_link_lookup(shared->table, shared->key);
		CHECK(link != NULL);
		d_hhash_link_putref(shared->table, link);
	}
	return NULL;
}

static void handles_from_threads(uint32_t feats)
{
	struct shared shared;
	struct d_hlink *link;
	pthread_t threads[4];
	int freed = 0, at;

	CHECK_EQ(d_hhash_create(feats, 2, &shared.table), 0);
	link = new_record(&freed);
	d_hhash_link_insert(shared.table, link, 9);
	d_hhash_link_key(link, &shared.key);
	for (at = 0; at < 4; at++)
		CHECK_EQ(pthread_create(&threads[at], NULL, look_up, &shared), 0);
	for (at = 0; at < 4; at++)
		CHECK_EQ(pthread_join(threads[at], NULL), 0);
	CHECK_EQ(freed, 0);
	d_hhash_link_putref(shared.table, link);
	d_hhash_destroy(shared.table);
	CHECK_EQ(freed, 1);
}

/* ---- descriptors ---- */

struct descriptor {
	int reset;
	bool spoiled;
	d_list_t link;
	int *made;
};

static int released;

static void descriptor_init(void *desc, void *handle)
{
	struct descriptor *descriptor = (struct descriptor *)desc;

	CHECK(descriptor->made == NULL && descriptor->reset == 0);
	descriptor->made = (int *)handle;
	++*descriptor->made;
}

static bool descriptor_reset(void *desc)
{
	((struct descriptor *)desc)->reset++;
	return !((struct descriptor *)desc)->spoiled;
}

static void descriptor_release(void *desc)
{
	CHECK(((struct descriptor *)desc)->reset > 0);
	released++;
}

static bool never(void *desc)
{
	(void)desc;
	return false;
}

static void descriptors(void)
{
	struct d_slab slab;
	struct d_slab_reg reg, wrong;
	struct d_slab_type *type = NULL, *few = NULL, *plain = NULL;
	struct descriptor *taken[20];
	int made = 0, made_few = 0, at;

	memset(&reg, 0, sizeof(reg));
	reg.sr_init = descriptor_init;
	reg.sr_reset = descriptor_reset;
	reg.sr_release = descriptor_release;
	reg.sr_name = (char *)"descriptor";
	reg.sr_size = sizeof(struct descriptor);
	reg.sr_offset = offsetof(struct descriptor, link);
	CHECK_EQ(d_slab_init(NULL, NULL), -DER_INVAL);
	CHECK_EQ(d_slab_init(&slab, NULL), 0);
	CHECK_EQ(d_slab_register(&slab, &reg, &made, &type), 0);
	CHECK(made >= 1);
	/* Registrations that do not fit together. */
	wrong = reg;
	wrong.sr_name = NULL;
	CHECK_EQ(d_slab_register(&slab, &wrong, &made, &few), -DER_INVAL);
	wrong = reg;
	wrong.sr_offset = reg.sr_size - 1;
	CHECK_EQ(d_slab_register(&slab, &wrong, &made, &few), -DER_INVAL);
	wrong = reg;
	wrong.sr_reset = never;
	CHECK_EQ(d_slab_register(&slab, &wrong, &made_few, &few), -DER_INVAL);
	CHECK_EQ(made_few, 1);
	made_few = 0;

	for (at = 0; at < 10; at++) {
		taken[at] = (struct descriptor *)d_slab_acquire(type);
		CHECK(taken[at] != NULL && taken[at]->reset == 1);
	}
	CHECK_EQ(made, 10);
	for (at = 0; at < 10; at++)
		d_slab_release(type, taken[at]);
	/* As many are ready as were taken; none is made on the way. */
	d_slab_restock(type);
	made = 0;
	for (at = 0; at < 10; at++) {
		taken[at] = (struct descriptor *)d_slab_acquire(type);
		CHECK(taken[at] != NULL && taken[at]->link.next == NULL);
	}
	CHECK_EQ(made, 0);
	/* Given back and taken without restocking; one cannot be reset, and another comes for it. */
	taken[0]->spoiled = true;
	d_slab_release(type, taken[0]);
	for (at = 0; at < 3; at++) {
		taken[0] = (struct descriptor *)d_slab_acquire(type);
		CHECK(taken[0] != NULL && !taken[0]->spoiled);
		d_slab_release(type, taken[0]);
	}
	CHECK(d_slab_reclaim(&slab));
	CHECK(released > 0);
	for (at = 1; at < 10; at++)
		d_slab_release(type, taken[at]);
	CHECK(!d_slab_reclaim(&slab));

	/* No more than three. */
	reg.sr_max_desc = 3;
	reg.sr_max_free_desc = 2;
	CHECK_EQ(d_slab_register(&slab, &reg, &made_few, &few), 0);
	for (at = 0; at < 3; at++) {
		taken[at] = (struct descriptor *)d_slab_acquire(few);
		CHECK(taken[at] != NULL);
	}
	CHECK(d_slab_acquire(few) == NULL);
	CHECK_EQ(made_few, 3);
	d_slab_release(few, taken[1]);
	d_slab_restock(few);
	CHECK(d_slab_acquire(few) == taken[1] && d_slab_acquire(few) == NULL);
	for (at = 0; at < 3; at++)
		d_slab_release(few, taken[at]);

	/* Without functions. */
#ifdef __cplusplus
	reg.sr_init = NULL;
	reg.sr_reset = NULL;
	reg.sr_release = NULL;
	CHECK_EQ(d_slab_register(&slab, &reg, NULL, &plain), 0);
#else
	struct d_slab_reg least = {POOL_TYPE_INIT(descriptor, link)};

	CHECK_STR(least.sr_name, "descriptor");
	CHECK_EQ(d_slab_register(&slab, &least, NULL, &plain), 0);
#endif
	taken[0] = (struct descriptor *)d_slab_acquire(plain);
	CHECK(taken[0] != NULL && taken[0]->reset == 0);
	d_slab_release(plain, taken[0]);
	d_slab_destroy(&slab);
	d_slab_destroy(&slab);
	CHECK_EQ(d_slab_register(&slab, &reg, NULL, &plain), -DER_INVAL);
	CHECK(d_slab_acquire(NULL) == NULL);
}

int main(void)
{
	heaps();
	handle_table(0);
	handle_table(D_HASH_FT_NOLOCK);
	handle_table(D_HASH_FT_RWLOCK);
	handle_table(D_HASH_FT_MUTEX | D_HASH_FT_GLOCK);
	handles_from_threads(0);
	handles_from_threads(D_HASH_FT_RWLOCK);
	descriptors();
	return 0;
}
