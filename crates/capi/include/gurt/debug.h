/* Macros that log and assert. */
#ifndef AZK_GURT_DEBUG_H
#define AZK_GURT_DEBUG_H

#include <assert.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <azekura.h>
#include <daos_errno.h>
#include <gurt/debug_setup.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Formats a line and logs it. For the macros below. */
static inline void azk_logf(d_dbug_t flag, const char *file, int line, const char *func,
			    const char *fmt, ...) __attribute__((format(printf, 5, 6)));
static inline void azk_logf(d_dbug_t flag, const char *file, int line, const char *func,
			    const char *fmt, ...)
{
	int level = flag < DLOG_INFO ? 0 : (int)(flag >> DLOG_PRISHIFT) & 15;
	char text[1024];
	va_list args;

	if (!azk_log_enabled(level))
		return;
	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	azk_log_line(level, file, line, func, text);
}

/* The same with an error at the end of the line: a DAOS one, or an errno if `is_errno`. */
static inline void azk_log_error(d_dbug_t flag, const char *file, int line, const char *func,
				 int is_errno, int rc, const char *fmt, ...)
	__attribute__((format(printf, 7, 8)));
static inline void azk_log_error(d_dbug_t flag, const char *file, int line, const char *func,
				 int is_errno, int rc, const char *fmt, ...)
{
	char text[768];
	va_list args;

	if (!azk_log_enabled(flag < DLOG_INFO ? 0 : (int)(flag >> DLOG_PRISHIFT) & 15))
		return;
	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (is_errno)
		azk_logf(flag, file, line, func, "%s: %d (%s)\n", text, rc, strerror(rc));
	else
		azk_logf(flag, file, line, func, "%s: " DF_RC "\n", text, DP_RC(rc));
}

/* Log with a format and arguments as for printf, at a level or a debug bit. */
#define D_DEBUG(flag, ...) azk_logf(flag, __FILE__, __LINE__, __func__, __VA_ARGS__)
#define D_INFO(...) D_DEBUG(DLOG_INFO, __VA_ARGS__)
#define D_NOTE(...) D_DEBUG(DLOG_NOTE, __VA_ARGS__)
#define D_WARN(...) D_DEBUG(DLOG_WARN, __VA_ARGS__)
#define D_ERROR(...) D_DEBUG(DLOG_ERR, __VA_ARGS__)
#define D_CRIT(...) D_DEBUG(DLOG_CRIT, __VA_ARGS__)
#define D_ALERT(...) D_DEBUG(DLOG_ALERT, __VA_ARGS__)
#define D_FATAL(...) D_DEBUG(DLOG_EMERG, __VA_ARGS__)
#define D_EMIT(...) D_DEBUG(DLOG_EMIT, __VA_ARGS__)
#define D_CDEBUG(cond, flag_true, flag_false, ...) \
	D_DEBUG((cond) ? (d_dbug_t)(flag_true) : (d_dbug_t)(flag_false), __VA_ARGS__)
#define D_LOG_ENABLED(flag) \
	azk_log_enabled((flag) < DLOG_INFO ? 0 : (int)((flag) >> DLOG_PRISHIFT) & 15)

/* The same, and which object it is about. */
#define D_TRACE_DEBUG(flag, ptr, ...) ((void)(ptr), D_DEBUG(flag, __VA_ARGS__))
#define D_TRACE_INFO(ptr, ...) D_TRACE_DEBUG(DLOG_INFO, ptr, __VA_ARGS__)
#define D_TRACE_WARN(ptr, ...) D_TRACE_DEBUG(DLOG_WARN, ptr, __VA_ARGS__)
#define D_TRACE_ERROR(ptr, ...) D_TRACE_DEBUG(DLOG_ERR, ptr, __VA_ARGS__)

/* The same with a DAOS error (DL_) or an errno (DS_) at the end; the format has no newline. */
#define AZK_LOG_ERROR(flag, is_errno, rc, ...) \
	azk_log_error(flag, __FILE__, __LINE__, __func__, is_errno, rc, __VA_ARGS__)
