/*
 * The file system in a container. All functions return 0 or an errno, also in ev_error of an event.
 *
 * A dfs_t is a mounted container, a dfs_obj_t an open file, directory or symbolic link. Both are handles,
 * not memory: one that was released gives EINVAL.
 */
#ifndef AZK_DAOS_FS_H
#define AZK_DAOS_FS_H

#include <dirent.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <daos_array.h>
#include <daos_cont.h>
#include <daos_obj.h>
#include <daos_obj_class.h>
#include <daos_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Longest name and path, bytes. */
#define DFS_MAX_NAME 255
#define DFS_MAX_PATH 4096
/* Largest file; as the length of a punch: to the end. */
#define DFS_MAX_FSIZE (~0ULL)
#define DFS_DEFAULT_CHUNK_SIZE 1048576
#define DFS_MAX_XATTR_NAME 255
#define DFS_MAX_XATTR_LEN 65536

typedef struct dfs_obj dfs_obj_t;
typedef struct dfs dfs_t;

/* Consistency of a container (da_mode, and flags of dfs_mount()): operations on several entries are
 * atomic, or need not be. Here they always are. */
#define DFS_BALANCED 4
#define DFS_RELAXED 0
/* Flags of dfs_mount(). */
#define DFS_RDONLY O_RDONLY
#define DFS_RDWR O_RDWR

/* Attributes of a container with a file system. 0 is the default of each. */
typedef struct {
	uint64_t da_id;
	/* Bytes. */
	daos_size_t da_chunk_size;
	/* Of files and directories. */
	daos_oclass_id_t da_oclass_id;
	daos_prop_t *da_props;
	/* DFS_BALANCED or DFS_RELAXED. */
	uint32_t da_mode;
	daos_oclass_id_t da_dir_oclass_id;
	daos_oclass_id_t da_file_oclass_id;
	/* Text such as "directory:single,file:max". */
	char da_hints[DAOS_CONT_HINT_MAX_LEN];
} dfs_attr_t;

/* Ranges of a file in bytes. */
typedef struct {
	daos_size_t iod_nr;
	daos_range_t *iod_rgs;
} dfs_iod_t;

/* How a file or directory is laid out; of a directory also what new entries get. */
typedef struct {
	daos_oclass_id_t doi_oclass_id;
	daos_size_t doi_chunk_size;
	daos_oclass_id_t doi_dir_oclass_id;
	daos_oclass_id_t doi_file_oclass_id;
	daos_obj_id_t doi_oid;
} dfs_obj_info_t;

/* Needed for dfs_connect() and for the _all handles. Counted. */
int dfs_init(void);
int dfs_fini(void);

/* Connects to a pool, opens a container by label or uuid as text, and mounts it. With O_CREAT in `flags`
 * creates it, with `attr`, which may be NULL. */
int dfs_connect(const char *pool, const char *sys, const char *cont, int flags, dfs_attr_t *attr,
		dfs_t **dfs);
int dfs_connect_snap(const char *pool, const char *sys, const char *cont, int flags, daos_epoch_t epoch,
		     const char *name, dfs_t **dfs);
int dfs_disconnect(dfs_t *dfs);
int dfs_destroy(const char *pool, const char *sys, const char *cont, int force, daos_event_t *ev);

/* Creates a container with a file system. `attr` may be NULL; `coh` and `dfs` too, and if not the container
 * is opened and mounted. */
int dfs_cont_create(daos_handle_t poh, uuid_t *uuid, dfs_attr_t *attr, daos_handle_t *coh, dfs_t **dfs);
int dfs_cont_create_with_label(daos_handle_t poh, const char *label, dfs_attr_t *attr, uuid_t *uuid,
			       daos_handle_t *coh, dfs_t **dfs);

/* Mounts a container. `flags`: O_RDONLY or O_RDWR; with DFS_BALANCED only one that is balanced. EINVAL if
 * it holds no file system. */
int dfs_mount(daos_handle_t poh, daos_handle_t coh, int flags, dfs_t **dfs);
int dfs_mount_snap(daos_handle_t poh, daos_handle_t coh, int flags, daos_epoch_t epoch, const char *name,
		   dfs_t **dfs);
