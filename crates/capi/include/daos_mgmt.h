/* Questions to a system. */
#ifndef AZK_DAOS_MGMT_H
#define AZK_DAOS_MGMT_H

#include <uuid/uuid.h>
#include <daos_cont.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is known of a system, to be given back with daos_mgmt_put_sys_info(). */
int daos_mgmt_get_sys_info(const char *sys, struct daos_sys_info **info);
void daos_mgmt_put_sys_info(struct daos_sys_info *info);

typedef struct {
	uuid_t mgpi_uuid;
	/* The caller frees it. */
	d_string_t mgpi_label;
	/* The caller frees it with d_rank_list_free(). */
	d_rank_list_t *mgpi_svc;
	d_rank_t mgpi_ldr;
} daos_mgmt_pool_info_t;

/* Lists pools: `*npools` is the room in, the number out. With `pools` NULL only the number. */
int daos_mgmt_list_pools(const char *group, daos_size_t *npools, daos_mgmt_pool_info_t *pools,
			 daos_event_t *ev);

int daos_pool_stop_svc(daos_handle_t poh, daos_event_t *ev);

/* Keys of daos_debug_set_params(). */
enum { DMG_KEY_FAIL_LOC = 0, DMG_KEY_FAIL_VALUE, DMG_KEY_FAIL_NUM, DMG_KEY_NUM };

int daos_debug_set_params(const char *grp, d_rank_t rank, unsigned int key_id, uint64_t value,
			  uint64_t value_extra, daos_event_t *ev);
int daos_debug_add_mark(const char *mark);
int daos_mgmt_get_bs_state(const char *group, uuid_t blobstore_uuid, int *blobstore_state,
			   daos_event_t *ev);

/* Version of the servers; `*tag` is the caller's to free. */
int dc_mgmt_srv_version(uint32_t *major, uint32_t *minor, uint32_t *patch, char **tag);

#ifdef __cplusplus
}
#endif

#endif
