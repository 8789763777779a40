/* Debug bits and formats of DAOS's own programs. All bits are the one debug level of the log. */
#ifndef AZK_DAOS_DEBUG_H
#define AZK_DAOS_DEBUG_H

#include <daos_errno.h>
#include <daos_types.h>
#include <gurt/common.h>
#include <gurt/debug.h>

#ifndef DB_ALL
#define DB_ALL ((d_dbug_t)DLOG_DBG)
#endif
#ifndef DB_ANY
#define DB_ANY DB_ALL
#endif
#ifndef DB_TRACE
#define DB_TRACE DB_ALL
#endif
#ifndef DB_MEM
#define DB_MEM DB_ALL
#endif
#ifndef DB_NET
#define DB_NET DB_ALL
#endif
#ifndef DB_IO
#define DB_IO DB_ALL
#endif
#ifndef DB_MD
#define DB_MD DB_ALL
#endif
#ifndef DB_PL
#define DB_PL DB_ALL
#endif
#ifndef DB_MGMT
#define DB_MGMT DB_ALL
#endif
#ifndef DB_EPC
#define DB_EPC DB_ALL
#endif
#ifndef DB_DF
#define DB_DF DB_ALL
#endif
#ifndef DB_REBUILD
#define DB_REBUILD DB_ALL
#endif
#ifndef DB_SEC
#define DB_SEC DB_ALL
#endif
#ifndef DB_CSUM
#define DB_CSUM DB_ALL
#endif

/* Some texts of uuids that are good until the same thread asks for eight more. */
static inline const char *azk_uuid_text(const uuid_t uuid)
{
	static __thread char texts[8][37];
	static __thread unsigned int next;
	char *text = texts[next++ % 8];

	uuid_unparse_lower(uuid, text);
	return text;
}

#define DF_UUID "%.8s"
#define DF_UUIDF "%s"
#define DP_UUID(uuid) azk_uuid_text(uuid)
#define DF_OID DF_U64 "." DF_U64
#define DP_OID(o) (o).hi, (o).lo
#define DF_CONT DF_UUID "/" DF_UUID
#define DP_CONT(puuid, cuuid) DP_UUID(puuid), DP_UUID(cuuid)

#endif
