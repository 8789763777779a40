/* Events and event queues: with a queue, without, children, callbacks, other threads, use after
 * the end. The operations are container queries: they ask the system and change nothing. */
#include <azekura.h>
#include <daos.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"

static daos_handle_t    poh;
static daos_handle_t    coh;
static daos_cont_info_t info[64];

static void
query(int at, daos_event_t *ev)
{
	memset(&info[at], 0, sizeof(info[at]));
	CHECK_EQ(daos_cont_query(coh, &info[at], NULL, ev), 0);
}

static void
with_a_queue(void)
{
	daos_handle_t eqh;
	daos_event_t  evs[32];
	daos_event_t *done[32];
	int           seen = 0;

	CHECK_EQ(daos_eq_create(&eqh), 0);
	CHECK_EQ(daos_eq_poll(eqh, 1, DAOS_EQ_NOWAIT, 32, done), 0);
	CHECK_EQ(daos_eq_poll(eqh, 1, DAOS_EQ_WAIT, 32, done), 0);
	CHECK_EQ(daos_eq_poll(eqh, 0, 1000, 32, done), 0);
	for (int i = 0; i < 32; i++) {
		CHECK_EQ(daos_event_init(&evs[i], eqh, NULL), 0);
		query(i, &evs[i]);
	}
	CHECK_EQ(daos_eq_query(eqh, DAOS_EQR_ALL, 0, NULL), 32);
	CHECK_EQ(daos_eq_destroy(eqh, 0), -DER_BUSY);
	while (seen < 32) {
		int n = daos_eq_poll(eqh, 1, DAOS_EQ_WAIT, 5, done);

		CHECK(n > 0 && n <= 5);
		for (int i = 0; i < n; i++) {
			int at = (int)(done[i] - evs);

			CHECK(at >= 0 && at < 32);
			CHECK_EQ(done[i]->ev_error, 0);
			CHECK(info[at].ci_nhandles > 0);
		}
		seen += n;
	}
	CHECK_EQ(daos_eq_query(eqh, DAOS_EQR_ALL, 0, NULL), 0);
	/* An event whose result was taken may be used again. */
	query(0, &evs[0]);
	CHECK_EQ(daos_eq_poll(eqh, 1, DAOS_EQ_WAIT, 1, done), 1);
	CHECK(done[0] == &evs[0]);
	for (int i = 0; i < 32; i++)
		CHECK_EQ(daos_event_fini(&evs[i]), 0);
	CHECK_EQ(daos_event_fini(&evs[0]), 0);
	CHECK_EQ(daos_cont_query(coh, &info[0], NULL, &evs[0]), -DER_INVAL);
	CHECK_EQ(daos_eq_destroy(eqh, 0), 0);
	CHECK_EQ(daos_eq_destroy(eqh, 0), -DER_NO_HDL);
	CHECK_EQ(daos_eq_poll(eqh, 1, DAOS_EQ_NOWAIT, 1, done), -DER_NO_HDL);
	CHECK_EQ(daos_event_init(&evs[0], eqh, NULL), -DER_NONEXIST);
}

static void
without_a_queue(void)
{
	daos_event_t ev;
	bool         flag = false;

	CHECK_EQ(daos_event_init(&ev, DAOS_HDL_INVAL, NULL), 0);
	query(0, &ev);
	while (!flag)
		CHECK_EQ(daos_event_test(&ev, DAOS_EQ_NOWAIT, &flag), 0);
	CHECK_EQ(ev.ev_error, 0);
	CHECK(info[0].ci_nhandles > 0);
	query(0, &ev);
	flag = false;
	CHECK_EQ(daos_event_test(&ev, DAOS_EQ_WAIT, &flag), 0);
	CHECK(flag);
	CHECK_EQ(daos_event_fini(&ev), 0);

	/* The error of an operation is in the event, with the sign of its family. */
	CHECK_EQ(daos_event_init(&ev, DAOS_HDL_INVAL, NULL), 0);
	CHECK_EQ(daos_cont_destroy(poh, "no-such-container", 0, &ev), 0);
	CHECK_EQ(daos_event_test(&ev, DAOS_EQ_WAIT, &flag), 0);
	CHECK_EQ(ev.ev_error, -DER_NONEXIST);
	CHECK_EQ(daos_event_abort(&ev), 0);
	CHECK_EQ(daos_event_fini(&ev), 0);
	CHECK_EQ(daos_event_test(NULL, 0, &flag), -DER_INVAL);
	CHECK_EQ(daos_event_init(NULL, DAOS_HDL_INVAL, NULL), -DER_INVAL);
}

