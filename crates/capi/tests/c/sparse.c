/* What is not there leaves the caller's memory alone: absent akeys beside large ones, holes, records
 * beyond the last. */
#include "store.h"

#define PAD 0xee

static daos_iod_t
iod_of(const char *akey, daos_iod_type_t type, daos_size_t bytes, daos_recx_t *recxs, uint32_t nr)
{
	daos_iod_t iod;

	memset(&iod, 0, sizeof(iod));
	iod.iod_name  = text_of(akey);
	iod.iod_type  = type;
	iod.iod_size  = bytes;
	iod.iod_recxs = recxs;
	iod.iod_nr    = nr;
	return iod;
}

static void
all_are(const unsigned char *memory, size_t bytes, unsigned char wanted)
{
	size_t at;

	for (at = 0; at < bytes; at++)
		CHECK_EQ(memory[at], wanted);
}

/* Several single values of more than a message holds were read into one row of memory; where one
 * was absent or shorter, its memory got the first bytes of the next. */
static void
absent_among_large(size_t bytes)
{
	daos_handle_t  oh     = open_obj(new_id(DAOS_OT_MULTI_HASHED, OC_S1));
	const char    *name[] = {"first", "absent", "short", "last"};
	size_t         stored[4], short_bytes = bytes / 3, total = 4 * bytes;
	unsigned char *value = (unsigned char *)malloc(bytes), *back = (unsigned char *)malloc(total);
	d_iov_t        key = text_of("d"), iovs[4];
	d_sg_list_t    sgls[4];
	daos_iod_t     iods[4];
	int            at;

	for (at = 0; at < 4; at++) {
		stored[at] = at == 1 ? 0 : at == 2 ? short_bytes : bytes;
		fill(value, stored[at], at);
		iovs[0] = iov_of(value, stored[at]);
		sgls[0] = list_of(iovs, 1);
		iods[0] = iod_of(name[at], DAOS_IOD_SINGLE, stored[at], NULL, 1);
		if (stored[at] > 0)
			CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, iods, sgls, NULL), 0);
	}
	memset(back, PAD, total);
	for (at = 0; at < 4; at++) {
		iovs[at] = iov_of(back + at * bytes, bytes);
		sgls[at] = list_of(&iovs[at], 1);
		iods[at] = iod_of(name[at], DAOS_IOD_SINGLE, DAOS_REC_ANY, NULL, 1);
	}
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &key, 4, iods, sgls, NULL, NULL), 0);
	for (at = 0; at < 4; at++) {
		CHECK_EQ(iods[at].iod_size, stored[at]);
		CHECK_EQ(iovs[at].iov_len, stored[at]);
		fill(value, stored[at], at);
		CHECK(memcmp(back + at * bytes, value, stored[at]) == 0);
		all_are(back + at * bytes + stored[at], bytes - stored[at], PAD);
	}
	free(value);
	free(back);
	CHECK_EQ(daos_obj_close(oh, NULL), 0);
}

/* Holes and records that were never written came as zeros. Memory in two pieces whose border is in
 * the middle of a record; records of several sizes, little and much of them. */
