/* Containers: create, open, attributes, properties, snapshots. */
#ifndef AZK_DAOS_CONT_H
#define AZK_DAOS_CONT_H

#include <daos_api.h>
#include <daos_prop.h>
#include <daos_security.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How to open a container. */
#define DAOS_COO_RO (1U << 0)
#define DAOS_COO_RW (1U << 1)
#define DAOS_COO_EX (1U << 2)
/* Even if data may have been lost. */
#define DAOS_COO_FORCE (1U << 3)
/* Without a note of the time. */
#define DAOS_COO_RO_MDSTATS (1U << 4)
#define DAOS_COO_EVICT (1U << 5)
#define DAOS_COO_EVICT_ALL (1U << 6)
#define DAOS_COO_NEW_LAYOUT (1U << 7)
#define DAOS_COO_NBITS 8
#define DAOS_COO_MASK ((1U << DAOS_COO_NBITS) - 1)
#define DAOS_COO_IO_BASE_MASK (DAOS_COO_RO | DAOS_COO_RW | DAOS_COO_EX)

/* Bytes of the hint text in attributes, with the zero at the end. */
#define DAOS_CONT_HINT_MAX_LEN 128
#define DAOS_SNAPSHOT_MAX_LEN 128

/* Makes a handle into bytes that another process can use, also when this one has closed its own.
 * With glob->iov_buf NULL only sets glob->iov_buf_len to the room that is needed. -DER_TRUNC if the
 * room is too small. */
int daos_cont_local2global(daos_handle_t coh, d_iov_t *glob);
int daos_cont_global2local(daos_handle_t poh, d_iov_t glob, daos_handle_t *coh);

/* Creates a container. `*uuid` gets its id, if not NULL; properties are copied, NULL for defaults. */
int daos_cont_create(daos_handle_t poh, uuid_t *uuid, daos_prop_t *cont_prop, daos_event_t *ev);
int daos_cont_create_with_label(daos_handle_t poh, const char *label, daos_prop_t *cont_prop,
				uuid_t *uuid, daos_event_t *ev);

/* Opens a container by label or uuid as text. `info` may be NULL. */
int daos_cont_open(daos_handle_t poh, const char *cont, unsigned int flags, daos_handle_t *coh,
		   daos_cont_info_t *info, daos_event_t *ev);
int daos_cont_close(daos_handle_t coh, daos_event_t *ev);

/* Destroys a container and all that is in it. -DER_BUSY if it is open somewhere, unless forced. */
int daos_cont_destroy(daos_handle_t poh, const char *cont, int force, daos_event_t *ev);

#ifndef __cplusplus
#define daos_cont_open(poh, cont, ...) daos_cont_open(poh, AZK_NAME(cont), __VA_ARGS__)
#define daos_cont_destroy(poh, cont, ...) daos_cont_destroy(poh, AZK_NAME(cont), __VA_ARGS__)
#endif

/* What is known of a container, and its properties: those that `cont_prop` names, or all if it has no
 * entries. Either may be NULL. */
int daos_cont_query(daos_handle_t coh, daos_cont_info_t *info, daos_prop_t *cont_prop, daos_event_t *ev);

/* Access control list, owner and group, in a new list to be freed with daos_prop_free(). */
int daos_cont_get_acl(daos_handle_t coh, daos_prop_t **acl_prop, daos_event_t *ev);
int daos_cont_overwrite_acl(daos_handle_t coh, struct daos_acl *acl, daos_event_t *ev);
int daos_cont_update_acl(daos_handle_t coh, struct daos_acl *acl, daos_event_t *ev);
int daos_cont_delete_acl(daos_handle_t coh, enum daos_acl_principal_type type, d_string_t name,
			 daos_event_t *ev);
int daos_cont_set_owner(daos_handle_t coh, d_string_t user, d_string_t group, daos_event_t *ev);
int daos_cont_set_owner_no_check(daos_handle_t coh, d_string_t user, d_string_t group, daos_event_t *ev);

int daos_cont_set_prop(daos_handle_t coh, daos_prop_t *prop, daos_event_t *ev);

/* Says that the container is healthy again. */
int daos_cont_status_clear(daos_handle_t coh, daos_event_t *ev);

/* Attributes: bytes by name. daos_cont_list_attr() writes names one after the other, each with its zero,
 * and sets `*size` to what all of them need; `buffer` may be NULL then. daos_cont_get_attr() sets sizes
 * to the full lengths and cuts what does not fit; a NULL buffer only asks for the length. */
int daos_cont_list_attr(daos_handle_t coh, char *buffer, size_t *size, daos_event_t *ev);
int daos_cont_get_attr(daos_handle_t coh, int n, char const *const names[], void *const buffers[],
		       size_t sizes[], daos_event_t *ev);
int daos_cont_set_attr(daos_handle_t coh, int n, char const *const names[], void const *const values[],
		       size_t const sizes[], daos_event_t *ev);
int daos_cont_del_attr(daos_handle_t coh, int n, char const *const names[], daos_event_t *ev);

/* `num_oids` numbers for daos_obj_id_t.lo, from `*oid` on, that nobody else gets. */
int daos_cont_alloc_oids(daos_handle_t coh, daos_size_t num_oids, uint64_t *oid, daos_event_t *ev);

/* Give back the space of what was overwritten before `epoch`. */
int daos_cont_aggregate(daos_handle_t coh, daos_epoch_t epoch, daos_event_t *ev);
/* Back to a snapshot. */
int daos_cont_rollback(daos_handle_t coh, daos_epoch_t epoch, daos_event_t *ev);
/* Wait for a change after `*epoch`. */
int daos_cont_subscribe(daos_handle_t coh, daos_epoch_t *epoch, daos_event_t *ev);

/* Snapshots, known by their epoch. */
enum daos_snapshot_opts {
	DAOS_SNAP_OPT_CR = 1 << 0,
	/* With a table of the objects in it, for daos_oit_open(). */
	DAOS_SNAP_OPT_OIT = 1 << 1
};

int daos_cont_create_snap(daos_handle_t coh, daos_epoch_t *epoch, char *name, daos_event_t *ev);
int daos_cont_create_snap_opt(daos_handle_t coh, daos_epoch_t *epoch, char *name,
			      enum daos_snapshot_opts opts, daos_event_t *ev);
/* Lists up to `*nr` snapshots; `names`, if not NULL, points to that many buffers of
 * DAOS_SNAPSHOT_MAX_LEN bytes. `*nr` is set to how many there are. */
int daos_cont_list_snap(daos_handle_t coh, int *nr, daos_epoch_t *epochs, char **names,
			daos_anchor_t *anchor, daos_event_t *ev);
int daos_cont_destroy_snap(daos_handle_t coh, daos_epoch_range_t epr, daos_event_t *ev);
int daos_cont_snap_oit_create(daos_handle_t coh, daos_epoch_t epoch, char *name, daos_event_t *ev);
int daos_cont_snap_oit_destroy(daos_handle_t coh, daos_handle_t oh, daos_event_t *ev);

/* What a user may do by the access control list in `cont_prop`, DAOS_ACL_PERM_* bits. */
int daos_cont_get_perms(daos_prop_t *cont_prop, uid_t uid, gid_t *gids, size_t nr_gids, uint64_t *perms);

#ifdef __cplusplus
}
#endif

#endif
