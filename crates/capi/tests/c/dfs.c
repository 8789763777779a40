/*
 * Files as a C program sees them: mounts, names, links, data, attributes.
 * Arguments: pool, a name for the container.
 */
#include <sys/xattr.h>
#include "mounted.h"

static void
test_mount(void)
{
	dfs_t     *other;
	dfs_attr_t attr;

	memset(&attr, 0xff, sizeof(attr));
	CHECK_EQ(dfs_query(dfs, &attr), 0);
	CHECK_EQ(attr.da_chunk_size, 1 << 20);
	CHECK(attr.da_file_oclass_id != 0 && attr.da_dir_oclass_id != 0);

	CHECK_EQ(dfs_mount(poh, coh, O_RDONLY, &other), 0);
	CHECK_EQ(dfs_mkdir(other, NULL, "no", 0755, 0), EPERM);
	CHECK_EQ(dfs_umount(other), 0);
	CHECK_EQ(dfs_umount(other), EINVAL);
	CHECK_EQ(dfs_mkdir(other, NULL, "no", 0755, 0), EINVAL);
	CHECK_EQ(dfs_umount(NULL), EINVAL);
	CHECK_EQ(dfs_mount(poh, poh, O_RDWR, &other), EINVAL);
	CHECK_EQ(dfs_mount(poh, coh, O_RDWR, NULL), EINVAL);
	CHECK_EQ(dfs_mount(poh, coh, O_RDWR | DFS_BALANCED, &other), 0);
	CHECK_EQ(dfs_query(other, &attr), 0);
	CHECK_EQ(attr.da_mode, DFS_BALANCED);
	CHECK_EQ(dfs_sync(other), 0);
	CHECK_EQ(dfs_disconnect(other), EINVAL);
	CHECK_EQ(dfs_umount(other), 0);
}

