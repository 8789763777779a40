/*
 * Files as a C program sees them: names, data, attributes, listings, events, handles that are not.
 * Arguments: pool, a name for the container.
 */
#include <daos.h>
#include <daos_fs.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "check.h"

static daos_handle_t poh, coh;
static dfs_t        *dfs;

static dfs_obj_t *
open_file(dfs_obj_t *dir, const char *name, int flags)
{
	dfs_obj_t *file = NULL;

	CHECK_EQ(dfs_open(dfs, dir, name, S_IFREG | 0644, flags, 0, 0, NULL, &file), 0);
	CHECK(file != NULL);
	return file;
}

static void
write_at(dfs_obj_t *file, const void *data, size_t bytes, daos_off_t offset)
{
	d_iov_t     iov;
	d_sg_list_t sgl = {1, 0, &iov};

	d_iov_set(&iov, (void *)data, bytes);
	CHECK_EQ(dfs_write(dfs, file, &sgl, offset, NULL), 0);
}

static daos_size_t
read_at(dfs_obj_t *file, void *data, size_t bytes, daos_off_t offset)
{
	d_iov_t     iov;
	d_sg_list_t sgl  = {1, 0, &iov};
	daos_size_t read = 12345;

	d_iov_set(&iov, data, bytes);
	CHECK_EQ(dfs_read(dfs, file, &sgl, offset, &read, NULL), 0);
	return read;
}

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
	CHECK_EQ(dfs_obj_set_chunk_size(dfs, dir, 0, 12345), EINVAL);
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

#define ENTRIES 60

/* Counts a name of the kind "e12" or, every third, one of 250 bytes that begins so. */
static void
count_name(const char *name, int *seen)
{
	int i = -1;

	CHECK_EQ(sscanf(name, "e%d", &i), 1);
	CHECK(i >= 0 && i < ENTRIES);
	CHECK_EQ(strlen(name) == 250, i % 3 == 0);
	seen[i]++;
}

static int
filler(dfs_t *fs, dfs_obj_t *dir, const char name[], void *arg)
{
	struct stat st;

	/* The API may be used from inside. */
	CHECK_EQ(dfs_stat(fs, dir, name, &st), 0);
	count_name(name, (int *)arg);
	return 0;
}

static int
stopper(dfs_t *fs, dfs_obj_t *dir, const char name[], void *arg)
{
	(void)fs, (void)dir, (void)name, (void)arg;
	return 77;
}

