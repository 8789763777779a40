/*
 * Operations as tasks of a scheduler (daos/tse.h). Make one, fill in its arguments, schedule it, and
 * call daos_progress():
 *
 *	daos_task_create(DAOS_OPC_OBJ_FETCH, &sched, 0, NULL, &task);
 *	args = (daos_obj_fetch_t *)daos_task_get_args(task);
 *
 * The result of the operation is that of the task. Operations without a case in
 * daos/task_ops.h end with -DER_NOSYS.
 */
#ifndef AZK_DAOS_TASK_H
#define AZK_DAOS_TASK_H

#include <daos_array.h>
#include <daos_cont.h>
#include <daos_errno.h>
#include <daos_kv.h>
#include <daos_mgmt.h>
#include <daos_obj.h>
#include <daos_pool.h>
#include <daos_prop.h>
#include <daos_types.h>
#include <daos/tse.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Operations. */
typedef enum {
	DAOS_OPC_INVALID = -1,
	DAOS_OPC_MGMT_LIST_POOLS = 2,
	DAOS_OPC_SET_PARAMS,
	DAOS_OPC_MGMT_GET_BS_STATE,
	DAOS_OPC_POOL_CONNECT = 5,
	DAOS_OPC_POOL_DISCONNECT,
	DAOS_OPC_POOL_EXCLUDE,
	DAOS_OPC_POOL_EXCLUDE_OUT,
	DAOS_OPC_POOL_ADD,
	DAOS_OPC_POOL_QUERY,
	DAOS_OPC_POOL_QUERY_INFO,
	DAOS_OPC_POOL_LIST_ATTR,
	DAOS_OPC_POOL_GET_ATTR,
	DAOS_OPC_POOL_SET_ATTR,
	DAOS_OPC_POOL_DEL_ATTR,
	DAOS_OPC_POOL_STOP_SVC,
	DAOS_OPC_POOL_LIST_CONT,
	DAOS_OPC_CONT_CREATE = 18,
	DAOS_OPC_CONT_OPEN,
	DAOS_OPC_CONT_CLOSE,
	DAOS_OPC_CONT_DESTROY,
	DAOS_OPC_CONT_QUERY,
	DAOS_OPC_CONT_SET_PROP,
	DAOS_OPC_CONT_UPDATE_ACL,
	DAOS_OPC_CONT_DELETE_ACL,
	DAOS_OPC_CONT_AGGREGATE,
	DAOS_OPC_CONT_ROLLBACK,
	DAOS_OPC_CONT_SUBSCRIBE,
	DAOS_OPC_CONT_LIST_ATTR,
	DAOS_OPC_CONT_GET_ATTR,
	DAOS_OPC_CONT_SET_ATTR,
	DAOS_OPC_CONT_DEL_ATTR,
	DAOS_OPC_CONT_ALLOC_OIDS,
	DAOS_OPC_CONT_LIST_SNAP,
	DAOS_OPC_CONT_CREATE_SNAP,
	DAOS_OPC_CONT_DESTROY_SNAP,
	DAOS_OPC_TX_OPEN = 37,
	DAOS_OPC_TX_COMMIT,
	DAOS_OPC_TX_ABORT,
	DAOS_OPC_TX_OPEN_SNAP,
	DAOS_OPC_TX_CLOSE,
	DAOS_OPC_TX_RESTART,
	DAOS_OPC_OBJ_QUERY_CLASS = 44,
	DAOS_OPC_OBJ_LIST_CLASS,
	DAOS_OPC_OBJ_OPEN,
	DAOS_OPC_OBJ_CLOSE,
	DAOS_OPC_OBJ_PUNCH,
	DAOS_OPC_OBJ_PUNCH_DKEYS,
	DAOS_OPC_OBJ_PUNCH_AKEYS,
	DAOS_OPC_OBJ_QUERY,
	DAOS_OPC_OBJ_QUERY_KEY,
	DAOS_OPC_OBJ_SYNC,
	DAOS_OPC_OBJ_FETCH,
	DAOS_OPC_OBJ_UPDATE,
	DAOS_OPC_OBJ_LIST_DKEY,
	DAOS_OPC_OBJ_LIST_AKEY,
	DAOS_OPC_OBJ_LIST_RECX,
	DAOS_OPC_OBJ_LIST_OBJ,
	DAOS_OPC_ARRAY_CREATE = 60,
	DAOS_OPC_ARRAY_OPEN,
	DAOS_OPC_ARRAY_CLOSE,
	DAOS_OPC_ARRAY_DESTROY,
	DAOS_OPC_ARRAY_READ,
	DAOS_OPC_ARRAY_WRITE,
	DAOS_OPC_ARRAY_PUNCH,
	DAOS_OPC_ARRAY_GET_SIZE,
	DAOS_OPC_ARRAY_SET_SIZE,
	DAOS_OPC_ARRAY_STAT,
	DAOS_OPC_KV_OPEN = 70,
	DAOS_OPC_KV_CLOSE,
	DAOS_OPC_KV_DESTROY,
	DAOS_OPC_KV_GET,
	DAOS_OPC_KV_PUT,
	DAOS_OPC_KV_REMOVE,
	DAOS_OPC_KV_LIST,
	DAOS_OPC_POOL_FILTER_CONT,
	DAOS_OPC_OBJ_KEY2ANCHOR,
	DAOS_OPC_CONT_SNAP_OIT_CREATE,
	DAOS_OPC_CONT_SNAP_OIT_DESTROY,
	DAOS_OPC_PIPELINE_RUN,
	DAOS_OPC_MAX
} daos_opc_t;

