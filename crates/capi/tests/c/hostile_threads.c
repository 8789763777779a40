/*
 * Hostile threads and processes: many on one mount, handles opened by one and released by another,
 * left open by threads that end, a fork while others run, events of all of them in one queue, and
 * daos_fini with all of it open.
 * Arguments: pool, a name for the container.
 */
#include <daos.h>
#include <daos_fs.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"

#define THREADS 16
#define BLOCK 5000
#define ROUNDS 12

static daos_handle_t poh, coh;
static dfs_t        *dfs;
static dfs_obj_t    *shared;

static void
fill(char *block, int thread, int round)
{
	for (int i = 0; i < BLOCK; i++)
		block[i] = (char)(thread * 31 + round * 7 + i);
}

static void
transfer(dfs_obj_t *file, char *block, daos_off_t offset, bool write)
{
	d_iov_t     iov;
	d_sg_list_t sgl  = {1, 0, &iov};
	daos_size_t read = 0;

	d_iov_set(&iov, block, BLOCK);
	if (write) {
		CHECK_EQ(dfs_write(dfs, file, &sgl, offset, NULL), 0);
	} else {
		CHECK_EQ(dfs_read(dfs, file, &sgl, offset, &read, NULL), 0);
		CHECK_EQ(read, BLOCK);
	}
}

static dfs_obj_t *
open_file(const char *name)
{
	dfs_obj_t *file = NULL;

	CHECK_EQ(dfs_open(dfs, NULL, name, S_IFREG | 0644, O_RDWR | O_CREAT, 0, 1 << 16, NULL, &file), 0);
	return file;
}

/* A file of its own and its blocks of a shared one, written, and compared in the end. */
static void *
own_and_shared(void *arg)
{
	int        me = (int)(intptr_t)arg;
	char       name[32], out[BLOCK], in[BLOCK];
	dfs_obj_t *own;

	snprintf(name, sizeof(name), "own-%d", me);
	own = open_file(name);
	for (int round = 0; round < ROUNDS; round++) {
		fill(out, me, round);
		transfer(own, out, (daos_off_t)round * BLOCK, true);
		transfer(shared, out, (daos_off_t)(round * THREADS + me) * BLOCK, true);
	}
	for (int round = 0; round < ROUNDS; round++) {
		fill(out, me, round);
		transfer(own, in, (daos_off_t)round * BLOCK, false);
		CHECK_EQ(memcmp(in, out, BLOCK), 0);
		transfer(shared, in, (daos_off_t)(round * THREADS + me) * BLOCK, false);
		CHECK_EQ(memcmp(in, out, BLOCK), 0);
	}
	CHECK_EQ(dfs_release(own), 0);
	CHECK_EQ(dfs_remove(dfs, NULL, name, false, NULL), 0);
	return NULL;
}