static void
test_listing(void)
{
	dfs_obj_t      *dir;
	struct dirent   dirs[16];
	struct stat     stats[16];
	daos_anchor_t   anchor, parts[5];
	char            name[300];
	int             seen[ENTRIES], i;
	uint32_t        nr, count;
	dfs_pipeline_t *pipe;
	dfs_predicate_t pred;
	uint64_t        scanned, all;
	daos_obj_id_t   oids[16];
	daos_size_t     csizes[16];

	CHECK_EQ(dfs_open(dfs, NULL, "list", S_IFDIR | 0755, O_RDWR | O_CREAT, OC_SX, 0, NULL, &dir), 0);
	memset(&anchor, 0, sizeof(anchor));
	nr = 16;
	CHECK_EQ(dfs_readdir(dfs, dir, &anchor, &nr, dirs), 0);
	CHECK_EQ(nr, 0);
	CHECK(daos_anchor_is_eof(&anchor));
	for (i = 0; i < ENTRIES; i++) {
		memset(name, 'n', sizeof(name));
		name[sprintf(name, "e%d", i)] = i % 3 == 0 ? '_' : 0;
		name[250]                     = 0;
		CHECK_EQ(dfs_release(open_file(dir, name, O_RDWR | O_CREAT)), 0);
	}
	for (count = 1; count <= 16; count += 5) {
		memset(seen, 0, sizeof(seen));
		memset(&anchor, 0, sizeof(anchor));
		while (!daos_anchor_is_eof(&anchor)) {
			nr = count;
			CHECK_EQ(dfs_readdir(dfs, dir, &anchor, &nr, dirs), 0);
			CHECK(nr <= count);
			while (nr > 0) {
				CHECK_EQ(dirs[--nr].d_type, DT_REG);
				count_name(dirs[nr].d_name, seen);
			}
		}
		nr = 3;
		CHECK_EQ(dfs_readdir(dfs, dir, &anchor, &nr, dirs), 0);
		CHECK_EQ(nr, 0);
		for (i = 0; i < ENTRIES; i++)
			CHECK_EQ(seen[i], 1);
	}
	memset(seen, 0, sizeof(seen));
	memset(&anchor, 0, sizeof(anchor));
	while (!daos_anchor_is_eof(&anchor)) {
		nr = 16;
		CHECK_EQ(dfs_readdirplus(dfs, dir, &anchor, &nr, dirs, stats), 0);
		while (nr > 0) {
			CHECK(S_ISREG(stats[--nr].st_mode));
			CHECK_EQ(stats[nr].st_ino, dirs[nr].d_ino);
			count_name(dirs[nr].d_name, seen);
		}
	}
	memset(&anchor, 0, sizeof(anchor));
	while (!daos_anchor_is_eof(&anchor)) {
		nr = 7;
		CHECK_EQ(dfs_iterate(dfs, dir, &anchor, &nr, 1024, filler, seen), 0);
		CHECK(nr <= 7);
	}
	for (i = 0; i < ENTRIES; i++)
		CHECK_EQ(seen[i], 2);
	memset(&anchor, 0, sizeof(anchor));
	nr = 7;
	CHECK_EQ(dfs_iterate(dfs, dir, &anchor, &nr, 1024, stopper, NULL), 77);
	CHECK_EQ(nr, 1);

	/* Parts of a directory, by anchors and by number. */
	memset(seen, 0, sizeof(seen));
	nr = 5;
	CHECK_EQ(dfs_obj_anchor_split(dir, &nr, parts), 0);
	CHECK_EQ(nr, 5);
	for (i = 0; i < 10; i++) {
		anchor = parts[i % 5];
		if (i >= 5)
			CHECK_EQ(dfs_obj_anchor_set(dir, i - 5, &anchor), 0);
		while (!daos_anchor_is_eof(&anchor)) {
			nr = 16;
			CHECK_EQ(dfs_readdir(dfs, dir, &anchor, &nr, dirs), 0);
			while (nr > 0)
				count_name(dirs[--nr].d_name, seen);
		}
	}
	for (i = 0; i < ENTRIES; i++)
		CHECK_EQ(seen[i], 2);
	CHECK_EQ(dfs_obj_anchor_set(dir, 5, &anchor), EINVAL);
	nr = 0;
	CHECK_EQ(dfs_obj_anchor_split(dir, &nr, NULL), 0);
	CHECK(nr >= 1);

	/* From a name on. */
	memset(&anchor, 0, sizeof(anchor));
	CHECK_EQ(dfs_dir_anchor_set(dir, "e7", &anchor), 0);
	nr = 1;
	CHECK_EQ(dfs_readdir(dfs, dir, &anchor, &nr, dirs), 0);
	CHECK_EQ(nr, 1);
	CHECK_STR(dirs[0].d_name, "e7");

	/* By condition. */
	memset(&pred, 0, sizeof(pred));
	strcpy(pred.dp_name, "e_");
	CHECK_EQ(dfs_pipeline_create(dfs, pred, DFS_FILTER_NAME, &pipe), 0);
	memset(&anchor, 0, sizeof(anchor));
	count = 0;
	all   = 0;
	while (!daos_anchor_is_eof(&anchor)) {
		nr = 16;
		CHECK_EQ(dfs_readdir_with_filter(dfs, dir, pipe, &anchor, &nr, dirs, oids, csizes, &scanned), 0);
		all += scanned;
		count += nr;
		while (nr > 0) {
			CHECK_EQ(strlen(dirs[--nr].d_name), 2);
			CHECK_EQ(csizes[nr], 1 << 20);
			CHECK(oids[nr].lo != 0);
		}
	}
	/* Of e0 to e9 those that are no long names. */
	CHECK_EQ(count, 6);
	CHECK_EQ(all, ENTRIES);
	CHECK_EQ(dfs_pipeline_destroy(pipe), 0);
	CHECK_EQ(dfs_pipeline_destroy(pipe), EINVAL);
	CHECK_EQ(dfs_pipeline_destroy(NULL), 0);
	pred.dp_newer = time(NULL) + 10000;
	CHECK_EQ(dfs_pipeline_create(dfs, pred, DFS_FILTER_NEWER, &pipe), 0);
	memset(&anchor, 0, sizeof(anchor));
	nr = 16;
	CHECK_EQ(dfs_readdir_with_filter(dfs, dir, pipe, &anchor, &nr, dirs, NULL, NULL, &scanned), 0);
	CHECK_EQ(nr, 0);
	CHECK_EQ(scanned, ENTRIES);
	CHECK_EQ(dfs_pipeline_destroy(pipe), 0);

	memset(&anchor, 0xff, sizeof(anchor));
	nr = 3;
	CHECK_EQ(dfs_readdir(dfs, dir, &anchor, &nr, dirs), EINVAL);
	CHECK_EQ(dfs_release(dir), 0);
	CHECK_EQ(dfs_remove(dfs, NULL, "list", true, NULL), 0);
}