static void
children(void)
{
	daos_handle_t eqh;
	daos_event_t  parent, kids[4], *done[4];
	bool          flag;

	CHECK_EQ(daos_eq_create(&eqh), 0);
	CHECK_EQ(daos_event_init(&parent, eqh, NULL), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(daos_event_init(&kids[i], DAOS_HDL_INVAL, &parent), 0);
	CHECK(daos_event_next(&parent, NULL) == &kids[0]);
	CHECK(daos_event_next(&parent, &kids[3]) == NULL);
	for (int i = 0; i < 3; i++)
		query(i, &kids[i]);
	CHECK_EQ(daos_cont_destroy(poh, "no-such-container", 0, &kids[3]), 0);
	CHECK_EQ(daos_event_test(&kids[0], DAOS_EQ_NOWAIT, &flag), -DER_NO_PERM);
	CHECK_EQ(daos_event_parent_barrier(&parent), 0);
	/* Only the parent comes out, once all children are done. */
	CHECK_EQ(daos_eq_poll(eqh, 1, DAOS_EQ_WAIT, 4, done), 1);
	CHECK(done[0] == &parent);
	CHECK_EQ(parent.ev_error, -DER_NONEXIST);
	CHECK_EQ(kids[0].ev_error, 0);
	CHECK_EQ(kids[3].ev_error, -DER_NONEXIST);
	CHECK(info[2].ci_nhandles > 0);
	CHECK_EQ(daos_event_fini(&parent), 0);
	CHECK_EQ(daos_event_fini(&kids[1]), 0);
	CHECK_EQ(daos_eq_destroy(eqh, 0), 0);

	/* The same without a queue. */
	CHECK_EQ(daos_event_init(&parent, DAOS_HDL_INVAL, NULL), 0);
	CHECK_EQ(daos_event_init(&kids[0], DAOS_HDL_INVAL, &parent), 0);
	query(0, &kids[0]);
	CHECK_EQ(daos_event_parent_barrier(&parent), 0);
	CHECK_EQ(daos_event_test(&parent, DAOS_EQ_WAIT, &flag), 0);
	CHECK(flag && parent.ev_error == 0);
	CHECK_EQ(daos_event_fini(&parent), 0);
}

struct called {
	int           times;
	int           error;
	daos_event_t *ev;
};

static int
note(void *arg, daos_event_t *ev, int error)
{
	struct called   *called = (struct called *)arg;
	daos_cont_info_t inside;

	called->times++;
	called->error = error;
	called->ev    = ev;
	/* A callback may use the API. */
	CHECK_EQ(daos_cont_query(coh, &inside, NULL, NULL), 0);
	return 0;
}

static void
callbacks(void)
{
	daos_handle_t eqh;
	daos_event_t  ev, *done;
	struct called called = {0, 0, NULL};
	bool          flag   = false;

	CHECK_EQ(daos_eq_create(&eqh), 0);
	CHECK_EQ(daos_event_init(&ev, eqh, NULL), 0);
	CHECK_EQ(daos_event_register_comp_cb(&ev, note, &called), 0);
	query(0, &ev);
	CHECK_EQ(daos_eq_poll(eqh, 1, DAOS_EQ_WAIT, 1, &done), 1);
	CHECK_EQ(called.times, 1);
	CHECK_EQ(called.error, 0);
	CHECK(called.ev == &ev);
	/* It was for one operation. */
	query(0, &ev);
	CHECK_EQ(daos_eq_poll(eqh, 1, DAOS_EQ_WAIT, 1, &done), 1);
	CHECK_EQ(called.times, 1);
	CHECK_EQ(daos_event_fini(&ev), 0);
	CHECK_EQ(daos_eq_destroy(eqh, 0), 0);

	CHECK_EQ(daos_event_init(&ev, DAOS_HDL_INVAL, NULL), 0);
	CHECK_EQ(daos_event_register_comp_cb(&ev, note, &called), 0);
	CHECK_EQ(daos_cont_destroy(poh, "no-such-container", 0, &ev), 0);
	CHECK_EQ(daos_event_test(&ev, DAOS_EQ_WAIT, &flag), 0);
	CHECK(flag);
	CHECK_EQ(called.times, 2);
	CHECK_EQ(called.error, -DER_NONEXIST);
	CHECK_EQ(daos_event_fini(&ev), 0);
}

struct shared {
	daos_handle_t eqh;
	daos_event_t  evs[16];
};

static void *
launcher(void *arg)
{
	struct shared *shared = (struct shared *)arg;

	for (int i = 0; i < 16; i++) {
		CHECK_EQ(daos_event_init(&shared->evs[i], shared->eqh, NULL), 0);
		query(i, &shared->evs[i]);
	}
	return NULL;
}

/* One thread launches into a queue in which another sits waiting. */
static void
other_threads(void)
{
	struct shared shared;
	pthread_t     thread;
	int           seen = 0;

	CHECK_EQ(daos_eq_create(&shared.eqh), 0);
	CHECK_EQ(pthread_create(&thread, NULL, launcher, &shared), 0);
	while (seen < 16) {
		daos_event_t *done;
		int           n = daos_eq_poll(shared.eqh, 0, DAOS_EQ_WAIT, 1, &done);

		CHECK_EQ(n, 1);
		CHECK_EQ(done->ev_error, 0);
		seen += n;
	}
	CHECK_EQ(pthread_join(thread, NULL), 0);
	for (int i = 0; i < 16; i++)
		CHECK_EQ(daos_event_fini(&shared.evs[i]), 0);
	CHECK_EQ(daos_eq_destroy(shared.eqh, 0), 0);
}

static void *
blocking_calls(void *arg)
{
	daos_cont_info_t mine;

	(void)arg;
	for (int i = 0; i < 50; i++) {
		memset(&mine, 0, sizeof(mine));
		CHECK_EQ(daos_cont_query(coh, &mine, NULL, NULL), 0);
		CHECK(mine.ci_nhandles > 0);
	}
	return NULL;
}

static void
many_threads(void)
{
	pthread_t threads[8];

	for (int i = 0; i < 8; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, blocking_calls, NULL), 0);
	for (int i = 0; i < 8; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

/* A child goes on with the parent's handles, over connections of its own. */
static void
fork_and_go_on(int reinit)
{
	pid_t pid = fork();
	int   status;

	CHECK(pid >= 0);
	if (pid == 0) {
		if (reinit)
			CHECK_EQ(daos_reinit(), 0);
		blocking_calls(NULL);
		_exit(0);
	}
	blocking_calls(NULL);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int
main(int argc, char **argv)
{
	daos_handle_t closed;

	CHECK_EQ(argc, 3);
	CHECK_EQ(daos_pool_connect(argv[1], NULL, DAOS_PC_RW, &poh, NULL, NULL), -DER_UNINIT);
	CHECK_EQ(daos_fini(), -DER_UNINIT);
	CHECK_EQ(daos_reinit(), -DER_UNINIT);
	CHECK_EQ(azk_set_patience(0), -DER_INVAL);
	CHECK_EQ(azk_set_patience(5), 0);
	CHECK_EQ(azk_set_patience(AZK_PATIENCE_HARD), 0);
	CHECK_EQ(daos_init(), 0);
	CHECK_EQ(daos_init(), 0);
	CHECK_EQ(daos_fini(), 0);
	CHECK_EQ(daos_pool_connect("no-such-pool", NULL, DAOS_PC_RW, &poh, NULL, NULL),
		 -DER_NONEXIST);
	CHECK_EQ(daos_pool_connect(argv[1], NULL, 0, &poh, NULL, NULL), -DER_INVAL);
	CHECK_EQ(daos_pool_connect(argv[1], NULL, DAOS_PC_RW, &poh, NULL, NULL), 0);
	CHECK_EQ(daos_cont_create_with_label(poh, argv[2], NULL, NULL, NULL), 0);
	CHECK_EQ(daos_cont_create_with_label(poh, argv[2], NULL, NULL, NULL), -DER_EXIST);
	CHECK_EQ(daos_cont_open(poh, argv[2], DAOS_COO_RW, &coh, NULL, NULL), 0);
	with_a_queue();
	without_a_queue();
	children();
	callbacks();
	other_threads();
	many_threads();
	fork_and_go_on(0);
	fork_and_go_on(1);
	closed = coh;
	CHECK_EQ(daos_cont_destroy(poh, argv[2], 0, NULL), -DER_BUSY);
	CHECK_EQ(daos_pool_disconnect(poh, NULL), -DER_BUSY);
	CHECK_EQ(daos_cont_query(coh, &info[0], NULL, NULL), 0);
	CHECK_EQ(daos_cont_close(coh, NULL), 0);
	CHECK_EQ(daos_cont_close(closed, NULL), -DER_NO_HDL);
	CHECK_EQ(daos_cont_query(closed, &info[0], NULL, NULL), -DER_NO_HDL);
	CHECK_EQ(daos_cont_query(poh, &info[0], NULL, NULL), -DER_NO_HDL);
	CHECK_EQ(daos_cont_destroy(poh, argv[2], 0, NULL), 0);
	CHECK_EQ(daos_pool_disconnect(poh, NULL), 0);
	CHECK_EQ(daos_pool_disconnect(poh, NULL), -DER_NO_HDL);
	CHECK_EQ(daos_fini(), 0);
	CHECK_EQ(daos_fini(), -DER_UNINIT);
	/* And all of it once more from the start. */
	CHECK_EQ(daos_init(), 0);
	CHECK_EQ(daos_pool_connect(argv[1], NULL, DAOS_PC_RO, &poh, NULL, NULL), 0);
	CHECK_EQ(daos_cont_create_with_label(poh, argv[2], NULL, NULL, NULL), -DER_NO_PERM);
	CHECK_EQ(daos_pool_disconnect(poh, NULL), 0);
	CHECK_EQ(daos_fini(), 0);
	return 0;
}