/* Arguments of operations: those of the function of the same name. */

/* Pools. */
typedef struct {
	uuid_t uuid;
	const char *grp;
	unsigned int flags;
	daos_handle_t *poh;
	daos_pool_info_t *info;
	const char *pool;
} daos_pool_connect_t;

typedef struct {
	daos_handle_t poh;
} daos_pool_disconnect_t;

typedef struct {
	daos_handle_t poh;
	d_rank_list_t **ranks;
	daos_pool_info_t *info;
	daos_prop_t *prop;
} daos_pool_query_t;

typedef struct {
	daos_handle_t poh;
	uint32_t tgt_idx;
	d_rank_t rank;
	daos_target_info_t *info;
} daos_pool_query_target_t;

typedef struct {
	daos_handle_t poh;
	daos_size_t *ncont;
	struct daos_pool_cont_info *cont_buf;
} daos_pool_list_cont_t;

typedef struct {
	daos_handle_t poh;
	daos_pool_cont_filter_t *filt;
	daos_size_t *ncont;
	struct daos_pool_cont_info2 *cont_buf;
} daos_pool_filter_cont_t;

typedef struct {
	daos_handle_t poh;
	char *buf;
	size_t *size;
} daos_pool_list_attr_t;

typedef struct {
	daos_handle_t poh;
	int n;
	char const *const *names;
	void *const *values;
	size_t *sizes;
} daos_pool_get_attr_t;

typedef struct {
	daos_handle_t poh;
	int n;
	char const *const *names;
	void const *const *values;
	size_t const *sizes;
} daos_pool_set_attr_t;

typedef struct {
	daos_handle_t poh;
	int n;
	char const *const *names;
} daos_pool_del_attr_t;

typedef struct {
	const char *grp;
	daos_mgmt_pool_info_t *pools;
	daos_size_t *npools;
} daos_mgmt_pool_list_t;

/* Containers. */
typedef struct {
	daos_handle_t poh;
	uuid_t uuid;
	daos_prop_t *prop;
	uuid_t *cuuid;
} daos_cont_create_t;

typedef struct {
	daos_handle_t poh;
	uuid_t uuid;
	unsigned int flags;
	daos_handle_t *coh;
	daos_cont_info_t *info;
	const char *cont;
} daos_cont_open_t;

typedef struct {
	daos_handle_t coh;
} daos_cont_close_t;

typedef struct {
	daos_handle_t poh;
	uuid_t uuid;
	int force;
	const char *cont;
} daos_cont_destroy_t;

