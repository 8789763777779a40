/*
 * An engine stops and comes back while a program has files open, events in the air and threads in
 * calls. All of them wait and go on; what was written before and meanwhile is there after.
 * Told by its parent, a line at a time: it says "ready", hears "down", says "launched", hears "up".
 * Arguments: pool, a name for the container, how many outages.
 */
#include <daos.h>
#include <daos_fs.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include "check.h"

#define CHUNK (1 << 16)
#define CHUNKS 32
#define THREADS 3

static dfs_t     *dfs;
static dfs_obj_t *file;

static void
say(const char *word)
{
	printf("%s\n", word);
	fflush(stdout);
}

static void
hear(const char *word)
{
	char line[32];

	CHECK(fgets(line, sizeof(line), stdin) != NULL);
	line[strcspn(line, "\n")] = 0;
	CHECK_STR(line, word);
}

static void
fill(char *block, int chunk, int round)
{
	for (int i = 0; i < CHUNK; i++)
		block[i] = (char)(chunk * 13 + round * 101 + (i >> 5));
}

static void
transfer(dfs_obj_t *of, char *block, daos_off_t offset, bool write)
{
	d_iov_t     iov;
	d_sg_list_t sgl  = {1, 0, &iov};
	daos_size_t read = 0;

	d_iov_set(&iov, block, CHUNK);
	if (write) {
		CHECK_EQ(dfs_write(dfs, of, &sgl, offset, NULL), 0);
	} else {
		CHECK_EQ(dfs_read(dfs, of, &sgl, offset, &read, NULL), 0);
		CHECK_EQ(read, CHUNK);
	}
}

struct work {
	int thread, round;
};

/* Names, data and attributes while an engine is away. */
static void *
go_on(void *arg)
{
	struct work *work = (struct work *)arg;
	static char  out[THREADS][CHUNK], in[THREADS][CHUNK];
	char        *mine = out[work->thread], *back = in[work->thread];
	char         name[32];
	dfs_obj_t   *own;
	struct stat  st;

	snprintf(name, sizeof(name), "own-%d-%d", work->thread, work->round);
	CHECK_EQ(dfs_open(dfs, NULL, name, S_IFREG | 0644, O_RDWR | O_CREAT | O_EXCL, OC_SX, CHUNK, NULL,
			  &own),
		 0);
	for (int chunk = 0; chunk < 8; chunk++) {
		fill(mine, chunk, work->round);
		transfer(own, mine, (daos_off_t)chunk * CHUNK, true);
		transfer(own, back, (daos_off_t)chunk * CHUNK, false);
		CHECK_EQ(memcmp(mine, back, CHUNK), 0);
	}
	CHECK_EQ(dfs_ostat(dfs, own, &st), 0);
	CHECK_EQ(st.st_size, 8 * CHUNK);
	/* Removed while it is open: the servers know of the handle again after the outage. */
	CHECK_EQ(dfs_remove(dfs, NULL, name, false, NULL), 0);
	transfer(own, back, 7 * CHUNK, false);
	CHECK_EQ(memcmp(mine, back, CHUNK), 0);
	CHECK_EQ(dfs_release(own), 0);
	return NULL;
}

static void
outage(int round)
{
	static char   blocks[CHUNKS][CHUNK], in[CHUNK];
	daos_event_t  events[CHUNKS], *done[CHUNKS];
	d_iov_t       iovs[CHUNKS];
	d_sg_list_t   sgls[CHUNKS];
	daos_handle_t eqh;
	pthread_t     threads[THREADS];
	struct work   works[THREADS];

	CHECK_EQ(daos_eq_create(&eqh), 0);
	for (int i = 0; i < CHUNKS; i++) {
		fill(blocks[i], i, round);
		transfer(file, blocks[i], (daos_off_t)(2 * i) * CHUNK, true);
	}
	CHECK_EQ(dfs_sync(dfs), 0);
	say("ready");
	hear("down");
	for (int i = 0; i < CHUNKS; i++) {
		d_iov_set(&iovs[i], blocks[i], CHUNK);
		sgls[i].sg_nr   = 1;
		sgls[i].sg_iovs = &iovs[i];
		CHECK_EQ(daos_event_init(&events[i], eqh, NULL), 0);
		CHECK_EQ(dfs_write(dfs, file, &sgls[i], (daos_off_t)(2 * i + 1) * CHUNK, &events[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		works[i].thread = i;
		works[i].round  = round;
		CHECK_EQ(pthread_create(&threads[i], NULL, go_on, &works[i]), 0);
	}
	say("launched");
	for (int left = CHUNKS; left > 0;) {
		int n = daos_eq_poll(eqh, 1, DAOS_EQ_WAIT, CHUNKS, done);

		CHECK(n > 0);
		for (int i = 0; i < n; i++)
			CHECK_EQ(done[i]->ev_error, 0);
		left -= n;
	}
	hear("up");
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	for (int i = 0; i < 2 * CHUNKS; i++) {
		transfer(file, in, (daos_off_t)i * CHUNK, false);
		CHECK_EQ(memcmp(in, blocks[i / 2], CHUNK), 0);
	}
	for (int i = 0; i < CHUNKS; i++)
		CHECK_EQ(daos_event_fini(&events[i]), 0);
	CHECK_EQ(daos_eq_destroy(eqh, 0), 0);
}

int
main(int argc, char **argv)
{
	daos_handle_t poh, coh;

	CHECK_EQ(argc, 4);
	CHECK_EQ(daos_init(), 0);
	CHECK_EQ(daos_pool_connect(argv[1], NULL, DAOS_PC_RW, &poh, NULL, NULL), 0);
	CHECK_EQ(dfs_cont_create_with_label(poh, argv[2], NULL, NULL, &coh, &dfs), 0);
	CHECK_EQ(dfs_open(dfs, NULL, "file", S_IFREG | 0644, O_RDWR | O_CREAT, OC_SX, CHUNK, NULL, &file), 0);
	for (int round = 0; round < atoi(argv[3]); round++)
		outage(round);
	CHECK_EQ(dfs_release(file), 0);
	CHECK_EQ(dfs_umount(dfs), 0);
	CHECK_EQ(daos_cont_close(coh, NULL), 0);
	CHECK_EQ(daos_cont_destroy(poh, argv[2], 0, NULL), 0);
	CHECK_EQ(daos_pool_disconnect(poh, NULL), 0);
	CHECK_EQ(daos_fini(), 0);
	return 0;
}
