/*
 * What programs ask a file on a DAOS mount by ioctl(). A mount of Azekura answers none of these
 * (ENOTTY): preload libazekura_intercept.so instead.
 */
#ifndef AZK_DFUSE_IOCTL_H
#define AZK_DFUSE_IOCTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/types.h>
#include <daos_types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DFUSE_IOCTL_TYPE 0xA3
#define DFUSE_IOCTL_VERSION 7
#define DFUSE_IOCTL_REPLY_BASE 0xC1
#define DFUSE_IOCTL_REPLY_CORE DFUSE_IOCTL_REPLY_BASE
#define DFUSE_IOCTL_REPLY_POH (DFUSE_IOCTL_REPLY_BASE + 2)
#define DFUSE_IOCTL_REPLY_COH (DFUSE_IOCTL_REPLY_BASE + 3)
#define DFUSE_IOCTL_REPLY_DOH (DFUSE_IOCTL_REPLY_BASE + 4)
#define DFUSE_IOCTL_REPLY_DOOH (DFUSE_IOCTL_REPLY_BASE + 5)
#define DFUSE_IOCTL_REPLY_SIZE (DFUSE_IOCTL_REPLY_BASE + 6)
#define DFUSE_IOCTL_REPLY_DSIZE (DFUSE_IOCTL_REPLY_BASE + 7)
#define DFUSE_IOCTL_REPLY_PFILE (DFUSE_IOCTL_REPLY_BASE + 8)
#define DFUSE_IOCTL_R_DFUSE_USER (DFUSE_IOCTL_REPLY_BASE + 9)
#define DFUSE_COUNT_QUERY_CMD (DFUSE_IOCTL_REPLY_BASE + 10)
#define DFUSE_IOCTL_EVICT_NR (DFUSE_IOCTL_REPLY_BASE + 11)
#define DFUSE_IOCTL_STAT_NR (DFUSE_IOCTL_REPLY_BASE + 12)

/* In fir_flags: the mount caches metadata of the file. */
#define DFUSE_IOCTL_FLAGS_MCACHE 0x1

struct dfuse_il_reply {
	int fir_version;
	daos_obj_id_t fir_oid;
	uuid_t fir_pool;
	uuid_t fir_cont;
	uint64_t fir_flags;
};

struct dfuse_hs_reply {
	int fsr_version;
	size_t fsr_pool_size;
	size_t fsr_cont_size;
	size_t fsr_dfs_size;
};

struct dfuse_hsd_reply {
	int fsr_version;
	size_t fsr_dobj_size;
};

struct dfuse_user_reply {
	uid_t uid;
	gid_t gid;
};

struct dfuse_mem_query {
	uint64_t inode_count;
	uint64_t fh_count;
	uint64_t pool_count;
	uint64_t container_count;
	ino_t ino;
	uint32_t stat_count;
	bool found;
};

struct dfuse_stat {
	uint64_t value;
	char name[16];
};

#define DFUSE_IOCTL_IL ((int)_IOR(DFUSE_IOCTL_TYPE, DFUSE_IOCTL_REPLY_CORE, struct dfuse_il_reply))
#define DFUSE_IOCTL_IL_SIZE \
	((int)_IOR(DFUSE_IOCTL_TYPE, DFUSE_IOCTL_REPLY_SIZE, struct dfuse_hs_reply))
#define DFUSE_IOCTL_IL_DSIZE \
	((int)_IOR(DFUSE_IOCTL_TYPE, DFUSE_IOCTL_REPLY_DSIZE, struct dfuse_hsd_reply))
#define DFUSE_IOCTL_DFUSE_USER \
	((int)_IOR(DFUSE_IOCTL_TYPE, DFUSE_IOCTL_R_DFUSE_USER, struct dfuse_user_reply))
#define DFUSE_IOCTL_COUNT_QUERY \
	((int)_IOWR(DFUSE_IOCTL_TYPE, DFUSE_COUNT_QUERY_CMD, struct dfuse_mem_query))
#define DFUSE_IOCTL_DFUSE_EVICT \
	((int)_IOR(DFUSE_IOCTL_TYPE, DFUSE_IOCTL_EVICT_NR, struct dfuse_mem_query))

#ifdef __cplusplus
}
#endif

#endif
