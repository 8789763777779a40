/* Version and extensions of this library. Everything else has DAOS's names, in daos.h and its kin. */
#ifndef AZK_AZEKURA_H
#define AZK_AZEKURA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of these headers. */
#define AZK_VERSION_MAJOR 0
#define AZK_VERSION_MINOR 1
#define AZK_VERSION_PATCH 0
#define AZK_VERSION_STRING "0.1.0"

/* Bits of azk_features(). */
enum {
	/* The dfs_* and dfs_sys_* functions work. */
	AZK_FEATURE_DFS = 1 << 0,
	/* The daos_obj_*, daos_array_* and daos_kv_* functions work. */
	AZK_FEATURE_OBJECTS = 1 << 1,
	/* Transactions work. */
	AZK_FEATURE_TX = 1 << 2,
	/* Snapshots work. */
	AZK_FEATURE_SNAPSHOTS = 1 << 3,
	/* Object classes with five lost members to spare, RP_6, may be used. */
	AZK_FEATURE_RF5 = 1 << 4,
};

/* Version of the library that is loaded, e.g. "0.1.0". Static memory. */
const char *azk_version(void);

/* What the library that is loaded can do, AZK_FEATURE_* bits. */
uint64_t azk_features(void);

/* Patience of azk_set_patience(): operations wait until the engines answer. */
#define AZK_PATIENCE_HARD UINT32_MAX

/* How long an operation waits for an engine that does not answer, seconds; then it fails with -DER_TIMEDOUT
 * (ETIMEDOUT). AZK_PATIENCE_HARD: for ever. Without it the environment variable AZEKURA_PATIENCE decides ("hard" or seconds),
 * else it is 60 seconds. For threads that use the library for the first time after the call: call it right after daos_init(),
 * or before. Returns 0, or -DER_INVAL for 0 seconds. */
int azk_set_patience(uint32_t seconds);

/* Whether a line of this level would go anywhere. Levels: 0 debug, 1 information, 2 note, 3 warning,
 * 4 error, 5 critical, 6 alert, 7 fatal, 8 always. */
int azk_log_enabled(int level);

/* Logs one line; `text` may end in a newline. */
void azk_log_line(int level, const char *file, int line, const char *func, const char *text);

#ifdef __cplusplus
}
#endif

#endif
