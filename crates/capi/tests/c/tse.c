/* Tasks: order, errors, callbacks, tasks that begin anew, and operations among them, as HDF5's
 * connector for DAOS uses them. */
#include "store.h"
#include <daos_task.h>
#include <daos/common.h>

static char said[64];

static void
say(char letter)
{
	size_t at = strlen(said);

	CHECK(at + 1 < sizeof(said));
	said[at]     = letter;
	said[at + 1] = '\0';
}

static int
work(tse_task_t *task)
{
	say(*(char *)tse_task_get_priv(task));
	tse_task_complete(task, 0);
	return 0;
}

static int
fails(tse_task_t *task)
{
	say(*(char *)tse_task_get_priv(task));
	tse_task_complete(task, -DER_IO);
	return -DER_IO;
}

static int
later(tse_task_t *task)
{
	(void)task;
	say('L');
	return 0;
}

static int
note(tse_task_t *task, void *arg)
{
	(void)task;
	say(*(char *)arg);
	return 0;
}

static int
ended(void *arg, int rc)
{
	CHECK_EQ(rc, *(int *)arg);
	say('.');
	return 0;
}

static int
again(tse_task_t *task, void *arg)
{
	int *left = *(int **)arg;

	if (--*left > 0) {
		CHECK_EQ(tse_task_register_comp_cb(task, again, &left, sizeof(left)), 0);
		CHECK_EQ(tse_task_reinit(task), 0);
	}
	return 0;
}

static tse_task_t *
task_of(tse_sched_t *sched, tse_task_func_t function, const char *letter)
{
	tse_task_t *task;

	CHECK_EQ(tse_task_create(function, sched, (void *)letter, &task), 0);
	return task;
}

static void
order(void)
{
	tse_sched_t sched;
	tse_task_t *a, *b, *c, *d, *deps[2];
	bool        empty = true;
	int         wanted = 0, rounds = 3, *left = &rounds;

	CHECK_EQ(tse_sched_init(&sched, ended, &wanted), 0);
	CHECK(tse_sched_check_complete(&sched));
	a = task_of(&sched, work, "a");
	b = task_of(&sched, work, "b");
	c = task_of(&sched, work, "c");
	d = task_of(&sched, later, "d");
	CHECK(tse_task2sched(a) == &sched);
	deps[0] = a;
	deps[1] = d;
	CHECK_EQ(tse_task_register_deps(c, 2, deps), 0);
	CHECK_EQ(tse_task_register_deps(b, 1, &c), 0);
	CHECK_EQ(tse_task_register_deps(b, 1, &b), -DER_INVAL);
	/* What is registered last for the end comes first; data are copied. */
	CHECK_EQ(tse_task_register_cbs(c, note, (void *)"<", 2, note, (void *)"1", 2), 0);
	CHECK_EQ(tse_task_register_comp_cb(c, note, (void *)"2", 0), 0);
	CHECK_EQ(tse_task_schedule(b, false), 0);
	CHECK_EQ(tse_task_schedule(c, true), 0);
	CHECK_EQ(tse_task_schedule(a, true), 0);
	CHECK_STR(said, "a");
	CHECK_EQ(tse_task_schedule(d, false), 0);
	CHECK_EQ(daos_progress(&sched, 0, &empty), 0);
	CHECK(!empty);
	CHECK_STR(said, "aL");
	/* Somebody completes it later. */
	tse_task_complete(d, 0);
	CHECK_EQ(daos_progress(&sched, DAOS_EQ_WAIT, &empty), 0);
	CHECK(empty);
	CHECK_STR(said, "aL<c21b");

	/* One that begins anew, from its callback. */
	said[0] = '\0';
	a       = task_of(&sched, work, "r");
	CHECK_EQ(tse_task_register_comp_cb(a, again, &left, sizeof(left)), 0);
	CHECK_EQ(tse_task_schedule(a, false), 0);
	tse_sched_progress(&sched);
	CHECK(tse_sched_check_complete(&sched));
	CHECK_STR(said, "rrr");
	tse_sched_complete(&sched, 0, false);
	CHECK_STR(said, "rrr.");
	CHECK_EQ(sched.ds_result, 0);
	tse_sched_fini(&sched);
}

