/* Handles given to another process through files, as MPI programs broadcast them. The exporter
 * closes everything before the importer starts.
 * usage: handover POOL NAME export|import DIRECTORY */
#include <daos.h>
#include <daos_fs.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include "check.h"

#define BYTES (3 * 1024 * 1024 + 17)

static char *directory;

static FILE *
file_of(const char *name, const char *mode)
{
	char  path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, mode);
	CHECK(file != NULL);
	return file;
}

static void
save(const char *name, const d_iov_t *glob)
{
	FILE *file = file_of(name, "wb");

	CHECK_EQ(fwrite(glob->iov_buf, 1, glob->iov_len, file), glob->iov_len);
	CHECK_EQ(fclose(file), 0);
	free(glob->iov_buf);
}

static d_iov_t
load(const char *name)
{
	FILE   *file = file_of(name, "rb");
	d_iov_t glob;

	CHECK_EQ(fseek(file, 0, SEEK_END), 0);
	glob.iov_buf_len = glob.iov_len = (size_t)ftell(file);
	glob.iov_buf                    = malloc(glob.iov_len);
	rewind(file);
	CHECK_EQ(fread(glob.iov_buf, 1, glob.iov_len, file), glob.iov_len);
	fclose(file);
	return glob;
}

/* The two calls: how long, then the bytes, with iov_len set as IOR sets it. A buffer that is too
 * small is told. */
#define EXPORT(file, small, call)                                                                  \
	do {                                                                                       \
		d_iov_t glob = {NULL, 0, 0};                                                       \
		CHECK_EQ(call, 0);                                                                 \
		CHECK(glob.iov_buf_len > 0);                                                       \
		glob.iov_buf     = malloc(glob.iov_buf_len);                                       \
		glob.iov_buf_len = glob.iov_buf_len - 1;                                           \
		CHECK_EQ(call, small);                                                             \
		glob.iov_len = glob.iov_buf_len;                                                   \
		CHECK_EQ(call, 0);                                                                 \
		save(file, &glob);                                                                 \
	} while (0)

static void
fill(char *memory)
{
	for (size_t i = 0; i < BYTES; i++)
		memory[i] = (char)(i * 131 + (i >> 12));
}

static void
export_all(const char *pool, const char *name)
{
	daos_handle_t poh, coh;
	dfs_t        *dfs;
	dfs_obj_t    *dir, *file;
	d_iov_t       iov;
	d_sg_list_t   sgl    = {1, 0, &iov};
	char         *memory = (char *)malloc(BYTES);

	CHECK_EQ(daos_init(), 0);
	CHECK_EQ(daos_pool_connect(pool, NULL, DAOS_PC_RW, &poh, NULL, NULL), 0);
	CHECK_EQ(dfs_cont_create_with_label(poh, name, NULL, NULL, NULL, NULL), 0);
	CHECK_EQ(daos_cont_open(poh, name, DAOS_COO_RW, &coh, NULL, NULL), 0);
	CHECK_EQ(dfs_mount(poh, coh, O_RDWR, &dfs), 0);
	CHECK_EQ(dfs_open(dfs, NULL, "dir", S_IFDIR | 0755, O_RDWR | O_CREAT | O_EXCL, 0, 0, NULL,
			  &dir),
		 0);
	CHECK_EQ(dfs_open(dfs, dir, "file", S_IFREG | 0644, O_RDWR | O_CREAT, 0, 65536, NULL, &file),
		 0);
	fill(memory);
	d_iov_set(&iov, memory, BYTES);
	CHECK_EQ(dfs_write(dfs, file, &sgl, 5, NULL), 0);
	EXPORT("pool", -DER_TRUNC, daos_pool_local2global(poh, &glob));
	EXPORT("cont", -DER_TRUNC, daos_cont_local2global(coh, &glob));
	EXPORT("dfs", ENOBUFS, dfs_local2global(dfs, &glob));
	EXPORT("dir", ENOBUFS, dfs_obj_local2global(dfs, dir, &glob));
	EXPORT("file", ENOBUFS, dfs_obj_local2global(dfs, file, &glob));
	EXPORT("all", ENOBUFS, dfs_local2global_all(dfs, &glob));
	CHECK_EQ(dfs_release(file), 0);
	CHECK_EQ(dfs_release(dir), 0);
	CHECK_EQ(dfs_umount(dfs), 0);
	CHECK_EQ(daos_cont_close(coh, NULL), 0);
	CHECK_EQ(daos_pool_disconnect(poh, NULL), 0);
	CHECK_EQ(daos_fini(), 0);
	free(memory);
}

