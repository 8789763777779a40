/*
 * Events and event queues: operations that run while the caller does other things.
 *
 * Every function that takes an event blocks if it is NULL. Otherwise it starts the operation and
 * returns 0, or an error if it could not be started. Operations run while somebody waits: in
 * daos_eq_poll() of the queue, or in daos_event_test().
 */
#ifndef AZK_DAOS_EVENT_H
#define AZK_DAOS_EVENT_H

#include <daos_errno.h>
#include <daos_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes an event queue. Any thread may poll it, one at a time. */
int daos_eq_create(daos_handle_t *eqh);

/* Flag of daos_eq_destroy(): abort what runs. */
#define DAOS_EQ_DESTROY_FORCE 1

/* Destroys a queue. -DER_BUSY if operations run, unless forced. */
int daos_eq_destroy(daos_handle_t eqh, int flags);

/* Takes completed events out. Waits until there is one, for at most `timeout` microseconds (or
 * DAOS_EQ_NOWAIT, DAOS_EQ_WAIT); with `wait_running` it does not wait if nothing runs.
 * How many events were put into `events`, or a negative DAOS error. */
int daos_eq_poll(daos_handle_t eqh, int wait_running, int64_t timeout, unsigned int nevents,
		 daos_event_t **events);

/* How many events are complete, running, or both; puts up to `nevents` of them into `events`, if not
 * NULL, and leaves them in the queue. */
int daos_eq_query(daos_handle_t eqh, daos_eq_query_t query, unsigned int nevents, daos_event_t **events);

/* Prepares an event: of a queue, of no queue (DAOS_HDL_INVAL), or the child of another event. */
int daos_event_init(daos_event_t *ev, daos_handle_t eqh, daos_event_t *parent);

/* Ends an event. -DER_BUSY if its operation runs. */
int daos_event_fini(daos_event_t *ev);

/* The child after `child`, the first for NULL; NULL after the last. */
daos_event_t *daos_event_next(daos_event_t *parent, daos_event_t *child);

/* Waits for an event as daos_eq_poll() does; sets `*flag` to whether it is complete, and then takes it
 * out of its queue. */
int daos_event_test(struct daos_event *ev, int64_t timeout, bool *flag);

/* Called once when the event completes, with `arg`, the event and its result, before it can be polled. */
typedef int (*daos_event_comp_cb_t)(void *arg, daos_event_t *ev, int result);

int daos_event_register_comp_cb(struct daos_event *ev, daos_event_comp_cb_t cb, void *arg);

/* Starts a parent: it completes when all its children have. */
int daos_event_parent_barrier(struct daos_event *ev);

/* Asks for the operation to end early; it may have taken effect all the same. The event completes. */
int daos_event_abort(daos_event_t *ev);

#ifdef __cplusplus
}
#endif

#endif