static void
errors(void)
{
	tse_sched_t sched;
	tse_task_t *a, *b, *c, *d;
	int         wanted = -DER_IO;

	said[0] = '\0';
	CHECK_EQ(tse_sched_init(&sched, NULL, NULL), 0);
	CHECK_EQ(tse_sched_register_comp_cb(&sched, ended, &wanted), 0);
	a = task_of(&sched, fails, "a");
	b = task_of(&sched, work, "b");
	c = task_of(&sched, work, "c");
	d = task_of(&sched, work, "d");
	/* b does not run, because a failed; its callbacks do. c runs all the same. */
	CHECK_EQ(tse_task_register_deps(b, 1, &a), 0);
	CHECK_EQ(tse_task_register_deps(c, 1, &b), 0);
	tse_disable_propagate(b);
	tse_task_addref(b);
	CHECK_EQ(tse_task_register_comp_cb(b, note, (void *)"!", 2), 0);
	CHECK_EQ(tse_task_schedule(b, false), 0);
	CHECK_EQ(tse_task_schedule(c, false), 0);
	CHECK_EQ(tse_task_schedule(a, false), 0);
	tse_sched_progress(&sched);
	CHECK_STR(said, "a!c");
	CHECK_EQ(b->dt_result, -DER_IO);
	/* It may be used once more. */
	said[0] = '\0';
	CHECK_EQ(tse_task_reinit(d), -DER_NO_PERM);
	CHECK_EQ(tse_task_reset(d, work, (void *)"x"), -DER_NO_PERM);
	CHECK_EQ(tse_task_reset(b, work, (void *)"B"), 0);
	CHECK_EQ(tse_task_schedule(b, false), 0);
	tse_sched_progress(&sched);
	CHECK_STR(said, "B");
	/* What waits is cancelled. */
	a = task_of(&sched, later, "a");
	CHECK_EQ(tse_task_register_deps(d, 1, &a), 0);
	tse_task_addref(d);
	CHECK_EQ(tse_task_schedule(d, false), 0);
	tse_sched_complete(&sched, 0, true);
	CHECK_EQ(d->dt_result, -DER_CANCELED);
	tse_task_decref(d);
	CHECK_STR(said, "B.");
	tse_task_complete(a, 0);
	tse_sched_fini(&sched);
	CHECK_EQ(tse_task_create(work, &sched, NULL, &a), -DER_NO_HDL);
}

static int
sleepy(tse_task_t *task, void *arg)
{
	int *left = *(int **)arg;

	if (--*left > 0)
		CHECK_EQ(tse_task_register_comp_cb_and_reinit(task, sleepy, &left, sizeof(left), 100), 0);
	return 0;
}

static int
again_later(tse_task_t *task, void *arg)
{
	if (--*(int *)arg > 0)
		CHECK_EQ(tse_task_reinit_with_delay(task, 100), 0);
	return 0;
}

/* Tasks do not begin before their time, nor before those they wait for; what sleeps is cancelled as
 * anything else. */
static void
delays(void)
{
	const uint64_t hour = 3600000000ULL;
	tse_sched_t    sched;
	tse_task_t    *a, *b, *c, *first;
	bool           empty = true;
	int            rounds = 3, *left = &rounds;

	said[0] = '\0';
	CHECK_EQ(tse_sched_init(&sched, NULL, NULL), 0);
	a = task_of(&sched, work, "a");
	b = task_of(&sched, work, "b");
	c = task_of(&sched, work, "c");
	CHECK_EQ(tse_task_schedule_with_delay(a, true, 1), -DER_INVAL);
	CHECK_EQ(tse_task_register_deps(c, 1, &b), 0);
	tse_task_addref(a);
	CHECK_EQ(tse_task_schedule_with_delay(a, false, hour), 0);
	CHECK_EQ(tse_task_schedule_with_delay(c, false, 10), 0);
	CHECK_EQ(tse_task_schedule_with_delay(b, false, 1000), 0);
	do {
		CHECK_EQ(daos_progress(&sched, 1000, &empty), 0);
		CHECK(!empty);
	} while (strlen(said) < 2);
	CHECK_STR(said, "bc");
	/* One that waits for what sleeps. */
	b = task_of(&sched, work, "d");
	CHECK_EQ(tse_task_register_deps(b, 1, &a), 0);
	CHECK_EQ(tse_task_schedule(b, false), 0);
	/* Completed by somebody else while it sleeps: it does not begin later. */
	first = task_of(&sched, work, "x");
	CHECK_EQ(tse_task_schedule_with_delay(first, false, ~0ULL), 0);
	tse_task_complete(first, 0);
	CHECK_EQ(daos_progress(&sched, 0, &empty), 0);
	CHECK(!empty);
	CHECK_STR(said, "bc");
	tse_sched_complete(&sched, 0, true);
	CHECK_EQ(a->dt_result, -DER_CANCELED);
	CHECK(tse_sched_check_complete(&sched));
	CHECK_STR(said, "bc");
	/* Anew after a while, from a callback. */
	CHECK_EQ(tse_task_reset(a, work, (void *)"r"), 0);
	CHECK_EQ(tse_task_register_comp_cb_and_reinit(a, sleepy, &left, sizeof(left), 0), -DER_NO_PERM);
	CHECK_EQ(tse_task_reinit_with_delay(a, 0), -DER_NO_PERM);
	CHECK_EQ(tse_task_register_comp_cb(a, sleepy, &left, sizeof(left)), 0);
	tse_task_addref(a);
	CHECK_EQ(tse_task_schedule(a, true), 0);
	CHECK_EQ(daos_progress(&sched, DAOS_EQ_WAIT, &empty), 0);
	CHECK(empty);
	CHECK_STR(said, "bcrrr");
	CHECK_EQ(tse_task_reset(a, work, (void *)"s"), 0);
	rounds = 2;
	CHECK_EQ(tse_task_register_comp_cb(a, again_later, &rounds, 0), 0);
	CHECK_EQ(tse_task_schedule_with_delay(a, false, 1), 0);
	CHECK_EQ(daos_progress(&sched, DAOS_EQ_WAIT, &empty), 0);
	CHECK_STR(said, "bcrrrss");
	/* Left behind, asleep. */
	b = task_of(&sched, work, "b");
	CHECK_EQ(tse_task_schedule_with_delay(b, false, hour), 0);
	tse_sched_fini(&sched);
	CHECK_STR(said, "bcrrrss");
}