#define FLIGHTS 24

static void
test_events(void)
{
	dfs_obj_t    *file = open_file(NULL, "events", O_RDWR | O_CREAT);
	dfs_obj_t    *reader;
	daos_handle_t eq;
	daos_event_t  events[FLIGHTS], *done[FLIGHTS], lone;
	d_iov_t       iovs[FLIGHTS], empty;
	d_sg_list_t   sgls[FLIGHTS], none = {1, 0, &empty};
	static char   blocks[FLIGHTS][4096], back[FLIGHTS][4096];
	daos_size_t   sizes[FLIGHTS], size;
	bool          flag;
	int           i, left, rc;

	CHECK_EQ(daos_eq_create(&eq), 0);
	for (i = 0; i < FLIGHTS; i++) {
		memset(blocks[i], 'a' + i, sizeof(blocks[i]));
		d_iov_set(&iovs[i], blocks[i], sizeof(blocks[i]));
		sgls[i].sg_nr   = 1;
		sgls[i].sg_iovs = &iovs[i];
		CHECK_EQ(daos_event_init(&events[i], eq, NULL), 0);
		CHECK_EQ(dfs_write(dfs, file, &sgls[i], i * 4096ULL, &events[i]), 0);
	}
	for (left = FLIGHTS; left > 0; left -= rc) {
		rc = daos_eq_poll(eq, 1, DAOS_EQ_WAIT, FLIGHTS, done);
		CHECK(rc > 0);
		for (i = 0; i < rc; i++)
			CHECK_EQ(done[i]->ev_error, 0);
	}
	for (i = 0; i < FLIGHTS; i++) {
		d_iov_set(&iovs[i], back[i], sizeof(back[i]));
		CHECK_EQ(dfs_read(dfs, file, &sgls[i], i * 4096ULL, &sizes[i], &events[i]), 0);
	}
	for (left = FLIGHTS; left > 0; left -= rc) {
		rc = daos_eq_poll(eq, 1, DAOS_EQ_WAIT, FLIGHTS, done);
		CHECK(rc > 0);
	}
	for (i = 0; i < FLIGHTS; i++) {
		CHECK_EQ(sizes[i], 4096);
		CHECK(memcmp(back[i], blocks[i], 4096) == 0);
	}
	/* Nothing to transfer completes all the same. */
	d_iov_set(&empty, NULL, 0);
	size = 99;
	CHECK_EQ(dfs_read(dfs, file, &none, 0, &size, &events[0]), 0);
	CHECK_EQ(daos_eq_poll(eq, 1, DAOS_EQ_WAIT, 1, done), 1);
	CHECK(done[0] == &events[0]);
	CHECK_EQ(size, 0);
	/* A failure is in the event, as a positive errno. */
	reader = open_file(NULL, "events", O_RDONLY);
	CHECK_EQ(dfs_write(dfs, reader, &sgls[1], 0, &events[1]), 0);
	CHECK_EQ(daos_eq_poll(eq, 1, DAOS_EQ_WAIT, 1, done), 1);
	CHECK_EQ(done[0]->ev_error, EPERM);
	CHECK_EQ(dfs_release(reader), 0);
	for (i = 0; i < FLIGHTS; i++)
		CHECK_EQ(daos_event_fini(&events[i]), 0);
	CHECK_EQ(daos_eq_destroy(eq, 0), 0);
	/* An event without a queue moves on while it is tested. */
	CHECK_EQ(daos_event_init(&lone, DAOS_HDL_INVAL, NULL), 0);
	CHECK_EQ(dfs_read(dfs, file, &sgls[2], 0, &size, &lone), 0);
	do {
		CHECK_EQ(daos_event_test(&lone, DAOS_EQ_NOWAIT, &flag), 0);
	} while (!flag);
	CHECK_EQ(lone.ev_error, 0);
	CHECK_EQ(size, 4096);
	CHECK_EQ(daos_event_fini(&lone), 0);
	CHECK_EQ(dfs_release(file), 0);
	CHECK_EQ(dfs_remove(dfs, NULL, "events", false, NULL), 0);
}

