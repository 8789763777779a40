/*
 * Hostile arguments, the second part: NULL for every pointer that must not be, bytes that are no
 * global handle and no anchor, names that are none, sizes beyond all bounds.
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

static daos_handle_t poh, coh, oh, ah, kh;
static dfs_t        *dfs;
static dfs_sys_t    *sys;
static dfs_obj_t    *file, *dir;
static const char   *pool_name;

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

static char            bytes[8192];
static daos_size_t     size = sizeof(bytes);
static uint32_t        nr   = 4;
static d_iov_t         iov, none;
static d_sg_list_t     sgl = {1, 0, &iov}, no_iovs = {1, 0, NULL}, no_memory = {1, 0, &none};
static daos_key_t      key, no_key, null_key;
static daos_recx_t     recx  = {0, 8};
static daos_range_t    range = {0, 8};
static daos_iod_t      iod;
static daos_key_desc_t kds[4];
static daos_anchor_t   anchor;
static struct stat     st;
static struct dirent   dirs[4];
static daos_obj_id_t   oid = {1, 0};

static void
good_arguments(void)
{
	size = sizeof(bytes);
	nr   = 4;
	d_iov_set(&iov, bytes, 8);
	d_iov_set(&none, NULL, 8);
	d_iov_set(&key, (void *)"key", 3);
	d_iov_set(&no_key, (void *)"key", 0);
	d_iov_set(&null_key, NULL, 3);
	memset(&anchor, 0, sizeof(anchor));
	memset(&iod, 0, sizeof(iod));
	d_iov_set(&iod.iod_name, (void *)"akey", 4);
	iod.iod_type  = DAOS_IOD_ARRAY;
	iod.iod_size  = 1;
	iod.iod_nr    = 1;
	iod.iod_recxs = &recx;
}

/* NULL where there must be something, in pools, containers and events. */
static void
nulls_of_pools(void)
{
	daos_handle_t out, eqh;
	d_iov_t       glob = {NULL, 0, 0};
	bool          flag;

	DAOS_ERROR(daos_pool_connect((const char *)NULL, NULL, DAOS_PC_RW, &out, NULL, NULL));
	DAOS_ERROR(daos_pool_connect(pool_name, NULL, DAOS_PC_RW, NULL, NULL, NULL));
	DAOS_ERROR(daos_pool_local2global(poh, NULL));
	DAOS_ERROR(daos_pool_global2local(glob, &out));
	DAOS_ERROR(daos_cont_create_with_label(poh, NULL, NULL, NULL, NULL));
	DAOS_ERROR(daos_cont_open(poh, (const char *)NULL, DAOS_COO_RW, &out, NULL, NULL));
	DAOS_ERROR(daos_cont_open(poh, "c", DAOS_COO_RW, NULL, NULL, NULL));
	DAOS_ERROR(daos_cont_destroy(poh, (const char *)NULL, 0, NULL));
	DAOS_ERROR(daos_cont_local2global(coh, NULL));
	DAOS_ERROR(daos_cont_global2local(poh, glob, &out));
	DAOS_ERROR(daos_cont_alloc_oids(coh, 1, NULL, NULL));
	/* All of these may be NULL. */
	CHECK_EQ(daos_pool_query(poh, NULL, NULL, NULL, NULL), 0);
	CHECK_EQ(daos_cont_query(coh, NULL, NULL, NULL), 0);

	DAOS_ERROR(daos_eq_create(NULL));
	CHECK_EQ(daos_eq_create(&eqh), 0);
	DAOS_ERROR(daos_eq_poll(eqh, 0, DAOS_EQ_NOWAIT, 1, NULL));
	CHECK_EQ(daos_eq_query(eqh, DAOS_EQR_ALL, 1, NULL), 0);
	DAOS_ERROR(daos_event_init(NULL, eqh, NULL));
	DAOS_ERROR(daos_event_fini(NULL));
	DAOS_ERROR(daos_event_test(NULL, DAOS_EQ_NOWAIT, &flag));
	DAOS_ERROR(daos_event_register_comp_cb(NULL, NULL, NULL));
	DAOS_ERROR(daos_event_parent_barrier(NULL));
	DAOS_ERROR(daos_event_abort(NULL));
	CHECK(daos_event_next(NULL, NULL) == NULL);
	CHECK_EQ(daos_eq_destroy(eqh, 0), 0);
	CHECK(daos_rank_list_parse(NULL, ":") == NULL);
	CHECK(daos_rank_list_parse("0:1", NULL) == NULL);
	DAOS_ERROR(daos_tx_open(coh, NULL, 0, NULL));
	DAOS_ERROR(daos_hlc2timespec(1, NULL));
	DAOS_ERROR(daos_hlc2timestamp(1, NULL));
	CHECK_EQ(daos_oclass_name2id(NULL), OC_UNKNOWN);
	CHECK(daos_oclass_id2name(OC_S1, NULL) != 0);
}