static int
spell(tse_task_t *task, void *arg)
{
	say(*(char *)tse_task_get_priv(task));
	return *(char *)tse_task_get_priv(task) == 'b' ? *(int *)arg : 0;
}

static int
take_out(tse_task_t *task, void *arg)
{
	d_list_t *other = (d_list_t *)arg;

	tse_task_list_del(task);
	return tse_task_list_add(task, other);
}

static void
lists(void)
{
	const char *letters[] = {"a", "b", "c"};
	tse_sched_t sched;
	tse_task_t *tasks[3], *before, *after;
	d_list_t    list, other;
	int         at, told = 5;

	said[0] = '\0';
	D_INIT_LIST_HEAD(&list);
	D_INIT_LIST_HEAD(&other);
	CHECK_EQ(tse_sched_init(&sched, NULL, NULL), 0);
	CHECK(tse_task_list_first(&list) == NULL);
	for (at = 0; at < 3; at++) {
		tasks[at] = task_of(&sched, work, letters[at]);
		CHECK_EQ(tse_task_list_add(tasks[at], &list), 0);
		CHECK_EQ(tse_task_list_add(tasks[at], &other), -DER_INVAL);
	}
	CHECK(tse_task_list_first(&list) == tasks[0]);
	CHECK_EQ(tse_task_list_traverse(&list, spell, &told), 5);
	CHECK_STR(said, "abc");
	CHECK_EQ(tse_task_list_traverse_adv(&list, take_out, &other), 0);
	CHECK(d_list_empty(&list) && tse_task_list_first(&other) == tasks[0]);
	tse_task_list_del(tasks[1]);
	tse_task_list_del(tasks[1]);
	CHECK_EQ(tse_task_list_add(tasks[1], &other), 0);
	/* All of them after one, and another after all of them. */
	before = task_of(&sched, work, "<");
	after  = task_of(&sched, work, ">");
	CHECK_EQ(tse_task_list_depend(&other, before), 0);
	CHECK_EQ(tse_task_depend_list(after, &other), 0);
	said[0] = '\0';
	CHECK_EQ(tse_task_schedule(after, false), 0);
	tse_task_list_sched(&other, false);
	CHECK(d_list_empty(&other));
	tse_sched_progress(&sched);
	CHECK_STR(said, "");
	CHECK_EQ(tse_task_schedule(before, false), 0);
	tse_sched_progress(&sched);
	CHECK_STR(said, "<acb>");
	CHECK(tse_sched_check_complete(&sched));
	/* Given up: none runs. */
	for (at = 0; at < 3; at++) {
		tasks[at] = task_of(&sched, work, letters[at]);
		tse_task_addref(tasks[at]);
		CHECK_EQ(tse_task_list_add(tasks[at], &list), 0);
	}
	tse_task_list_abort(&list, -DER_IO);
	CHECK(d_list_empty(&list));
	for (at = 0; at < 3; at++) {
		CHECK_EQ(tasks[at]->dt_result, -DER_IO);
		CHECK_EQ(tse_task_list_add(tasks[at], &list), -DER_NO_PERM);
		tse_task_decref(tasks[at]);
	}
	tse_sched_progress(&sched);
	CHECK_STR(said, "<acb>");
	tse_sched_fini(&sched);
}

