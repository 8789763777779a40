/*
 * Semantics of files that are easy to get wrong; see traps_api.c.
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
	return file;
}

static dfs_obj_t *
open_dir(const char *name)
{
	dfs_obj_t *dir = NULL;

	CHECK_EQ(dfs_open(dfs, NULL, name, S_IFDIR | 0755, O_RDWR | O_CREAT, 0, 0, NULL, &dir), 0);
	return dir;
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
	daos_size_t read = ~0ULL;

	d_iov_set(&iov, data, bytes);
	CHECK_EQ(dfs_read(dfs, file, &sgl, offset, &read, NULL), 0);
	return read;
}

static daos_size_t
size_of(dfs_obj_t *file)
{
	daos_size_t size = ~0ULL;

	CHECK_EQ(dfs_get_size(dfs, file, &size), 0);
	return size;
}

static bool
exists(dfs_obj_t *dir, const char *name)
{
	struct stat st;
	int         rc = dfs_stat(dfs, dir, name, &st);

	CHECK(rc == 0 || rc == ENOENT);
	return rc == 0;
}

static void
check_layout(dfs_obj_t *file, daos_oclass_id_t class_id, daos_size_t chunk)
{
	dfs_obj_info_t info;

	CHECK_EQ(dfs_obj_get_info(dfs, file, &info), 0);
	CHECK_EQ(info.doi_oclass_id, class_id);
	CHECK_EQ(info.doi_chunk_size, chunk);
}

/* dfs_open: class and chunk size from the call, else the directory, else the container, and only
 * for what is new; O_CREAT alone opens what exists; only files as files; no permission check. */
static void
trap_05(void)
{
	dfs_obj_t *dir = open_dir("open"), *file, *again;

	CHECK_EQ(dfs_open(dfs, NULL, "by-call", S_IFREG | 0644, O_RDWR | O_CREAT, OC_S2, 1 << 17, NULL,
			  &file),
		 0);
	check_layout(file, OC_S2, 1 << 17);
	/* Ignored for a file that exists, and no new file. */
	write_at(file, "kept", 4, 0);
	CHECK_EQ(dfs_open(dfs, NULL, "by-call", S_IFREG | 0600, O_RDWR | O_CREAT, OC_SX, 1 << 19, NULL,
			  &again),
		 0);
	check_layout(again, OC_S2, 1 << 17);
	CHECK_EQ(size_of(again), 4);
	CHECK_EQ(dfs_release(again), 0);
	CHECK_EQ(dfs_open(dfs, NULL, "by-call", S_IFREG | 0600, O_RDWR | O_CREAT | O_EXCL, 0, 0, NULL, &again),
		 EEXIST);
	again = open_file(NULL, "by-call", O_RDWR | O_TRUNC);
	CHECK_EQ(size_of(file), 0);
	CHECK_EQ(dfs_release(again), 0);
	CHECK_EQ(dfs_release(file), 0);

	CHECK_EQ(dfs_obj_set_oclass(dfs, dir, 0, OC_S4), 0);
	CHECK_EQ(dfs_obj_set_chunk_size(dfs, dir, 0, 1 << 18), 0);
	file = open_file(dir, "by-dir", O_RDWR | O_CREAT);
	check_layout(file, OC_S4, 1 << 18);
	CHECK_EQ(dfs_release(file), 0);
	CHECK_EQ(dfs_open(dfs, dir, "by-both", S_IFREG | 0644, O_RDWR | O_CREAT, OC_S1, 0, NULL, &file), 0);
	check_layout(file, OC_S1, 1 << 18);
	CHECK_EQ(dfs_release(file), 0);
	file = open_file(NULL, "by-container", O_RDWR | O_CREAT);
	check_layout(file, OC_S1, 1 << 16);
	CHECK_EQ(dfs_release(file), 0);

	CHECK_EQ(dfs_open(dfs, NULL, "open", S_IFREG | 0644, O_RDWR | O_CREAT, 0, 0, NULL, &file), EINVAL);
	CHECK_EQ(dfs_open(dfs, NULL, "open", S_IFREG | 0644, O_RDONLY, 0, 0, NULL, &file), EINVAL);
	CHECK_EQ(dfs_open(dfs, NULL, "none", S_IFREG | 0644, O_RDWR, 0, 0, NULL, &file), ENOENT);

	file = open_file(NULL, "locked", O_RDWR | O_CREAT);
	CHECK_EQ(dfs_release(file), 0);
	CHECK_EQ(dfs_chmod(dfs, NULL, "locked", 0), 0);
	if (geteuid() == 0) {
		dfs_t *mine = dfs;

		/* Somebody who may do nothing with it, by its mode bits. */
		CHECK_EQ(seteuid(65534), 0);
		CHECK_EQ(dfs_mount(poh, coh, O_RDWR, &dfs), 0);
		file = open_file(NULL, "locked", O_RDWR);
		write_at(file, "x", 1, 0);
		CHECK_EQ(dfs_release(file), 0);
		CHECK_EQ(dfs_umount(dfs), 0);
		CHECK_EQ(seteuid(0), 0);
		dfs = mine;
	} else {
		file = open_file(NULL, "locked", O_RDWR);
		CHECK_EQ(dfs_release(file), 0);
	}
	CHECK_EQ(dfs_release(dir), 0);
}