/* NULL in objects, arrays and key-value stores. */
static void
nulls_of_objects(void)
{
	daos_handle_t    out;
	daos_array_iod_t ranges = {1, &range, 0, 0}, no_ranges = {1, NULL, 0, 0};
	daos_iod_t       bad;
	daos_size_t      cell, chunk;

	good_arguments();
	DAOS_ERROR(daos_obj_generate_oid(coh, NULL, DAOS_OT_MULTI_HASHED, OC_S1, 0, 0));
	DAOS_ERROR(daos_obj_open(coh, oid, DAOS_OO_RW, NULL, NULL));
	DAOS_ERROR(daos_obj_punch_dkeys(oh, DAOS_TX_NONE, 0, 1, NULL, NULL));
	DAOS_ERROR(daos_obj_punch_dkeys(oh, DAOS_TX_NONE, 0, 1, &null_key, NULL));
	DAOS_ERROR(daos_obj_punch_akeys(oh, DAOS_TX_NONE, 0, NULL, 1, &key, NULL));
	DAOS_ERROR(daos_obj_punch_akeys(oh, DAOS_TX_NONE, 0, &key, 1, NULL, NULL));
	for (int write = 0; write < 2; write++) {
#define UPDATE_OR_FETCH(dkey, iods, lists)                                                         \
	(write ? daos_obj_update(oh, DAOS_TX_NONE, 0, dkey, 1, iods, lists, NULL)                  \
	       : daos_obj_fetch(oh, DAOS_TX_NONE, 0, dkey, 1, iods, lists, NULL, NULL))
		DAOS_ERROR(UPDATE_OR_FETCH(NULL, &iod, &sgl));
		DAOS_ERROR(UPDATE_OR_FETCH(&no_key, &iod, &sgl));
		DAOS_ERROR(UPDATE_OR_FETCH(&null_key, &iod, &sgl));
		DAOS_ERROR(UPDATE_OR_FETCH(&key, NULL, &sgl));
		DAOS_ERROR(UPDATE_OR_FETCH(&key, &iod, &no_memory));
		bad = iod;
		d_iov_set(&bad.iod_name, NULL, 4);
		DAOS_ERROR(UPDATE_OR_FETCH(&key, &bad, &sgl));
		bad           = iod;
		bad.iod_recxs = NULL;
		DAOS_ERROR(UPDATE_OR_FETCH(&key, &bad, &sgl));
		bad          = iod;
		bad.iod_type = (daos_iod_type_t)77;
		DAOS_ERROR(UPDATE_OR_FETCH(&key, &bad, &sgl));
	}
	DAOS_ERROR(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, &iod, NULL, NULL));
	DAOS_ERROR(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &no_iovs, NULL));
	DAOS_ERROR(daos_obj_list_dkey(oh, DAOS_TX_NONE, NULL, kds, &sgl, &anchor, NULL));
	DAOS_ERROR(daos_obj_list_dkey(oh, DAOS_TX_NONE, &nr, NULL, &sgl, &anchor, NULL));
	DAOS_ERROR(daos_obj_list_dkey(oh, DAOS_TX_NONE, &nr, kds, &sgl, NULL, NULL));
	DAOS_ERROR(daos_obj_list_akey(oh, DAOS_TX_NONE, NULL, &nr, kds, &sgl, &anchor, NULL));
	DAOS_ERROR(daos_obj_list_akey(oh, DAOS_TX_NONE, &key, NULL, kds, &sgl, &anchor, NULL));
	DAOS_ERROR(daos_obj_list_akey(oh, DAOS_TX_NONE, &key, &nr, kds, &sgl, NULL, NULL));
	DAOS_ERROR(daos_obj_list_recx(oh, DAOS_TX_NONE, NULL, &key, &size, &nr, &recx, NULL, &anchor, true,
				      NULL));
	DAOS_ERROR(daos_obj_list_recx(oh, DAOS_TX_NONE, &key, NULL, &size, &nr, &recx, NULL, &anchor, true,
				      NULL));
	DAOS_ERROR(daos_obj_list_recx(oh, DAOS_TX_NONE, &key, &key, &size, NULL, &recx, NULL, &anchor, true,
				      NULL));
	DAOS_ERROR(daos_obj_list_recx(oh, DAOS_TX_NONE, &key, &key, &size, &nr, NULL, NULL, &anchor, true,
				      NULL));
	DAOS_ERROR(daos_obj_list_recx(oh, DAOS_TX_NONE, &key, &key, &size, &nr, &recx, NULL, NULL, true,
				      NULL));
	DAOS_ERROR(daos_obj_query_key(oh, DAOS_TX_NONE, DAOS_GET_MAX | DAOS_GET_DKEY, NULL, NULL, NULL,
				      NULL));
	DAOS_ERROR(daos_obj_query_max_epoch(oh, DAOS_TX_NONE, NULL, NULL));
	DAOS_ERROR(daos_obj_anchor_split(oh, NULL, &anchor));
	DAOS_ERROR(daos_obj_anchor_set(oh, 0, NULL));

	good_arguments();
	DAOS_ERROR(daos_array_create(coh, oid, DAOS_TX_NONE, 1, 4096, NULL, NULL));
	DAOS_ERROR(daos_array_open(coh, oid, DAOS_TX_NONE, DAOS_OO_RW, NULL, &chunk, &out, NULL));
	DAOS_ERROR(daos_array_open(coh, oid, DAOS_TX_NONE, DAOS_OO_RW, &cell, NULL, &out, NULL));
	DAOS_ERROR(daos_array_open(coh, oid, DAOS_TX_NONE, DAOS_OO_RW, &cell, &chunk, NULL, NULL));
	DAOS_ERROR(daos_array_open_with_attr(coh, oid, DAOS_TX_NONE, DAOS_OO_RW, 1, 4096, NULL, NULL));
	DAOS_ERROR(daos_array_local2global(ah, NULL));
	DAOS_ERROR(daos_array_global2local(coh, none, DAOS_OO_RW, NULL));
	DAOS_ERROR(daos_array_read(ah, DAOS_TX_NONE, NULL, &sgl, NULL));
	DAOS_ERROR(daos_array_read(ah, DAOS_TX_NONE, &no_ranges, &sgl, NULL));
	DAOS_ERROR(daos_array_read(ah, DAOS_TX_NONE, &ranges, NULL, NULL));
	DAOS_ERROR(daos_array_read(ah, DAOS_TX_NONE, &ranges, &no_iovs, NULL));
	DAOS_ERROR(daos_array_read(ah, DAOS_TX_NONE, &ranges, &no_memory, NULL));
	DAOS_ERROR(daos_array_write(ah, DAOS_TX_NONE, NULL, &sgl, NULL));
	DAOS_ERROR(daos_array_write(ah, DAOS_TX_NONE, &no_ranges, &sgl, NULL));
	DAOS_ERROR(daos_array_write(ah, DAOS_TX_NONE, &ranges, NULL, NULL));
	DAOS_ERROR(daos_array_write(ah, DAOS_TX_NONE, &ranges, &no_iovs, NULL));
	DAOS_ERROR(daos_array_write(ah, DAOS_TX_NONE, &ranges, &no_memory, NULL));
	DAOS_ERROR(daos_array_get_size(ah, DAOS_TX_NONE, NULL, NULL));
	DAOS_ERROR(daos_array_stat(ah, DAOS_TX_NONE, NULL, NULL));
	DAOS_ERROR(daos_array_punch(ah, DAOS_TX_NONE, NULL, NULL));

	DAOS_ERROR(daos_kv_open(coh, oid, DAOS_OO_RW, NULL, NULL));
	DAOS_ERROR(daos_kv_put(kh, DAOS_TX_NONE, 0, NULL, 1, "v", NULL));
	DAOS_ERROR(daos_kv_put(kh, DAOS_TX_NONE, 0, "k", 1, NULL, NULL));
	DAOS_ERROR(daos_kv_put(kh, DAOS_TX_NONE, 0, "", 1, "v", NULL));
	DAOS_ERROR(daos_kv_get(kh, DAOS_TX_NONE, 0, NULL, &size, bytes, NULL));
	DAOS_ERROR(daos_kv_get(kh, DAOS_TX_NONE, 0, "k", NULL, bytes, NULL));
	DAOS_ERROR(daos_kv_remove(kh, DAOS_TX_NONE, 0, NULL, NULL));
	DAOS_ERROR(daos_kv_list(kh, DAOS_TX_NONE, NULL, kds, &sgl, &anchor, NULL));
	DAOS_ERROR(daos_kv_list(kh, DAOS_TX_NONE, &nr, NULL, &sgl, &anchor, NULL));
	DAOS_ERROR(daos_kv_list(kh, DAOS_TX_NONE, &nr, kds, &sgl, NULL, NULL));
}