static void
test_global(void)
{
	d_iov_t     glob = {NULL, 0, 0};
	dfs_t      *other, *mine = dfs;
	dfs_obj_t  *file = open_file(NULL, "global", O_RDWR | O_CREAT), *copy;
	char        in[4];
	struct stat st;

	write_at(file, "abcd", 4, 0);
	CHECK_EQ(dfs_local2global(dfs, &glob), 0);
	CHECK(glob.iov_buf_len > 0);
	glob.iov_buf = malloc(glob.iov_buf_len);
	glob.iov_len = glob.iov_buf_len;
	glob.iov_buf_len--;
	/* Too small: the length that is needed is told. */
	CHECK_EQ(dfs_local2global(dfs, &glob), ENOBUFS);
	CHECK_EQ(dfs_local2global(dfs, &glob), 0);
	CHECK_EQ(dfs_global2local(poh, coh, O_RDWR, glob, &other), 0);
	memset(glob.iov_buf, 9, 5);
	CHECK_EQ(dfs_global2local(poh, coh, O_RDWR, glob, &mine), EINVAL);
	free(glob.iov_buf);

	memset(&glob, 0, sizeof(glob));
	CHECK_EQ(dfs_obj_local2global(dfs, file, &glob), 0);
	glob.iov_buf = malloc(glob.iov_buf_len);
	glob.iov_len = glob.iov_buf_len;
	CHECK_EQ(dfs_obj_local2global(dfs, file, &glob), 0);
	CHECK_EQ(dfs_obj_global2local(other, 0, glob, &copy), 0);
	/* An object belongs to its mount. */
	CHECK_EQ(dfs_ostat(dfs, copy, &st), EINVAL);
	CHECK_EQ(dfs_ostat(other, copy, &st), 0);
	CHECK_EQ(st.st_size, 4);
	CHECK_EQ(dfs_release(file), 0);
	CHECK_EQ(dfs_remove(dfs, NULL, "global", false, NULL), 0);
	mine = dfs;
	dfs  = other;
	CHECK_EQ(read_at(copy, in, 4, 0), 4);
	CHECK(memcmp(in, "abcd", 4) == 0);
	CHECK_EQ(dfs_dup(dfs, copy, O_RDONLY, &file), 0);
	CHECK_EQ(dfs_release(copy), 0);
	CHECK_EQ(read_at(file, in, 4, 0), 4);
	CHECK_EQ(dfs_release(file), 0);
	dfs = mine;
	CHECK_EQ(dfs_umount(other), 0);
	free(glob.iov_buf);
}

#define THREADS 4

