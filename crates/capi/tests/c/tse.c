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
	operations();
	left_behind();
	end(argv[2]);
	return 0;
}
