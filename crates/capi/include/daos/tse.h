/* Tasks: functions that run after each other, as a scheduler finds them ready. */
#ifndef AZK_DAOS_TSE_H
#define AZK_DAOS_TSE_H

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <gurt/list.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of arguments that a task has room for. */
#define TSE_TASK_ARG_LEN 1024

/* A task. The library makes it, and frees it when it is complete and nobody holds a reference. */
typedef struct tse_task {
	/* 0 or the first error, when it is complete. */
	int dt_result;
	int dt_pad32;
	struct {
		uint64_t dt_space[4];
	} dt_private;
} tse_task_t;

/* A scheduler, in memory of its user that stays where it is. */
typedef struct tse_sched {
	/* 0 or the first error of a task. */
	int ds_result;
	/* The user's. */
	void *ds_udata;
	struct {
		uint64_t ds_space[48];
	} ds_private;
} tse_sched_t;

/* What is called when a scheduler has ended; what a task does; what comes before and after it. */
typedef int (*tse_sched_comp_cb_t)(void *args, int rc);
typedef int (*tse_task_func_t)(tse_task_t *task);
typedef int (*tse_task_cb_t)(tse_task_t *task, void *arg);

/* Begins and forgets a scheduler. `comp_cb` (or NULL) gets `udata`. */
int tse_sched_init(tse_sched_t *sched, tse_sched_comp_cb_t comp_cb, void *udata);
void tse_sched_fini(tse_sched_t *sched);
int tse_sched_register_comp_cb(tse_sched_t *sched, tse_sched_comp_cb_t comp_cb, void *arg);

/* Runs what can run, without waiting; see daos_progress() in daos_task.h for waiting. */
void tse_sched_progress(tse_sched_t *sched);

/* True when nothing that was scheduled is left. */
bool tse_sched_check_complete(tse_sched_t *sched);

/* No more tasks: what is left is run or, with `cancel`, completed with -DER_CANCELED. */
void tse_sched_complete(tse_sched_t *sched, int ret, bool cancel);

/* Makes a task. It begins when it was scheduled and all it depends on is complete. Its function, or
 * somebody later, completes it; without a function it is complete at once. */
int tse_task_create(tse_task_func_t task_func, tse_sched_t *sched, void *priv, tse_task_t **taskp);
int tse_task_schedule(tse_task_t *task, bool instant);

/* The same, but it does not begin before `delay` microseconds have gone by. */
int tse_task_schedule_with_delay(tse_task_t *task, bool instant, uint64_t delay);
void tse_task_complete(tse_task_t *task, int ret);

/* A task waits for others: to begin or, when it runs, to end. Their errors become its own. */
int tse_task_register_deps(tse_task_t *task, int num_deps, tse_task_t *dep_tasks[]);
void tse_disable_propagate(tse_task_t *task);

/* What is called before a task begins and after it is complete, with copies of the data (or the
 * pointers, when their size is 0). Of several for the end the last one comes first. */
int tse_task_register_cbs(tse_task_t *task, tse_task_cb_t prep_cb, void *prep_data,
			  size_t prep_data_size, tse_task_cb_t comp_cb, void *comp_data,
			  size_t comp_data_size);
int tse_task_register_comp_cb(tse_task_t *task, tse_task_cb_t comp_cb, void *arg, size_t arg_size);

/* Has a task run once more, from its function or a callback; makes a complete one a new one. */
int tse_task_reinit(tse_task_t *task);
int tse_task_reinit_with_delay(tse_task_t *task, uint64_t delay);
int tse_task_register_comp_cb_and_reinit(tse_task_t *task, tse_task_cb_t comp_cb, void *arg,
					 size_t arg_size, uint64_t delay);
int tse_task_reset(tse_task_t *task, tse_task_func_t task_func, void *priv);

/* References keep the memory of a task beyond its end. */
void tse_task_addref(tse_task_t *task);
void tse_task_decref(tse_task_t *task);

/* The user's data; memory of up to TSE_TASK_ARG_LEN bytes, zeros at first; the scheduler. */
void *tse_task_get_priv(tse_task_t *task);
void *tse_task_set_priv(tse_task_t *task, void *priv);
void *tse_task_buf_embedded(tse_task_t *task, int size);
tse_sched_t *tse_task2sched(tse_task_t *task);

/* Lists of tasks that have not begun; a task is in one list at most, and out of it before it ends.
 * tse_task_list_depend(): each of the list waits for `task`; tse_task_depend_list(): `task` waits for
 * each. Both traversals return the last result that was not 0; their callback may take its task out of
 * the list, with _adv also free the head at the last task. */
int tse_task_list_add(tse_task_t *task, d_list_t *head);
void tse_task_list_del(tse_task_t *task);
tse_task_t *tse_task_list_first(d_list_t *head);
void tse_task_list_sched(d_list_t *head, bool instant);
void tse_task_list_abort(d_list_t *head, int rc);
int tse_task_list_depend(d_list_t *head, tse_task_t *task);
int tse_task_depend_list(tse_task_t *task, d_list_t *head);
int tse_task_list_traverse(d_list_t *head, tse_task_cb_t cb, void *arg);
int tse_task_list_traverse_adv(d_list_t *head, tse_task_cb_t cb, void *arg);

#ifdef __cplusplus
}
#endif

#endif
