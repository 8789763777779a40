/* Arrays of cells of one size, cut into chunks that are spread over targets. */
#ifndef AZK_DAOS_ARRAY_H
#define AZK_DAOS_ARRAY_H

#include <daos_obj.h>
#include <daos_obj_class.h>
#include <daos_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* More ranges than this in one call, shorter than DAOS_ARRAY_RG_LEN_THD each, are refused. */
#define DAOS_ARRAY_LIST_IO_LIMIT 16384
#define DAOS_ARRAY_RG_LEN_THD 16

/* `rg_len` cells (bytes in files) from `rg_idx` on. */
typedef struct {
	daos_off_t rg_idx;
	daos_size_t rg_len;
} daos_range_t;

typedef struct {
	daos_size_t arr_nr;
	daos_range_t *arr_rgs;
	/* Out of a read: cells at the end that are beyond the array, and cells that were read. */
	daos_size_t arr_nr_short_read;
	daos_size_t arr_nr_read;
} daos_array_iod_t;

typedef struct {
	daos_size_t st_size;
	daos_epoch_t st_max_epoch;
} daos_array_stbuf_t;

/* An id for an array, whose cell and chunk size are stored with it if `add_attr`. */
static inline int daos_array_generate_oid(daos_handle_t coh, daos_obj_id_t *oid, bool add_attr,
					  daos_oclass_id_t cid, daos_oclass_hints_t hints, uint32_t args)
{
	return daos_obj_generate_oid(coh, oid, add_attr ? DAOS_OT_ARRAY : DAOS_OT_ARRAY_ATTR, cid, hints,
				     args);
}

/* Creates and opens an array. `cell_size` in bytes, `chunk_size` in cells, 0 for the default.
 * -DER_EXIST if it exists with other sizes. */
int daos_array_create(daos_handle_t coh, daos_obj_id_t oid, daos_handle_t th, daos_size_t cell_size,
		      daos_size_t chunk_size, daos_handle_t *oh, daos_event_t *ev);

/* Opens an array with stored sizes. -DER_NONEXIST if there is none. */
int daos_array_open(daos_handle_t coh, daos_obj_id_t oid, daos_handle_t th, unsigned int mode,
		    daos_size_t *cell_size, daos_size_t *chunk_size, daos_handle_t *oh, daos_event_t *ev);

/* Opens an array whose sizes the caller knows. */
int daos_array_open_with_attr(daos_handle_t coh, daos_obj_id_t oid, daos_handle_t th, unsigned int mode,
			      daos_size_t cell_size, daos_size_t chunk_size, daos_handle_t *oh,
			      daos_event_t *ev);

/* As daos_cont_local2global(). */
int daos_array_local2global(daos_handle_t oh, d_iov_t *glob);
int daos_array_global2local(daos_handle_t coh, d_iov_t glob, unsigned int mode, daos_handle_t *oh);

int daos_array_close(daos_handle_t oh, daos_event_t *ev);

/* Read and write. Ranges and memory are cut independently; their lengths in bytes are the same, or
 * -DER_INVAL. Holes read as zeros. */
int daos_array_read(daos_handle_t oh, daos_handle_t th, daos_array_iod_t *iod, d_sg_list_t *sgl,
		    daos_event_t *ev);
int daos_array_write(daos_handle_t oh, daos_handle_t th, daos_array_iod_t *iod, d_sg_list_t *sgl,
		     daos_event_t *ev);

/* Size in cells: the last written one, plus 1. */
int daos_array_get_size(daos_handle_t oh, daos_handle_t th, daos_size_t *size, daos_event_t *ev);
int daos_array_stat(daos_handle_t oh, daos_handle_t th, daos_array_stbuf_t *stbuf, daos_event_t *ev);
int daos_array_set_size(daos_handle_t oh, daos_handle_t th, daos_size_t size, daos_event_t *ev);

/* Destroys the array; the handle stays open. */
int daos_array_destroy(daos_handle_t oh, daos_handle_t th, daos_event_t *ev);

/* Makes holes. */
int daos_array_punch(daos_handle_t oh, daos_handle_t th, daos_array_iod_t *iod, daos_event_t *ev);

int daos_array_get_attr(daos_handle_t oh, daos_size_t *chunk_size, daos_size_t *cell_size);

/* For an array without data. */
int daos_array_update_chunk_size(daos_handle_t oh, daos_size_t chunk_size);

#ifdef __cplusplus
}
#endif

#endif
