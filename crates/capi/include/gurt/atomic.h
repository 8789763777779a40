/* Atomic integers of C11 under the names that users of gurt know. */
#ifndef AZK_GURT_ATOMIC_H
#define AZK_GURT_ATOMIC_H

#ifdef __cplusplus
#define ATOMIC
#else
#include <stdatomic.h>
#define ATOMIC _Atomic
#endif

#define atomic_store_release(ptr, value) atomic_store_explicit(ptr, value, memory_order_release)
#define atomic_store_relaxed(ptr, value) atomic_store_explicit(ptr, value, memory_order_relaxed)
#define atomic_load_relaxed(ptr) atomic_load_explicit(ptr, memory_order_relaxed)
#define atomic_fetch_add_relaxed(ptr, value) atomic_fetch_add_explicit(ptr, value, memory_order_relaxed)
#define atomic_fetch_sub_relaxed(ptr, value) atomic_fetch_sub_explicit(ptr, value, memory_order_relaxed)

#endif