static void *
threaded(void *arg)
{
	dfs_obj_t  *shared = (dfs_obj_t *)arg, *file, *dup;
	char        name[32], in[8];
	struct stat st;
	int         i;

	for (i = 0; i < 20; i++) {
		sprintf(name, "t%lx.%d", (unsigned long)pthread_self(), i);
		CHECK_EQ(dfs_open(dfs, shared, name, S_IFREG | 0644, O_RDWR | O_CREAT | O_EXCL, 0, 0, NULL,
				  &file),
			 0);
		write_at(file, name, 8, 0);
		CHECK_EQ(dfs_dup(dfs, file, O_RDWR, &dup), 0);
		CHECK_EQ(dfs_release(file), 0);
		CHECK_EQ(read_at(dup, in, 8, 0), 8);
		CHECK(memcmp(in, name, 8) == 0);
		CHECK_EQ(dfs_release(dup), 0);
		CHECK_EQ(dfs_stat(dfs, shared, name, &st), 0);
		CHECK_EQ(st.st_size, 8);
	}
	return NULL;
}

static void *
releases(void *arg)
{
	struct stat st;

	CHECK_EQ(dfs_ostat(dfs, (dfs_obj_t *)arg, &st), 0);
	CHECK_EQ(st.st_mode & 07777, 0611);
	CHECK_EQ(dfs_release((dfs_obj_t *)arg), 0);
	return NULL;
}

static void
test_threads(void)
{
	pthread_t   threads[THREADS];
	dfs_obj_t  *dir, *file;
	struct stat st;
	int         i;

	CHECK_EQ(dfs_open(dfs, NULL, "threads", S_IFDIR | 0755, O_RDWR | O_CREAT, 0, 0, NULL, &dir), 0);
	for (i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, threaded, dir), 0);
	for (i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	/* Opened here, changed here, seen and released there. */
	file       = open_file(dir, "f", O_RDWR | O_CREAT);
	memset(&st, 0, sizeof(st));
	st.st_mode = 0611;
	CHECK_EQ(dfs_osetattr(dfs, file, &st, DFS_SET_ATTR_MODE), 0);
	CHECK_EQ(pthread_create(&threads[0], NULL, releases, file), 0);
	CHECK_EQ(pthread_join(threads[0], NULL), 0);
	CHECK_EQ(dfs_ostat(dfs, file, &st), EINVAL);
	CHECK_EQ(dfs_release(dir), 0);
	CHECK_EQ(dfs_remove(dfs, NULL, "threads", true, NULL), 0);
}

static void
test_prefix(void)
{
	dfs_obj_t *obj;

	CHECK_EQ(dfs_mkdir(dfs, NULL, "p", 0755, 0), 0);
	CHECK_EQ(dfs_set_prefix(dfs, "relative"), EINVAL);
	CHECK_EQ(dfs_set_prefix(dfs, "/mnt/azk"), 0);
	CHECK_EQ(dfs_lookup(dfs, "/mnt/azk/p", O_RDONLY, &obj, NULL, NULL), 0);
	CHECK_EQ(dfs_release(obj), 0);
	CHECK_EQ(dfs_lookup(dfs, "/mnt/azk", O_RDONLY, &obj, NULL, NULL), 0);
	CHECK_EQ(dfs_release(obj), 0);
	CHECK_EQ(dfs_set_prefix(dfs, NULL), 0);
	CHECK_EQ(dfs_lookup(dfs, "/mnt/azk/p", O_RDONLY, &obj, NULL, NULL), ENOENT);
	CHECK_EQ(dfs_remove(dfs, NULL, "p", false, NULL), 0);
}