/* NULL in the file system. */
static void
nulls_of_files(void)
{
	dfs_obj_t        *out;
	dfs_t            *mount;
	daos_handle_t     handle;
	dfs_iod_t         ranges = {1, &range}, no_ranges = {1, NULL};
	daos_oclass_id_t  cid;
	dfs_pipeline_t   *pipe;
	dfs_predicate_t   pred;
	dfs_attr_t        attr;

	good_arguments();
	memset(&pred, 0, sizeof(pred));
	memset(&attr, 0, sizeof(attr));
	FS_ERROR(dfs_connect(NULL, NULL, "c", O_RDWR, NULL, &mount));
	FS_ERROR(dfs_connect(pool_name, NULL, NULL, O_RDWR, NULL, &mount));
	FS_ERROR(dfs_connect(pool_name, NULL, "c", O_RDWR, NULL, NULL));
	FS_ERROR(dfs_destroy(NULL, NULL, "c", 0, NULL));
	FS_ERROR(dfs_destroy(pool_name, NULL, NULL, 0, NULL));
	FS_ERROR(dfs_cont_create(poh, NULL, NULL, NULL, &mount));
	FS_ERROR(dfs_cont_create_with_label(poh, NULL, NULL, NULL, NULL, NULL));
	FS_ERROR(dfs_mount(poh, coh, O_RDWR, NULL));
	FS_ERROR(dfs_pool_get(dfs, NULL));
	FS_ERROR(dfs_cont_get(dfs, NULL));
	FS_ERROR(dfs_query(dfs, NULL));
	FS_ERROR(dfs_local2global(dfs, NULL));
	FS_ERROR(dfs_local2global_all(dfs, NULL));
	FS_ERROR(dfs_global2local(poh, coh, O_RDWR, none, NULL));
	FS_ERROR(dfs_global2local_all(O_RDWR, none, NULL));
	FS_ERROR(dfs_lookup(dfs, NULL, O_RDONLY, &out, NULL, NULL));
	FS_ERROR(dfs_lookup(dfs, "/", O_RDONLY, NULL, NULL, NULL));
	FS_ERROR(dfs_lookup_rel(dfs, NULL, NULL, O_RDONLY, &out, NULL, NULL));
	FS_ERROR(dfs_lookup_rel(dfs, NULL, "f", O_RDONLY, NULL, NULL, NULL));
	FS_ERROR(dfs_suggest_oclass(dfs, NULL, &cid));
	FS_ERROR(dfs_suggest_oclass(dfs, "file:max", NULL));
	FS_ERROR(dfs_open(dfs, NULL, NULL, S_IFREG | 0644, O_RDWR | O_CREAT, 0, 0, NULL, &out));
	FS_ERROR(dfs_open(dfs, NULL, "f", S_IFREG | 0644, O_RDWR | O_CREAT, 0, 0, NULL, NULL));
	FS_ERROR(dfs_open(dfs, NULL, "l", S_IFLNK | 0777, O_RDWR | O_CREAT, 0, 0, NULL, &out));
	FS_ERROR(dfs_dup(dfs, file, O_RDWR, NULL));
	FS_ERROR(dfs_obj_local2global(dfs, file, NULL));
	FS_ERROR(dfs_obj_global2local(dfs, O_RDWR, none, NULL));
	FS_ERROR(dfs_read(dfs, file, NULL, 0, &size, NULL));
	FS_ERROR(dfs_read(dfs, file, &sgl, 0, NULL, NULL));
	FS_ERROR(dfs_read(dfs, file, &no_iovs, 0, &size, NULL));
	FS_ERROR(dfs_read(dfs, file, &no_memory, 0, &size, NULL));
	FS_ERROR(dfs_readx(dfs, file, NULL, &sgl, &size, NULL));
	FS_ERROR(dfs_readx(dfs, file, &ranges, NULL, &size, NULL));
	FS_ERROR(dfs_readx(dfs, file, &ranges, &sgl, NULL, NULL));
	FS_ERROR(dfs_readx(dfs, file, &no_ranges, &sgl, &size, NULL));
	FS_ERROR(dfs_write(dfs, file, NULL, 0, NULL));
	FS_ERROR(dfs_write(dfs, file, &no_iovs, 0, NULL));
	FS_ERROR(dfs_write(dfs, file, &no_memory, 0, NULL));
	FS_ERROR(dfs_writex(dfs, file, NULL, &sgl, NULL));
	FS_ERROR(dfs_writex(dfs, file, &ranges, NULL, NULL));
	FS_ERROR(dfs_writex(dfs, file, &no_ranges, &sgl, NULL));
	FS_ERROR(dfs_get_size(dfs, file, NULL));
	FS_ERROR(dfs_readdir(dfs, dir, NULL, &nr, dirs));
	FS_ERROR(dfs_readdir(dfs, dir, &anchor, NULL, dirs));
	FS_ERROR(dfs_readdir(dfs, dir, &anchor, &nr, NULL));
	FS_ERROR(dfs_readdirplus(dfs, dir, NULL, &nr, dirs, &st));
	FS_ERROR(dfs_readdirplus(dfs, dir, &anchor, NULL, dirs, &st));
	FS_ERROR(dfs_readdirplus(dfs, dir, &anchor, &nr, NULL, &st));
	FS_ERROR(dfs_readdirplus(dfs, dir, &anchor, &nr, dirs, NULL));
	FS_ERROR(dfs_iterate(dfs, dir, NULL, &nr, 4096, NULL, NULL));
	FS_ERROR(dfs_iterate(dfs, dir, &anchor, NULL, 4096, NULL, NULL));
	FS_ERROR(dfs_dir_anchor_set(dir, NULL, &anchor));
	FS_ERROR(dfs_dir_anchor_set(dir, "f", NULL));
	FS_ERROR(dfs_obj_anchor_split(dir, NULL, &anchor));
	FS_ERROR(dfs_obj_anchor_set(dir, 0, NULL));
	FS_ERROR(dfs_mkdir(dfs, NULL, NULL, 0755, 0));
	FS_ERROR(dfs_remove(dfs, NULL, NULL, true, NULL));
	FS_ERROR(dfs_move(dfs, NULL, NULL, NULL, "b", NULL));
	FS_ERROR(dfs_move(dfs, NULL, "a", NULL, NULL, NULL));
	FS_ERROR(dfs_exchange(dfs, NULL, NULL, NULL, "b"));
	FS_ERROR(dfs_exchange(dfs, NULL, "a", NULL, NULL));
	FS_ERROR(dfs_obj2id(file, NULL));
	FS_ERROR(dfs_get_mode(file, NULL));
	FS_ERROR(dfs_obj_get_info(dfs, file, NULL));
	FS_ERROR(dfs_get_file_oh(file, NULL));
	FS_ERROR(dfs_get_chunk_size(file, NULL));
	FS_ERROR(dfs_get_symlink_value(file, bytes, NULL));
	FS_ERROR(dfs_get_size_by_oid(dfs, oid, 4096, NULL));
	FS_ERROR(dfs_update_parent(file, NULL, "f"));
	FS_ERROR(dfs_stat(dfs, NULL, "f", NULL));
	FS_ERROR(dfs_ostat(dfs, file, NULL));
	FS_ERROR(dfs_osetattr(dfs, file, NULL, DFS_SET_ATTR_MODE));
	FS_ERROR(dfs_setxattr(dfs, file, NULL, "v", 1, 0));
	FS_ERROR(dfs_setxattr(dfs, file, "user.a", NULL, 1, 0));
	FS_ERROR(dfs_getxattr(dfs, file, NULL, bytes, &size));
	FS_ERROR(dfs_getxattr(dfs, file, "user.a", bytes, NULL));
	FS_ERROR(dfs_removexattr(dfs, file, NULL));
	FS_ERROR(dfs_listxattr(dfs, file, bytes, NULL));
	FS_ERROR(dfs_cont_check(poh, NULL, 0, NULL));
	FS_ERROR(dfs_cont_scan(poh, NULL, 0, NULL));
	FS_ERROR(dfs_pipeline_create(dfs, pred, 0, NULL));
	FS_ERROR(dfs_readdir_with_filter(dfs, dir, NULL, &anchor, &nr, dirs, NULL, NULL, NULL));
	CHECK_EQ(dfs_pipeline_create(dfs, pred, 0, &pipe), 0);
	FS_ERROR(dfs_readdir_with_filter(dfs, dir, pipe, NULL, &nr, dirs, NULL, NULL, NULL));
	FS_ERROR(dfs_readdir_with_filter(dfs, dir, pipe, &anchor, NULL, dirs, NULL, NULL, NULL));
	FS_ERROR(dfs_readdir_with_filter(dfs, dir, pipe, &anchor, &nr, NULL, NULL, NULL, NULL));
	CHECK_EQ(dfs_pipeline_destroy(pipe), 0);
	(void)handle;
}