typedef struct {
	daos_handle_t coh;
	daos_cont_info_t *info;
	daos_prop_t *prop;
} daos_cont_query_t;

typedef struct {
	daos_handle_t coh;
	daos_prop_t *prop;
} daos_cont_set_prop_t;

typedef struct {
	daos_handle_t coh;
	struct daos_acl *acl;
} daos_cont_update_acl_t;

typedef struct {
	daos_handle_t coh;
	uint8_t type;
	d_string_t name;
} daos_cont_delete_acl_t;

typedef struct {
	daos_handle_t coh;
	daos_epoch_t epoch;
} daos_cont_aggregate_t;
typedef daos_cont_aggregate_t daos_cont_rollback_t;

typedef struct {
	daos_handle_t coh;
	daos_epoch_t *epoch;
} daos_cont_subscribe_t;

typedef struct {
	daos_handle_t coh;
	char *buf;
	size_t *size;
} daos_cont_list_attr_t;

typedef struct {
	daos_handle_t coh;
	int n;
	char const *const *names;
	void *const *values;
	size_t *sizes;
} daos_cont_get_attr_t;

typedef struct {
	daos_handle_t coh;
	int n;
	char const *const *names;
	void const *const *values;
	size_t const *sizes;
} daos_cont_set_attr_t;

typedef struct {
	daos_handle_t coh;
	int n;
	char const *const *names;
} daos_cont_del_attr_t;

typedef struct {
	daos_handle_t coh;
	daos_size_t num_oids;
	uint64_t *oid;
} daos_cont_alloc_oids_t;

typedef struct {
	daos_handle_t coh;
	int *nr;
	daos_epoch_t *epochs;
	char **names;
	daos_anchor_t *anchor;
} daos_cont_list_snap_t;

typedef struct {
	daos_handle_t coh;
	unsigned int opts;
	daos_epoch_t *epoch;
	char *name;
} daos_cont_create_snap_t;

typedef struct {
	daos_handle_t coh;
	daos_epoch_range_t epr;
} daos_cont_destroy_snap_t;

/* Transactions. */
typedef struct {
	daos_handle_t coh;
	daos_handle_t *th;
	uint64_t flags;
} daos_tx_open_t;

typedef struct {
	daos_handle_t th;
	uint32_t flags;
} daos_tx_commit_t;

typedef struct {
	daos_handle_t th;
} daos_tx_abort_t;
typedef daos_tx_abort_t daos_tx_close_t;
typedef daos_tx_abort_t daos_tx_restart_t;

typedef struct {
	daos_handle_t coh;
	daos_epoch_t epoch;
	daos_handle_t *th;
} daos_tx_open_snap_t;

/* Objects. */
typedef struct {
	daos_handle_t coh;
	daos_obj_id_t oid;
	unsigned int mode;
	daos_handle_t *oh;
} daos_obj_open_t;

typedef struct {
	daos_handle_t oh;
} daos_obj_close_t;

typedef struct {
	daos_handle_t th;
	daos_handle_t oh;
	daos_key_t *dkey;
	daos_key_t *akeys;
	uint64_t flags;
	unsigned int akey_nr;
} daos_obj_punch_t;

typedef struct {
	daos_handle_t oh;
	daos_handle_t th;
	struct daos_obj_attr *oa;
	d_rank_list_t *ranks;
} daos_obj_query_t;

typedef struct {
	daos_handle_t oh;
	daos_handle_t th;
	daos_key_t *dkey;
	daos_key_t *akey;
	daos_recx_t *recx;
	uint64_t flags;
	daos_epoch_t *max_epoch;
} daos_obj_query_key_t;

typedef struct {
	daos_handle_t th;
	daos_handle_t oh;
	uint64_t flags;
	daos_key_t *dkey;
	uint32_t nr;
	uint32_t extra_flags;
	daos_iod_t *iods;
	d_sg_list_t *sgls;
	daos_iom_t *ioms;
	void *extra_arg;
	d_iov_t *csum_iov;
} daos_obj_rw_t;
typedef daos_obj_rw_t daos_obj_fetch_t;
typedef daos_obj_rw_t daos_obj_update_t;