/* dfs_read is short only at the end of the file; holes are data; a list of many pieces. */
static void
trap_06(void)
{
	static char    in[300000], zeros[300000];
	dfs_obj_t     *file = open_file(NULL, "read", O_RDWR | O_CREAT);
	d_iov_t        iovs[5];
	d_sg_list_t    sgl  = {5, 0, iovs};
	daos_size_t    read = 0;

	CHECK_EQ(read_at(file, in, 10, 0), 0);
	write_at(file, "end", 3, 200000);
	memset(in, 0x55, sizeof(in));
	CHECK_EQ(read_at(file, in, sizeof(in), 0), 200003);
	CHECK_EQ(memcmp(in, zeros, 200000), 0);
	CHECK_EQ(memcmp(in + 200000, "end", 3), 0);
	CHECK_EQ(read_at(file, in, 100, 200003), 0);
	CHECK_EQ(read_at(file, in, 100, 1ULL << 50), 0);
	CHECK_EQ(read_at(file, in, 100, INT64_MAX - 100), 0);
	/* Pieces over a chunk's border, one of them empty. */
	memset(in, 0x55, sizeof(in));
	d_iov_set(&iovs[0], in, 1);
	d_iov_set(&iovs[1], in + 1, 65535);
	d_iov_set(&iovs[2], NULL, 0);
	d_iov_set(&iovs[3], in + 65536, 134464 + 2);
	d_iov_set(&iovs[4], in + 200002, 90000);
	CHECK_EQ(dfs_read(dfs, file, &sgl, 0, &read, NULL), 0);
	CHECK_EQ(read, 200003);
	CHECK_EQ(memcmp(in, zeros, 200000), 0);
	CHECK_EQ(memcmp(in + 200000, "end", 3), 0);
	CHECK_EQ(dfs_read(dfs, file, &sgl, 0, NULL, NULL), EINVAL);
	CHECK_EQ(dfs_release(file), 0);
}

#define RANGES 2000

/* dfs_readx and dfs_writex: ranges and memory are cut independently, and may be many. */
static void
trap_07(void)
{
	static daos_range_t  ranges[RANGES];
	static d_iov_t       iovs[137];
	static unsigned char out[RANGES * 13], in[RANGES * 13], one[13];
	dfs_obj_t           *file = open_file(NULL, "vectors", O_RDWR | O_CREAT);
	dfs_iod_t            iod  = {RANGES, ranges};
	d_sg_list_t          sgl  = {137, 0, iovs};
	daos_size_t          read = 0;
	size_t               at, left = sizeof(out);

	for (at = 0; at < sizeof(out); at++)
		out[at] = (unsigned char)(at * 7 + at / 251);
	for (at = 0; at < RANGES; at++) {
		/* Not in the order of the file. */
		ranges[at].rg_idx = (at * 7 % RANGES) * 97;
		ranges[at].rg_len = 13;
	}
	for (at = 0; at < 137; at++) {
		size_t now = at == 136 ? left : (at % 5 == 0 ? 1 : 191);

		d_iov_set(&iovs[at], out + sizeof(out) - left, now);
		left -= now;
	}
	CHECK_EQ(dfs_writex(dfs, file, &iod, &sgl, NULL), 0);
	CHECK_EQ(size_of(file), (RANGES - 1) * 97 + 13);
	for (at = 0; at < RANGES; at += 333) {
		CHECK_EQ(read_at(file, one, 13, ranges[at].rg_idx), 13);
		CHECK_EQ(memcmp(one, out + at * 13, 13), 0);
	}
	for (at = 0; at < 137; at++)
		iovs[at].iov_buf = in + ((unsigned char *)iovs[at].iov_buf - out);
	CHECK_EQ(dfs_readx(dfs, file, &iod, &sgl, &read, NULL), 0);
	CHECK_EQ(read, sizeof(in));
	CHECK_EQ(memcmp(in, out, sizeof(in)), 0);
	iovs[3].iov_len++;
	CHECK_EQ(dfs_readx(dfs, file, &iod, &sgl, &read, NULL), EINVAL);
	CHECK_EQ(dfs_release(file), 0);
}

