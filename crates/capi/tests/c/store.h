/* What the C tests of pools, containers and objects begin and end with. */
#ifndef AZK_TEST_STORE_H
#define AZK_TEST_STORE_H

#include <daos.h>
#include <daos_array.h>
#include <daos_kv.h>
#include <daos_obj.h>
#include "check.h"

static daos_handle_t poh, coh, coh_ro;

/* Connects, and makes and opens a container of the given name. */
static inline void
begin(const char *pool, const char *name)
{
	CHECK_EQ(daos_init(), 0);
	CHECK_EQ(daos_pool_connect(pool, NULL, DAOS_PC_RW, &poh, NULL, NULL), 0);
	CHECK_EQ(daos_cont_create_with_label(poh, name, NULL, NULL, NULL), 0);
	CHECK_EQ(daos_cont_open(poh, name, DAOS_COO_RW, &coh, NULL, NULL), 0);
	CHECK_EQ(daos_cont_open(poh, name, DAOS_COO_RO, &coh_ro, NULL, NULL), 0);
}

static inline void
end(const char *name)
{
	CHECK_EQ(daos_cont_close(coh_ro, NULL), 0);
	CHECK_EQ(daos_cont_close(coh, NULL), 0);
	CHECK_EQ(daos_cont_destroy(poh, name, 0, NULL), 0);
	CHECK_EQ(daos_pool_disconnect(poh, NULL), 0);
	CHECK_EQ(daos_fini(), 0);
}

/* An id that nothing else has. */
static inline daos_obj_id_t
new_id(enum daos_otype_t type, daos_oclass_id_t class_id)
{
	static uint64_t next = 1;
	daos_obj_id_t   oid  = {next++, 7};

	CHECK_EQ(daos_obj_generate_oid(coh, &oid, type, class_id, 0, 0), 0);
	return oid;
}

static inline daos_handle_t
open_obj(daos_obj_id_t oid)
{
	daos_handle_t oh;

	CHECK_EQ(daos_obj_open(coh, oid, DAOS_OO_RW, &oh, NULL), 0);
	return oh;
}

static inline d_iov_t
iov_of(const void *memory, size_t bytes)
{
	d_iov_t iov;

	d_iov_set(&iov, (void *)memory, bytes);
	return iov;
}

static inline d_iov_t
text_of(const char *text)
{
	return iov_of(text, strlen(text));
}

static inline d_sg_list_t
list_of(d_iov_t *iovs, uint32_t count)
{
	d_sg_list_t sgl;

	sgl.sg_nr     = count;
	sgl.sg_nr_out = 0;
	sgl.sg_iovs   = iovs;
	return sgl;
}

/* Bytes that tell where they belong. */
static inline void
fill(unsigned char *memory, size_t bytes, unsigned int seed)
{
	size_t at;

	for (at = 0; at < bytes; at++)
		memory[at] = (unsigned char)(at * 131 + (at >> 9) + seed);
}

#endif