static void
compare(dfs_t *dfs, dfs_obj_t *file)
{
	char       *memory = (char *)malloc(BYTES);
	char       *wanted = (char *)malloc(BYTES);
	d_iov_t     iov;
	d_sg_list_t sgl = {1, 0, &iov};
	daos_size_t got = 0;

	fill(wanted);
	d_iov_set(&iov, memory, BYTES);
	CHECK_EQ(dfs_read(dfs, file, &sgl, 5, &got, NULL), 0);
	CHECK_EQ(got, BYTES);
	CHECK_EQ(memcmp(memory, wanted, BYTES), 0);
	free(wanted);
	free(memory);
}

static void
import_all(const char *pool, const char *name)
{
	daos_handle_t poh, coh, other;
	dfs_t        *dfs, *all;
	dfs_obj_t    *dir, *file, *again;
	daos_size_t   chunk = 0;
	d_iov_t       glob;

	CHECK_EQ(daos_init(), 0);
	glob = load("pool");
	CHECK_EQ(daos_pool_global2local(glob, &poh), 0);
	glob.iov_len = glob.iov_buf_len = glob.iov_len - 1;
	CHECK_EQ(daos_pool_global2local(glob, &other), -DER_INVAL);
	free(glob.iov_buf);
	glob = load("cont");
	CHECK_EQ(daos_pool_global2local(glob, &other), -DER_INVAL);
	CHECK_EQ(daos_cont_global2local(poh, glob, &coh), 0);
	free(glob.iov_buf);
	glob = load("dfs");
	CHECK_EQ(dfs_global2local(poh, coh, O_RDWR, glob, &dfs), 0);
	free(glob.iov_buf);
	glob = load("file");
	CHECK_EQ(dfs_obj_global2local(dfs, O_RDWR, glob, &file), 0);
	free(glob.iov_buf);
	CHECK_EQ(dfs_get_chunk_size(file, &chunk), 0);
	CHECK_EQ(chunk, 65536);
	compare(dfs, file);
	CHECK_EQ(dfs_release(file), 0);
	glob = load("dir");
	CHECK_EQ(dfs_obj_global2local(dfs, O_RDONLY, glob, &dir), 0);
	free(glob.iov_buf);
	CHECK_EQ(dfs_open(dfs, dir, "file", S_IFREG, O_RDONLY, 0, 0, NULL, &again), 0);
	compare(dfs, again);
	CHECK_EQ(dfs_release(again), 0);
	CHECK_EQ(dfs_release(dir), 0);

	/* A mount of another container does not take them. */
	CHECK_EQ(dfs_umount(dfs), 0);
	CHECK_EQ(daos_cont_close(coh, NULL), 0);
	{
		char label[128];

		snprintf(label, sizeof(label), "%s-other", name);
		CHECK_EQ(dfs_cont_create_with_label(poh, label, NULL, NULL, &coh, &dfs), 0);
		glob = load("file");
		CHECK(dfs_obj_global2local(dfs, O_RDWR, glob, &file) != 0);
		free(glob.iov_buf);
		CHECK_EQ(dfs_umount(dfs), 0);
		CHECK_EQ(daos_cont_close(coh, NULL), 0);
		CHECK_EQ(daos_cont_destroy(poh, label, 0, NULL), 0);
	}
	CHECK_EQ(daos_pool_disconnect(poh, NULL), 0);

	/* A mount that brings its pool and container along. */
	glob = load("all");
	CHECK_EQ(dfs_global2local_all(O_RDWR, glob, &all), 0);
	free(glob.iov_buf);
	CHECK_EQ(dfs_lookup(all, "/dir/file", O_RDONLY, &file, NULL, NULL), 0);
	compare(all, file);
	CHECK_EQ(dfs_release(file), 0);
	CHECK_EQ(dfs_umount(all), EBUSY);
	CHECK_EQ(dfs_disconnect(all), 0);
	CHECK_EQ(daos_fini(), 0);
	(void)pool;
}

int
main(int argc, char **argv)
{
	CHECK_EQ(argc, 5);
	directory = argv[4];
	if (strcmp(argv[3], "export") == 0)
		export_all(argv[1], argv[2]);
	else
		import_all(argv[1], argv[2]);
	return 0;
}