/* dfs_move is rename(2): nothing onto itself, types compared, what is replaced lives while it is
 * open, attributes go along. */
static void
trap_08(void)
{
	dfs_obj_t    *dir = open_dir("move"), *a, *b, *link;
	daos_obj_id_t was, replaced;
	char          data[8];
	daos_size_t   size = sizeof(data);

	a = open_file(dir, "a", O_RDWR | O_CREAT);
	b = open_file(dir, "b", O_RDWR | O_CREAT);
	write_at(a, "from", 4, 0);
	write_at(b, "over", 4, 0);
	CHECK_EQ(dfs_setxattr(dfs, a, "user.tag", "t", 1, 0), 0);
	CHECK_EQ(dfs_move(dfs, dir, "a", dir, "a", &replaced), 0);
	CHECK(daos_obj_id_is_nil(replaced));
	CHECK_EQ(read_at(a, data, 8, 0), 4);
	CHECK_EQ(dfs_mkdir(dfs, dir, "empty", 0755, 0), 0);
	CHECK_EQ(dfs_mkdir(dfs, dir, "sub", 0755, 0), 0);
	CHECK_EQ(dfs_move(dfs, dir, "a", dir, "empty", NULL), EISDIR);
	CHECK_EQ(dfs_move(dfs, dir, "empty", dir, "a", NULL), ENOTDIR);
	CHECK_EQ(dfs_move(dfs, dir, "empty", dir, "sub", NULL), 0);
	CHECK_EQ(dfs_move(dfs, dir, "sub", NULL, "move", NULL), ENOTEMPTY);
	CHECK_EQ(dfs_move(dfs, NULL, "move", dir, "below-itself", NULL), EINVAL);
	CHECK_EQ(dfs_obj2id(b, &was), 0);
	CHECK_EQ(dfs_move(dfs, dir, "a", dir, "b", &replaced), 0);
	CHECK(replaced.lo == was.lo && replaced.hi == was.hi);
	CHECK_EQ(read_at(b, data, 8, 0), 4);
	CHECK_EQ(memcmp(data, "over", 4), 0);
	CHECK(!exists(dir, "a"));
	CHECK_EQ(dfs_release(a), 0);
	CHECK_EQ(dfs_release(b), 0);
	a = open_file(dir, "b", O_RDWR);
	CHECK_EQ(read_at(a, data, 8, 0), 4);
	CHECK_EQ(memcmp(data, "from", 4), 0);
	CHECK_EQ(dfs_getxattr(dfs, a, "user.tag", data, &size), 0);
	CHECK_EQ(size, 1);
	CHECK_EQ(dfs_release(a), 0);

	/* A link moves, not where it leads. */
	CHECK_EQ(dfs_open(dfs, dir, "l", S_IFLNK | 0777, O_RDWR | O_CREAT, 0, 0, "b", &link), 0);
	CHECK_EQ(dfs_release(link), 0);
	CHECK_EQ(dfs_move(dfs, dir, "l", NULL, "l2", NULL), 0);
	CHECK(exists(dir, "b"));
	CHECK_EQ(dfs_lookup_rel(dfs, NULL, "l2", O_RDONLY | O_NOFOLLOW, &link, NULL, NULL), 0);
	size = sizeof(data);
	CHECK_EQ(dfs_get_symlink_value(link, data, &size), 0);
	CHECK_STR(data, "b");
	CHECK_EQ(dfs_release(link), 0);
	CHECK_EQ(dfs_remove(dfs, NULL, "l2", false, NULL), 0);
	CHECK_EQ(dfs_release(dir), 0);
}

