/* How tasks that are operations run: part of daos_task.h. */
#ifndef AZK_DAOS_TASK_OPS_H
#define AZK_DAOS_TASK_OPS_H

#include <daos_task.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For the functions below: the event that the operation of a task is launched with. */
daos_event_t *azk_task_event(tse_task_t *task);
int azk_task_launched(tse_task_t *task, daos_event_t *ev, int rc);

/* Where a task keeps its operation: behind its arguments. */
static inline uint64_t *azk_task_opc(tse_task_t *task)
{
	return (uint64_t *)tse_task_buf_embedded(task, TSE_TASK_ARG_LEN) + TSE_TASK_ARG_LEN / 8 - 1;
}

/* Launches the operation with its arguments. */
static inline int azk_task_call(daos_opc_t opc, void *args, daos_event_t *ev)
{
#define AZK_ARGS(type) type *a = (type *)args
	switch (opc) {
	case DAOS_OPC_POOL_CONNECT: {
		AZK_ARGS(daos_pool_connect_t);

		return daos_pool_connect(a->pool, a->grp, a->flags, a->poh, a->info, ev);
	}
	case DAOS_OPC_POOL_DISCONNECT: {
		AZK_ARGS(daos_pool_disconnect_t);

		return daos_pool_disconnect(a->poh, ev);
	}
	case DAOS_OPC_POOL_QUERY: {
		AZK_ARGS(daos_pool_query_t);

		return daos_pool_query(a->poh, a->ranks, a->info, a->prop, ev);
	}
	case DAOS_OPC_POOL_LIST_CONT: {
		AZK_ARGS(daos_pool_list_cont_t);

		return daos_pool_list_cont(a->poh, a->ncont, a->cont_buf, ev);
	}
	case DAOS_OPC_POOL_LIST_ATTR: {
		AZK_ARGS(daos_pool_list_attr_t);

		return daos_pool_list_attr(a->poh, a->buf, a->size, ev);
	}
	case DAOS_OPC_POOL_GET_ATTR: {
		AZK_ARGS(daos_pool_get_attr_t);

		return daos_pool_get_attr(a->poh, a->n, a->names, a->values, a->sizes, ev);
	}
	case DAOS_OPC_POOL_SET_ATTR: {
		AZK_ARGS(daos_pool_set_attr_t);

		return daos_pool_set_attr(a->poh, a->n, a->names, a->values, a->sizes, ev);
	}
	case DAOS_OPC_POOL_DEL_ATTR: {
		AZK_ARGS(daos_pool_del_attr_t);

		return daos_pool_del_attr(a->poh, a->n, a->names, ev);
	}
	case DAOS_OPC_CONT_CREATE: {
		AZK_ARGS(daos_cont_create_t);

		return daos_cont_create(a->poh, a->cuuid, a->prop, ev);
	}
	case DAOS_OPC_CONT_OPEN: {
		AZK_ARGS(daos_cont_open_t);

		return daos_cont_open(a->poh, a->cont, a->flags, a->coh, a->info, ev);
	}
	case DAOS_OPC_CONT_CLOSE: {
		AZK_ARGS(daos_cont_close_t);

		return daos_cont_close(a->coh, ev);
	}
	case DAOS_OPC_CONT_DESTROY: {
		AZK_ARGS(daos_cont_destroy_t);

		return daos_cont_destroy(a->poh, a->cont, a->force, ev);
	}
	case DAOS_OPC_CONT_QUERY: {
		AZK_ARGS(daos_cont_query_t);

		return daos_cont_query(a->coh, a->info, a->prop, ev);
	}
	case DAOS_OPC_CONT_SET_PROP: {
		AZK_ARGS(daos_cont_set_prop_t);

		return daos_cont_set_prop(a->coh, a->prop, ev);
	}
	case DAOS_OPC_CONT_LIST_ATTR: {
		AZK_ARGS(daos_cont_list_attr_t);

		return daos_cont_list_attr(a->coh, a->buf, a->size, ev);
	}
	case DAOS_OPC_CONT_GET_ATTR: {
		AZK_ARGS(daos_cont_get_attr_t);

		return daos_cont_get_attr(a->coh, a->n, a->names, a->values, a->sizes, ev);
	}
	case DAOS_OPC_CONT_SET_ATTR: {
		AZK_ARGS(daos_cont_set_attr_t);

		return daos_cont_set_attr(a->coh, a->n, a->names, a->values, a->sizes, ev);
	}
	case DAOS_OPC_CONT_DEL_ATTR: {
		AZK_ARGS(daos_cont_del_attr_t);

		return daos_cont_del_attr(a->coh, a->n, a->names, ev);
	}
	case DAOS_OPC_CONT_ALLOC_OIDS: {
		AZK_ARGS(daos_cont_alloc_oids_t);

		return daos_cont_alloc_oids(a->coh, a->num_oids, a->oid, ev);
	}
	case DAOS_OPC_TX_OPEN: {
		AZK_ARGS(daos_tx_open_t);

		return daos_tx_open(a->coh, a->th, a->flags, ev);
	}
	case DAOS_OPC_TX_COMMIT: {
		AZK_ARGS(daos_tx_commit_t);

		return daos_tx_commit(a->th, ev);
	}
	case DAOS_OPC_TX_ABORT: {
		AZK_ARGS(daos_tx_abort_t);

		return daos_tx_abort(a->th, ev);
	}
	case DAOS_OPC_TX_CLOSE: {
		AZK_ARGS(daos_tx_close_t);

		return daos_tx_close(a->th, ev);
	}
	case DAOS_OPC_TX_RESTART: {
		AZK_ARGS(daos_tx_restart_t);

		return daos_tx_restart(a->th, ev);
	}
	case DAOS_OPC_TX_OPEN_SNAP: {
		AZK_ARGS(daos_tx_open_snap_t);

		return daos_tx_open_snap(a->coh, a->epoch, a->th, ev);
	}
	case DAOS_OPC_OBJ_OPEN: {
		AZK_ARGS(daos_obj_open_t);

		return daos_obj_open(a->coh, a->oid, a->mode, a->oh, ev);
	}
	case DAOS_OPC_OBJ_CLOSE: {
		AZK_ARGS(daos_obj_close_t);

		return daos_obj_close(a->oh, ev);
	}
	case DAOS_OPC_OBJ_PUNCH: {
		AZK_ARGS(daos_obj_punch_t);

		return daos_obj_punch(a->oh, a->th, a->flags, ev);
	}
	case DAOS_OPC_OBJ_PUNCH_DKEYS: {
		AZK_ARGS(daos_obj_punch_t);

		return daos_obj_punch_dkeys(a->oh, a->th, a->flags, 1, a->dkey, ev);
	}
	case DAOS_OPC_OBJ_PUNCH_AKEYS: {
		AZK_ARGS(daos_obj_punch_t);

		return daos_obj_punch_akeys(a->oh, a->th, a->flags, a->dkey, a->akey_nr, a->akeys,
		    ev);
	}
	case DAOS_OPC_OBJ_QUERY_KEY: {
		AZK_ARGS(daos_obj_query_key_t);

		return daos_obj_query_key(a->oh, a->th, a->flags, a->dkey, a->akey, a->recx, ev);
	}
	case DAOS_OPC_OBJ_FETCH: {
		AZK_ARGS(daos_obj_fetch_t);

		return daos_obj_fetch(a->oh, a->th, a->flags, a->dkey, a->nr, a->iods, a->sgls,
		    a->ioms, ev);
	}
	case DAOS_OPC_OBJ_UPDATE: {
		AZK_ARGS(daos_obj_update_t);

		return daos_obj_update(a->oh, a->th, a->flags, a->dkey, a->nr, a->iods, a->sgls,
		    ev);
	}
	case DAOS_OPC_OBJ_LIST_DKEY: {
		AZK_ARGS(daos_obj_list_dkey_t);

		return daos_obj_list_dkey(a->oh, a->th, a->nr, a->kds, a->sgl, a->dkey_anchor,
		    ev);
	}
	case DAOS_OPC_OBJ_LIST_AKEY: {
		AZK_ARGS(daos_obj_list_akey_t);

		return daos_obj_list_akey(a->oh, a->th, a->dkey, a->nr, a->kds, a->sgl,
		    a->akey_anchor, ev);
	}
	case DAOS_OPC_OBJ_LIST_RECX: {
		AZK_ARGS(daos_obj_list_recx_t);

		return daos_obj_list_recx(a->oh, a->th, a->dkey, a->akey, a->size, a->nr,
		    a->recxs, a->eprs, a->anchor, a->incr_order, ev);
	}
	case DAOS_OPC_ARRAY_CREATE: {
		AZK_ARGS(daos_array_create_t);

		return daos_array_create(a->coh, a->oid, a->th, a->cell_size, a->chunk_size,
		    a->oh, ev);
	}
	case DAOS_OPC_ARRAY_CLOSE: {
		AZK_ARGS(daos_array_close_t);

		return daos_array_close(a->oh, ev);
	}
	case DAOS_OPC_ARRAY_DESTROY: {
		AZK_ARGS(daos_array_destroy_t);

		return daos_array_destroy(a->oh, a->th, ev);
	}
	case DAOS_OPC_ARRAY_READ: {
		AZK_ARGS(daos_array_io_t);

		return daos_array_read(a->oh, a->th, a->iod, a->sgl, ev);
	}
	case DAOS_OPC_ARRAY_WRITE: {
		AZK_ARGS(daos_array_io_t);

		return daos_array_write(a->oh, a->th, a->iod, a->sgl, ev);
	}
	case DAOS_OPC_ARRAY_PUNCH: {
		AZK_ARGS(daos_array_io_t);

		return daos_array_punch(a->oh, a->th, a->iod, ev);
	}
	case DAOS_OPC_ARRAY_GET_SIZE: {
		AZK_ARGS(daos_array_get_size_t);

		return daos_array_get_size(a->oh, a->th, a->size, ev);
	}
	case DAOS_OPC_ARRAY_SET_SIZE: {
		AZK_ARGS(daos_array_set_size_t);

		return daos_array_set_size(a->oh, a->th, a->size, ev);
	}
	case DAOS_OPC_ARRAY_STAT: {
		AZK_ARGS(daos_array_stat_t);

		return daos_array_stat(a->oh, a->th, a->stbuf, ev);
	}
	case DAOS_OPC_KV_OPEN: {
		AZK_ARGS(daos_kv_open_t);

		return daos_kv_open(a->coh, a->oid, a->mode, a->oh, ev);
	}
	case DAOS_OPC_KV_CLOSE: {
		AZK_ARGS(daos_kv_close_t);

		return daos_kv_close(a->oh, ev);
	}
	case DAOS_OPC_KV_DESTROY: {
		AZK_ARGS(daos_kv_destroy_t);

		return daos_kv_destroy(a->oh, a->th, ev);
	}
	case DAOS_OPC_KV_GET: {
		AZK_ARGS(daos_kv_get_t);

		return daos_kv_get(a->oh, a->th, a->flags, a->key, a->buf_size, a->buf, ev);
	}
	case DAOS_OPC_KV_PUT: {
		AZK_ARGS(daos_kv_put_t);

		return daos_kv_put(a->oh, a->th, a->flags, a->key, a->buf_size, a->buf, ev);
	}
	case DAOS_OPC_KV_REMOVE: {
		AZK_ARGS(daos_kv_remove_t);

		return daos_kv_remove(a->oh, a->th, a->flags, a->key, ev);
	}
	case DAOS_OPC_KV_LIST: {
		AZK_ARGS(daos_kv_list_t);

		return daos_kv_list(a->oh, a->th, a->nr, a->kds, a->sgl, a->anchor, ev);
	}
	case DAOS_OPC_ARRAY_OPEN: {
		AZK_ARGS(daos_array_open_t);

		if (a->open_with_attr)
			return daos_array_open_with_attr(a->coh, a->oid, a->th, a->mode, *a->cell_size,
							 *a->chunk_size, a->oh, ev);
		return daos_array_open(a->coh, a->oid, a->th, a->mode, a->cell_size, a->chunk_size,
				       a->oh, ev);
	}
	default:
		return -DER_NOSYS;
	}
#undef AZK_ARGS
}