/* By name, and handed over with everything. */
static void
test_connect(const char *pool, const char *label)
{
	char          name[64];
	d_iov_t       glob = {NULL, 0, 0};
	dfs_t        *one, *two;
	daos_handle_t handle;
	struct stat   st;

	snprintf(name, sizeof(name), "%s-connect", label);
	CHECK_EQ(dfs_connect(pool, NULL, name, O_RDWR, NULL, &one), EACCES);
	CHECK_EQ(dfs_init(), 0);
	CHECK_EQ(dfs_connect(pool, NULL, name, O_RDWR, NULL, &one), ENOENT);
	CHECK_EQ(dfs_connect(pool, NULL, name, O_RDWR | O_CREAT, NULL, &one), 0);
	CHECK_EQ(dfs_mkdir(one, NULL, "d", 0755, 0), 0);
	CHECK_EQ(dfs_umount(one), EBUSY);
	CHECK_EQ(dfs_pool_get(one, &handle), 0);
	CHECK_EQ(dfs_pool_put(one, handle), 0);
	CHECK_EQ(dfs_cont_put(one, handle), EINVAL);
	CHECK_EQ(dfs_cont_get(one, &handle), 0);
	CHECK_EQ(dfs_cont_put(one, handle), 0);
	CHECK_EQ(dfs_local2global_all(one, &glob), 0);
	glob.iov_buf = malloc(glob.iov_buf_len);
	glob.iov_len = glob.iov_buf_len;
	CHECK_EQ(dfs_local2global_all(one, &glob), 0);
	CHECK_EQ(dfs_global2local_all(O_RDWR, glob, &two), 0);
	free(glob.iov_buf);
	CHECK_EQ(dfs_stat(two, NULL, "d", &st), 0);
	CHECK_EQ(dfs_mkdir(two, NULL, "e", 0755, 0), 0);
	CHECK_EQ(dfs_disconnect(two), 0);
	CHECK_EQ(dfs_stat(one, NULL, "e", &st), 0);
	CHECK_EQ(dfs_disconnect(one), 0);
	CHECK_EQ(dfs_disconnect(one), EINVAL);
	CHECK_EQ(dfs_connect(pool, NULL, name, O_RDWR | O_CREAT | O_EXCL, NULL, &one), EEXIST);
	CHECK_EQ(dfs_destroy(pool, NULL, name, 0, NULL), 0);
	CHECK_EQ(dfs_destroy(pool, NULL, name, 0, NULL), ENOENT);
	CHECK_EQ(dfs_fini(), 0);
	CHECK_EQ(dfs_fini(), EINVAL);
}

int
main(int argc, char **argv)
{
	uuid_t      uuid;
	dfs_attr_t  attr;
	dfs_obj_t  *obj;

	CHECK_EQ(argc, 3);
	CHECK_EQ(daos_init(), 0);
	CHECK_EQ(daos_pool_connect(argv[1], NULL, DAOS_PC_RW, &poh, NULL, NULL), 0);
	memset(&attr, 0, sizeof(attr));
	attr.da_chunk_size = 12345;
	CHECK_EQ(dfs_cont_create_with_label(poh, argv[2], &attr, &uuid, &coh, &dfs), EINVAL);
	attr.da_chunk_size = 1 << 20;
	strcpy(attr.da_hints, "file:single,dir:single");
	CHECK_EQ(dfs_cont_create_with_label(poh, argv[2], &attr, &uuid, &coh, &dfs), 0);
	CHECK_EQ(dfs_cont_create_with_label(poh, argv[2], &attr, &uuid, NULL, NULL), EEXIST);
	CHECK_EQ(dfs_lookup(dfs, "/", O_RDWR, &obj, NULL, NULL), 0);
	CHECK_EQ(dfs_release(obj), 0);
	test_mount();
	test_names();
	test_links();
	test_data();
	test_attributes();
	test_listing();
	test_events();
	test_global();
	test_threads();
	test_prefix();
	test_connect(argv[1], argv[2]);
	CHECK_EQ(dfs_umount(dfs), 0);
	CHECK_EQ(daos_cont_close(coh, NULL), 0);
	CHECK_EQ(dfs_cont_check(poh, argv[2], DFS_CHECK_PRINT | DFS_CHECK_REMOVE | DFS_CHECK_VERIFY, NULL), 0);
	CHECK_EQ(dfs_cont_scan(poh, argv[2], 0, NULL), 0);
	CHECK_EQ(daos_cont_destroy(poh, argv[2], 0, NULL), 0);
	CHECK_EQ(daos_pool_disconnect(poh, NULL), 0);
	CHECK_EQ(daos_fini(), 0);
	return 0;
}