/* dfs_remove is rmdir and unlink in one, and recursive by force. */
static void
trap_09(void)
{
	dfs_obj_t *dir = open_dir("remove"), *link, *file;

	CHECK_EQ(dfs_mkdir(dfs, dir, "sub", 0755, 0), 0);
	file = open_file(dir, "f", O_RDWR | O_CREAT);
	CHECK_EQ(dfs_open(dfs, dir, "l", S_IFLNK | 0777, O_RDWR | O_CREAT, 0, 0, "f", &link), 0);
	CHECK_EQ(dfs_release(link), 0);
	CHECK_EQ(dfs_remove(dfs, NULL, "remove", false, NULL), ENOTEMPTY);
	CHECK_EQ(dfs_remove(dfs, dir, "l", false, NULL), 0);
	CHECK(exists(dir, "f"));
	CHECK_EQ(dfs_remove(dfs, dir, "f", false, NULL), 0);
	CHECK_EQ(dfs_remove(dfs, dir, "sub", false, NULL), 0);
	CHECK_EQ(dfs_remove(dfs, dir, "sub", false, NULL), ENOENT);
	CHECK_EQ(dfs_remove(dfs, NULL, "remove", false, NULL), 0);
	CHECK_EQ(dfs_release(file), 0);
	CHECK_EQ(dfs_release(dir), 0);

	dir = open_dir("remove");
	for (int i = 0; i < 20; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%d", i);
		CHECK_EQ(dfs_release(open_file(dir, name, O_RDWR | O_CREAT)), 0);
	}
	CHECK_EQ(dfs_mkdir(dfs, dir, "sub", 0755, 0), 0);
	CHECK_EQ(dfs_release(dir), 0);
	CHECK_EQ(dfs_lookup(dfs, "/remove/sub", O_RDWR, &dir, NULL, NULL), 0);
	CHECK_EQ(dfs_release(open_file(dir, "deep", O_RDWR | O_CREAT)), 0);
	CHECK_EQ(dfs_release(dir), 0);
	CHECK_EQ(dfs_remove(dfs, NULL, "remove", true, NULL), 0);
	CHECK(!exists(NULL, "remove"));
	/* Force on a file is unlink, too. */
	CHECK_EQ(dfs_release(open_file(NULL, "forced", O_RDWR | O_CREAT)), 0);
	CHECK_EQ(dfs_remove(dfs, NULL, "forced", true, NULL), 0);
	CHECK(!exists(NULL, "forced"));
}

static bool
later(struct timespec a, struct timespec b)
{
	return a.tv_sec > b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec > b.tv_nsec);
}

/* dfs_osetattr gives back all attributes; an mtime set with a size stays; a write after it is
 * newer; the type of a file cannot be changed. */
