/*
 * Files in the background, in many threads, handed over, by prefix and by name.
 * Arguments: pool, a name for the container.
 */
#include <pthread.h>
#include "mounted.h"

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
	CHECK_EQ(argc, 3);
	begin(argv[1], argv[2]);
	test_events();
	test_global();
	test_threads();
	test_prefix();
	test_connect(argv[1], argv[2]);
	end(argv[2]);
	return 0;
}
