/*
 * Paths that lead to containers. Arguments: pool, a name; the third, if given, says that the
 * current directory keeps no extended attributes.
 */
#include <daos.h>
#include <daos_fs.h>
#include <daos_uns.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "check.h"

static void
test_text(void)
{
	struct duns_attr_t attr;
	char               text[] = "DAOS.HDF5://67e55044-10b1-426f-9247-bb680e5fe0c8/"
		      "0a1b2c3d-0000-4000-8000-123456789abc";

	memset(&attr, 0, sizeof(attr));
	CHECK_EQ(duns_resolve_path("daos://tank/cont/dir/file", &attr), 0);
	CHECK_STR(attr.da_pool, "tank");
	CHECK_STR(attr.da_cont, "cont");
	CHECK_STR(attr.da_rel_path, "/dir/file");
	CHECK_EQ(duns_set_sys_name(&attr, "sys"), 0);
	CHECK_EQ(duns_set_sys_name(&attr, "other"), 0);
	CHECK_STR(attr.da_sys, "other");
	duns_destroy_attr(&attr);
	CHECK(attr.da_rel_path == NULL && attr.da_sys == NULL);
	duns_destroy_attr(&attr);
	duns_destroy_attr(NULL);
	CHECK_EQ(duns_resolve_path("daos:///x", &attr), EINVAL);
	CHECK_EQ(duns_resolve_path(NULL, &attr), EINVAL);
	CHECK_EQ(duns_resolve_path("daos://a/b", NULL), EINVAL);
	attr.da_flags = DUNS_NO_CHECK_PATH;
	CHECK_EQ(duns_resolve_path("/tank/cont", &attr), 0);
	CHECK_STR(attr.da_cont, "cont");
	CHECK(attr.da_rel_path == NULL);
	duns_destroy_attr(&attr);
	CHECK_EQ(duns_parse_attr(text, strlen(text) + 1, &attr), 0);
	CHECK_EQ(attr.da_type, DAOS_PROP_CO_LAYOUT_HDF5);
	CHECK_STR(attr.da_pool, "67e55044-10b1-426f-9247-bb680e5fe0c8");
	CHECK_EQ(attr.da_cuuid[0], 0x0a);
	CHECK_EQ(duns_parse_attr(text, 20, &attr), EINVAL);
	duns_destroy_attr(&attr);
}

static void
test_paths(daos_handle_t poh, const char *name)
{
	struct duns_attr_t attr;
	char               path[128], below[160], address[160];
	daos_handle_t      coh;
	dfs_t             *dfs;

	snprintf(path, sizeof(path), "%s.dir", name);
	memset(&attr, 0, sizeof(attr));
	CHECK_EQ(duns_create_path(poh, path, &attr), EINVAL);
	attr.da_type = DAOS_PROP_CO_LAYOUT_POSIX;
	CHECK_EQ(duns_create_path(poh, path, &attr), 0);
	CHECK_EQ(duns_create_path(poh, path, &attr), EEXIST);
	CHECK_EQ(daos_cont_open(poh, attr.da_cont, DAOS_COO_RW, &coh, NULL, NULL), 0);
	CHECK_EQ(dfs_mount(poh, coh, O_RDWR, &dfs), 0);
	CHECK_EQ(dfs_umount(dfs), 0);
	CHECK_EQ(daos_cont_close(coh, NULL), 0);
	strcpy(address, attr.da_cont);

	snprintf(below, sizeof(below), "%s/x/y", path);
	memset(&attr, 0, sizeof(attr));
	CHECK_EQ(duns_resolve_path(below, &attr), 0);
	CHECK_EQ(attr.da_type, DAOS_PROP_CO_LAYOUT_POSIX);
	CHECK_STR(attr.da_cont, address);
	CHECK_STR(attr.da_rel_path, "/x/y");
	duns_destroy_attr(&attr);
	attr.da_flags = DUNS_NO_REVERSE_LOOKUP;
	CHECK(duns_resolve_path(below, &attr) != 0);
	CHECK_EQ(duns_resolve_path(".", &attr), ENODATA);

	/* A second way to the same container; the first destroys it, the second is cleared away. */
	snprintf(below, sizeof(below), "%s.link", name);
	CHECK_EQ(duns_link_cont(poh, address, below), 0);
	CHECK_EQ(duns_destroy_path(poh, path), 0);
	CHECK_EQ(access(path, F_OK), -1);
	CHECK_EQ(daos_cont_open(poh, address, DAOS_COO_RW, &coh, NULL, NULL), -DER_NONEXIST);
	CHECK_EQ(duns_destroy_path(poh, below), 0);
	CHECK_EQ(access(below, F_OK), -1);
	CHECK_EQ(duns_destroy_path(poh, path), ENOENT);
}

static void
test_addresses(daos_handle_t poh, const char *pool, const char *name)
{
	struct duns_attr_t attr;
	char               address[160];

	snprintf(address, sizeof(address), "daos://%s/%s", pool, name);
	memset(&attr, 0, sizeof(attr));
	attr.da_type = DAOS_PROP_CO_LAYOUT_POSIX;
	CHECK_EQ(duns_create_path(poh, address, &attr), 0);
	CHECK_EQ(duns_create_path(poh, address, &attr), EEXIST);
	CHECK_EQ(duns_create_path(poh, "daos://elsewhere/x", &attr), EINVAL);
	CHECK_EQ(duns_destroy_path(poh, address), 0);
	CHECK_EQ(duns_destroy_path(poh, address), ENOENT);
}

int
main(int argc, char **argv)
{
	daos_handle_t poh;

	CHECK(argc >= 3);
	test_text();
	CHECK_EQ(daos_init(), 0);
	CHECK_EQ(daos_pool_connect(argv[1], NULL, DAOS_PC_RW, &poh, NULL, NULL), 0);
	test_addresses(poh, argv[1], argv[2]);
	if (argc == 3)
		test_paths(poh, argv[2]);
	CHECK_EQ(daos_pool_disconnect(poh, NULL), 0);
	CHECK_EQ(daos_fini(), 0);
	return 0;
}