static void
trap_10(void)
{
	dfs_obj_t  *file = open_file(NULL, "setattr", O_RDWR | O_CREAT), *reader;
	struct stat st, before;

	write_at(file, "0123456789", 10, 0);
	CHECK_EQ(dfs_ostat(dfs, file, &before), 0);
	memset(&st, 0, sizeof(st));
	st.st_mode = S_IFREG | 0600;
	CHECK_EQ(dfs_osetattr(dfs, file, &st, DFS_SET_ATTR_MODE), 0);
	CHECK_EQ(st.st_mode, S_IFREG | 0600);
	CHECK_EQ(st.st_size, 10);
	CHECK_EQ(st.st_uid, before.st_uid);
	CHECK_EQ(st.st_ino, before.st_ino);
	CHECK(later(st.st_ctim, before.st_ctim));
	CHECK(!later(st.st_mtim, before.st_mtim) && !later(before.st_mtim, st.st_mtim));

	st.st_mtim.tv_sec  = 123456789;
	st.st_mtim.tv_nsec = 42;
	st.st_size         = 4;
	CHECK_EQ(dfs_osetattr(dfs, file, &st, DFS_SET_ATTR_SIZE | DFS_SET_ATTR_MTIME), 0);
	CHECK_EQ(st.st_size, 4);
	CHECK_EQ(st.st_mtim.tv_sec, 123456789);
	CHECK_EQ(st.st_mtim.tv_nsec, 42);
	memset(&st, 0, sizeof(st));
	CHECK_EQ(dfs_stat(dfs, NULL, "setattr", &st), 0);
	CHECK_EQ(st.st_size, 4);
	CHECK_EQ(st.st_mtim.tv_sec, 123456789);
	write_at(file, "x", 1, 0);
	CHECK_EQ(dfs_stat(dfs, NULL, "setattr", &st), 0);
	CHECK(later(st.st_mtim, before.st_mtim));
	/* Not the permission bits of the moment decide, but how it was opened. */
	reader     = open_file(NULL, "setattr", O_RDONLY);
	st.st_size = 0;
	CHECK_EQ(dfs_osetattr(dfs, reader, &st, DFS_SET_ATTR_SIZE), EPERM);
	CHECK_EQ(dfs_release(reader), 0);
	st.st_mode = S_IFDIR | 0755;
	CHECK_EQ(dfs_osetattr(dfs, file, &st, DFS_SET_ATTR_MODE), EINVAL);
	CHECK_EQ(dfs_ostat(dfs, file, &st), 0);
	CHECK_EQ(st.st_mode, S_IFREG | 0600);
	CHECK_EQ(st.st_size, 4);
	CHECK_EQ(dfs_release(file), 0);
}

#define NAMES 300

static void *
remove_all(void *arg)
{
	dfs_obj_t *dir = (dfs_obj_t *)arg;
	char       name[16];

	for (int i = 0; i < NAMES; i += 2) {
		snprintf(name, sizeof(name), "n%d", i);
		CHECK_EQ(dfs_remove(dfs, dir, name, false, NULL), 0);
	}
	return NULL;
}

/* Listings: no "." and "..", every name once, the end is told; entries that vanish meanwhile are
 * left out and no error. */
static void
trap_11(void)
{
	dfs_obj_t    *dir = open_dir("list");
	struct dirent dirs[32];
	struct stat   stats[32];
	daos_anchor_t anchor;
	int           seen[NAMES];
	pthread_t     thread;
	uint32_t      nr;
	char          name[16];

	for (int i = 0; i < NAMES; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		CHECK_EQ(dfs_release(open_file(dir, name, O_RDWR | O_CREAT)), 0);
	}
	CHECK_EQ(pthread_create(&thread, NULL, remove_all, dir), 0);
	for (int round = 0; round < 5; round++) {
		if (round == 4)
			CHECK_EQ(pthread_join(thread, NULL), 0);
		memset(seen, 0, sizeof(seen));
		memset(&anchor, 0, sizeof(anchor));
		while (!daos_anchor_is_eof(&anchor)) {
			nr = 32;
			if (round % 2 == 0)
				CHECK_EQ(dfs_readdirplus(dfs, dir, &anchor, &nr, dirs, stats), 0);
			else
				CHECK_EQ(dfs_readdir(dfs, dir, &anchor, &nr, dirs), 0);
			CHECK(nr <= 32);
			for (uint32_t i = 0; i < nr; i++) {
				int at = -1;

				CHECK_EQ(sscanf(dirs[i].d_name, "n%d", &at), 1);
				CHECK(at >= 0 && at < NAMES);
				CHECK_EQ(seen[at]++, 0);
				CHECK(round % 2 != 0 || S_ISREG(stats[i].st_mode));
			}
		}
		/* Those that nobody removes are in every listing. */
		for (int i = 1; i < NAMES; i += 2)
			CHECK_EQ(seen[i], 1);
	}
	for (int i = 0; i < NAMES; i += 2)
		CHECK_EQ(seen[i], 0);
	nr = 32;
	CHECK_EQ(dfs_readdir(dfs, dir, &anchor, &nr, dirs), 0);
	CHECK_EQ(nr, 0);
	CHECK_EQ(dfs_release(dir), 0);
	CHECK_EQ(dfs_remove(dfs, NULL, "list", true, NULL), 0);
}