/* NULL by path, and in addresses. */
static void
nulls_by_path(void)
{
	dfs_sys_t         *mount;
	dfs_obj_t         *out;
	DIR               *listing;
	struct dirent     *entry;
	struct duns_attr_t attr;

	good_arguments();
	memset(&attr, 0, sizeof(attr));
	FS_ERROR(dfs_sys_connect(NULL, NULL, "c", O_RDWR, 0, NULL, &mount));
	FS_ERROR(dfs_sys_connect(pool_name, NULL, NULL, O_RDWR, 0, NULL, &mount));
	FS_ERROR(dfs_sys_connect(pool_name, NULL, "c", O_RDWR, 0, NULL, NULL));
	FS_ERROR(dfs_sys_mount(poh, coh, O_RDWR, 0, NULL));
	FS_ERROR(dfs_sys_local2global(sys, NULL));
	FS_ERROR(dfs_sys_local2global_all(sys, NULL));
	FS_ERROR(dfs_sys_global2local(poh, coh, O_RDWR, 0, none, NULL));
	FS_ERROR(dfs_sys_global2local_all(O_RDWR, 0, none, NULL));
	FS_ERROR(dfs_sys2base(sys, NULL));
	FS_ERROR(dfs_sys_access(sys, NULL, R_OK, 0));
	FS_ERROR(dfs_sys_chmod(sys, NULL, 0644));
	FS_ERROR(dfs_sys_chown(sys, NULL, 0, 0, 0));
	FS_ERROR(dfs_sys_setattr(sys, NULL, &st, 0, 0));
	FS_ERROR(dfs_sys_setattr(sys, "/file", NULL, DFS_SET_ATTR_MODE, 0));
	FS_ERROR(dfs_sys_utimens(sys, NULL, NULL, 0));
	FS_ERROR(dfs_sys_stat(sys, NULL, 0, &st));
	FS_ERROR(dfs_sys_stat(sys, "/file", 0, NULL));
	FS_ERROR(dfs_sys_listxattr(sys, NULL, bytes, &size, 0));
	FS_ERROR(dfs_sys_listxattr(sys, "/file", bytes, NULL, 0));
	FS_ERROR(dfs_sys_getxattr(sys, NULL, "user.a", bytes, &size, 0));
	FS_ERROR(dfs_sys_getxattr(sys, "/file", NULL, bytes, &size, 0));
	FS_ERROR(dfs_sys_getxattr(sys, "/file", "user.a", bytes, NULL, 0));
	FS_ERROR(dfs_sys_setxattr(sys, NULL, "user.a", "v", 1, 0, 0));
	FS_ERROR(dfs_sys_setxattr(sys, "/file", NULL, "v", 1, 0, 0));
	FS_ERROR(dfs_sys_setxattr(sys, "/file", "user.a", NULL, 1, 0, 0));
	FS_ERROR(dfs_sys_removexattr(sys, NULL, "user.a", 0));
	FS_ERROR(dfs_sys_removexattr(sys, "/file", NULL, 0));
	FS_ERROR(dfs_sys_mknod(sys, NULL, S_IFREG | 0644, 0, 0));
	FS_ERROR(dfs_sys_mkdir(sys, NULL, 0755, 0));
	FS_ERROR(dfs_sys_mkdir_p(sys, NULL, 0755, 0));
	FS_ERROR(dfs_sys_symlink(sys, NULL, "/l"));
	FS_ERROR(dfs_sys_symlink(sys, "t", NULL));
	FS_ERROR(dfs_sys_readlink(sys, NULL, bytes, &size));
	FS_ERROR(dfs_sys_readlink(sys, "/file", bytes, NULL));
	FS_ERROR(dfs_sys_remove(sys, NULL, true, NULL));
	FS_ERROR(dfs_sys_remove_type(sys, NULL, true, S_IFREG, NULL));
	FS_ERROR(dfs_sys_open(sys, NULL, S_IFREG | 0644, O_RDWR, 0, 0, NULL, &out));
	FS_ERROR(dfs_sys_open(sys, "/file", S_IFREG | 0644, O_RDWR, 0, 0, NULL, NULL));
	FS_ERROR(dfs_sys_read(sys, file, NULL, 0, &size, NULL));
	FS_ERROR(dfs_sys_read(sys, file, bytes, 0, NULL, NULL));
	FS_ERROR(dfs_sys_write(sys, file, NULL, 0, &size, NULL));
	FS_ERROR(dfs_sys_write(sys, file, bytes, 0, NULL, NULL));
	FS_ERROR(dfs_sys_punch(sys, NULL, 0, 1));
	FS_ERROR(dfs_sys_opendir(sys, NULL, 0, &listing));
	FS_ERROR(dfs_sys_opendir(sys, "/", 0, NULL));
	FS_ERROR(dfs_sys_closedir(NULL));
	FS_ERROR(dfs_sys_readdir(sys, NULL, &entry));
	CHECK_EQ(dfs_sys_opendir(sys, "/", 0, &listing), 0);
	FS_ERROR(dfs_sys_readdir(sys, listing, NULL));
	CHECK_EQ(dfs_sys_closedir(listing), 0);

	FS_ERROR(duns_create_path(poh, NULL, &attr));
	FS_ERROR(duns_create_path(poh, "/tmp/none/such", NULL));
	FS_ERROR(duns_resolve_path(NULL, &attr));
	FS_ERROR(duns_resolve_path("daos://a/b", NULL));
	FS_ERROR(duns_destroy_path(poh, NULL));
	FS_ERROR(duns_parse_attr(NULL, 10, &attr));
	FS_ERROR(duns_parse_attr(bytes, 10, NULL));
	FS_ERROR(duns_set_sys_name(NULL, "s"));
	FS_ERROR(duns_link_cont(poh, NULL, "/tmp/none/such"));
	FS_ERROR(duns_link_cont(poh, "c", NULL));
	duns_destroy_attr(NULL);
}