typedef struct {
	daos_handle_t oh;
	daos_handle_t th;
	daos_key_t *dkey;
	daos_key_t *akey;
	uint32_t *nr;
	daos_key_desc_t *kds;
	d_sg_list_t *sgl;
	daos_size_t *size;
	daos_iod_type_t type;
	daos_recx_t *recxs;
	daos_epoch_range_t *eprs;
	daos_anchor_t *anchor;
	daos_anchor_t *dkey_anchor;
	daos_anchor_t *akey_anchor;
	uint32_t *versions;
	d_iov_t *csum;
	bool incr_order;
} daos_obj_list_t;
typedef daos_obj_list_t daos_obj_list_dkey_t;
typedef daos_obj_list_t daos_obj_list_akey_t;
typedef daos_obj_list_t daos_obj_list_recx_t;
typedef daos_obj_list_t daos_obj_list_obj_t;
typedef daos_obj_list_t daos_obj_key2anchor_t;

/* Arrays. */
typedef struct {
	daos_handle_t coh;
	daos_obj_id_t oid;
	daos_handle_t th;
	daos_size_t cell_size;
	daos_size_t chunk_size;
	daos_handle_t *oh;
} daos_array_create_t;

typedef struct {
	daos_handle_t coh;
	daos_obj_id_t oid;
	daos_handle_t th;
	unsigned int mode;
	unsigned int open_with_attr;
	daos_size_t *cell_size;
	daos_size_t *chunk_size;
	daos_handle_t *oh;
} daos_array_open_t;

typedef struct {
	daos_handle_t oh;
} daos_array_close_t;

typedef struct {
	daos_handle_t oh;
	daos_handle_t th;
	daos_array_iod_t *iod;
	d_sg_list_t *sgl;
} daos_array_io_t;

typedef struct {
	daos_handle_t oh;
	daos_handle_t th;
	daos_size_t *size;
} daos_array_get_size_t;

typedef struct {
	daos_handle_t oh;
	daos_handle_t th;
	daos_array_stbuf_t *stbuf;
} daos_array_stat_t;

typedef struct {
	daos_handle_t oh;
	daos_handle_t th;
	daos_size_t size;
} daos_array_set_size_t;

typedef struct {
	daos_handle_t oh;
	daos_handle_t th;
} daos_array_destroy_t;

/* Key-value stores. */
typedef struct {
	daos_handle_t coh;
	daos_obj_id_t oid;
	unsigned int mode;
	daos_handle_t *oh;
} daos_kv_open_t;

typedef struct {
	daos_handle_t oh;
} daos_kv_close_t;

typedef struct {
	daos_handle_t oh;
	daos_handle_t th;
} daos_kv_destroy_t;

typedef struct {
	daos_handle_t oh;
	daos_handle_t th;
	uint64_t flags;
	const char *key;
	daos_size_t *buf_size;
	void *buf;
} daos_kv_get_t;

typedef struct {
	daos_handle_t oh;
	daos_handle_t th;
	uint64_t flags;
	const char *key;
	daos_size_t buf_size;
	const void *buf;
} daos_kv_put_t;

typedef struct {
	daos_handle_t oh;
	daos_handle_t th;
	uint64_t flags;
	const char *key;
} daos_kv_remove_t;

typedef struct {
	daos_handle_t oh;
	daos_handle_t th;
	uint32_t *nr;
	daos_key_desc_t *kds;
	d_sg_list_t *sgl;
	daos_anchor_t *anchor;
} daos_kv_list_t;

/* Arguments of a task, zeros at first; the user's data of it. */
void *daos_task_get_args(tse_task_t *task);
void *daos_task_get_priv(tse_task_t *task);
void *daos_task_set_priv(tse_task_t *task, void *priv);

/* Runs tasks until none is left, or for `timeout` microseconds (negative: for ever). */
int daos_progress(tse_sched_t *sched, int64_t timeout, bool *is_empty);

#ifdef __cplusplus
}
#endif

#include <daos/task_ops.h>

#endif