/* dfs_punch to DFS_MAX_FSIZE truncates, in both directions; to or over the end, too. */
static void
trap_12(void)
{
	dfs_obj_t *file = open_file(NULL, "punch", O_RDWR | O_CREAT), *reader;
	char       in[16];

	write_at(file, "0123456789", 10, 0);
	CHECK_EQ(dfs_punch(dfs, file, 5, DFS_MAX_FSIZE), 0);
	CHECK_EQ(size_of(file), 5);
	CHECK_EQ(dfs_punch(dfs, file, 200000, DFS_MAX_FSIZE), 0);
	CHECK_EQ(size_of(file), 200000);
	/* What was cut off does not come back. */
	CHECK_EQ(read_at(file, in, 10, 0), 10);
	CHECK_EQ(memcmp(in, "01234\0\0\0\0\0", 10), 0);
	CHECK_EQ(dfs_punch(dfs, file, 1, 2), 0);
	CHECK_EQ(size_of(file), 200000);
	CHECK_EQ(read_at(file, in, 5, 0), 5);
	CHECK_EQ(memcmp(in, "0\0\0" "34", 5), 0);
	/* Up to the end exactly: it ends there. */
	CHECK_EQ(dfs_punch(dfs, file, 100000, 100000), 0);
	CHECK_EQ(size_of(file), 100000);
	CHECK_EQ(dfs_punch(dfs, file, 4, 1 << 30), 0);
	CHECK_EQ(size_of(file), 4);
	/* Behind the end: nothing is there to punch. */
	CHECK_EQ(dfs_punch(dfs, file, 100, 10), 0);
	CHECK_EQ(dfs_punch(dfs, file, 4, 10), 0);
	CHECK_EQ(size_of(file), 4);
	reader = open_file(NULL, "punch", O_RDONLY);
	CHECK_EQ(dfs_punch(dfs, reader, 0, 1), EPERM);
	CHECK_EQ(dfs_punch(dfs, reader, 100, 10), EPERM);
	CHECK_EQ(dfs_release(reader), 0);
	CHECK_EQ(dfs_punch(dfs, file, 0, DFS_MAX_FSIZE), 0);
	CHECK_EQ(size_of(file), 0);
	CHECK_EQ(dfs_release(file), 0);
}

/* dfs_sync leaves nothing that another mount would not see. That writes outlive the engines is
 * the story of outage.c. */
static void
trap_13(void)
{
	dfs_obj_t  *file = open_file(NULL, "sync", O_RDWR | O_CREAT);
	dfs_t      *other;
	struct stat st;

	write_at(file, "synced", 6, 1 << 20);
	CHECK_EQ(dfs_sync(dfs), 0);
	CHECK_EQ(dfs_mount(poh, coh, O_RDONLY, &other), 0);
	CHECK_EQ(dfs_stat(other, NULL, "sync", &st), 0);
	CHECK_EQ(st.st_size, (1 << 20) + 6);
	CHECK_EQ(dfs_umount(other), 0);
	CHECK_EQ(dfs_release(file), 0);
	CHECK_EQ(dfs_sync(dfs), 0);
	CHECK_EQ(dfs_sync(NULL), EINVAL);
}

/* dfs_stat without a name is for the root; dfs_access follows links. */
static void
trap_14(void)
{
	dfs_obj_t  *dir = open_dir("stat"), *link, *root;
	struct stat st;

	CHECK_EQ(dfs_stat(dfs, NULL, NULL, &st), 0);
	CHECK(S_ISDIR(st.st_mode));
	CHECK_EQ(dfs_lookup(dfs, "/", O_RDONLY, &root, NULL, NULL), 0);
	CHECK_EQ(dfs_stat(dfs, root, NULL, &st), 0);
	CHECK_EQ(dfs_release(root), 0);
	CHECK_EQ(dfs_stat(dfs, dir, NULL, &st), EINVAL);
	CHECK_EQ(dfs_release(open_file(dir, "target", O_RDWR | O_CREAT)), 0);
	CHECK_EQ(dfs_open(dfs, dir, "link", S_IFLNK | 0777, O_RDWR | O_CREAT, 0, 0, "target", &link), 0);
	CHECK_EQ(dfs_release(link), 0);
	CHECK_EQ(dfs_open(dfs, dir, "broken", S_IFLNK | 0777, O_RDWR | O_CREAT, 0, 0, "none", &link), 0);
	CHECK_EQ(dfs_release(link), 0);
	CHECK_EQ(dfs_chmod(dfs, dir, "link", 0444), 0);
	CHECK_EQ(dfs_stat(dfs, dir, "target", &st), 0);
	CHECK_EQ(st.st_mode, S_IFREG | 0444);
	CHECK_EQ(dfs_access(dfs, dir, "link", R_OK), 0);
	/* Nobody executes what has no x, not even root. */
	CHECK_EQ(dfs_access(dfs, dir, "link", X_OK), EACCES);
	CHECK_EQ(dfs_access(dfs, dir, "broken", F_OK), ENOENT);
	if (geteuid() == 0) {
		/* The real user counts, not the effective one. */
		CHECK_EQ(seteuid(65534), 0);
		CHECK_EQ(dfs_access(dfs, dir, "link", R_OK | W_OK), 0);
		CHECK_EQ(seteuid(0), 0);
		CHECK_EQ(setreuid(65534, 0), 0);
		CHECK_EQ(dfs_access(dfs, dir, "link", R_OK), 0);
		CHECK_EQ(dfs_access(dfs, dir, "link", W_OK), EACCES);
		CHECK_EQ(setreuid(0, 0), 0);
	}
	CHECK_EQ(dfs_release(dir), 0);
}