int dfs_umount(dfs_t *dfs);

/* The handles behind a mount, to be given back. */
int dfs_pool_get(dfs_t *dfs, daos_handle_t *poh);
int dfs_pool_put(dfs_t *dfs, daos_handle_t poh);
int dfs_cont_get(dfs_t *dfs, daos_handle_t *coh);
int dfs_cont_put(dfs_t *dfs, daos_handle_t coh);

int dfs_query(dfs_t *dfs, dfs_attr_t *attr);

/* Mounts as bytes for other processes: with glob->iov_buf NULL only the room that is needed. The _all
 * ones include pool and container. */
int dfs_local2global(dfs_t *dfs, d_iov_t *glob);
int dfs_global2local(daos_handle_t poh, daos_handle_t coh, int flags, d_iov_t glob, dfs_t **dfs);
int dfs_local2global_all(dfs_t *dfs, d_iov_t *glob);
int dfs_global2local_all(int flags, d_iov_t glob, dfs_t **dfs);

/* Paths given to dfs_lookup() must begin with this, and it is taken off. NULL undoes it. */
int dfs_set_prefix(dfs_t *dfs, const char *prefix);

/* Opens what is at a path from the root. `flags`: O_RDONLY, O_RDWR, O_NOFOLLOW. `mode` and `stbuf` may be
 * NULL. */
int dfs_lookup(dfs_t *dfs, const char *path, int flags, dfs_obj_t **obj, mode_t *mode,
	       struct stat *stbuf);

/* Opens an entry of a directory; `parent` NULL is the root. */
int dfs_lookup_rel(dfs_t *dfs, dfs_obj_t *parent, const char *name, int flags, dfs_obj_t **obj,
		   mode_t *mode, struct stat *stbuf);

/* A class for text such as "file:max". */
int dfs_suggest_oclass(dfs_t *dfs, const char *hint, daos_oclass_id_t *cid);

/* Opens or creates an entry of a directory. `mode` has the type (S_IFREG, S_IFDIR, S_IFLNK) and the
 * permissions; `flags`: O_CREAT, O_EXCL, O_TRUNC and how to access; class and chunk size of what is
 * created, 0 for the directory's; `value` is where a symbolic link leads. */
int dfs_open(dfs_t *dfs, dfs_obj_t *parent, const char *name, mode_t mode, int flags,
	     daos_oclass_id_t cid, daos_size_t chunk_size, const char *value, dfs_obj_t **obj);
int dfs_dup(dfs_t *dfs, dfs_obj_t *obj, int flags, dfs_obj_t **new_obj);
int dfs_release(dfs_obj_t *obj);

/* Open objects as bytes for other processes. */
int dfs_obj_local2global(dfs_t *dfs, dfs_obj_t *obj, d_iov_t *glob);
int dfs_obj_global2local(dfs_t *dfs, int flags, d_iov_t glob, dfs_obj_t **obj);

/* Reads from `off` into the memory of `sgl`. `*read_size` gets the bytes that were read: fewer than asked
 * for only at the end of the file. Holes read as zeros. */
int dfs_read(dfs_t *dfs, dfs_obj_t *obj, d_sg_list_t *sgl, daos_off_t off, daos_size_t *read_size,
	     daos_event_t *ev);

/* Reads ranges of a file. Ranges and memory are cut independently, of the same length together. */
int dfs_readx(dfs_t *dfs, dfs_obj_t *obj, dfs_iod_t *iod, d_sg_list_t *sgl, daos_size_t *read_size,
	      daos_event_t *ev);
int dfs_write(dfs_t *dfs, dfs_obj_t *obj, d_sg_list_t *sgl, daos_off_t off, daos_event_t *ev);
int dfs_writex(dfs_t *dfs, dfs_obj_t *obj, dfs_iod_t *iod, d_sg_list_t *sgl, daos_event_t *ev);

/* Bytes. */
int dfs_get_size(dfs_t *dfs, dfs_obj_t *obj, daos_size_t *size);