static void
holes(daos_size_t record, uint64_t run)
{
	daos_handle_t  oh   = open_obj(new_id(DAOS_OT_MULTI_HASHED, OC_S1));
	size_t         unit = record * run, total = 6 * unit, cut = 2 * unit + unit / 3;
	unsigned char *data = (unsigned char *)malloc(total), *back = (unsigned char *)malloc(total);
	d_iov_t        key = text_of("d"), iovs[2];
	daos_recx_t    written[2] = {{run, run}, {3 * run, run}}, asked[2] = {{0, 5 * run}, {run, run}};
	d_sg_list_t    sgl;
	daos_iod_t     iod = iod_of("a", DAOS_IOD_ARRAY, record, asked, 2);

	iovs[0] = iov_of(back, cut);
	iovs[1] = iov_of(back + cut, total - cut);
	sgl     = list_of(iovs, 2);
	memset(back, PAD, total);
	/* No dkey at all. */
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL, NULL), 0);
	CHECK_EQ(iod.iod_size, 0);
	all_are(back, total, PAD);

	fill(data, 2 * unit, 9);
	iovs[0] = iov_of(data, 2 * unit);
	sgl     = list_of(iovs, 1);
	iod     = iod_of("a", DAOS_IOD_ARRAY, record, written, 2);
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL), 0);

	iovs[0] = iov_of(back, cut);
	iovs[1] = iov_of(back + cut, total - cut);
	sgl     = list_of(iovs, 2);
	iod     = iod_of("a", DAOS_IOD_ARRAY, record, asked, 2);
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL, NULL), 0);
	CHECK_EQ(iod.iod_size, record);
	all_are(back, unit, PAD);
	CHECK(memcmp(back + unit, data, unit) == 0);
	all_are(back + 2 * unit, unit, PAD);
	CHECK(memcmp(back + 3 * unit, data + unit, unit) == 0);
	all_are(back + 4 * unit, unit, PAD);
	CHECK(memcmp(back + 5 * unit, data, unit) == 0);

	/* Only what is there: no hole in it. */
	asked[0] = written[1];
	memset(back, PAD, total);
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL, NULL), 0);
	CHECK(memcmp(back, data + unit, unit) == 0);
	CHECK(memcmp(back + unit, data, unit) == 0);
	all_are(back + 2 * unit, total - 2 * unit, PAD);

	/* Only what is not: as if there were no records. */
	asked[0].rx_idx = 100 * run;
	asked[1].rx_idx = 2 * run;
	memset(back, PAD, total);
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL, NULL), 0);
	CHECK_EQ(iod.iod_size, 0);
	all_are(back, total, PAD);

	free(data);
	free(back);
	CHECK_EQ(daos_obj_close(oh, NULL), 0);
}

/* Holes of arrays whose cells are more than a byte, and all that lies beyond the end, came as zeros
 * into memory that the caller had filled; zeros belong only into holes of an array of bytes. Runs of
 * cells are written into some places of chunks of 1000, and read with the holes around them, in one
 * range and in many, memory cut in the middle of a cell. */
