/* Everything but the file system: pools, containers, objects, arrays, key-value stores, events. */
#ifndef AZK_DAOS_H
#define AZK_DAOS_H

#include <daos_version.h>
#include <daos_types.h>
#include <daos_event.h>
#include <daos_obj.h>
#include <daos_array.h>
#include <daos_kv.h>
#include <daos_prop.h>
#include <daos_cont.h>
#include <daos_pool.h>
#include <daos_mgmt.h>
#include <daos_security.h>
#include <daos_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Prepares the library. Counted: each call needs a daos_fini(). The system is the one that
 * AZEKURA_SYSTEM names, or the default one of `azekura up`. 0 or a negative DAOS error. */
int daos_init(void);

/* Undoes one daos_init(); the last one closes all handles. */
int daos_fini(void);

/* After fork(), in the child: forgets the parent's connections and handles and connects anew. */
int daos_reinit(void);

#ifdef __cplusplus
}
#endif

#endif
