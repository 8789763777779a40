/* Arrays: making and opening, ranges against memory, holes and short reads, sizes, handles given
 * on, events, transactions. */
#include "store.h"

#define CELLS 100000

static daos_array_iod_t
ranges_of(daos_range_t *ranges, daos_size_t count)
{
	daos_array_iod_t iod;

	iod.arr_nr            = count;
	iod.arr_rgs           = ranges;
	iod.arr_nr_short_read = 99;
	iod.arr_nr_read       = 99;
	return iod;
}

int
main(int argc, char **argv)
{
	daos_obj_id_t      oid = {1, 2}, plain = {3, 2};
	daos_handle_t      oh, other, th;
	daos_size_t        cell = 0, chunk = 0, size = 1;
	unsigned char     *memory = (unsigned char *)malloc(CELLS * 8);
	unsigned char     *back   = (unsigned char *)malloc(CELLS * 8);
	d_iov_t            iovs[3], glob = {NULL, 0, 0};
	d_sg_list_t        sgl;
	daos_range_t       ranges[3];
	daos_array_iod_t   iod;
	daos_array_stbuf_t stat;
	daos_event_t       event;
	bool               done = false;

	CHECK_EQ(argc, 3);
	begin(argv[1], argv[2]);
	CHECK_EQ(daos_array_generate_oid(coh, &oid, true, OC_SX, 0, 0), 0);
	CHECK_EQ(daos_array_generate_oid(coh, &plain, false, OC_SX, 0, 0), 0);
	CHECK_EQ(daos_array_open(coh, oid, DAOS_TX_NONE, DAOS_OO_RW, &cell, &chunk, &oh, NULL), -DER_NONEXIST);
	CHECK_EQ(daos_array_create(coh, oid, DAOS_TX_NONE, 0, 1000, &oh, NULL), -DER_INVAL);
	CHECK_EQ(daos_array_create(coh, new_id(DAOS_OT_KV_HASHED, OC_S1), DAOS_TX_NONE, 8, 1000, &oh, NULL),
		 -DER_INVAL);
	CHECK_EQ(daos_array_create(coh_ro, oid, DAOS_TX_NONE, 8, 1000, &oh, NULL), -DER_NO_PERM);
	CHECK_EQ(daos_array_create(coh, oid, DAOS_TX_NONE, 8, 1000, &oh, NULL), 0);
	CHECK_EQ(daos_array_create(coh, oid, DAOS_TX_NONE, 8, 1000, &other, NULL), -DER_EXIST);
	CHECK_EQ(daos_array_get_size(oh, DAOS_TX_NONE, &size, NULL), 0);
	CHECK_EQ(size, 0);

	/* Ranges over many chunks, memory in other pieces. */
	fill(memory, CELLS * 8, 5);
	ranges[0].rg_idx = 500;
	ranges[0].rg_len = 60000;
	ranges[1].rg_idx = 3;
	ranges[1].rg_len = 10;
	ranges[2].rg_idx = 200000;
	ranges[2].rg_len = CELLS - 60010;
	iod              = ranges_of(ranges, 3);
	iovs[0]          = iov_of(memory, 13);
	iovs[1]          = iov_of(memory + 13, 400000);
	iovs[2]          = iov_of(memory + 400013, CELLS * 8 - 400013);
	sgl              = list_of(iovs, 3);
	CHECK_EQ(daos_array_write(oh, DAOS_TX_NONE, &iod, &sgl, NULL), 0);
	memset(back, 0xee, CELLS * 8);
	iovs[0] = iov_of(back, CELLS * 8 - 7);
	iovs[1] = iov_of(back + CELLS * 8 - 7, 7);
	sgl     = list_of(iovs, 2);
	CHECK_EQ(daos_array_read(oh, DAOS_TX_NONE, &iod, &sgl, NULL), 0);
	CHECK(memcmp(memory, back, CELLS * 8) == 0);
	CHECK_EQ(iod.arr_nr_short_read, 0);
	CHECK_EQ(iod.arr_nr_read, CELLS);
	CHECK_EQ(daos_array_get_size(oh, DAOS_TX_NONE, &size, NULL), 0);
	CHECK_EQ(size, 200000 + CELLS - 60010);
	CHECK_EQ(daos_array_stat(oh, DAOS_TX_NONE, &stat, NULL), 0);
	CHECK(stat.st_size == size && stat.st_max_epoch > 0);

	/* A hole, and the end. */
	ranges[0].rg_idx = size - 5;
	ranges[0].rg_len = 20;
	ranges[1].rg_idx = 100000;
	ranges[1].rg_len = 3;
	iod              = ranges_of(ranges, 2);
	iovs[0]          = iov_of(back, 23 * 8);
	sgl              = list_of(iovs, 1);
	memset(back, 0xee, 400);
	CHECK_EQ(daos_array_read(oh, DAOS_TX_NONE, &iod, &sgl, NULL), 0);
	CHECK_EQ(iod.arr_nr_short_read, 15);
	CHECK_EQ(iod.arr_nr_read, 8);
	CHECK(memcmp(back, memory + (CELLS - 5) * 8, 40) == 0);
	CHECK(back[5 * 8] == 0xee && back[20 * 8] == 0xee && back[23 * 8 - 1] == 0xee);
	/* Lengths that differ; nothing at all. */
	iovs[0] = iov_of(back, 23 * 8 - 1);
	CHECK_EQ(daos_array_read(oh, DAOS_TX_NONE, &iod, &sgl, NULL), -DER_INVAL);
	CHECK_EQ(daos_array_write(oh, DAOS_TX_NONE, &iod, &sgl, NULL), -DER_INVAL);
	iod = ranges_of(ranges, 0);
	sgl = list_of(NULL, 0);
	CHECK_EQ(daos_event_init(&event, DAOS_HDL_INVAL, NULL), 0);
	CHECK_EQ(daos_array_write(oh, DAOS_TX_NONE, &iod, &sgl, &event), 0);
	while (!done)
		CHECK_EQ(daos_event_test(&event, DAOS_EQ_WAIT, &done), 0);
	CHECK_EQ(event.ev_error, 0);
	CHECK_EQ(daos_array_read(oh, DAOS_TX_NONE, &iod, &sgl, NULL), 0);
	CHECK_EQ(iod.arr_nr_read, 0);
	/* With an event. */
	ranges[0].rg_idx = 1000000;
	ranges[0].rg_len = 1;
	iod              = ranges_of(ranges, 1);
	iovs[0]          = iov_of(memory, 8);
	sgl              = list_of(iovs, 1);
	CHECK_EQ(daos_array_write(oh, DAOS_TX_NONE, &iod, &sgl, &event), 0);
	for (done = false; !done;)
		CHECK_EQ(daos_event_test(&event, DAOS_EQ_NOWAIT, &done), 0);
	CHECK_EQ(event.ev_error, 0);
	CHECK_EQ(daos_event_fini(&event), 0);
	CHECK_EQ(daos_array_get_size(oh, DAOS_TX_NONE, &size, NULL), 0);
	CHECK_EQ(size, 1000001);
	CHECK_EQ(daos_array_set_size(oh, DAOS_TX_NONE, 1234, NULL), 0);
	CHECK_EQ(daos_array_get_size(oh, DAOS_TX_NONE, &size, NULL), 0);
	CHECK_EQ(size, 1234);
	ranges[0].rg_idx = 1200;
	ranges[0].rg_len = 10;
	iod              = ranges_of(ranges, 1);
	CHECK_EQ(daos_array_punch(oh, DAOS_TX_NONE, &iod, NULL), 0);
	ranges[0].rg_idx = 1199;
	ranges[0].rg_len = 12;
	iovs[0]          = iov_of(back, 12 * 8);
	sgl              = list_of(iovs, 1);
	memset(back, 0xee, 12 * 8);
	CHECK_EQ(daos_array_read(oh, DAOS_TX_NONE, &iod, &sgl, NULL), 0);
	CHECK_EQ(iod.arr_nr_read, 12);
	CHECK(memcmp(back, memory + (1199 - 500) * 8, 8) == 0 && back[8] == 0xee && back[87] == 0xee);
	CHECK(memcmp(back + 88, memory + (1210 - 500) * 8, 8) == 0);

	/* Given on. */
	CHECK_EQ(daos_array_local2global(oh, &glob), 0);
	CHECK(glob.iov_buf_len > 0);
	glob.iov_buf     = malloc(glob.iov_buf_len);
	glob.iov_buf_len = glob.iov_buf_len - 1;
	CHECK_EQ(daos_array_local2global(oh, &glob), -DER_TRUNC);
	glob.iov_len = glob.iov_buf_len;
	CHECK_EQ(daos_array_local2global(oh, &glob), 0);
	CHECK_EQ(daos_array_close(oh, NULL), 0);
	CHECK_EQ(daos_array_close(oh, NULL), -DER_NO_HDL);
	CHECK_EQ(daos_array_get_size(oh, DAOS_TX_NONE, &size, NULL), -DER_NO_HDL);
	CHECK_EQ(daos_array_global2local(coh, glob, DAOS_OO_RO, &oh), 0);
	CHECK_EQ(daos_array_get_attr(oh, &chunk, &cell), 0);
	CHECK(chunk == 1000 && cell == 8);
	CHECK_EQ(daos_array_read(oh, DAOS_TX_NONE, &iod, &sgl, NULL), 0);
	CHECK_EQ(daos_array_write(oh, DAOS_TX_NONE, &iod, &sgl, NULL), -DER_NO_PERM);
	CHECK_EQ(daos_array_close(oh, NULL), 0);
	((char *)glob.iov_buf)[0] ^= 1;
	CHECK_EQ(daos_array_global2local(coh, glob, DAOS_OO_RO, &oh), -DER_INVAL);
	free(glob.iov_buf);

	cell = chunk = 0;
	CHECK_EQ(daos_array_open(coh, oid, DAOS_TX_NONE, DAOS_OO_RW, &cell, &chunk, &oh, NULL), 0);
	CHECK(cell == 8 && chunk == 1000);
	CHECK_EQ(daos_array_destroy(oh, DAOS_TX_NONE, NULL), 0);
	CHECK_EQ(daos_array_close(oh, NULL), 0);
	CHECK_EQ(daos_array_open(coh, oid, DAOS_TX_NONE, DAOS_OO_RW, &cell, &chunk, &oh, NULL), -DER_NONEXIST);

	/* With sizes of the caller's, in a transaction: nothing is there before the commit, all of
	 * it after. */
	CHECK_EQ(daos_array_open_with_attr(coh, oid, DAOS_TX_NONE, DAOS_OO_RW, 1, 4096, &oh, NULL), -DER_INVAL);
	CHECK_EQ(daos_array_open_with_attr(coh, plain, DAOS_TX_NONE, DAOS_OO_RW, 1, 4096, &oh, NULL), 0);
	CHECK_EQ(daos_tx_open(coh, &th, 0, NULL), 0);
	ranges[0].rg_idx = 100;
	ranges[0].rg_len = 50000;
	iod              = ranges_of(ranges, 1);
	iovs[0]          = iov_of(memory, 50000);
	sgl              = list_of(iovs, 1);
	CHECK_EQ(daos_array_write(oh, th, &iod, &sgl, NULL), 0);
	CHECK_EQ(daos_array_get_size(oh, DAOS_TX_NONE, &size, NULL), 0);
	CHECK_EQ(size, 0);
	CHECK_EQ(daos_array_set_size(oh, th, 7, NULL), -DER_NOSYS);
	CHECK_EQ(daos_tx_commit(th, NULL), 0);
	CHECK_EQ(daos_tx_close(th, NULL), 0);
	memset(back, 0, 50000);
	iovs[0] = iov_of(back, 50000);
	CHECK_EQ(daos_array_read(oh, DAOS_TX_NONE, &iod, &sgl, NULL), 0);
	CHECK(memcmp(back, memory, 50000) == 0);
	CHECK_EQ(daos_array_update_chunk_size(oh, 0), -DER_INVAL);
	CHECK_EQ(daos_array_close(oh, NULL), 0);
	free(memory);
	free(back);
	end(argv[2]);
	return 0;
}