/* The function of tasks that are operations. */
static inline int azk_task_run(tse_task_t *task)
{
	daos_event_t *ev = azk_task_event(task);

	if (ev == NULL) {
		tse_task_complete(task, -DER_UNINIT);
		return -DER_UNINIT;
	}
	return azk_task_launched(
	    task, ev, azk_task_call((daos_opc_t)*azk_task_opc(task), daos_task_get_args(task), ev));
}

/* Makes a task of an operation, which begins after the given ones. */
static inline int daos_task_create(daos_opc_t opc, tse_sched_t *sched, unsigned int num_deps,
				   tse_task_t *dep_tasks[], tse_task_t **taskp)
{
	tse_task_t *task;
	int rc;

	if (opc <= DAOS_OPC_INVALID || opc >= DAOS_OPC_MAX)
		return -DER_NOSYS;
	rc = tse_task_create(azk_task_run, sched, NULL, &task);
	if (rc != 0)
		return rc;
	*azk_task_opc(task) = (uint64_t)opc;
	if (num_deps > 0 && dep_tasks != NULL)
		rc = tse_task_register_deps(task, (int)num_deps, dep_tasks);
	if (rc != 0) {
		tse_task_complete(task, rc);
		return rc;
	}
	*taskp = task;
	return 0;
}

/* Makes a complete task, to which there is a reference, one of another operation. */
static inline int daos_task_reset(tse_task_t *task, daos_opc_t opc)
{
	int rc;

	if (opc <= DAOS_OPC_INVALID || opc >= DAOS_OPC_MAX)
		return -DER_NOSYS;
	rc = tse_task_reset(task, azk_task_run, NULL);
	if (rc == 0)
		*azk_task_opc(task) = (uint64_t)opc;
	return rc;
}

#ifdef __cplusplus
}
#endif

#endif
