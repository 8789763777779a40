/*
 * The file system by path: like system calls, with a cache of open directories.
 *
 * Paths begin at the root of the container. `flags`: O_NOFOLLOW for the last component. All functions
 * return 0 or an errno.
 */
#ifndef AZK_DAOS_FS_SYS_H
#define AZK_DAOS_FS_SYS_H

#include <dirent.h>
#include <time.h>
#include <daos.h>
#include <daos_fs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* sflags of a mount: without the cache; without locks, if only one thread uses it. */
#define DFS_SYS_NO_CACHE 1
#define DFS_SYS_NO_LOCK 2

typedef struct dfs_sys dfs_sys_t;

/* Mounts; as the functions of daos_fs.h. */
int dfs_sys_connect(const char *pool, const char *sys, const char *cont, int mflags, int sflags,
		    dfs_attr_t *attr, dfs_sys_t **dfs_sys);
int dfs_sys_disconnect(dfs_sys_t *dfs_sys);
int dfs_sys_mount(daos_handle_t poh, daos_handle_t coh, int mflags, int sflags, dfs_sys_t **dfs_sys);
int dfs_sys_umount(dfs_sys_t *dfs_sys);
int dfs_sys_local2global_all(dfs_sys_t *dfs_sys, d_iov_t *glob);
int dfs_sys_global2local_all(int mflags, int sflags, d_iov_t glob, dfs_sys_t **dfs_sys);
int dfs_sys_local2global(dfs_sys_t *dfs_sys, d_iov_t *glob);
int dfs_sys_global2local(daos_handle_t poh, daos_handle_t coh, int mflags, int sflags, d_iov_t glob,
			 dfs_sys_t **dfs_sys);
int dfs_sys_set_prefix(dfs_sys_t *dfs_sys, const char *prefix);
/* The mount below. It stays that of `dfs_sys`. */
int dfs_sys2base(dfs_sys_t *dfs_sys, dfs_t **dfs);

/* Attributes. */
int dfs_sys_access(dfs_sys_t *dfs_sys, const char *path, int mask, int flags);
int dfs_sys_chmod(dfs_sys_t *dfs_sys, const char *path, mode_t mode);
int dfs_sys_chown(dfs_sys_t *dfs_sys, const char *path, uid_t uid, gid_t gid, int flags);
/* `flags`: DFS_SET_ATTR_*; `sflags`: O_NOFOLLOW. */
int dfs_sys_setattr(dfs_sys_t *dfs_sys, const char *path, struct stat *stbuf, int flags, int sflags);
int dfs_sys_utimens(dfs_sys_t *dfs_sys, const char *path, const struct timespec times[2], int flags);
int dfs_sys_stat(dfs_sys_t *dfs_sys, const char *path, int flags, struct stat *stbuf);

/* Extended attributes; sizes as in daos_fs.h. */
int dfs_sys_listxattr(dfs_sys_t *dfs_sys, const char *path, char *list, daos_size_t *size, int flags);
int dfs_sys_getxattr(dfs_sys_t *dfs_sys, const char *path, const char *name, void *value,
		     daos_size_t *size, int flags);
int dfs_sys_setxattr(dfs_sys_t *dfs_sys, const char *path, const char *name, const void *value,
		     daos_size_t size, int flags, int sflags);
int dfs_sys_removexattr(dfs_sys_t *dfs_sys, const char *path, const char *name, int flags);

/* Names. */
int dfs_sys_mknod(dfs_sys_t *dfs_sys, const char *path, mode_t mode, daos_oclass_id_t cid,
		  daos_size_t chunk_size);
int dfs_sys_mkdir(dfs_sys_t *dfs_sys, const char *dir, mode_t mode, daos_oclass_id_t cid);
/* With all parents that are missing. */
int dfs_sys_mkdir_p(dfs_sys_t *dfs_sys, const char *dir_path, mode_t mode, daos_oclass_id_t cid);
int dfs_sys_symlink(dfs_sys_t *dfs_sys, const char *target, const char *path);
/* `*size` is the room in, what the value needs with the zero at the end out. */
int dfs_sys_readlink(dfs_sys_t *dfs_sys, const char *path, char *buf, daos_size_t *size);
int dfs_sys_remove(dfs_sys_t *dfs_sys, const char *path, bool force, daos_obj_id_t *oid);
/* Only if it is of this type: S_IFREG, S_IFDIR, S_IFLNK. */
int dfs_sys_remove_type(dfs_sys_t *dfs_sys, const char *path, bool force, mode_t mode,
			daos_obj_id_t *oid);

/* Files. `*size` is how much to transfer in, how much was out. */
int dfs_sys_open(dfs_sys_t *dfs_sys, const char *path, mode_t mode, int flags, daos_oclass_id_t cid,
		 daos_size_t chunk_size, const char *value, dfs_obj_t **obj);
int dfs_sys_close(dfs_obj_t *obj);
int dfs_sys_read(dfs_sys_t *dfs_sys, dfs_obj_t *obj, void *buf, daos_off_t off, daos_size_t *size,
		 daos_event_t *ev);
int dfs_sys_write(dfs_sys_t *dfs_sys, dfs_obj_t *obj, const void *buf, daos_off_t off, daos_size_t *size,
		  daos_event_t *ev);
int dfs_sys_punch(dfs_sys_t *dfs_sys, const char *path, daos_off_t offset, daos_off_t len);

/* Directories. `*dirent` is NULL at the end, and else valid until the next call. The DIR is only for
 * these functions. */
int dfs_sys_opendir(dfs_sys_t *dfs_sys, const char *dir, int flags, DIR **dirp);
int dfs_sys_closedir(DIR *dirp);
int dfs_sys_readdir(dfs_sys_t *dfs_sys, DIR *dirp, struct dirent **dirent);

#ifdef __cplusplus
}
#endif

#endif