#define DL_INFO(rc, ...) AZK_LOG_ERROR(DLOG_INFO, 0, rc, __VA_ARGS__)
#define DL_WARN(rc, ...) AZK_LOG_ERROR(DLOG_WARN, 0, rc, __VA_ARGS__)
#define DL_ERROR(rc, ...) AZK_LOG_ERROR(DLOG_ERR, 0, rc, __VA_ARGS__)
#define DL_CDEBUG(cond, flag_true, flag_false, rc, ...) \
	AZK_LOG_ERROR((cond) ? (d_dbug_t)(flag_true) : (d_dbug_t)(flag_false), 0, rc, __VA_ARGS__)
#define DS_INFO(rc, ...) AZK_LOG_ERROR(DLOG_INFO, 1, rc, __VA_ARGS__)
#define DS_WARN(rc, ...) AZK_LOG_ERROR(DLOG_WARN, 1, rc, __VA_ARGS__)
#define DS_ERROR(rc, ...) AZK_LOG_ERROR(DLOG_ERR, 1, rc, __VA_ARGS__)
#define DHL_INFO(desc, rc, ...) ((void)(desc), DL_INFO(rc, __VA_ARGS__))
#define DHL_WARN(desc, rc, ...) ((void)(desc), DL_WARN(rc, __VA_ARGS__))
#define DHL_ERROR(desc, rc, ...) ((void)(desc), DL_ERROR(rc, __VA_ARGS__))
#define DHS_INFO(desc, rc, ...) ((void)(desc), DS_INFO(rc, __VA_ARGS__))
#define DHS_WARN(desc, rc, ...) ((void)(desc), DS_WARN(rc, __VA_ARGS__))
#define DHS_ERROR(desc, rc, ...) ((void)(desc), DS_ERROR(rc, __VA_ARGS__))

/* Print to stdout or stderr and flush. */
#define D_PRINT(...) ((void)printf(__VA_ARGS__), (void)fflush(stdout))
#define D_PRINT_ERR(...) ((void)fprintf(stderr, __VA_ARGS__), (void)fflush(stderr))

/* Called by D_ASSERT before the program is aborted, if not NULL; it may jump away. */
extern void (*d_alt_assert)(const int result, const char *expression, const char *file, const int line);

/* Sets d_alt_assert. 0, or -DER_INVAL for NULL. */
int d_register_alt_assert(void (*alt_assert)(const int result, const char *expression,
					     const char *file, const int line));

/* Ends the program because of an assertion that failed. */
static inline void azk_assert_failed(const char *expression, const char *file, int line, const char *func)
{
	azk_logf(DLOG_EMERG, file, line, func, "assertion failed: %s\n", expression);
	if (d_alt_assert != NULL)
		d_alt_assert(0, expression, file, line);
	fprintf(stderr, "%s:%d: %s: assertion failed: %s\n", file, line, func, expression);
	abort();
}

#define D_ASSERT(e)                                                           \
	do {                                                                  \
		if (!(e))                                                     \
			azk_assert_failed(#e, __FILE__, __LINE__, __func__);  \
	} while (0)
#define D_ASSERTF(cond, ...)                                                    \
	do {                                                                    \
		if (!(cond)) {                                                  \
			D_FATAL(__VA_ARGS__);                                   \
			azk_assert_failed(#cond, __FILE__, __LINE__, __func__); \
		}                                                               \
	} while (0)
#ifdef __cplusplus
#define D_CASSERT(cond, ...) static_assert(cond, #cond)
#else
#define D_CASSERT(cond, ...) _Static_assert(cond, #cond)
#endif

/* 64-bit integers for printf. */
#define DF_U64 "%" PRIu64
#define DF_X64 "%" PRIx64

#ifdef __cplusplus
}
#endif

#endif