/* dfs_set_prefix: paths lose it before they are looked up, in every thread. */
static void *
lookup_with_prefix(void *arg)
{
	dfs_obj_t *obj;

	(void)arg;
	CHECK_EQ(dfs_lookup(dfs, "/mnt/daos/prefixed/f", O_RDONLY, &obj, NULL, NULL), 0);
	CHECK_EQ(dfs_release(obj), 0);
	return NULL;
}

static void
trap_16(void)
{
	dfs_obj_t *dir = open_dir("prefixed"), *obj;
	pthread_t  thread;
	mode_t     mode;

	CHECK_EQ(dfs_release(open_file(dir, "f", O_RDWR | O_CREAT)), 0);
	CHECK_EQ(dfs_release(dir), 0);
	CHECK_EQ(dfs_set_prefix(dfs, "/mnt/daos"), 0);
	lookup_with_prefix(NULL);
	CHECK_EQ(pthread_create(&thread, NULL, lookup_with_prefix, NULL), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	/* The prefix itself is the root. */
	CHECK_EQ(dfs_lookup(dfs, "/mnt/daos", O_RDONLY, &obj, &mode, NULL), 0);
	CHECK(S_ISDIR(mode));
	CHECK_EQ(dfs_release(obj), 0);
	/* A name that only begins like it is another. */
	CHECK(dfs_lookup(dfs, "/mnt/daosprefixed/f", O_RDONLY, &obj, NULL, NULL) > 0);
	CHECK_EQ(dfs_set_prefix(dfs, "relative"), EINVAL);
	CHECK_EQ(dfs_set_prefix(dfs, NULL), 0);
	CHECK_EQ(dfs_lookup(dfs, "/prefixed/f", O_RDONLY, &obj, NULL, NULL), 0);
	CHECK_EQ(dfs_release(obj), 0);
}

int
main(int argc, char **argv)
{
	dfs_attr_t attr;

	CHECK_EQ(argc, 3);
	CHECK_EQ(daos_init(), 0);
	CHECK_EQ(daos_pool_connect(argv[1], NULL, DAOS_PC_RW, &poh, NULL, NULL), 0);
	memset(&attr, 0, sizeof(attr));
	attr.da_chunk_size      = 1 << 16;
	attr.da_file_oclass_id  = OC_S1;
	attr.da_dir_oclass_id   = OC_S1;
	CHECK_EQ(dfs_cont_create_with_label(poh, argv[2], &attr, NULL, &coh, &dfs), 0);
	trap_05();
	trap_06();
	trap_07();
	trap_08();
	trap_09();
	trap_10();
	trap_11();
	trap_12();
	trap_13();
	trap_14();
	trap_16();
	CHECK_EQ(dfs_umount(dfs), 0);
	CHECK_EQ(daos_cont_close(coh, NULL), 0);
	CHECK_EQ(daos_cont_destroy(poh, argv[2], 0, NULL), 0);
	CHECK_EQ(daos_pool_disconnect(poh, NULL), 0);
	CHECK_EQ(daos_fini(), 0);
	return 0;
}