static void
test_names(void)
{
	dfs_obj_t    *dir, *obj, *again;
	struct stat   st;
	mode_t        mode;
	daos_obj_id_t oid, removed;
	char          long_name[300];

	CHECK_EQ(dfs_mkdir(dfs, NULL, "d", 0750, 0), 0);
	CHECK_EQ(dfs_mkdir(dfs, NULL, "d", 0750, 0), EEXIST);
	CHECK_EQ(dfs_lookup(dfs, "/d", O_RDWR, &dir, &mode, &st), 0);
	CHECK(S_ISDIR(mode));
	CHECK_EQ(mode & 07777, 0750);
	CHECK_EQ(st.st_mode, mode);
	CHECK_EQ(st.st_uid, geteuid());
	CHECK_EQ(dfs_lookup(dfs, "d", O_RDWR, &obj, NULL, NULL), EINVAL);
	CHECK_EQ(dfs_lookup(dfs, "/d/none", O_RDWR, &obj, NULL, NULL), ENOENT);
	CHECK_EQ(dfs_lookup(dfs, "/", O_RDWR, &obj, NULL, NULL), 0);
	CHECK_EQ(dfs_release(obj), 0);

	/* What dfs_open makes, and what it does not take for a file. */
	obj = open_file(dir, "f", O_RDWR | O_CREAT | O_EXCL);
	CHECK_EQ(dfs_get_mode(obj, &mode), 0);
	CHECK_EQ(mode, S_IFREG | 0644);
	CHECK_EQ(dfs_open(dfs, dir, "f", S_IFREG | 0600, O_RDWR | O_CREAT | O_EXCL, 0, 0, NULL, &again),
		 EEXIST);
	again = open_file(dir, "f", O_RDWR | O_CREAT);
	CHECK_EQ(dfs_release(again), 0);
	CHECK_EQ(dfs_release(again), EINVAL);
	CHECK_EQ(dfs_release(NULL), EINVAL);
	CHECK_EQ(dfs_open(dfs, NULL, "d", S_IFREG | 0600, O_RDWR, 0, 0, NULL, &again), EINVAL);
	CHECK_EQ(dfs_open(dfs, dir, "f", S_IFDIR | 0700, O_RDWR, 0, 0, NULL, &again), EINVAL);
	CHECK_EQ(dfs_open(dfs, dir, "g", S_IFREG | 0600, O_RDWR, 0, 0, NULL, &again), ENOENT);
	CHECK_EQ(dfs_open(dfs, obj, "g", S_IFREG | 0600, O_RDWR | O_CREAT, 0, 0, NULL, &again), ENOTDIR);
	CHECK_EQ(dfs_open(dfs, dir, "a/b", S_IFREG | 0600, O_RDWR | O_CREAT, 0, 0, NULL, &again), EINVAL);
	CHECK_EQ(dfs_open(dfs, dir, "f", S_IFREG | 0600, O_RDWR, 0xff000001, 0, NULL, &again), EINVAL);
	memset(long_name, 'n', sizeof(long_name));
	long_name[256] = 0;
	CHECK_EQ(dfs_mkdir(dfs, dir, long_name, 0700, 0), ENAMETOOLONG);
	CHECK_EQ(dfs_open(dfs, dir, "sub", S_IFDIR | 0711, O_RDWR | O_CREAT, 0, 0, NULL, &again), 0);
	CHECK_EQ(dfs_get_mode(again, &mode), 0);
	CHECK_EQ(mode, S_IFDIR | 0711);
	CHECK_EQ(dfs_release(again), 0);

	CHECK_EQ(dfs_obj2id(obj, &oid), 0);
	CHECK(oid.lo != 0);
	CHECK_EQ(dfs_stat(dfs, dir, "f", &st), 0);
	CHECK(S_ISREG(st.st_mode));
	CHECK_EQ(st.st_nlink, 1);
	CHECK_EQ(dfs_stat(dfs, dir, NULL, &st), EINVAL);
	CHECK_EQ(dfs_stat(dfs, NULL, NULL, &st), 0);
	CHECK(S_ISDIR(st.st_mode));

	/* Moves: onto itself, onto a file, a file onto a directory and the other way round. */
	CHECK_EQ(dfs_move(dfs, dir, "f", dir, "f", NULL), 0);
	CHECK_EQ(dfs_stat(dfs, dir, "f", &st), 0);
	again = open_file(NULL, "victim", O_RDWR | O_CREAT);
	write_at(again, "kept", 4, 0);
	CHECK_EQ(dfs_obj2id(again, &oid), 0);
	CHECK_EQ(dfs_move(dfs, dir, "f", dir, "sub", NULL), EISDIR);
	CHECK_EQ(dfs_move(dfs, dir, "sub", dir, "f", NULL), ENOTDIR);
	CHECK_EQ(dfs_move(dfs, NULL, "d", dir, "sub", NULL), EINVAL);
	CHECK_EQ(dfs_move(dfs, dir, "f", NULL, "victim", &removed), 0);
	CHECK_EQ(removed.lo, oid.lo);
	CHECK_EQ(removed.hi, oid.hi);
	CHECK_EQ(dfs_move(dfs, NULL, "victim", NULL, "moved", &removed), 0);
	CHECK_EQ(removed.lo, 0);
	CHECK_EQ(dfs_move(dfs, NULL, "gone", NULL, "moved", NULL), ENOENT);
	{
		/* What was replaced while it was open still has its data. */
		char data[4];

		CHECK_EQ(read_at(again, data, 4, 0), 4);
		CHECK(memcmp(data, "kept", 4) == 0);
		CHECK_EQ(dfs_ostat(dfs, again, &st), 0);
		CHECK_EQ(st.st_nlink, 0);
	}
	CHECK_EQ(dfs_release(again), 0);
	CHECK_EQ(dfs_exchange(dfs, NULL, "moved", dir, "sub"), 0);
	CHECK_EQ(dfs_stat(dfs, dir, "sub", &st), 0);
	CHECK(S_ISREG(st.st_mode));
	CHECK_EQ(dfs_exchange(dfs, NULL, "moved", dir, "sub"), 0);

	CHECK_EQ(dfs_remove(dfs, NULL, "d", false, NULL), ENOTEMPTY);
	CHECK_EQ(dfs_obj2id(dir, &oid), 0);
	CHECK_EQ(dfs_remove(dfs, NULL, "d", true, &removed), 0);
	CHECK_EQ(removed.lo, oid.lo);
	CHECK_EQ(dfs_remove(dfs, NULL, "d", true, NULL), ENOENT);
	CHECK_EQ(dfs_open(dfs, dir, "f", S_IFREG | 0600, O_RDWR | O_CREAT, 0, 0, NULL, &again), ENOENT);
	CHECK_EQ(dfs_release(dir), 0);
	CHECK_EQ(dfs_release(obj), 0);
	CHECK_EQ(dfs_remove(dfs, NULL, "moved", false, NULL), 0);
}

