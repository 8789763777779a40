/*
 * Filters and sums that engines would work out. Engines here run none: the types are there so that
 * programs compile; the functions return -DER_NOSYS.
 */
#ifndef AZK_DAOS_PIPELINE_H
#define AZK_DAOS_PIPELINE_H

#include <daos_obj.h>
#include <daos_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A function, a key or a constant of a filter. */
typedef struct {
	/* "DAOS_FILTER_FUNC_EQ", "DAOS_FILTER_AKEY", "DAOS_FILTER_CONST", ... */
	d_iov_t part_type;
	/* "DAOS_FILTER_TYPE_INTEGER4", "DAOS_FILTER_TYPE_STRING", ... */
	d_iov_t data_type;
	uint32_t num_operands;
	daos_key_t akey;
	size_t num_constants;
	d_iov_t *constant;
	size_t data_offset;
	size_t data_len;
} daos_filter_part_t;

/* "DAOS_FILTER_CONDITION" or "DAOS_FILTER_AGGREGATION", and its parts. */
typedef struct {
	d_iov_t filter_type;
	uint32_t num_parts;
	daos_filter_part_t **parts;
} daos_filter_t;

typedef struct {
	uint64_t version;
	uint32_t num_filters;
	daos_filter_t **filters;
	uint32_t num_aggr_filters;
	daos_filter_t **aggr_filters;
} daos_pipeline_t;

typedef struct {
	uint64_t nr_objs;
	uint64_t nr_dkeys;
	uint64_t nr_akeys;
} daos_pipeline_stats_t;

/* Empty ones. */
static inline void daos_pipeline_init(daos_pipeline_t *pipeline)
{
	memset(pipeline, 0, sizeof(*pipeline));
}

static inline void daos_filter_init(daos_filter_t *filter)
{
	memset(filter, 0, sizeof(*filter));
}

int daos_pipeline_add(daos_pipeline_t *pipeline, daos_filter_t *filter);
int daos_filter_add(daos_filter_t *filter, daos_filter_part_t *part);
int daos_pipeline_check(daos_pipeline_t *pipeline);
int daos_pipeline_free(daos_pipeline_t *pipeline);
int daos_pipeline_run(daos_handle_t coh, daos_handle_t oh, daos_pipeline_t *pipeline,
		      daos_handle_t th, uint64_t flags, daos_key_t *dkey, uint32_t *nr_iods,
		      daos_iod_t *iods, daos_anchor_t *anchor, uint32_t *nr_kds, daos_key_desc_t *kds,
		      d_sg_list_t *sgl_keys, d_sg_list_t *sgl_recx, daos_size_t *recx_size,
		      d_sg_list_t *sgl_agg, daos_pipeline_stats_t *stats, daos_event_t *ev);

#ifdef __cplusplus
}
#endif

#endif