/* Makes a hole. If it reaches the end of the file, the file ends at `offset` afterwards; behind the end
 * nothing happens. With `len` DFS_MAX_FSIZE the file ends at `offset`, also if it was shorter. */
int dfs_punch(dfs_t *dfs, dfs_obj_t *obj, daos_off_t offset, daos_size_t len);

/* Lists a directory, without "." and "..": `*nr` is the room in, the number of entries out. Only d_name is
 * set. The plus one also gets their attributes. */
int dfs_readdir(dfs_t *dfs, dfs_obj_t *obj, daos_anchor_t *anchor, uint32_t *nr, struct dirent *dirs);
int dfs_readdirplus(dfs_t *dfs, dfs_obj_t *obj, daos_anchor_t *anchor, uint32_t *nr, struct dirent *dirs,
		    struct stat *stbufs);

/* Called for each entry; nonzero ends the listing and is returned. */
typedef int (*dfs_filler_cb_t)(dfs_t *dfs, dfs_obj_t *obj, const char name[], void *arg);

/* Lists up to `*nr` entries, with `size` bytes for their names. */
int dfs_iterate(dfs_t *dfs, dfs_obj_t *obj, daos_anchor_t *anchor, uint32_t *nr, size_t size,
		dfs_filler_cb_t op, void *arg);

/* The anchor at which a listing goes on from a name. */
int dfs_dir_anchor_set(dfs_obj_t *obj, const char name[], daos_anchor_t *anchor);

/* Splits a listing: `*nr` parts, 0 for as many as there are; or the anchor of part `index`. */
int dfs_obj_anchor_split(dfs_obj_t *obj, uint32_t *nr, daos_anchor_t *anchors);
int dfs_obj_anchor_set(dfs_obj_t *obj, uint32_t index, daos_anchor_t *anchor);

int dfs_mkdir(dfs_t *dfs, dfs_obj_t *parent, const char *name, mode_t mode, daos_oclass_id_t cid);

/* Removes an entry: a file, a link, or a directory, which must be empty (ENOTEMPTY) unless forced. `oid`,
 * if not NULL, gets its object. */
int dfs_remove(dfs_t *dfs, dfs_obj_t *parent, const char *name, bool force, daos_obj_id_t *oid);

/* Renames and replaces. `oid`, if not NULL, gets the object that was replaced. */
int dfs_move(dfs_t *dfs, dfs_obj_t *parent, const char *name, dfs_obj_t *new_parent, const char *new_name,
	     daos_obj_id_t *oid);
int dfs_exchange(dfs_t *dfs, dfs_obj_t *parent1, const char *name1, dfs_obj_t *parent2,
		 const char *name2);

/* What is known of an open object. */
int dfs_obj2id(dfs_obj_t *obj, daos_obj_id_t *oid);
int dfs_get_mode(dfs_obj_t *obj, mode_t *mode);
int dfs_obj_get_info(dfs_t *dfs, dfs_obj_t *obj, dfs_obj_info_t *info);
int dfs_get_file_oh(dfs_obj_t *obj, daos_handle_t *oh);
int dfs_get_chunk_size(dfs_obj_t *obj, daos_size_t *chunk_size);
/* Where a symbolic link leads: `*size` is the room in, what it needs with the zero at the end out. */
int dfs_get_symlink_value(dfs_obj_t *obj, char *buf, daos_size_t *size);
int dfs_get_size_by_oid(dfs_t *dfs, daos_obj_id_t oid, daos_size_t chunk_size, daos_size_t *size);

/* What new entries of a directory get. `flags` is 0. */
int dfs_obj_set_oclass(dfs_t *dfs, dfs_obj_t *obj, int flags, daos_oclass_id_t cid);
int dfs_obj_set_chunk_size(dfs_t *dfs, dfs_obj_t *obj, int flags, daos_size_t csize);

/* After a move: `obj` is `name` in the parent of `src_obj`. */
int dfs_update_parent(dfs_obj_t *obj, dfs_obj_t *src_obj, const char *name);