static void
test_links(void)
{
	dfs_obj_t  *link, *obj;
	struct stat st;
	char        value[16];
	daos_size_t size = sizeof(value);

	CHECK_EQ(dfs_open(dfs, NULL, "link", S_IFLNK | 0777, O_RDWR | O_CREAT, 0, 0, "target/x", &link), 0);
	CHECK_EQ(dfs_get_symlink_value(link, value, &size), 0);
	CHECK_EQ(size, 9);
	CHECK_STR(value, "target/x");
	size = 4;
	CHECK_EQ(dfs_get_symlink_value(link, value, &size), 0);
	CHECK_STR(value, "tar");
	CHECK_EQ(size, 9);
	CHECK_EQ(dfs_stat(dfs, NULL, "link", &st), 0);
	CHECK(S_ISLNK(st.st_mode));
	CHECK_EQ(dfs_release(link), 0);
	CHECK_EQ(dfs_lookup(dfs, "/link", O_RDONLY, &obj, NULL, NULL), ENOENT);
	CHECK_EQ(dfs_lookup(dfs, "/link", O_RDONLY | O_NOFOLLOW, &obj, NULL, &st), 0);
	CHECK(S_ISLNK(st.st_mode));
	CHECK_EQ(dfs_release(obj), 0);
	CHECK_EQ(dfs_mkdir(dfs, NULL, "target", 0755, 0), 0);
	CHECK_EQ(dfs_lookup(dfs, "/target", O_RDWR, &obj, NULL, NULL), 0);
	CHECK_EQ(dfs_release(open_file(obj, "x", O_RDWR | O_CREAT)), 0);
	CHECK_EQ(dfs_release(obj), 0);
	CHECK_EQ(dfs_lookup(dfs, "/link", O_RDONLY, &obj, NULL, &st), 0);
	CHECK(S_ISREG(st.st_mode));
	size = sizeof(value);
	CHECK_EQ(dfs_get_symlink_value(obj, value, &size), EINVAL);
	CHECK_EQ(dfs_release(obj), 0);
	/* A file is asked for, a link is there. */
	CHECK_EQ(dfs_open(dfs, NULL, "link", S_IFREG | 0644, O_RDWR, 0, 0, NULL, &obj), EINVAL);
	CHECK_EQ(dfs_remove(dfs, NULL, "link", false, NULL), 0);
	CHECK_EQ(dfs_remove(dfs, NULL, "target", true, NULL), 0);
}

