/* Transactions, anchors, times, and lists of ranks as text. */
#ifndef AZK_DAOS_API_H
#define AZK_DAOS_API_H

#include <time.h>
#include <daos_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of daos_tx_open(). */
enum {
	/* Only reads. */
	DAOS_TF_RDONLY = 1 << 0,
	/* Buffers of updates stay as they are until the commit. */
	DAOS_TF_ZERO_COPY = 1 << 1
};

/* Ranks from text such as "0:3:7" with separators `sep`; to be freed with d_rank_list_free().
 * NULL if it cannot be read. */
d_rank_list_t *daos_rank_list_parse(const char *str, const char *sep);

/* Begins a transaction. Updates are kept until the commit; reads see one moment. */
int daos_tx_open(daos_handle_t coh, daos_handle_t *th, uint64_t flags, daos_event_t *ev);

/* Makes all updates visible at once. -DER_TX_RESTART if another transaction came in between. */
int daos_tx_commit(daos_handle_t th, daos_event_t *ev);

/* A transaction that reads a snapshot. */
int daos_tx_open_snap(daos_handle_t coh, daos_epoch_t epoch, daos_handle_t *th, daos_event_t *ev);

/* Drops all updates. */
int daos_tx_abort(daos_handle_t th, daos_event_t *ev);

/* Closes the handle, after commit or abort. */
int daos_tx_close(daos_handle_t th, daos_event_t *ev);

/* Begins the same transaction anew, after -DER_TX_RESTART. */
int daos_tx_restart(daos_handle_t th, daos_event_t *ev);

/* The moment that a transaction reads, or was committed at. */
int daos_tx_hdl2epoch(daos_handle_t th, daos_epoch_t *epoch);

/* Prepares an anchor. 0. */
static inline int daos_anchor_init(daos_anchor_t *anchor, unsigned int opts)
{
	(void)opts;
	memset(anchor, 0, sizeof(*anchor));
	return 0;
}

static inline void daos_anchor_fini(daos_anchor_t *anchor)
{
	(void)anchor;
}

/* Whether the listing has come to its end. */
static inline bool daos_anchor_is_eof(daos_anchor_t *anchor)
{
	return anchor->da_type == DAOS_ANCHOR_TYPE_EOF;
}

/* A hybrid logical clock as time since 1970. 0 or -DER_INVAL. */
int daos_hlc2timespec(uint64_t hlc, struct timespec *ts);
int daos_hlc2timestamp(uint64_t hlc, time_t *ts);

#ifdef __cplusplus
}
#endif

#endif
