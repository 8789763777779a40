/* A mounted container to test files in, and what all tests of files need. */
#ifndef AZK_TEST_MOUNTED_H
#define AZK_TEST_MOUNTED_H

#include <daos.h>
#include <daos_fs.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include "check.h"

static daos_handle_t poh, coh;
static dfs_t        *dfs;

static inline dfs_obj_t *
open_file(dfs_obj_t *dir, const char *name, int flags)
{
	dfs_obj_t *file = NULL;

	CHECK_EQ(dfs_open(dfs, dir, name, S_IFREG | 0644, flags, 0, 0, NULL, &file), 0);
	CHECK(file != NULL);
	return file;
}

static inline void
write_at(dfs_obj_t *file, const void *data, size_t bytes, daos_off_t offset)
{
	d_iov_t     iov;
	d_sg_list_t sgl = {1, 0, &iov};

	d_iov_set(&iov, (void *)data, bytes);
	CHECK_EQ(dfs_write(dfs, file, &sgl, offset, NULL), 0);
}

static inline daos_size_t
read_at(dfs_obj_t *file, void *data, size_t bytes, daos_off_t offset)
{
	d_iov_t     iov;
	d_sg_list_t sgl  = {1, 0, &iov};
	daos_size_t read = 12345;

	d_iov_set(&iov, data, bytes);
	CHECK_EQ(dfs_read(dfs, file, &sgl, offset, &read, NULL), 0);
	return read;
}

/* Makes a container of this name in a pool, and mounts it. */
static inline void
begin(const char *pool, const char *label)
{
	uuid_t     uuid;
	dfs_attr_t attr;

	CHECK_EQ(daos_init(), 0);
	CHECK_EQ(daos_pool_connect(pool, NULL, DAOS_PC_RW, &poh, NULL, NULL), 0);
	memset(&attr, 0, sizeof(attr));
	attr.da_chunk_size = (1ULL << 30) + 1;
	CHECK_EQ(dfs_cont_create_with_label(poh, label, &attr, &uuid, &coh, &dfs), EINVAL);
	attr.da_chunk_size = 1 << 20;
	strcpy(attr.da_hints, "file:single,dir:single");
	CHECK_EQ(dfs_cont_create_with_label(poh, label, &attr, &uuid, &coh, &dfs), 0);
	CHECK_EQ(dfs_cont_create_with_label(poh, label, &attr, &uuid, NULL, NULL), EEXIST);
}

/* Ends the mount, has the container checked, and destroys it. */
static inline void
end(const char *label)
{
	CHECK_EQ(dfs_umount(dfs), 0);
	CHECK_EQ(daos_cont_close(coh, NULL), 0);
	CHECK_EQ(dfs_cont_check(poh, label, DFS_CHECK_PRINT | DFS_CHECK_REMOVE | DFS_CHECK_VERIFY, NULL),
		 0);
	CHECK_EQ(dfs_cont_scan(poh, label, 0, NULL), 0);
	CHECK_EQ(daos_cont_destroy(poh, label, 0, NULL), 0);
	CHECK_EQ(daos_pool_disconnect(poh, NULL), 0);
	CHECK_EQ(daos_fini(), 0);
}

#endif