/* Attributes. `parent` NULL is the root, and then `name` may be NULL too. */
int dfs_stat(dfs_t *dfs, dfs_obj_t *parent, const char *name, struct stat *stbuf);
int dfs_ostat(dfs_t *dfs, dfs_obj_t *obj, struct stat *stbuf);

#define DFS_SET_ATTR_MODE (1 << 0)
#define DFS_SET_ATTR_ATIME (1 << 1)
#define DFS_SET_ATTR_MTIME (1 << 2)
#define DFS_SET_ATTR_SIZE (1 << 3)
#define DFS_SET_ATTR_UID (1 << 4)
#define DFS_SET_ATTR_GID (1 << 5)

/* Sets attributes, DFS_SET_ATTR_*; `*stbuf` holds all of them afterwards. */
int dfs_osetattr(dfs_t *dfs, dfs_obj_t *obj, struct stat *stbuf, int flags);

/* Whether the caller may do something, as access(). */
int dfs_access(dfs_t *dfs, dfs_obj_t *parent, const char *name, int mask);
int dfs_chmod(dfs_t *dfs, dfs_obj_t *parent, const char *name, mode_t mode);
/* `flags`: O_NOFOLLOW. -1 leaves an owner as it is. */
int dfs_chown(dfs_t *dfs, dfs_obj_t *parent, const char *name, uid_t uid, gid_t gid, int flags);

/* Makes everything durable that was written before. */
int dfs_sync(dfs_t *dfs);

/* Extended attributes. `flags`: XATTR_CREATE, XATTR_REPLACE. Sizes are the room in, the length out; with a
 * NULL buffer only the length. ERANGE if the room is too small. */
int dfs_setxattr(dfs_t *dfs, dfs_obj_t *obj, const char *name, const void *value, daos_size_t size,
		 int flags);
int dfs_getxattr(dfs_t *dfs, dfs_obj_t *obj, const char *name, void *value, daos_size_t *size);
int dfs_removexattr(dfs_t *dfs, dfs_obj_t *obj, const char *name);
int dfs_listxattr(dfs_t *dfs, dfs_obj_t *obj, char *list, daos_size_t *size);

/* What dfs_cont_check() does with objects that no name leads to. */
enum {
	DFS_CHECK_PRINT = 1 << 0,
	DFS_CHECK_REMOVE = 1 << 1,
	DFS_CHECK_RELINK = 1 << 2,
	DFS_CHECK_VERIFY = 1 << 3,
	DFS_CHECK_EVICT_ALL = 1 << 4
};

int dfs_cont_check(daos_handle_t poh, const char *cont, uint64_t flags, const char *name);
int dfs_cont_scan(daos_handle_t poh, const char *cont, uint64_t flags, const char *name);
int dfs_cont_set_owner(daos_handle_t coh, d_string_t user, uid_t uid, d_string_t group, gid_t gid);

/* Conditions on entries, for dfs_readdir_with_filter(). */
typedef struct dfs_pipeline dfs_pipeline_t;

enum {
	DFS_FILTER_NAME = 1 << 1,
	DFS_FILTER_NEWER = 1 << 2,
	DFS_FILTER_INCLUDE_DIRS = 1 << 3
};

typedef struct {
	/* With % for any characters and _ for one. */
	char dp_name[DFS_MAX_NAME];
	time_t dp_newer;
	size_t dp_size;
} dfs_predicate_t;

int dfs_pipeline_create(dfs_t *dfs, dfs_predicate_t pred, uint64_t flags, dfs_pipeline_t **dpipe);
int dfs_pipeline_destroy(dfs_pipeline_t *dpipe);

/* Lists entries that meet the conditions. `oids` and `csizes` may be NULL. */
int dfs_readdir_with_filter(dfs_t *dfs, dfs_obj_t *obj, dfs_pipeline_t *dpipe, daos_anchor_t *anchor,
			    uint32_t *nr, struct dirent *dirs, daos_obj_id_t *oids, daos_size_t *csizes,
			    uint64_t *nr_scanned);

#ifdef __cplusplus
}
#endif

#endif