/* Pseudo-random bytes, the same in every run. */
static uint32_t
next(void)
{
	static uint32_t state = 1;

	state = state * 1664525 + 1013904223;
	return state >> 8;
}

/* Good global handles with bytes changed and cut off, and bytes that never were one. */
static void
global_handles(void)
{
	static unsigned char good[5][8192], bad[8192];
	size_t               lengths[5];
	d_iov_t              glob;
	daos_handle_t        out;
	dfs_t               *mount;
	dfs_obj_t           *obj;

	for (int kind = 0; kind < 5; kind++) {
		d_iov_set(&glob, good[kind], sizeof(good[kind]));
		CHECK_EQ(kind == 0   ? daos_pool_local2global(poh, &glob)
			 : kind == 1 ? daos_cont_local2global(coh, &glob)
			 : kind == 2 ? dfs_local2global_all(dfs, &glob)
			 : kind == 3 ? dfs_obj_local2global(dfs, file, &glob)
				     : daos_array_local2global(ah, &glob),
			 0);
		lengths[kind] = glob.iov_len;
	}
	for (int round = 0; round < 4000; round++) {
		int    kind = round % 5, shown = round / 5 % 5;
		size_t length = lengths[shown];

		memcpy(bad, good[shown], length);
		if (round % 3 == 0)
			length = next() % (length + 1);
		for (uint32_t i = next() % 4; i > 0 && length > 0; i--)
			bad[next() % length] = (unsigned char)next();
		d_iov_set(&glob, bad, length);
		/* A changed byte may still be a handle, of something that is not there. */
		if (kind == 0 && daos_pool_global2local(glob, &out) == 0)
			CHECK_EQ(daos_pool_disconnect(out, NULL), 0);
		else if (kind == 1 && daos_cont_global2local(poh, glob, &out) == 0)
			CHECK_EQ(daos_cont_close(out, NULL), 0);
		else if (kind == 2 && dfs_global2local_all(O_RDWR, glob, &mount) == 0)
			CHECK_EQ(dfs_disconnect(mount), 0);
		else if (kind == 3 && dfs_obj_global2local(dfs, O_RDWR, glob, &obj) == 0) {
			/* A file that may not be there, of a class that may not exist. */
			good_arguments();
			(void)dfs_read(dfs, obj, &sgl, 0, &size, NULL);
			(void)dfs_ostat(dfs, obj, &st);
			(void)dfs_readdir(dfs, obj, &anchor, &nr, dirs);
			CHECK_EQ(dfs_release(obj), 0);
		}
		if (kind == 4 && daos_array_global2local(coh, glob, DAOS_OO_RW, &out) == 0)
			CHECK_EQ(daos_array_close(out, NULL), 0);
		/* Cut off, it never is one. */
		if (length < lengths[kind] && shown == kind) {
			d_iov_set(&glob, good[kind], length);
			if (kind == 0)
				DAOS_ERROR(daos_pool_global2local(glob, &out));
			if (kind == 3)
				FS_ERROR(dfs_obj_global2local(dfs, O_RDWR, glob, &obj));
		}
	}
}

