/*
 * Names of debug bits and of facilities.
 *
 * There is one facility: what a program sets D_LOGFAC to is accepted and not looked at.
 */
#ifndef AZK_GURT_DEBUG_SETUP_H
#define AZK_GURT_DEBUG_SETUP_H

#include <gurt/dlog.h>

#ifndef DD_FAC
#define DD_FAC(name) d_##name##_logfac
#endif
#ifndef D_LOGFAC
#define D_LOGFAC DD_FAC(misc)
#endif

/* Debug bits: everything, anything, and kinds. */
#define DB_ALL ((d_dbug_t)DLOG_DBG)
#define DB_ANY ((d_dbug_t)0x00000100)
#define DB_TRACE ((d_dbug_t)0x00000200)
#define DB_MEM ((d_dbug_t)0x00000400)
#define DB_NET ((d_dbug_t)0x00000800)
#define DB_IO ((d_dbug_t)0x00001000)
#define DB_TEST ((d_dbug_t)0x00002000)

#endif