static void
array_holes(bool of_bytes, daos_size_t cell, uint64_t run)
{
	uint64_t         cells = 8 * run, at, i, used = of_bytes ? cell * run : run;
	size_t           unit = cell * run, total = 8 * unit, cut = 3 * unit + unit / 3;
	unsigned char   *data = (unsigned char *)malloc(total), *back = (unsigned char *)malloc(total);
	unsigned char   *wanted = (unsigned char *)malloc(total);
	bool             written[8] = {false, true, false, false, true, true, false, false};
	daos_range_t     ranges[8];
	daos_array_iod_t iod;
	daos_handle_t    oh;
	daos_obj_id_t    oid;
	d_iov_t          iovs[2];
	d_sg_list_t      sgl;

	memset(&oid, 0, sizeof(oid));
	memset(&iod, 0, sizeof(iod));
	iod.arr_rgs = ranges;
	if (of_bytes) {
		oid = new_id(DAOS_OT_ARRAY_BYTE, OC_SX);
		CHECK_EQ(daos_array_open_with_attr(coh, oid, DAOS_TX_NONE, DAOS_OO_RW, 1, 1000 * cell, &oh,
						   NULL),
			 0);
		cells *= cell;
	} else {
		oid = new_id(DAOS_OT_ARRAY, OC_SX);
		CHECK_EQ(daos_array_create(coh, oid, DAOS_TX_NONE, cell, 1000, &oh, NULL), 0);
	}
	/* Nothing at all. */
	iovs[0]    = iov_of(back, cut);
	iovs[1]    = iov_of(back + cut, total - cut);
	sgl        = list_of(iovs, 2);
	iod.arr_nr = 1;
	ranges[0].rg_idx = 0;
	ranges[0].rg_len = cells;
	memset(back, PAD, total);
	CHECK_EQ(daos_array_read(oh, DAOS_TX_NONE, &iod, &sgl, NULL), 0);
	CHECK_EQ(iod.arr_nr_read, 0);
	CHECK_EQ(iod.arr_nr_short_read, cells);
	all_are(back, total, PAD);

	fill(data, total, 7);
	for (at = 0; at < 8; at++) {
		ranges[0].rg_idx = at * used;
		ranges[0].rg_len = used;
		iovs[0]          = iov_of(data + at * unit, unit);
		sgl              = list_of(iovs, 1);
		if (written[at])
			CHECK_EQ(daos_array_write(oh, DAOS_TX_NONE, &iod, &sgl, NULL), 0);
	}
	for (iod.arr_nr = 1; iod.arr_nr <= 8; iod.arr_nr += 7) {
		for (at = 0; at < iod.arr_nr; at++) {
			/* The last first. */
			ranges[at].rg_idx = (iod.arr_nr - 1 - at) * used;
			ranges[at].rg_len = cells / iod.arr_nr;
		}
		memset(wanted, PAD, total);
		for (at = 0; at < 8; at++) {
			i = iod.arr_nr == 8 ? 7 - at : at;
			if (written[i])
				memcpy(wanted + at * unit, data + i * unit, unit);
			else if (of_bytes && i < 5)
				memset(wanted + at * unit, 0, unit);
		}
		iovs[0] = iov_of(back, cut);
		iovs[1] = iov_of(back + cut, total - cut);
		sgl     = list_of(iovs, 2);
		memset(back, PAD, total);
		CHECK_EQ(daos_array_read(oh, DAOS_TX_NONE, &iod, &sgl, NULL), 0);
		CHECK_EQ(iod.arr_nr_read, 6 * used);
		CHECK_EQ(iod.arr_nr_short_read, 2 * used);
		CHECK(memcmp(back, wanted, total) == 0);
	}
	/* No hole; and one as long as all that is asked for. */
	iod.arr_nr       = 1;
	ranges[0].rg_idx = 4 * used;
	ranges[0].rg_len = 2 * used;
	iovs[0]          = iov_of(back, 2 * unit);
	sgl              = list_of(iovs, 1);
	CHECK_EQ(daos_array_read(oh, DAOS_TX_NONE, &iod, &sgl, NULL), 0);
	CHECK_EQ(iod.arr_nr_read, 2 * used);
	CHECK(memcmp(back, data + 4 * unit, 2 * unit) == 0);
	ranges[0].rg_idx = 2 * used;
	memset(back, PAD, total);
	CHECK_EQ(daos_array_read(oh, DAOS_TX_NONE, &iod, &sgl, NULL), 0);
	CHECK_EQ(iod.arr_nr_read, 2 * used);
	CHECK_EQ(iod.arr_nr_short_read, 0);
	all_are(back, 2 * unit, of_bytes ? 0 : PAD);

	CHECK_EQ(daos_array_close(oh, NULL), 0);
	free(data);
	free(back);
	free(wanted);
}

int
main(int argc, char **argv)
{
	CHECK_EQ(argc, 3);
	begin(argv[1], argv[2]);
	absent_among_large(100);
	absent_among_large(5000);
	absent_among_large(300000);
	holes(1, 10);
	holes(7, 5000);
	holes(8, 40000);
	holes(100000, 1);
	array_holes(false, 1, 10);
	array_holes(false, 8, 300);
	array_holes(false, 7, 3000);
	array_holes(false, 100, 1000);
	array_holes(false, 300, 900);
	array_holes(true, 1, 10);
	array_holes(true, 7, 3000);
	array_holes(true, 300, 900);
	end(argv[2]);
	return 0;
}