/* A value is written and read back by tasks that wait for each other. */
static void
operations(void)
{
	daos_obj_id_t     oid = new_id(DAOS_OT_MULTI_HASHED, OC_S1);
	daos_handle_t     oh;
	tse_sched_t       sched;
	tse_task_t       *task, *last;
	daos_obj_open_t  *open;
	daos_obj_rw_t    *rw;
	daos_obj_close_t *close;
	d_iov_t           dkey = text_of("d"), value = text_of("value"), room;
	d_sg_list_t       out = list_of(&value, 1), in;
	daos_iod_t        iod;
	char              back[16];
	bool              empty;

	memset(&iod, 0, sizeof(iod));
	iod.iod_name = text_of("a");
	iod.iod_type = DAOS_IOD_SINGLE;
	iod.iod_size = 5;
	iod.iod_nr   = 1;
	room         = iov_of(back, sizeof(back));
	in           = list_of(&room, 1);
	memset(back, 0, sizeof(back));
	CHECK_EQ(tse_sched_init(&sched, NULL, NULL), 0);

	CHECK_EQ(daos_task_create(DAOS_OPC_OBJ_OPEN, &sched, 0, NULL, &task), 0);
	open       = (daos_obj_open_t *)daos_task_get_args(task);
	open->coh  = coh;
	open->oid  = oid;
	open->mode = DAOS_OO_RW;
	open->oh   = &oh;
	CHECK_EQ(tse_task_schedule(task, false), 0);
	CHECK_EQ(daos_progress(&sched, DAOS_EQ_WAIT, &empty), 0);
	CHECK(empty && sched.ds_result == 0);

	CHECK_EQ(daos_task_create(DAOS_OPC_OBJ_UPDATE, &sched, 0, NULL, &task), 0);
	rw       = (daos_obj_rw_t *)daos_task_get_args(task);
	rw->oh   = oh;
	rw->dkey = &dkey;
	rw->nr   = 1;
	rw->iods = &iod;
	rw->sgls = &out;
	CHECK_EQ(daos_task_create(DAOS_OPC_OBJ_FETCH, &sched, 1, &task, &last), 0);
	CHECK_EQ(tse_task_schedule(task, false), 0);
	rw       = (daos_obj_rw_t *)daos_task_get_args(last);
	rw->oh   = oh;
	rw->dkey = &dkey;
	rw->nr   = 1;
	rw->iods = &iod;
	rw->sgls = &in;
	CHECK_EQ(daos_task_create(DAOS_OPC_OBJ_CLOSE, &sched, 1, &last, &task), 0);
	CHECK_EQ(tse_task_schedule(last, false), 0);
	close     = (daos_obj_close_t *)daos_task_get_args(task);
	close->oh = oh;
	CHECK(daos_task_set_priv(task, back) == NULL && daos_task_get_priv(task) == back);
	CHECK_EQ(tse_task_schedule(task, false), 0);
	CHECK_EQ(daos_progress(&sched, DAOS_EQ_WAIT, &empty), 0);
	CHECK(empty && sched.ds_result == 0);
	CHECK_STR(back, "value");

	/* The handle is closed: an error of the operation is the task's; so is one of the launch. */
	CHECK_EQ(daos_task_create(DAOS_OPC_OBJ_CLOSE, &sched, 0, NULL, &task), 0);
	((daos_obj_close_t *)daos_task_get_args(task))->oh = oh;
	tse_task_addref(task);
	CHECK_EQ(tse_task_schedule(task, true), 0);
	CHECK_EQ(daos_progress(&sched, DAOS_EQ_WAIT, &empty), 0);
	CHECK_EQ(task->dt_result, -DER_NO_HDL);
	CHECK_EQ(daos_task_reset(task, DAOS_OPC_POOL_STOP_SVC), 0);
	tse_task_addref(task);
	CHECK_EQ(tse_task_schedule(task, true), 0);
	CHECK_EQ(task->dt_result, -DER_NOSYS);
	tse_task_decref(task);
	CHECK_EQ(daos_task_create(DAOS_OPC_MAX, &sched, 0, NULL, &task), -DER_NOSYS);
	tse_sched_fini(&sched);
}

/* Left behind: nothing leaks, nothing runs. */
static void
left_behind(void)
{
	tse_sched_t sched;
	tse_task_t *a, *b;

	said[0] = '\0';
	CHECK_EQ(tse_sched_init(&sched, NULL, NULL), 0);
	a = task_of(&sched, work, "a");
	b = task_of(&sched, work, "b");
	CHECK_EQ(tse_task_register_deps(b, 1, &a), 0);
	CHECK_EQ(tse_task_schedule(b, false), 0);
	CHECK_EQ(tse_task_schedule(a, false), 0);
	tse_sched_fini(&sched);
	CHECK_STR(said, "");
	tse_sched_fini(&sched);
}

int
main(int argc, char **argv)
{
	CHECK_EQ(argc, 3);
	begin(argv[1], argv[2]);
	order();
	errors();
	delays();
	lists();
	operations();
	left_behind();
	end(argv[2]);
	return 0;
}