static void
in_threads(void *(*body)(void *))
{
	pthread_t threads[THREADS];

	for (intptr_t i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, body, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

static void
one_mount(void)
{
	char out[BLOCK], in[BLOCK];

	shared = open_file("shared");
	in_threads(own_and_shared);
	/* All of it, seen by one. */
	for (int at = 0; at < ROUNDS * THREADS; at += 7) {
		fill(out, at % THREADS, at / THREADS);
		transfer(shared, in, (daos_off_t)at * BLOCK, false);
		CHECK_EQ(memcmp(in, out, BLOCK), 0);
	}
	CHECK_EQ(dfs_release(shared), 0);
}

static dfs_obj_t *left[THREADS][4];

/* Opens, and ends without a release. */
static void *
leave_open(void *arg)
{
	int me = (int)(intptr_t)arg;

	for (int i = 0; i < 4; i++) {
		char name[32], out[BLOCK];

		snprintf(name, sizeof(name), "left-%d-%d", me, i);
		left[me][i] = open_file(name);
		fill(out, me, i);
		transfer(left[me][i], out, 0, true);
	}
	return NULL;
}

/* Goes on with what a thread that is gone left open, and releases it. */
static void *
take_over(void *arg)
{
	int me = ((int)(intptr_t)arg + 5) % THREADS;

	for (int i = 0; i < 4; i++) {
		char name[32], out[BLOCK], in[BLOCK];

		fill(out, me, i);
		transfer(left[me][i], in, 0, false);
		CHECK_EQ(memcmp(in, out, BLOCK), 0);
		/* A name that goes while it is open: the data stay until the release. */
		snprintf(name, sizeof(name), "left-%d-%d", me, i);
		CHECK_EQ(dfs_remove(dfs, NULL, name, false, NULL), 0);
		transfer(left[me][i], in, 0, false);
		CHECK_EQ(memcmp(in, out, BLOCK), 0);
		CHECK_EQ(dfs_release(left[me][i]), 0);
		CHECK_EQ(dfs_release(left[me][i]), EINVAL);
	}
	return NULL;
}

static dfs_obj_t *contended;
static int        released;

/* Of many that release one handle, one does. */
static void *
release_too(void *arg)
{
	int rc = dfs_release(contended);

	(void)arg;
	CHECK(rc == 0 || rc == EINVAL);
	if (rc == 0)
		__atomic_add_fetch(&released, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static daos_handle_t queue;

struct flight {
	daos_event_t ev;
	d_iov_t      iov;
	d_sg_list_t  sgl;
	char         block[BLOCK];
};

static struct flight flights[THREADS][ROUNDS];
static int           landed;

/* Launches into a queue that all share, and takes out whatever is there. */
static void *
launch_and_poll(void *arg)
{
	int           me = (int)(intptr_t)arg;
	daos_event_t *done[3];

	for (int round = 0; round < ROUNDS; round++) {
		struct flight *flight = &flights[me][round];

		fill(flight->block, me, round);
		d_iov_set(&flight->iov, flight->block, BLOCK);
		flight->sgl.sg_nr   = 1;
		flight->sgl.sg_iovs = &flight->iov;
		CHECK_EQ(daos_event_init(&flight->ev, queue, NULL), 0);
		CHECK_EQ(dfs_write(dfs, shared, &flight->sgl, (daos_off_t)(round * THREADS + me) * BLOCK,
				   &flight->ev),
			 0);
	}
	while (__atomic_load_n(&landed, __ATOMIC_SEQ_CST) < THREADS * ROUNDS) {
		int n = daos_eq_poll(queue, 0, 1000, 3, done);

		CHECK(n >= 0);
		for (int i = 0; i < n; i++) {
			CHECK_EQ(done[i]->ev_error, 0);
			CHECK_EQ(daos_event_fini(done[i]), 0);
		}
		__atomic_add_fetch(&landed, n, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

static void
one_queue(void)
{
	char in[BLOCK], out[BLOCK];

	shared = open_file("queued");
	landed = 0;
	CHECK_EQ(daos_eq_create(&queue), 0);
	in_threads(launch_and_poll);
	CHECK_EQ(landed, THREADS * ROUNDS);
	CHECK_EQ(daos_eq_destroy(queue, 0), 0);
	for (int at = 0; at < ROUNDS * THREADS; at++) {
		fill(out, at % THREADS, at / THREADS);
		transfer(shared, in, (daos_off_t)at * BLOCK, false);
		CHECK_EQ(memcmp(in, out, BLOCK), 0);
	}
	CHECK_EQ(dfs_release(shared), 0);
}

#ifndef __SANITIZE_ADDRESS__
static bool stop;

static void *
keep_going(void *arg)
{
	int  me = (int)(intptr_t)arg;
	char out[BLOCK], in[BLOCK];

	fill(out, me, 1);
	do {
		transfer(shared, out, (daos_off_t)me * BLOCK, true);
		transfer(shared, in, (daos_off_t)me * BLOCK, false);
		CHECK_EQ(memcmp(in, out, BLOCK), 0);
	} while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST));
	return NULL;
}

/* Children made while threads are in the middle of calls. */
static void
forks(void)
{
	pthread_t threads[4];
	char      in[BLOCK], out[BLOCK];

	shared = open_file("forks");
	stop   = false;
	for (intptr_t i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, keep_going, (void *)i), 0);
	for (int child = 0; child < 6; child++) {
		pid_t pid = fork();
		int   status;

		CHECK(pid >= 0);
		if (pid == 0) {
			if (child % 2 == 0)
				CHECK_EQ(daos_reinit(), 0);
			fill(out, child, 9);
			transfer(shared, out, (daos_off_t)(10 + child) * BLOCK, true);
			transfer(shared, in, (daos_off_t)(10 + child) * BLOCK, false);
			CHECK_EQ(memcmp(in, out, BLOCK), 0);
			_exit(0);
		}
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK(WIFEXITED(status));
		CHECK_EQ(WEXITSTATUS(status), 0);
		fill(out, child, 9);
		transfer(shared, in, (daos_off_t)(10 + child) * BLOCK, false);
		CHECK_EQ(memcmp(in, out, BLOCK), 0);
	}
	__atomic_store_n(&stop, true, __ATOMIC_SEQ_CST);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	CHECK_EQ(dfs_release(shared), 0);
}
#endif

/* Calls until the library is closed under it: then errors, never a crash. */
static void *
until_closed(void *arg)
{
	struct stat st;
	int         rc;

	(void)arg;
	do {
		rc = dfs_ostat(dfs, shared, &st);
	} while (rc == 0);
	CHECK(rc > 0);
	return NULL;
}

/* daos_fini with handles open, events running and threads in calls; then all of it from anew. */
static void
fini_with_all_open(const char *pool, const char *name)
{
	static struct flight late[8];
	daos_event_t        *done[8];
	struct stat          st;
	pthread_t            threads[4];
	bool                 flag;

	shared = open_file("late");
	CHECK_EQ(daos_eq_create(&queue), 0);
	for (int i = 0; i < 8; i++) {
		d_iov_set(&late[i].iov, late[i].block, BLOCK);
		late[i].sgl.sg_nr   = 1;
		late[i].sgl.sg_iovs = &late[i].iov;
		CHECK_EQ(daos_event_init(&late[i].ev, i < 6 ? queue : DAOS_HDL_INVAL, NULL), 0);
		CHECK_EQ(dfs_write(dfs, shared, &late[i].sgl, i * BLOCK, &late[i].ev), 0);
	}
	for (intptr_t i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, until_closed, NULL), 0);
	CHECK_EQ(daos_fini(), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	CHECK(daos_eq_poll(queue, 1, DAOS_EQ_NOWAIT, 8, done) < 0);
	CHECK(daos_event_test(&late[7].ev, DAOS_EQ_NOWAIT, &flag) <= 0);
	CHECK(dfs_ostat(dfs, shared, &st) > 0);
	CHECK(daos_cont_close(coh, NULL) <= 0);

	CHECK_EQ(daos_init(), 0);
	CHECK_EQ(daos_pool_connect(pool, NULL, DAOS_PC_RW, &poh, NULL, NULL), 0);
	CHECK_EQ(daos_cont_open(poh, name, DAOS_COO_RW, &coh, NULL, NULL), 0);
	CHECK_EQ(dfs_mount(poh, coh, O_RDWR, &dfs), 0);
	shared = open_file("late");
	CHECK_EQ(dfs_ostat(dfs, shared, &st), 0);
	CHECK_EQ(dfs_release(shared), 0);
}

int
main(int argc, char **argv)
{
	CHECK_EQ(argc, 3);
	CHECK_EQ(daos_init(), 0);
	CHECK_EQ(daos_pool_connect(argv[1], NULL, DAOS_PC_RW, &poh, NULL, NULL), 0);
	CHECK_EQ(dfs_cont_create_with_label(poh, argv[2], NULL, NULL, &coh, &dfs), 0);
	one_mount();
	in_threads(leave_open);
	in_threads(take_over);
	for (int round = 0; round < 5; round++) {
		released  = 0;
		contended = open_file("contended");
		in_threads(release_too);
		CHECK_EQ(released, 1);
	}
	one_queue();
#ifndef __SANITIZE_ADDRESS__
	/* The sanitizer's allocator does not let go of its locks in a child: one that another thread held when it was made stays locked. */
	forks();
#endif
	fini_with_all_open(argv[1], argv[2]);
	CHECK_EQ(dfs_umount(dfs), 0);
	CHECK_EQ(daos_cont_close(coh, NULL), 0);
	CHECK_EQ(daos_cont_destroy(poh, argv[2], 1, NULL), 0);
	CHECK_EQ(daos_pool_disconnect(poh, NULL), 0);
	CHECK_EQ(daos_fini(), 0);
	return 0;
}
