/*
 * Levels of the log and the few functions that control it.
 *
 * The log goes to where the environment says: D_LOG_FILE (a path), D_LOG_MASK (a level: DEBUG, INFO,
 * NOTE, WARN, ERR, CRIT, ALRT, EMRG), DD_STDERR. Without D_LOG_FILE errors and above go to stderr.
 */
#ifndef AZK_GURT_DLOG_H
#define AZK_GURT_DLOG_H

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <azekura.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A level, or one of the debug bits below DLOG_INFO. */
typedef uint64_t d_dbug_t;

enum {
	DLOG_DBG = 0x00ffff00,
	DLOG_INFO = 0x01000000,
	DLOG_NOTE = 0x02000000,
	DLOG_WARN = 0x03000000,
	DLOG_ERR = 0x04000000,
	DLOG_CRIT = 0x05000000,
	DLOG_ALERT = 0x06000000,
	DLOG_EMERG = 0x07000000,
	DLOG_EMIT = 0x08000000
};

#define DLOG_PRISHIFT 24

/* Environment variables. */
#define D_LOG_FILE_ENV "D_LOG_FILE"
#define D_LOG_MASK_ENV "D_LOG_MASK"
#define DD_MASK_ENV "DD_MASK"
#define DD_STDERR_ENV "DD_STDERR"
#define DD_FAC_ENV "DD_SUBSYS"

/* Starts the log; daos_init() does it too. 0 or a negative error. */
int d_log_init(void);

typedef void (*d_log_id_cb_t)(uint32_t *xs_id, uint64_t *ult_id);

/* The same with a file and levels, instead of those of the environment. */
int d_log_init_adv(char *log_tag, char *log_file, unsigned int flavor, d_dbug_t def_mask,
		   d_dbug_t err_mask, d_log_id_cb_t id_cb);

/* Ends the log; what d_log_init() did is counted. */
void d_log_fini(void);

/* Not 0 when lines of this level are written. */
static inline int d_log_check(int flags)
{
	return azk_log_enabled((flags >> DLOG_PRISHIFT) & 15);
}

/* Writes out what is buffered. */
void d_log_sync(void);

/* Closes the file. */
void d_log_close(void);

/* Reads the levels from the environment again, or from text such as "ERR" or "DEBUG". */
void d_log_sync_mask(void);
void d_log_sync_mask_ex(const char *log_mask, const char *dd_mask);
int d_log_setmasks(const char *mstr, int mlen);

/* Logs bytes. */
void d_log_memory(const uint8_t *ptr, size_t size);

/* d_log_init() and d_log_fini(), under the names of DAOS's own programs. */
int daos_debug_init(char *logfile);
void daos_debug_fini(void);

/* Drops every further line. */
void d_log_disable_logging(void);

#ifdef __cplusplus
}
#endif

#endif
