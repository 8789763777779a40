/* The version of DAOS's API that these headers follow. */
#ifndef AZK_DAOS_VERSION_H
#define AZK_DAOS_VERSION_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DAOS_API_VERSION_MAJOR 2
#define DAOS_API_VERSION_MINOR 8
#define DAOS_API_VERSION_FIX 0

#define DAOS_VERSION_MAJOR 2
#define DAOS_VERSION_MINOR 9
#define DAOS_VERSION_FIX 100

#ifdef __cplusplus
}
#endif

#endif