static void
test_data(void)
{
	dfs_obj_t   *file = open_file(NULL, "data", O_RDWR | O_CREAT), *reader;
	char         out[64], in[64];
	d_iov_t      iovs[3];
	d_sg_list_t  sgl = {3, 0, iovs};
	daos_range_t ranges[2];
	dfs_iod_t    iod  = {2, ranges};
	daos_size_t  size = 0, read;
	int          i;

	for (i = 0; i < 64; i++)
		out[i] = (char)('A' + i % 26);
	/* Many pieces, and a hole before them. */
	d_iov_set(&iovs[0], out, 10);
	d_iov_set(&iovs[1], out + 10, 0);
	d_iov_set(&iovs[2], out + 10, 20);
	CHECK_EQ(dfs_write(dfs, file, &sgl, 1 << 21, NULL), 0);
	CHECK_EQ(dfs_get_size(dfs, file, &size), 0);
	CHECK_EQ(size, (1 << 21) + 30);
	memset(in, 7, sizeof(in));
	CHECK_EQ(read_at(file, in, 64, (1 << 21) - 4), 34);
	CHECK(memcmp(in, "\0\0\0\0", 4) == 0 && memcmp(in + 4, out, 30) == 0);
	CHECK_EQ(read_at(file, in, 64, (1 << 21) + 30), 0);
	CHECK_EQ(read_at(file, in, 64, 1ULL << 40), 0);
	CHECK_EQ(read_at(file, in, 0, 0), 0);

	/* Ranges and pieces cut independently. */
	ranges[0].rg_idx = 100;
	ranges[0].rg_len = 25;
	ranges[1].rg_idx = 10;
	ranges[1].rg_len = 5;
	CHECK_EQ(dfs_writex(dfs, file, &iod, &sgl, NULL), 0);
	CHECK_EQ(read_at(file, in, 25, 100), 25);
	CHECK(memcmp(in, out, 25) == 0);
	CHECK_EQ(read_at(file, in, 5, 10), 5);
	CHECK(memcmp(in, out + 25, 5) == 0);
	d_iov_set(&iovs[0], in, 1);
	d_iov_set(&iovs[1], in + 1, 28);
	d_iov_set(&iovs[2], in + 29, 1);
	memset(in, 0, sizeof(in));
	CHECK_EQ(dfs_readx(dfs, file, &iod, &sgl, &read, NULL), 0);
	CHECK_EQ(read, 30);
	CHECK(memcmp(in, out, 30) == 0);
	ranges[0].rg_idx = (1 << 21) + 20;
	CHECK_EQ(dfs_readx(dfs, file, &iod, &sgl, &read, NULL), 0);
	CHECK_EQ(read, 15);
	ranges[0].rg_len = 24;
	CHECK_EQ(dfs_readx(dfs, file, &iod, &sgl, &read, NULL), EINVAL);
	CHECK_EQ(dfs_writex(dfs, file, &iod, &sgl, NULL), EINVAL);
	iod.iod_nr = 0;
	CHECK_EQ(dfs_readx(dfs, file, &iod, NULL, &read, NULL), 0);
	CHECK_EQ(read, 0);

	/* Punch: a hole, a cut, both directions. */
	CHECK_EQ(dfs_punch(dfs, file, 100, 5), 0);
	CHECK_EQ(read_at(file, in, 6, 100), 6);
	CHECK(memcmp(in, "\0\0\0\0\0", 5) == 0 && in[5] == out[5]);
	CHECK_EQ(dfs_punch(dfs, file, 110, 1 << 22), 0);
	CHECK_EQ(dfs_get_size(dfs, file, &size), 0);
	CHECK_EQ(size, 110);
	CHECK_EQ(dfs_punch(dfs, file, 3 << 20, DFS_MAX_FSIZE), 0);
	CHECK_EQ(dfs_get_size(dfs, file, &size), 0);
	CHECK_EQ(size, 3 << 20);
	CHECK_EQ(dfs_punch(dfs, file, 0, DFS_MAX_FSIZE), 0);
	CHECK_EQ(dfs_get_size(dfs, file, &size), 0);
	CHECK_EQ(size, 0);

	/* A handle for reading does not write; a directory is no file. */
	reader = open_file(NULL, "data", O_RDONLY);
	d_iov_set(&iovs[0], out, 1);
	sgl.sg_nr = 1;
	CHECK_EQ(dfs_write(dfs, reader, &sgl, 0, NULL), EPERM);
	CHECK_EQ(dfs_write(dfs, NULL, &sgl, 0, NULL), EINVAL);
	CHECK_EQ(dfs_read(dfs, reader, &sgl, 0, NULL, NULL), EINVAL);
	CHECK_EQ(dfs_read(dfs, reader, NULL, 0, &read, NULL), EINVAL);
	CHECK_EQ(dfs_punch(dfs, reader, 0, DFS_MAX_FSIZE), EPERM);
	iovs[0].iov_buf = NULL;
	CHECK_EQ(dfs_read(dfs, reader, &sgl, 0, &read, NULL), EINVAL);
	CHECK_EQ(dfs_release(reader), 0);

	/* Truncation at open; a file that is removed lives while it is open. */
	write_at(file, out, 10, 0);
	reader = open_file(NULL, "data", O_RDWR | O_TRUNC);
	CHECK_EQ(dfs_get_size(dfs, file, &size), 0);
	CHECK_EQ(size, 0);
	write_at(file, out, 10, 0);
	CHECK_EQ(dfs_release(file), 0);
	CHECK_EQ(dfs_remove(dfs, NULL, "data", false, NULL), 0);
	CHECK_EQ(read_at(reader, in, 10, 0), 10);
	CHECK_EQ(dfs_release(reader), 0);
	CHECK_EQ(dfs_read(dfs, reader, &sgl, 0, &read, NULL), EINVAL);
}