/* Anchors of nothing. */
static void
anchors(void)
{
	for (int round = 0; round < 2000; round++) {
		unsigned char *raw = (unsigned char *)&anchor;
		dfs_obj_t     *of  = round % 2 ? dir : file;

		good_arguments();
		for (size_t i = 0; i < sizeof(anchor); i++)
			raw[i] = (unsigned char)next();
		/* Mostly types that exist and lengths that fit. */
		if (round % 8 != 0)
			anchor.da_type = (uint16_t)(next() % 4);
		if (round % 4 != 0) {
			anchor.da_buf[0] = (uint8_t)(next() % 3);
			anchor.da_buf[1] = (uint8_t)(next() % 110);
		}
		(void)daos_obj_list_dkey(oh, DAOS_TX_NONE, &nr, kds, &sgl, &anchor, NULL);
		nr = 4;
		(void)daos_kv_list(kh, DAOS_TX_NONE, &nr, kds, &sgl, &anchor, NULL);
		nr = 4;
		(void)dfs_readdir(dfs, of, &anchor, &nr, dirs);
		CHECK(nr <= 4);
	}
}

/* Names and paths that are too long, empty, or not names; sizes beyond all bounds. */
static void
names_and_sizes(void)
{
	static char       text[70000];
	static const char *const no_names[] = {"", ".", "..", "a/b", "/", "/a", "a/"};
	dfs_obj_t         *out;
	daos_handle_t      handle;
	d_iov_t            huge[3], glob;
	dfs_iod_t          many = {1, &range};
	d_sg_list_t        list = {1, 0, huge};
	daos_array_iod_t   ranges = {1, &range, 0, 0};
	struct duns_attr_t attr;
	static const char *const attr_names[]  = {"name"};
	static const void *const attr_values[] = {bytes};
	static size_t            attr_sizes[]  = {~(size_t)0};

	good_arguments();
	for (size_t i = 0; i < sizeof(no_names) / sizeof(no_names[0]); i++) {
		const char *name = no_names[i];

		FS_ERROR(dfs_open(dfs, NULL, name, S_IFREG | 0644, O_RDWR | O_CREAT, 0, 0, NULL, &out));
		FS_ERROR(dfs_mkdir(dfs, NULL, name, 0755, 0));
		FS_ERROR(dfs_remove(dfs, NULL, name, true, NULL));
		FS_ERROR(dfs_move(dfs, NULL, "file", NULL, name, NULL));
		FS_ERROR(dfs_move(dfs, NULL, name, NULL, "file", NULL));
		FS_ERROR(dfs_exchange(dfs, NULL, "file", NULL, name));
		FS_ERROR(dfs_lookup_rel(dfs, NULL, name, O_RDONLY, &out, NULL, NULL));
		FS_ERROR(dfs_stat(dfs, NULL, name, &st));
		FS_ERROR(dfs_access(dfs, NULL, name, F_OK));
		FS_ERROR(dfs_chmod(dfs, NULL, name, 0644));
		FS_ERROR(dfs_update_parent(file, file, name));
		/* A label may be of dots only. */
		if (name[0] != '.')
			DAOS_ERROR(daos_cont_create_with_label(poh, name, NULL, NULL, NULL));
		DAOS_ERROR(daos_cont_open(poh, name, DAOS_COO_RW, &handle, NULL, NULL));
		DAOS_ERROR(daos_pool_connect(name, NULL, DAOS_PC_RW, &handle, NULL, NULL));
	}
	memset(text, 'x', sizeof(text) - 1);
	text[0] = '/';
	for (size_t length = 257; length < sizeof(text); length = length * 4 - 1) {
		char cut = text[length];

		text[length] = 0;
		FS_ERROR(dfs_mkdir(dfs, NULL, text + 1, 0755, 0));
		FS_ERROR(dfs_lookup(dfs, text, O_RDONLY, &out, NULL, NULL));
		FS_ERROR(dfs_sys_stat(sys, text, 0, &st));
		FS_ERROR(dfs_sys_mkdir_p(sys, text, 0755, 0));
		FS_ERROR(dfs_setxattr(dfs, file, text, "v", 1, 0));
		FS_ERROR(dfs_open(dfs, NULL, "long-link", S_IFLNK | 0777, O_RDWR | O_CREAT, 0, 0,
				  length > 4096 ? text : "", &out));
		DAOS_ERROR(daos_cont_create_with_label(poh, text, NULL, NULL, NULL));
		DAOS_ERROR(daos_pool_connect(text, NULL, DAOS_PC_RW, &handle, NULL, NULL));
		memset(&attr, 0, sizeof(attr));
		FS_ERROR(duns_resolve_path(text, &attr));
		duns_destroy_attr(&attr);
		(void)daos_oclass_name2id(text);
		text[length] = cut;
	}
	/* Bytes that are no UTF-8. */
	DAOS_ERROR(daos_cont_create_with_label(poh, "\xff\xfe", NULL, NULL, NULL));
	DAOS_ERROR(daos_pool_connect("\xff\xfe", NULL, DAOS_PC_RW, &handle, NULL, NULL));

	/* More than there is memory for; nothing of it may be touched. */
	d_iov_set(&huge[0], bytes, ~(size_t)0);
	FS_ERROR(dfs_write(dfs, file, &list, 0, NULL));
	FS_ERROR(dfs_read(dfs, file, &list, 0, &size, NULL));
	DAOS_ERROR(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &list, NULL));
	DAOS_ERROR(daos_array_write(ah, DAOS_TX_NONE, &ranges, &list, NULL));
	for (int i = 0; i < 3; i++)
		d_iov_set(&huge[i], bytes, (size_t)INT64_MAX);
	list.sg_nr = 3;
	FS_ERROR(dfs_write(dfs, file, &list, 1, NULL));
	DAOS_ERROR(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &list, NULL));
	DAOS_ERROR(daos_array_read(ah, DAOS_TX_NONE, &ranges, &list, NULL));
	many.iod_nr = ~0ULL;
	FS_ERROR(dfs_readx(dfs, file, &many, &sgl, &size, NULL));
	ranges.arr_nr = ~0ULL;
	DAOS_ERROR(daos_array_read(ah, DAOS_TX_NONE, &ranges, &sgl, NULL));
	ranges.arr_nr = 1;
	d_iov_set(&glob, bytes, ~(size_t)0);
	DAOS_ERROR(daos_pool_global2local(glob, &handle));
	FS_ERROR(dfs_obj_global2local(dfs, O_RDWR, glob, &out));
	FS_ERROR(dfs_write(dfs, file, &sgl, ~0ULL - 3, NULL));
	FS_ERROR(dfs_write(dfs, file, &sgl, (uint64_t)INT64_MAX, NULL));
	FS_ERROR(dfs_read(dfs, file, &sgl, ~0ULL - 3, &size, NULL));
	FS_ERROR(dfs_punch(dfs, file, ~0ULL, DFS_MAX_FSIZE));
	(void)dfs_punch(dfs, file, 3, ~0ULL - 1);
	FS_ERROR(dfs_setxattr(dfs, file, "user.big", bytes, ~0ULL, 0));
	FS_ERROR(dfs_open(dfs, NULL, "chunk", S_IFREG | 0644, O_RDWR | O_CREAT, 0, ~0ULL, NULL, &out));
	FS_ERROR(dfs_open(dfs, NULL, "class", S_IFREG | 0644, O_RDWR | O_CREAT, ~0U, 0, NULL, &out));
	range.rg_idx = ~0ULL;
	DAOS_ERROR(daos_array_write(ah, DAOS_TX_NONE, &ranges, &sgl, NULL));
	DAOS_ERROR(daos_array_read(ah, DAOS_TX_NONE, &ranges, &sgl, NULL));
	range.rg_idx = 0;
	range.rg_len = ~0ULL;
	DAOS_ERROR(daos_array_write(ah, DAOS_TX_NONE, &ranges, &sgl, NULL));
	DAOS_ERROR(daos_array_set_size(ah, DAOS_TX_NONE, ~0ULL, NULL));
	recx.rx_nr = ~0ULL;
	DAOS_ERROR(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL));
	recx.rx_idx = ~0ULL;
	recx.rx_nr  = 8;
	DAOS_ERROR(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL));
	DAOS_ERROR(daos_kv_put(kh, DAOS_TX_NONE, 0, "k", ~0ULL, bytes, NULL));
	text[sizeof(text) - 1] = 0;
	DAOS_ERROR(daos_kv_put(kh, DAOS_TX_NONE, 0, text, 1, "v", NULL));
	DAOS_ERROR(daos_cont_alloc_oids(coh, 0, &size, NULL));
	DAOS_ERROR(daos_cont_set_attr(coh, 1, attr_names, attr_values, attr_sizes, NULL));
	DAOS_ERROR(daos_pool_set_attr(poh, 1, attr_names, attr_values, attr_sizes, NULL));
	DAOS_ERROR(daos_cont_set_attr(coh, 1, attr_names, NULL, attr_sizes, NULL));
	DAOS_ERROR(daos_cont_set_attr(coh, 1, attr_names, attr_values, NULL, NULL));
	DAOS_ERROR(daos_cont_set_attr(coh, 1, NULL, attr_values, attr_sizes, NULL));
	DAOS_ERROR(daos_cont_set_attr(coh, -1, attr_names, attr_values, attr_sizes, NULL));
	DAOS_ERROR(daos_cont_get_attr(coh, 1, NULL, NULL, attr_sizes, NULL));
	DAOS_ERROR(daos_cont_get_attr(coh, 1, attr_names, NULL, NULL, NULL));
	DAOS_ERROR(daos_cont_del_attr(coh, 1, NULL, NULL));
	DAOS_ERROR(daos_cont_list_attr(coh, NULL, NULL, NULL));
	DAOS_ERROR(daos_pool_list_cont(poh, NULL, NULL, NULL));
	DAOS_ERROR(daos_pool_query_target(poh, 999, 999, NULL, NULL));
	DAOS_ERROR(daos_oit_open(coh, DAOS_EPOCH_MAX, NULL, NULL));
}

