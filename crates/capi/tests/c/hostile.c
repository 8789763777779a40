/*
 * Hostile arguments: handles that were closed, never given out or of another kind, NULL for every
 * pointer, bytes that are no global handle and no anchor, names that are none, sizes beyond all
 * bounds. Each gives an error of its family's sign; nothing crashes, nothing leaks, and what is
 * open goes on working.
 * Arguments: pool, a name for the container.
 */
#include <daos.h>
#include <daos_array.h>
#include <daos_fs.h>
#include <daos_fs_sys.h>
#include <daos_kv.h>
#include <daos_obj.h>
#include <daos_uns.h>
#include <errno.h>
#include <fcntl.h>
#include "check.h"

static daos_handle_t poh, coh;
static const char   *pool_name, *cont_name;

/* The error for a handle that is none. */
#define NO_HANDLE(call) CHECK_EQ(call, -DER_NO_HDL)
/* The same in the file system. */
#define NO_FILE(call) CHECK_EQ(call, EINVAL)
/* Any error of the family. */
#define DAOS_ERROR(call) CHECK_ERROR(call, rc < 0)
#define FS_ERROR(call) CHECK_ERROR(call, rc > 0)
#define CHECK_ERROR(call, is_error)                                                                \
	do {                                                                                       \
		int rc = (call);                                                                   \
		if (!(is_error)) {                                                                 \
			fprintf(stderr, "%s:%d: %s is %d\n", __FILE__, __LINE__, #call, rc);       \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* Good arguments, whatever is wrong with the others. */
static char          bytes[4096];
static daos_size_t   size;
static uint64_t      number;
static uint32_t      nr;
static d_iov_t       iov;
static d_sg_list_t   sgl = {1, 0, &iov};
static daos_key_t    key;
static daos_recx_t   recx  = {0, 8};
static daos_range_t  range = {0, 8};
static daos_iod_t    iod;
static daos_anchor_t anchor;
static struct stat   st;
static struct dirent dirs[4];
static daos_obj_id_t oid = {1, 0};

static void
good_arguments(void)
{
	size = sizeof(bytes);
	nr   = 4;
	d_iov_set(&iov, bytes, 8);
	d_iov_set(&key, (void *)"key", 3);
	memset(&anchor, 0, sizeof(anchor));
	memset(&iod, 0, sizeof(iod));
	d_iov_set(&iod.iod_name, (void *)"akey", 4);
	iod.iod_type  = DAOS_IOD_ARRAY;
	iod.iod_size  = 1;
	iod.iod_nr    = 1;
	iod.iod_recxs = &recx;
}

/* An attribute. */
static const char *const names[]    = {"name"};
static void *const       values[]   = {bytes};
static const void *const contents[] = {bytes};
static size_t            sizes[]    = {4}, room = sizeof(bytes);

/* Every function that takes a pool. */
static void
bad_pool(daos_handle_t bad)
{
	daos_target_info_t target;
	daos_pool_info_t info;
	daos_handle_t    out;
	d_iov_t          glob = {NULL, 0, 0};
	dfs_t           *mount;
	dfs_sys_t       *sys;

	memset(&info, 0, sizeof(info));
	NO_HANDLE(daos_pool_disconnect(bad, NULL));
	NO_HANDLE(daos_pool_query(bad, NULL, &info, NULL, NULL));
	NO_HANDLE(daos_pool_local2global(bad, &glob));
	NO_HANDLE(daos_cont_create(bad, NULL, NULL, NULL));
	NO_HANDLE(daos_cont_create_with_label(bad, "label", NULL, NULL, NULL));
	NO_HANDLE(daos_cont_open(bad, cont_name, DAOS_COO_RW, &out, NULL, NULL));
	NO_HANDLE(daos_cont_destroy(bad, cont_name, 0, NULL));
	NO_HANDLE(daos_pool_query_target(bad, 0, 0, &target, NULL));
	NO_HANDLE(daos_pool_list_attr(bad, bytes, &room, NULL));
	NO_HANDLE(daos_pool_get_attr(bad, 1, names, values, sizes, NULL));
	NO_HANDLE(daos_pool_set_attr(bad, 1, names, contents, sizes, NULL));
	NO_HANDLE(daos_pool_del_attr(bad, 1, names, NULL));
	NO_HANDLE(daos_pool_list_cont(bad, &number, NULL, NULL));
	NO_FILE(dfs_cont_create(bad, NULL, NULL, NULL, NULL));
	NO_FILE(dfs_cont_create_with_label(bad, "label", NULL, NULL, NULL, NULL));
	NO_FILE(dfs_mount(bad, coh, O_RDWR, &mount));
	NO_FILE(dfs_sys_mount(bad, coh, O_RDWR, 0, &sys));
	NO_FILE(dfs_cont_check(bad, cont_name, 0, NULL));
	NO_FILE(dfs_cont_scan(bad, cont_name, 0, NULL));
	FS_ERROR(duns_create_path(bad, "/nowhere/at/all", NULL));
	FS_ERROR(duns_destroy_path(bad, "/nowhere/at/all"));
	FS_ERROR(duns_link_cont(bad, cont_name, "/nowhere/at/all"));
}

/* Every function that takes a container. */
static void
bad_cont(daos_handle_t bad)
{
	daos_cont_info_t info;
	daos_prop_t     *prop;
	daos_handle_t    out;
	d_iov_t          glob = {NULL, 0, 0};
	dfs_t           *mount;
	dfs_sys_t       *sys;
	daos_size_t      cell = 1, chunk = 1;

	good_arguments();
	NO_HANDLE(daos_cont_close(bad, NULL));
	NO_HANDLE(daos_cont_query(bad, &info, NULL, NULL));
	NO_HANDLE(daos_cont_local2global(bad, &glob));
	NO_HANDLE(daos_cont_alloc_oids(bad, 1, &number, NULL));
	NO_HANDLE(daos_obj_generate_oid(bad, &oid, DAOS_OT_MULTI_HASHED, OC_S1, 0, 0));
	NO_HANDLE(daos_obj_open(bad, oid, DAOS_OO_RW, &out, NULL));
	NO_HANDLE(daos_obj_verify(bad, oid, 0));
	NO_HANDLE(daos_array_create(bad, oid, DAOS_TX_NONE, 1, 4096, &out, NULL));
	NO_HANDLE(daos_array_open(bad, oid, DAOS_TX_NONE, DAOS_OO_RW, &cell, &chunk, &out, NULL));
	NO_HANDLE(daos_array_open_with_attr(bad, oid, DAOS_TX_NONE, DAOS_OO_RW, 1, 4096, &out, NULL));
	NO_HANDLE(daos_kv_open(bad, oid, DAOS_OO_RW, &out, NULL));
	NO_HANDLE(daos_tx_open(bad, &out, 0, NULL));
	NO_HANDLE(daos_cont_list_attr(bad, bytes, &room, NULL));
	NO_HANDLE(daos_cont_get_attr(bad, 1, names, values, sizes, NULL));
	NO_HANDLE(daos_cont_set_attr(bad, 1, names, contents, sizes, NULL));
	NO_HANDLE(daos_cont_del_attr(bad, 1, names, NULL));
	NO_HANDLE(daos_cont_get_acl(bad, &prop, NULL));
	NO_HANDLE(daos_cont_set_owner(bad, bytes, bytes, NULL));
	NO_HANDLE(daos_cont_status_clear(bad, NULL));
	NO_HANDLE(daos_oit_open(bad, DAOS_EPOCH_MAX, &out, NULL));
	DAOS_ERROR(daos_cont_overwrite_acl(bad, NULL, NULL));
	DAOS_ERROR(daos_cont_update_acl(bad, NULL, NULL));
	DAOS_ERROR(daos_cont_set_prop(bad, NULL, NULL));
	DAOS_ERROR(daos_cont_aggregate(bad, 0, NULL));
	DAOS_ERROR(daos_cont_rollback(bad, 0, NULL));
	DAOS_ERROR(daos_cont_create_snap(bad, &number, NULL, NULL));
	NO_FILE(dfs_mount(poh, bad, O_RDWR, &mount));
	NO_FILE(dfs_sys_mount(poh, bad, O_RDWR, 0, &sys));
	NO_FILE(dfs_cont_set_owner(bad, NULL, 0, NULL, 0));
}

/* Every function that takes an object; of an array or a store in their place, too. */
static void
bad_obj(daos_handle_t bad)
{
	daos_key_desc_t kds[4];
	daos_epoch_t    epoch;

	good_arguments();
	NO_HANDLE(daos_obj_close(bad, NULL));
	NO_HANDLE(daos_obj_punch(bad, DAOS_TX_NONE, 0, NULL));
	NO_HANDLE(daos_obj_punch_dkeys(bad, DAOS_TX_NONE, 0, 1, &key, NULL));
	NO_HANDLE(daos_obj_punch_akeys(bad, DAOS_TX_NONE, 0, &key, 1, &key, NULL));
	NO_HANDLE(daos_obj_query(bad, NULL, NULL, NULL));
	NO_HANDLE(daos_obj_fetch(bad, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL, NULL));
	NO_HANDLE(daos_obj_update(bad, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL));
	NO_HANDLE(daos_obj_list_dkey(bad, DAOS_TX_NONE, &nr, kds, &sgl, &anchor, NULL));
	NO_HANDLE(daos_obj_list_akey(bad, DAOS_TX_NONE, &key, &nr, kds, &sgl, &anchor, NULL));
	NO_HANDLE(daos_obj_list_recx(bad, DAOS_TX_NONE, &key, &key, &size, &nr, &recx, NULL, &anchor, true,
				     NULL));
	NO_HANDLE(daos_obj_query_key(bad, DAOS_TX_NONE, DAOS_GET_MAX | DAOS_GET_DKEY, &key, NULL, NULL, NULL));
	NO_HANDLE(daos_obj_query_max_epoch(bad, DAOS_TX_NONE, &epoch, NULL));
	NO_HANDLE(daos_obj_anchor_split(bad, &nr, &anchor));
	NO_HANDLE(daos_obj_anchor_set(bad, 0, &anchor));
	recx.rx_idx = 0;
	recx.rx_nr  = 8;
}

static void
bad_array(daos_handle_t bad)
{
	daos_array_iod_t   ranges = {1, &range, 0, 0};
	daos_array_stbuf_t stat;
	d_iov_t            glob = {NULL, 0, 0};

	good_arguments();
	NO_HANDLE(daos_array_close(bad, NULL));
	NO_HANDLE(daos_array_local2global(bad, &glob));
	NO_HANDLE(daos_array_read(bad, DAOS_TX_NONE, &ranges, &sgl, NULL));
	NO_HANDLE(daos_array_write(bad, DAOS_TX_NONE, &ranges, &sgl, NULL));
	NO_HANDLE(daos_array_get_size(bad, DAOS_TX_NONE, &size, NULL));
	NO_HANDLE(daos_array_stat(bad, DAOS_TX_NONE, &stat, NULL));
	NO_HANDLE(daos_array_set_size(bad, DAOS_TX_NONE, 1, NULL));
	NO_HANDLE(daos_array_destroy(bad, DAOS_TX_NONE, NULL));
	NO_HANDLE(daos_array_punch(bad, DAOS_TX_NONE, &ranges, NULL));
	NO_HANDLE(daos_array_get_attr(bad, &size, &size));
	NO_HANDLE(daos_array_update_chunk_size(bad, 4096));
}

static void
bad_kv(daos_handle_t bad)
{
	daos_key_desc_t kds[4];

	good_arguments();
	NO_HANDLE(daos_kv_close(bad, NULL));
	NO_HANDLE(daos_kv_destroy(bad, DAOS_TX_NONE, NULL));
	NO_HANDLE(daos_kv_put(bad, DAOS_TX_NONE, 0, "k", 1, "v", NULL));
	NO_HANDLE(daos_kv_get(bad, DAOS_TX_NONE, 0, "k", &size, bytes, NULL));
	NO_HANDLE(daos_kv_remove(bad, DAOS_TX_NONE, 0, "k", NULL));
	NO_HANDLE(daos_kv_list(bad, DAOS_TX_NONE, &nr, kds, &sgl, &anchor, NULL));
}

static void
bad_table(daos_handle_t bad)
{
	daos_obj_id_t oids[4];
	d_iov_t       mark;

	good_arguments();
	d_iov_set(&mark, bytes, 4);
	NO_HANDLE(daos_oit_list(bad, oids, &nr, &anchor, NULL));
	NO_HANDLE(daos_oit_list_unmarked(bad, oids, &nr, &anchor, NULL));
	NO_HANDLE(daos_oit_mark(bad, oid, &mark, NULL));
	NO_HANDLE(daos_oit_close(bad, NULL));
}

/* A transaction that is none: in its own functions, and given to others. */
static void
bad_tx(daos_handle_t bad, daos_handle_t obj)
{
	daos_epoch_t epoch;

	good_arguments();
	NO_HANDLE(daos_tx_commit(bad, NULL));
	NO_HANDLE(daos_tx_abort(bad, NULL));
	NO_HANDLE(daos_tx_close(bad, NULL));
	NO_HANDLE(daos_tx_restart(bad, NULL));
	NO_HANDLE(daos_tx_hdl2epoch(bad, &epoch));
	if (bad.cookie != 0) {
		NO_HANDLE(daos_obj_update(obj, bad, 0, &key, 1, &iod, &sgl, NULL));
		NO_HANDLE(daos_obj_fetch(obj, bad, 0, &key, 1, &iod, &sgl, NULL, NULL));
		NO_HANDLE(daos_obj_punch(obj, bad, 0, NULL));
	}
}

static void
bad_queue(daos_handle_t bad)
{
	daos_event_t ev, *done[2];

	NO_HANDLE(daos_eq_destroy(bad, 0));
	NO_HANDLE(daos_eq_destroy(bad, DAOS_EQ_DESTROY_FORCE));
	NO_HANDLE(daos_eq_poll(bad, 0, DAOS_EQ_WAIT, 2, done));
	NO_HANDLE(daos_eq_query(bad, DAOS_EQR_ALL, 2, done));
	if (bad.cookie != 0)
		DAOS_ERROR(daos_event_init(&ev, bad, NULL));
}

static int
never(dfs_t *dfs, dfs_obj_t *obj, const char name[], void *arg)
{
	(void)dfs, (void)obj, (void)name, (void)arg;
	CHECK(false);
	return 0;
}

/* Every function that takes a mount; `obj` is good. */
static void
bad_mount(dfs_t *bad, dfs_obj_t *obj)
{
	daos_handle_t    out;
	dfs_attr_t       attr;
	dfs_obj_t       *opened;
	dfs_obj_info_t   info;
	dfs_iod_t        ranges = {1, &range};
	d_iov_t          glob   = {NULL, 0, 0};
	daos_oclass_id_t cid;
	dfs_predicate_t  pred;
	dfs_pipeline_t  *pipe;

	good_arguments();
	memset(&pred, 0, sizeof(pred));
	NO_FILE(dfs_umount(bad));
	NO_FILE(dfs_disconnect(bad));
	NO_FILE(dfs_pool_get(bad, &out));
	NO_FILE(dfs_cont_get(bad, &out));
	NO_FILE(dfs_pool_put(bad, poh));
	NO_FILE(dfs_cont_put(bad, coh));
	NO_FILE(dfs_query(bad, &attr));
	NO_FILE(dfs_local2global(bad, &glob));
	NO_FILE(dfs_local2global_all(bad, &glob));
	NO_FILE(dfs_set_prefix(bad, "/p"));
	NO_FILE(dfs_lookup(bad, "/", O_RDONLY, &opened, NULL, NULL));
	NO_FILE(dfs_lookup_rel(bad, NULL, "f", O_RDONLY, &opened, NULL, NULL));
	NO_FILE(dfs_lookup_rel(bad, obj, "f", O_RDONLY, &opened, NULL, NULL));
	NO_FILE(dfs_suggest_oclass(bad, "file:max", &cid));
	NO_FILE(dfs_open(bad, NULL, "f", S_IFREG | 0644, O_RDWR | O_CREAT, 0, 0, NULL, &opened));
	NO_FILE(dfs_dup(bad, obj, O_RDWR, &opened));
	NO_FILE(dfs_obj_local2global(bad, obj, &glob));
	NO_FILE(dfs_read(bad, obj, &sgl, 0, &size, NULL));
	NO_FILE(dfs_readx(bad, obj, &ranges, &sgl, &size, NULL));
	NO_FILE(dfs_write(bad, obj, &sgl, 0, NULL));
	NO_FILE(dfs_writex(bad, obj, &ranges, &sgl, NULL));
	NO_FILE(dfs_get_size(bad, obj, &size));
	NO_FILE(dfs_punch(bad, obj, 0, 1));
	NO_FILE(dfs_readdir(bad, obj, &anchor, &nr, dirs));
	NO_FILE(dfs_readdirplus(bad, obj, &anchor, &nr, dirs, &st));
	NO_FILE(dfs_iterate(bad, obj, &anchor, &nr, 4096, never, NULL));
	NO_FILE(dfs_mkdir(bad, NULL, "d", 0755, 0));
	NO_FILE(dfs_remove(bad, NULL, "d", true, NULL));
	NO_FILE(dfs_move(bad, NULL, "a", NULL, "b", NULL));
	NO_FILE(dfs_exchange(bad, NULL, "a", NULL, "b"));
	NO_FILE(dfs_obj_get_info(bad, obj, &info));
	NO_FILE(dfs_get_size_by_oid(bad, oid, 4096, &size));
	NO_FILE(dfs_obj_set_oclass(bad, obj, 0, OC_S1));
	NO_FILE(dfs_obj_set_chunk_size(bad, obj, 0, 4096));
	NO_FILE(dfs_stat(bad, NULL, NULL, &st));
	NO_FILE(dfs_stat(bad, NULL, "f", &st));
	NO_FILE(dfs_ostat(bad, obj, &st));
	NO_FILE(dfs_osetattr(bad, obj, &st, 0));
	NO_FILE(dfs_access(bad, NULL, "f", R_OK));
	NO_FILE(dfs_chmod(bad, NULL, "f", 0644));
	NO_FILE(dfs_chown(bad, NULL, "f", 0, 0, 0));
	NO_FILE(dfs_sync(bad));
	NO_FILE(dfs_setxattr(bad, obj, "user.a", "v", 1, 0));
	NO_FILE(dfs_getxattr(bad, obj, "user.a", bytes, &size));
	NO_FILE(dfs_removexattr(bad, obj, "user.a"));
	NO_FILE(dfs_listxattr(bad, obj, bytes, &size));
	NO_FILE(dfs_pipeline_create(bad, pred, 0, &pipe));
	d_iov_set(&glob, bytes, 8);
	NO_FILE(dfs_obj_global2local(bad, O_RDWR, glob, &opened));
}

/* Every function that takes an open object; the mount is good. */
static void
bad_file(dfs_t *dfs, dfs_obj_t *bad)
{
	daos_handle_t  out;
	mode_t         mode;
	dfs_obj_t     *opened;
	dfs_obj_info_t info;
	dfs_iod_t      ranges = {1, &range};
	d_iov_t        glob   = {NULL, 0, 0};
	daos_anchor_t  parts[4];

	good_arguments();
	NO_FILE(dfs_release(bad));
	NO_FILE(dfs_dup(dfs, bad, O_RDWR, &opened));
	NO_FILE(dfs_obj_local2global(dfs, bad, &glob));
	NO_FILE(dfs_read(dfs, bad, &sgl, 0, &size, NULL));
	NO_FILE(dfs_readx(dfs, bad, &ranges, &sgl, &size, NULL));
	NO_FILE(dfs_write(dfs, bad, &sgl, 0, NULL));
	NO_FILE(dfs_writex(dfs, bad, &ranges, &sgl, NULL));
	NO_FILE(dfs_get_size(dfs, bad, &size));
	NO_FILE(dfs_punch(dfs, bad, 0, 1));
	NO_FILE(dfs_readdir(dfs, bad, &anchor, &nr, dirs));
	NO_FILE(dfs_readdirplus(dfs, bad, &anchor, &nr, dirs, &st));
	NO_FILE(dfs_iterate(dfs, bad, &anchor, &nr, 4096, never, NULL));
	NO_FILE(dfs_dir_anchor_set(bad, "f", &anchor));
	NO_FILE(dfs_obj_anchor_split(bad, &nr, parts));
	NO_FILE(dfs_obj_anchor_set(bad, 0, &anchor));
	NO_FILE(dfs_obj2id(bad, &oid));
	NO_FILE(dfs_get_mode(bad, &mode));
	NO_FILE(dfs_obj_get_info(dfs, bad, &info));
	FS_ERROR(dfs_get_file_oh(bad, &out));
	NO_FILE(dfs_get_chunk_size(bad, &size));
	NO_FILE(dfs_get_symlink_value(bad, bytes, &size));
	NO_FILE(dfs_obj_set_oclass(dfs, bad, 0, OC_S1));
	NO_FILE(dfs_obj_set_chunk_size(dfs, bad, 0, 4096));
	NO_FILE(dfs_update_parent(bad, bad, "f"));
	NO_FILE(dfs_ostat(dfs, bad, &st));
	NO_FILE(dfs_osetattr(dfs, bad, &st, 0));
	NO_FILE(dfs_setxattr(dfs, bad, "user.a", "v", 1, 0));
	NO_FILE(dfs_getxattr(dfs, bad, "user.a", bytes, &size));
	NO_FILE(dfs_removexattr(dfs, bad, "user.a"));
	NO_FILE(dfs_listxattr(dfs, bad, bytes, &size));
	NO_FILE(dfs_sys_close(bad));
	/* As a directory, where NULL is the root. */
	if (bad != NULL) {
		NO_FILE(dfs_open(dfs, bad, "f", S_IFREG | 0644, O_RDWR | O_CREAT, 0, 0, NULL, &opened));
		NO_FILE(dfs_lookup_rel(dfs, bad, "f", O_RDONLY, &opened, NULL, NULL));
		NO_FILE(dfs_mkdir(dfs, bad, "d", 0755, 0));
		NO_FILE(dfs_remove(dfs, bad, "d", true, NULL));
		NO_FILE(dfs_move(dfs, bad, "a", NULL, "b", NULL));
		NO_FILE(dfs_move(dfs, NULL, "a", bad, "b", NULL));
		NO_FILE(dfs_exchange(dfs, bad, "a", NULL, "b"));
		NO_FILE(dfs_stat(dfs, bad, "f", &st));
		NO_FILE(dfs_access(dfs, bad, "f", R_OK));
		NO_FILE(dfs_chmod(dfs, bad, "f", 0644));
		NO_FILE(dfs_chown(dfs, bad, "f", 0, 0, 0));
	}
}

/* Every function that takes a mount with paths. */
static void
bad_sys(dfs_sys_t *bad)
{
	d_iov_t         glob = {NULL, 0, 0};
	dfs_t          *base;
	dfs_obj_t      *opened;
	DIR            *dir;
	struct timespec times[2] = {{0, 0}, {0, 0}};

	good_arguments();
	NO_FILE(dfs_sys_umount(bad));
	NO_FILE(dfs_sys_disconnect(bad));
	NO_FILE(dfs_sys_local2global(bad, &glob));
	NO_FILE(dfs_sys_local2global_all(bad, &glob));
	NO_FILE(dfs_sys_set_prefix(bad, "/p"));
	NO_FILE(dfs_sys2base(bad, &base));
	NO_FILE(dfs_sys_access(bad, "/f", R_OK, 0));
	NO_FILE(dfs_sys_chmod(bad, "/f", 0644));
	NO_FILE(dfs_sys_chown(bad, "/f", 0, 0, 0));
	NO_FILE(dfs_sys_setattr(bad, "/f", &st, 0, 0));
	NO_FILE(dfs_sys_utimens(bad, "/f", times, 0));
	NO_FILE(dfs_sys_stat(bad, "/f", 0, &st));
	NO_FILE(dfs_sys_listxattr(bad, "/f", bytes, &size, 0));
	NO_FILE(dfs_sys_getxattr(bad, "/f", "user.a", bytes, &size, 0));
	NO_FILE(dfs_sys_setxattr(bad, "/f", "user.a", "v", 1, 0, 0));
	NO_FILE(dfs_sys_removexattr(bad, "/f", "user.a", 0));
	NO_FILE(dfs_sys_mknod(bad, "/f", S_IFREG | 0644, 0, 0));
	NO_FILE(dfs_sys_mkdir(bad, "/d", 0755, 0));
	NO_FILE(dfs_sys_mkdir_p(bad, "/d/e", 0755, 0));
	NO_FILE(dfs_sys_symlink(bad, "t", "/l"));
	NO_FILE(dfs_sys_readlink(bad, "/l", bytes, &size));
	NO_FILE(dfs_sys_remove(bad, "/f", true, NULL));
	NO_FILE(dfs_sys_remove_type(bad, "/f", true, S_IFREG, NULL));
	NO_FILE(dfs_sys_open(bad, "/f", S_IFREG | 0644, O_RDWR | O_CREAT, 0, 0, NULL, &opened));
	NO_FILE(dfs_sys_punch(bad, "/f", 0, 1));
	NO_FILE(dfs_sys_opendir(bad, "/", 0, &dir));
}

/* Numbers that were never given out. */
static const uint64_t garbage[] = {0,          1,          2,          0xffffff, 0x7fffffff,
				   0xdeadbeef, 1ULL << 40, 1ULL << 63, ~0ULL,    ~0ULL - 1};
#define GARBAGE_NR (sizeof(garbage) / sizeof(garbage[0]))

static void *
as_pointer(uint64_t value)
{
	return (void *)(uintptr_t)value;
}

/* Handles of every kind: after they were closed, in the place of every other kind, and nonsense. */
static void
handles(dfs_t *dfs, dfs_obj_t *file)
{
	enum { POOL, CONT, OBJ, ARRAY, KV, TX, QUEUE, TABLE, KINDS };
	daos_handle_t   open[KINDS], again;
	daos_obj_id_t   array_id = {2, 0}, kv_id = {3, 0};
	dfs_t          *mount;
	dfs_sys_t      *sys;
	dfs_obj_t      *other;
	dfs_pipeline_t *pipe;
	dfs_predicate_t pred;
	DIR            *dir;
	struct dirent  *entry;
	size_t          i, kind;
	int             live;

	CHECK_EQ(daos_pool_connect(pool_name, NULL, DAOS_PC_RW, &open[POOL], NULL, NULL), 0);
	CHECK_EQ(daos_cont_open(open[POOL], cont_name, DAOS_COO_RW, &open[CONT], NULL, NULL), 0);
	CHECK_EQ(daos_obj_generate_oid(coh, &oid, DAOS_OT_MULTI_HASHED, OC_S1, 0, 0), 0);
	CHECK_EQ(daos_obj_generate_oid(coh, &array_id, DAOS_OT_ARRAY, OC_S1, 0, 0), 0);
	CHECK_EQ(daos_obj_generate_oid(coh, &kv_id, DAOS_OT_KV_HASHED, OC_S1, 0, 0), 0);
	CHECK_EQ(daos_obj_open(coh, oid, DAOS_OO_RW, &open[OBJ], NULL), 0);
	CHECK_EQ(daos_array_create(coh, array_id, DAOS_TX_NONE, 1, 4096, &open[ARRAY], NULL), 0);
	CHECK_EQ(daos_kv_open(coh, kv_id, DAOS_OO_RW, &open[KV], NULL), 0);
	CHECK_EQ(daos_tx_open(coh, &open[TX], 0, NULL), 0);
	CHECK_EQ(daos_eq_create(&open[QUEUE]), 0);
	CHECK_EQ(daos_oit_open(coh, DAOS_EPOCH_MAX, &open[TABLE], NULL), 0);
	CHECK_EQ(dfs_mount(poh, coh, O_RDWR, &mount), 0);
	CHECK_EQ(dfs_sys_mount(poh, coh, O_RDWR, 0, &sys), 0);
	CHECK_EQ(dfs_sys_opendir(sys, "/", 0, &dir), 0);
	CHECK_EQ(dfs_lookup(dfs, "/", O_RDWR, &other, NULL, NULL), 0);
	memset(&pred, 0, sizeof(pred));
	CHECK_EQ(dfs_pipeline_create(dfs, pred, 0, &pipe), 0);

	/* Once while they are open, in each other's place, and once after. */
	for (live = 1; live >= 0; live--) {
		for (kind = 0; kind < KINDS; kind++) {
			if (!live || kind != POOL)
				bad_pool(open[kind]);
			if (!live || kind != CONT)
				bad_cont(open[kind]);
			if (!live || kind != OBJ)
				bad_obj(open[kind]);
			if (!live || kind != ARRAY)
				bad_array(open[kind]);
			if (!live || kind != KV)
				bad_kv(open[kind]);
			if (kind != TX || !live) {
				CHECK_EQ(daos_obj_open(coh, oid, DAOS_OO_RW, &again, NULL), 0);
				bad_tx(open[kind], again);
				CHECK_EQ(daos_obj_close(again, NULL), 0);
			}
			if (!live || kind != QUEUE)
				bad_queue(open[kind]);
			if (!live || kind != TABLE)
				bad_table(open[kind]);
			bad_mount((dfs_t *)as_pointer(open[kind].cookie), file);
			bad_file(dfs, (dfs_obj_t *)as_pointer(open[kind].cookie));
			bad_sys((dfs_sys_t *)as_pointer(open[kind].cookie));
		}
		bad_mount((dfs_t *)(void *)file, file);
		bad_mount((dfs_t *)(void *)pipe, file);
		bad_file(dfs, (dfs_obj_t *)(void *)dfs);
		bad_sys((dfs_sys_t *)(void *)dfs);
		bad_sys((dfs_sys_t *)(void *)dir);
		bad_pool((daos_handle_t){(uintptr_t)dfs});
		bad_cont((daos_handle_t){(uintptr_t)file});
		if (!live) {
			bad_mount(mount, file);
			bad_sys(sys);
			bad_file(dfs, other);
			good_arguments();
			NO_FILE(dfs_pipeline_destroy(pipe));
			NO_FILE(dfs_readdir_with_filter(dfs, other, pipe, &anchor, &nr, dirs, NULL, NULL,
							&number));
			NO_FILE(dfs_sys_closedir(dir));
			FS_ERROR(dfs_sys_readdir(sys, dir, &entry));
			break;
		}
		good_arguments();
		NO_FILE(dfs_readdir_with_filter(dfs, other, (dfs_pipeline_t *)(void *)dfs, &anchor, &nr, dirs,
						NULL, NULL, &number));
		CHECK_EQ(daos_tx_close(open[TX], NULL), 0);
		CHECK_EQ(daos_obj_close(open[OBJ], NULL), 0);
		CHECK_EQ(daos_array_close(open[ARRAY], NULL), 0);
		CHECK_EQ(daos_kv_close(open[KV], NULL), 0);
		CHECK_EQ(daos_eq_destroy(open[QUEUE], 0), 0);
		CHECK_EQ(daos_oit_close(open[TABLE], NULL), 0);
		CHECK_EQ(daos_cont_close(open[CONT], NULL), 0);
		CHECK_EQ(daos_pool_disconnect(open[POOL], NULL), 0);
		CHECK_EQ(dfs_pipeline_destroy(pipe), 0);
		CHECK_EQ(dfs_release(other), 0);
		CHECK_EQ(dfs_sys_closedir(dir), 0);
		CHECK_EQ(dfs_sys_umount(sys), 0);
		CHECK_EQ(dfs_umount(mount), 0);
	}
	CHECK_EQ(daos_obj_open(coh, oid, DAOS_OO_RW, &again, NULL), 0);
	for (i = 0; i < GARBAGE_NR; i++) {
		daos_handle_t bad = {garbage[i]};

		bad_pool(bad);
		bad_cont(bad);
		bad_obj(bad);
		bad_array(bad);
		bad_kv(bad);
		bad_tx(bad, again);
		bad_queue(bad);
		bad_table(bad);
		bad_mount((dfs_t *)as_pointer(garbage[i]), file);
		bad_file(dfs, (dfs_obj_t *)as_pointer(garbage[i]));
		bad_sys((dfs_sys_t *)as_pointer(garbage[i]));
		if (garbage[i] != 0)
			NO_FILE(dfs_pipeline_destroy((dfs_pipeline_t *)as_pointer(garbage[i])));
		NO_FILE(dfs_sys_closedir((DIR *)as_pointer(garbage[i])));
	}
	CHECK_EQ(daos_obj_close(again, NULL), 0);
}

/* Events that are none: zeros, nonsense, finalized, and used by two operations. */
static void
events(dfs_t *dfs, dfs_obj_t *file)
{
	daos_event_t  ev, copy, other, *done;
	daos_handle_t eqh;
	bool          flag;

	good_arguments();
	for (int fill = 0; fill < 256; fill += 85) {
		memset(&ev, fill, sizeof(ev));
		DAOS_ERROR(daos_event_test(&ev, DAOS_EQ_NOWAIT, &flag));
		DAOS_ERROR(daos_event_fini(&ev));
		DAOS_ERROR(daos_event_abort(&ev));
		DAOS_ERROR(daos_event_parent_barrier(&ev));
		DAOS_ERROR(daos_event_init(&other, DAOS_HDL_INVAL, &ev));
		CHECK(daos_event_next(&ev, NULL) == NULL);
		FS_ERROR(dfs_write(dfs, file, &sgl, 0, &ev));
		DAOS_ERROR(daos_cont_query(coh, NULL, NULL, &ev));
	}
	CHECK_EQ(daos_eq_create(&eqh), 0);
	CHECK_EQ(daos_event_init(&ev, eqh, NULL), 0);
	copy = ev;
	CHECK_EQ(dfs_write(dfs, file, &sgl, 0, &ev), 0);
	FS_ERROR(dfs_write(dfs, file, &sgl, 0, &ev));
	CHECK_EQ(daos_eq_poll(eqh, 1, DAOS_EQ_WAIT, 1, &done), 1);
	CHECK_EQ(daos_event_fini(&ev), 0);
	CHECK_EQ(daos_event_fini(&ev), 0);
	FS_ERROR(dfs_write(dfs, file, &sgl, 0, &ev));
	/* A copy made while it lived. */
	DAOS_ERROR(daos_event_test(&copy, DAOS_EQ_NOWAIT, &flag));
	FS_ERROR(dfs_write(dfs, file, &sgl, 0, &copy));
	CHECK_EQ(daos_event_init(&ev, eqh, NULL), 0);
	CHECK_EQ(daos_eq_destroy(eqh, 0), 0);
	/* Its queue is gone. */
	(void)dfs_write(dfs, file, &sgl, 0, &ev);
	(void)daos_event_test(&ev, DAOS_EQ_WAIT, &flag);
	CHECK_EQ(daos_event_fini(&ev), 0);
}

int
main(int argc, char **argv)
{
	dfs_t     *dfs;
	dfs_obj_t *file;

	CHECK_EQ(argc, 3);
	pool_name = argv[1];
	cont_name = argv[2];
	CHECK_EQ(daos_init(), 0);
	CHECK_EQ(daos_pool_connect(pool_name, NULL, DAOS_PC_RW, &poh, NULL, NULL), 0);
	CHECK_EQ(dfs_cont_create_with_label(poh, cont_name, NULL, NULL, &coh, &dfs), 0);
	CHECK_EQ(dfs_open(dfs, NULL, "file", S_IFREG | 0644, O_RDWR | O_CREAT, 0, 0, NULL, &file), 0);
	handles(dfs, file);
	events(dfs, file);
	/* What was open all the time has not suffered. */
	good_arguments();
	CHECK_EQ(dfs_write(dfs, file, &sgl, 0, NULL), 0);
	CHECK_EQ(dfs_ostat(dfs, file, &st), 0);
	CHECK_EQ(st.st_size, 8);
	CHECK_EQ(dfs_release(file), 0);
	CHECK_EQ(dfs_umount(dfs), 0);
	CHECK_EQ(daos_cont_close(coh, NULL), 0);
	CHECK_EQ(daos_cont_destroy(poh, cont_name, 0, NULL), 0);
	CHECK_EQ(daos_pool_disconnect(poh, NULL), 0);
	CHECK_EQ(daos_fini(), 0);
	/* Nothing is left to use them with. */
	CHECK(daos_pool_disconnect(poh, NULL) < 0);
	CHECK(dfs_sync(dfs) > 0);
	return 0;
}