static void
test_attributes(void)
{
	dfs_obj_t      *file = open_file(NULL, "attr", O_RDWR | O_CREAT), *reader, *dir;
	struct stat     st;
	char            value[32], names[64];
	daos_size_t     size;
	dfs_obj_info_t  info;
	daos_oclass_id_t cid;

	write_at(file, "0123456789", 10, 0);
	memset(&st, 0, sizeof(st));
	st.st_mode          = 0600;
	st.st_size          = 4;
	st.st_mtim.tv_sec   = 1000;
	st.st_mtim.tv_nsec  = 500;
	CHECK_EQ(dfs_osetattr(dfs, file, &st, DFS_SET_ATTR_MODE | DFS_SET_ATTR_SIZE | DFS_SET_ATTR_MTIME),
		 0);
	CHECK_EQ(st.st_mode, S_IFREG | 0600);
	CHECK_EQ(st.st_size, 4);
	CHECK_EQ(st.st_mtim.tv_sec, 1000);
	CHECK_EQ(st.st_mtim.tv_nsec, 500);
	CHECK_EQ(dfs_stat(dfs, NULL, "attr", &st), 0);
	CHECK_EQ(st.st_mtim.tv_sec, 1000);
	write_at(file, "x", 1, 9);
	CHECK_EQ(dfs_ostat(dfs, file, &st), 0);
	CHECK_EQ(st.st_size, 10);
	CHECK(st.st_mtim.tv_sec > 1000);
	st.st_mode = S_IFDIR | 0700;
	CHECK_EQ(dfs_osetattr(dfs, file, &st, DFS_SET_ATTR_MODE), EINVAL);
	CHECK_EQ(dfs_osetattr(dfs, file, &st, 1 << 12), EINVAL);
	reader = open_file(NULL, "attr", O_RDONLY);
	CHECK_EQ(dfs_osetattr(dfs, reader, &st, DFS_SET_ATTR_SIZE), EPERM);
	CHECK_EQ(dfs_release(reader), 0);
	CHECK_EQ(dfs_chmod(dfs, NULL, "attr", 0400), 0);
	CHECK_EQ(dfs_chown(dfs, NULL, "attr", 77, (gid_t)-1, 0), 0);
	CHECK_EQ(dfs_stat(dfs, NULL, "attr", &st), 0);
	CHECK_EQ(st.st_mode & 07777, 0400);
	CHECK_EQ(st.st_uid, 77);
	CHECK_EQ(dfs_access(dfs, NULL, "attr", F_OK), 0);
	CHECK_EQ(dfs_access(dfs, NULL, "attr", R_OK | W_OK), getuid() == 0 ? 0 : EACCES);
	CHECK_EQ(dfs_access(dfs, NULL, "attr", X_OK), EACCES);
	CHECK_EQ(dfs_access(dfs, NULL, "none", F_OK), ENOENT);
	CHECK_EQ(dfs_access(dfs, NULL, NULL, R_OK), 0);
	CHECK_EQ(dfs_access(dfs, NULL, "attr", 0x80), EINVAL);

	CHECK_EQ(dfs_setxattr(dfs, file, "user.a", "one", 3, 0), 0);
	CHECK_EQ(dfs_setxattr(dfs, file, "user.a", "one", 3, XATTR_CREATE), EEXIST);
	CHECK_EQ(dfs_setxattr(dfs, file, "user.b", "two", 3, XATTR_REPLACE), ENODATA);
	CHECK_EQ(dfs_setxattr(dfs, file, "user.empty", NULL, 0, 0), 0);
	size = 0;
	CHECK_EQ(dfs_getxattr(dfs, file, "user.a", NULL, &size), 0);
	CHECK_EQ(size, 3);
	size = 2;
	CHECK_EQ(dfs_getxattr(dfs, file, "user.a", value, &size), ERANGE);
	size = sizeof(value);
	CHECK_EQ(dfs_getxattr(dfs, file, "user.a", value, &size), 0);
	CHECK_EQ(size, 3);
	CHECK(memcmp(value, "one", 3) == 0);
	size = sizeof(names);
	CHECK_EQ(dfs_listxattr(dfs, file, names, &size), 0);
	CHECK_EQ(size, sizeof("user.a") + sizeof("user.empty"));
	CHECK_EQ(dfs_removexattr(dfs, file, "user.a"), 0);
	CHECK_EQ(dfs_removexattr(dfs, file, "user.a"), ENODATA);

	/* Layouts: of a file, and of what is made in a directory. */
	CHECK_EQ(dfs_obj_get_info(dfs, file, &info), 0);
	CHECK_EQ(info.doi_chunk_size, 1 << 20);
	CHECK(info.doi_oclass_id != 0);
	CHECK_EQ(dfs_get_chunk_size(file, &size), 0);
	CHECK_EQ(size, 1 << 20);
	CHECK_EQ(dfs_obj_set_oclass(dfs, file, 0, OC_SX), ENOTSUP);
	CHECK_EQ(dfs_release(file), 0);
	CHECK_EQ(dfs_mkdir(dfs, NULL, "wide", 0755, 0), 0);
	CHECK_EQ(dfs_lookup(dfs, "/wide", O_RDWR, &dir, NULL, NULL), 0);
	CHECK_EQ(dfs_obj_set_oclass(dfs, dir, 0, OC_SX), 0);
	CHECK_EQ(dfs_obj_set_chunk_size(dfs, dir, 0, 1 << 16), 0);
	CHECK_EQ(dfs_obj_set_chunk_size(dfs, dir, 0, (1ULL << 30) + 1), EINVAL);
	file = open_file(dir, "f", O_RDWR | O_CREAT);
	CHECK_EQ(dfs_obj_get_info(dfs, file, &info), 0);
	CHECK_EQ(info.doi_chunk_size, 1 << 16);
	CHECK_EQ(info.doi_oclass_id, OC_SX);
	CHECK_EQ(dfs_release(file), 0);
	CHECK_EQ(dfs_open(dfs, dir, "g", S_IFREG | 0644, O_RDWR | O_CREAT, OC_S1, 1 << 17, NULL, &file), 0);
	CHECK_EQ(dfs_obj_get_info(dfs, file, &info), 0);
	CHECK_EQ(info.doi_chunk_size, 1 << 17);
	CHECK_EQ(info.doi_oclass_id, OC_S1);
	write_at(file, "0123456789", 10, 1 << 18);
	CHECK_EQ(dfs_get_size_by_oid(dfs, info.doi_oid, info.doi_chunk_size, &size), 0);
	CHECK_EQ(size, (1 << 18) + 10);
	CHECK_EQ(dfs_release(file), 0);
	CHECK_EQ(dfs_release(dir), 0);
	CHECK_EQ(dfs_suggest_oclass(dfs, "file:max", &cid), 0);
	CHECK_EQ(cid, OC_SX);
	CHECK_EQ(dfs_suggest_oclass(dfs, "file:what", &cid), EINVAL);
	CHECK_EQ(dfs_remove(dfs, NULL, "wide", true, NULL), 0);
	CHECK_EQ(dfs_remove(dfs, NULL, "attr", false, NULL), 0);
}

int
main(int argc, char **argv)
{
	CHECK_EQ(argc, 3);
	begin(argv[1], argv[2]);
	test_mount();
	test_names();
	test_links();
	test_data();
	test_attributes();
	end(argv[2]);
	return 0;
}