int
main(int argc, char **argv)
{
	daos_obj_id_t array_id = {2, 0}, kv_id = {3, 0};

	CHECK_EQ(argc, 3);
	pool_name = argv[1];
	CHECK_EQ(daos_init(), 0);
	CHECK_EQ(dfs_init(), 0);
	CHECK_EQ(daos_pool_connect(pool_name, NULL, DAOS_PC_RW, &poh, NULL, NULL), 0);
	CHECK_EQ(dfs_cont_create_with_label(poh, argv[2], NULL, NULL, &coh, &dfs), 0);
	CHECK_EQ(dfs_sys_mount(poh, coh, O_RDWR, 0, &sys), 0);
	CHECK_EQ(dfs_open(dfs, NULL, "file", S_IFREG | 0644, O_RDWR | O_CREAT, 0, 0, NULL, &file), 0);
	CHECK_EQ(dfs_open(dfs, NULL, "dir", S_IFDIR | 0755, O_RDWR | O_CREAT, 0, 0, NULL, &dir), 0);
	CHECK_EQ(daos_obj_generate_oid(coh, &oid, DAOS_OT_MULTI_HASHED, OC_S1, 0, 0), 0);
	CHECK_EQ(daos_obj_generate_oid(coh, &array_id, DAOS_OT_ARRAY, OC_S1, 0, 0), 0);
	CHECK_EQ(daos_obj_generate_oid(coh, &kv_id, DAOS_OT_KV_HASHED, OC_S1, 0, 0), 0);
	CHECK_EQ(daos_obj_open(coh, oid, DAOS_OO_RW, &oh, NULL), 0);
	CHECK_EQ(daos_array_create(coh, array_id, DAOS_TX_NONE, 1, 4096, &ah, NULL), 0);
	CHECK_EQ(daos_kv_open(coh, kv_id, DAOS_OO_RW, &kh, NULL), 0);
	nulls_of_pools();
	nulls_of_objects();
	nulls_of_files();
	nulls_by_path();
	global_handles();
	anchors();
	names_and_sizes();
	/* What is open goes on working. */
	good_arguments();
	recx.rx_idx = 0;
	CHECK_EQ(dfs_write(dfs, file, &sgl, 0, NULL), 0);
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL), 0);
	CHECK_EQ(daos_kv_put(kh, DAOS_TX_NONE, 0, "k", 1, "v", NULL), 0);
	CHECK_EQ(daos_kv_close(kh, NULL), 0);
	CHECK_EQ(daos_array_close(ah, NULL), 0);
	CHECK_EQ(daos_obj_close(oh, NULL), 0);
	CHECK_EQ(dfs_release(dir), 0);
	CHECK_EQ(dfs_release(file), 0);
	CHECK_EQ(dfs_sys_umount(sys), 0);
	CHECK_EQ(dfs_umount(dfs), 0);
	CHECK_EQ(daos_cont_close(coh, NULL), 0);
	CHECK_EQ(daos_cont_destroy(poh, argv[2], 0, NULL), 0);
	CHECK_EQ(daos_pool_disconnect(poh, NULL), 0);
	CHECK_EQ(dfs_fini(), 0);
	CHECK_EQ(daos_fini(), 0);
	return 0;
}
