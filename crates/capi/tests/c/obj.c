/* Objects: ids, updates and fetches with every shape of descriptor, conditions, punches, listings,
 * queries, wrong handles. */
#include "store.h"

#define MIB ((size_t)1 << 20)

static daos_iod_t
single(const char *akey, daos_size_t bytes)
{
	daos_iod_t iod;

	memset(&iod, 0, sizeof(iod));
	iod.iod_name = text_of(akey);
	iod.iod_type = DAOS_IOD_SINGLE;
	iod.iod_size = bytes;
	iod.iod_nr   = 1;
	return iod;
}

static daos_iod_t
array(const char *akey, daos_size_t bytes, daos_recx_t *recxs, uint32_t nr)
{
	daos_iod_t iod = single(akey, bytes);

	iod.iod_type  = DAOS_IOD_ARRAY;
	iod.iod_recxs = recxs;
	iod.iod_nr    = nr;
	return iod;
}

/* Writes a text as a single value. */
static int
put(daos_handle_t oh, uint64_t flags, const char *dkey, const char *akey, const char *value)
{
	d_iov_t     key = text_of(dkey), iov = text_of(value);
	d_sg_list_t sgl = list_of(&iov, 1);
	daos_iod_t  iod = single(akey, strlen(value));

	return daos_obj_update(oh, DAOS_TX_NONE, flags, &key, 1, &iod, &sgl, NULL);
}

/* Reads it; "" when it is not there. */
static int
get(daos_handle_t oh, uint64_t flags, const char *dkey, const char *akey, char *value, size_t room)
{
	d_iov_t     key = text_of(dkey), iov = iov_of(value, room - 1);
	d_sg_list_t sgl = list_of(&iov, 1);
	daos_iod_t  iod = single(akey, DAOS_REC_ANY);
	int         rc  = daos_obj_fetch(oh, DAOS_TX_NONE, flags, &key, 1, &iod, &sgl, NULL, NULL);

	if (rc == 0) {
		value[iod.iod_size] = '\0';
		CHECK_EQ(sgl.sg_nr_out, iod.iod_size > 0);
		CHECK_EQ(iov.iov_len, iod.iod_size);
	}
	return rc;
}

static void
ids(void)
{
	daos_obj_id_t oid = new_id(DAOS_OT_MULTI_HASHED, OC_SX);
	daos_handle_t oh;

	CHECK_EQ(oid.hi & 0xffffffff, 7);
	CHECK_EQ(daos_obj_id2type(oid), DAOS_OT_MULTI_HASHED);
	CHECK_EQ(daos_obj_id2class(oid), OC_SX);
	CHECK_EQ(daos_obj_id2grp_nr(oid), MAX_NUM_GROUPS);
	oid = new_id(DAOS_OT_KV_HASHED, OC_UNKNOWN);
	CHECK(daos_is_kv(oid));
	CHECK_EQ(daos_obj_id2class(oid), OC_SX);
	oid = new_id(DAOS_OT_ARRAY_BYTE, OC_S2);
	CHECK_EQ(daos_obj_id2class(oid), OC_S2);
	CHECK_EQ(daos_obj_generate_oid(coh, &oid, (enum daos_otype_t)99, OC_S1, 0, 0), -DER_INVAL);
	CHECK_EQ(daos_obj_generate_oid(coh, &oid, DAOS_OT_MULTI_HASHED, 0x7000001, 0, 0), -DER_INVAL);
	CHECK_EQ(daos_obj_generate_oid(coh, NULL, DAOS_OT_MULTI_HASHED, OC_S1, 0, 0), -DER_INVAL);
	CHECK_EQ(daos_obj_generate_oid(poh, &oid, DAOS_OT_MULTI_HASHED, OC_S1, 0, 0), -DER_NO_HDL);
	CHECK_EQ(daos_obj_generate_oid(coh, &oid, DAOS_OT_MULTI_HASHED, OC_EC_16P2G1, 0, 0), -DER_INVAL);

	oid = new_id(DAOS_OT_MULTI_HASHED, OC_S1);
	CHECK_EQ(daos_obj_open(coh, oid, DAOS_OO_RW, NULL, NULL), -DER_INVAL);
	CHECK_EQ(daos_obj_open(coh, oid, DAOS_OO_RW | DAOS_OO_RO, &oh, NULL), -DER_INVAL);
	CHECK_EQ(daos_obj_open(coh_ro, oid, DAOS_OO_RW, &oh, NULL), -DER_NO_PERM);
	CHECK_EQ(daos_obj_open(DAOS_HDL_INVAL, oid, DAOS_OO_RW, &oh, NULL), -DER_NO_HDL);
	CHECK_EQ(daos_obj_open(coh, oid, DAOS_OO_RO, &oh, NULL), 0);
	CHECK_EQ(put(oh, 0, "d", "a", "v"), -DER_NO_PERM);
	CHECK_EQ(daos_obj_punch(oh, DAOS_TX_NONE, 0, NULL), -DER_NO_PERM);
	CHECK_EQ(daos_obj_close(oh, NULL), 0);
	CHECK_EQ(daos_obj_close(oh, NULL), -DER_NO_HDL);
	CHECK_EQ(put(oh, 0, "d", "a", "v"), -DER_NO_HDL);
	CHECK_EQ(daos_obj_close(coh, NULL), -DER_NO_HDL);
	CHECK_EQ(daos_obj_verify(coh, oid, DAOS_EPOCH_MAX), 0);
}

static void
single_values(void)
{
	daos_handle_t  oh = open_obj(new_id(DAOS_OT_MULTI_HASHED, OC_SX));
	char           value[64];
	unsigned char *big = (unsigned char *)malloc(3 * MIB), *back = (unsigned char *)malloc(3 * MIB);
	d_iov_t        key = text_of("big"), iovs[3];
	d_sg_list_t    sgl;
	daos_iod_t     iod;
	daos_epoch_t   epoch = 1;

	CHECK_EQ(get(oh, 0, "d", "a", value, sizeof(value)), 0);
	CHECK_STR(value, "");
	CHECK_EQ(daos_obj_query_max_epoch(oh, DAOS_TX_NONE, &epoch, NULL), 0);
	CHECK_EQ(epoch, 0);
	CHECK_EQ(put(oh, 0, "d", "a", "first"), 0);
	CHECK_EQ(put(oh, 0, "d", "a", "second, longer"), 0);
	CHECK_EQ(get(oh, 0, "d", "a", value, sizeof(value)), 0);
	CHECK_STR(value, "second, longer");
	CHECK_EQ(daos_obj_query_max_epoch(oh, DAOS_TX_NONE, &epoch, NULL), 0);
	CHECK(epoch > 0);

	/* Too little room: the size is told. */
	iovs[0] = iov_of(value, 5);
	sgl     = list_of(iovs, 1);
	iod     = single("a", DAOS_REC_ANY);
	key     = text_of("d");
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL, NULL), -DER_REC2BIG);
	CHECK_EQ(iod.iod_size, strlen("second, longer"));
	/* No memory: only the size is asked for; by no lists, and by an empty one. */
	iod = single("a", DAOS_REC_ANY);
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &key, 1, &iod, NULL, NULL, NULL), 0);
	CHECK_EQ(iod.iod_size, strlen("second, longer"));
	iod = single("a", DAOS_REC_ANY);
	sgl = list_of(NULL, 0);
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL, NULL), 0);
	CHECK_EQ(iod.iod_size, strlen("second, longer"));

	/* A large value over three pieces, read into other pieces. */
	fill(big, 3 * MIB, 1);
	key     = text_of("big");
	iovs[0] = iov_of(big, 1000);
	iovs[1] = iov_of(big + 1000, 2 * MIB);
	iovs[2] = iov_of(big + 1000 + 2 * MIB, 500);
	sgl     = list_of(iovs, 3);
	iod     = single("v", 2 * MIB + 1500);
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL), 0);
	memset(back, 0, 3 * MIB);
	iovs[0] = iov_of(back, MIB);
	iovs[1] = iov_of(back + MIB, 7);
	iovs[2] = iov_of(back + MIB + 7, 2 * MIB - 7);
	sgl     = list_of(iovs, 3);
	iod     = single("v", DAOS_REC_ANY);
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL, NULL), 0);
	CHECK_EQ(iod.iod_size, 2 * MIB + 1500);
	CHECK_EQ(sgl.sg_nr_out, 3);
	CHECK_EQ(iovs[2].iov_len, MIB + 1500 - 7);
	CHECK(memcmp(big, back, 2 * MIB + 1500) == 0);
	/* More named than given. */
	iovs[0] = iov_of(big, 1000);
	sgl     = list_of(iovs, 1);
	iod     = single("v", 1001);
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL), -DER_REC2BIG);
	/* iod_size 0 removes. */
	iod = single("v", 0);
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, &iod, NULL, NULL), 0);
	iod = single("v", 1);
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &key, 1, &iod, NULL, NULL, NULL), 0);
	CHECK_EQ(iod.iod_size, 0);
	CHECK_EQ(daos_obj_close(oh, NULL), 0);
	free(big);
	free(back);
}

static void
several_values(void)
{
	daos_handle_t  oh = open_obj(new_id(DAOS_OT_MULTI_HASHED, OC_S1));
	unsigned char *memory = (unsigned char *)malloc(MIB), *back = (unsigned char *)malloc(MIB);
	size_t         sizes[4] = {20, 9000, 3000, 17000}, room = 20000;
	const char    *names[4] = {"a", "b", "c", "e"};
	d_iov_t        key = text_of("d"), iovs[4];
	d_sg_list_t    sgls[5];
	daos_iod_t     iods[5];
	daos_recx_t    recxs[2] = {{3, 100}, {1000, 50}};
	int            at;

	/* Values of all lengths at one moment, then read into rooms that are all too long: each is
	 * at the start of its own. */
	for (at = 0; at < 4; at++) {
		fill(memory + at * room, sizes[at], at);
		iovs[at] = iov_of(memory + at * room, sizes[at]);
		sgls[at] = list_of(&iovs[at], 1);
		iods[at] = single(names[at], sizes[at]);
	}
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 4, iods, sgls, NULL), 0);
	memset(back, 0, MIB);
	for (at = 0; at < 4; at++) {
		iovs[at] = iov_of(back + at * room, room);
		sgls[at] = list_of(&iovs[at], 1);
		iods[at] = single(names[at], DAOS_REC_ANY);
	}
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &key, 4, iods, sgls, NULL, NULL), 0);
	for (at = 0; at < 4; at++) {
		CHECK_EQ(iods[at].iod_size, sizes[at]);
		CHECK_EQ(iovs[at].iov_len, sizes[at]);
		CHECK(memcmp(back + at * room, memory + at * room, sizes[at]) == 0);
	}

	/* Records beside values, an akey that is not there between them. */
	fill(memory, 1200, 77);
	iovs[0] = iov_of(memory, 1200);
	sgls[0] = list_of(iovs, 1);
	iods[0] = array("records", 8, recxs, 2);
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, iods, sgls, NULL), 0);
	memset(back, 0xee, MIB);
	iods[0] = single("b", DAOS_REC_ANY);
	iods[1] = array("absent", 8, recxs, 1);
	iods[2] = single("none", DAOS_REC_ANY);
	iods[3] = array("records", 8, recxs, 2);
	for (at = 0; at < 4; at++) {
		iovs[at] = iov_of(back + at * room, room);
		sgls[at] = list_of(&iovs[at], 1);
	}
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &key, 4, iods, sgls, NULL, NULL), 0);
	CHECK_EQ(iods[0].iod_size, 9000);
	CHECK_EQ(iods[1].iod_size, 0);
	CHECK_EQ(sgls[1].sg_nr_out, 0);
	CHECK_EQ(iods[2].iod_size, 0);
	CHECK_EQ(sgls[2].sg_nr_out, 0);
	CHECK_EQ(iods[3].iod_size, 8);
	CHECK_EQ(iovs[3].iov_len, 1200);
	CHECK(memcmp(back + 3 * room, memory, 1200) == 0);
	CHECK_EQ(back[2 * room], 0xee);
	CHECK_EQ(daos_obj_close(oh, NULL), 0);
	free(memory);
	free(back);
}

static void
records(void)
{
	daos_handle_t  oh    = open_obj(new_id(DAOS_OT_MULTI_HASHED, OC_S1));
	size_t         large = 40 * MIB;
	unsigned char *memory = (unsigned char *)malloc(large), *back = (unsigned char *)malloc(large);
	d_iov_t        key = text_of("d"), iovs[3], name = text_of("r");
	d_sg_list_t    sgl;
	daos_recx_t    recxs[3] = {{10, 5}, {0, 3}, {1 << 20, 2}}, all = {0, 16}, found[8];
	daos_epoch_range_t eprs[8];
	daos_iod_t     iod;
	daos_iom_t     iom;
	daos_anchor_t  anchor;
	daos_size_t    size = 0;
	uint32_t       nr;

	/* Ranges and memory are cut independently. */
	fill(memory, 40, 3);
	iovs[0] = iov_of(memory, 1);
	iovs[1] = iov_of(memory + 1, 30);
	iovs[2] = iov_of(memory + 31, 9);
	sgl     = list_of(iovs, 3);
	iod     = array("r", 4, recxs, 3);
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL), 0);
	memset(back, 0xee, 100);
	iovs[0] = iov_of(back, 7);
	iovs[1] = iov_of(back + 7, 93);
	sgl     = list_of(iovs, 2);
	iod     = array("r", DAOS_REC_ANY, &all, 1);
	memset(&iom, 0, sizeof(iom));
	iom.iom_flags = DAOS_IOMF_DETAIL;
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, &iom, NULL), 0);
	CHECK_EQ(iod.iod_size, 4);
	CHECK_EQ(iovs[0].iov_len + iovs[1].iov_len, 60);
	CHECK(memcmp(back, memory + 20, 12) == 0);
	CHECK(memcmp(back + 40, memory, 20) == 0);
	CHECK(back[12] == 0xee && back[39] == 0xee && back[63] == 0xee && back[64] == 0xee);
	CHECK_EQ(iom.iom_nr_out, 2);
	CHECK_EQ(iom.iom_recx_lo.rx_idx, 0);
	CHECK_EQ(iom.iom_recx_hi.rx_idx, 10);
	CHECK(iom.iom_recxs != NULL && iom.iom_recxs[1].rx_nr == 5);
	free(iom.iom_recxs);
	/* Another record size, with memory enough for what is there, and too little memory. */
	iod     = array("r", 8, &all, 1);
	sgl     = list_of(iovs, 2);
	iovs[1] = iov_of(back + 7, 1000);
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL, NULL), 0);
	CHECK_EQ(iod.iod_size, 4);
	CHECK_EQ(iovs[0].iov_len + iovs[1].iov_len, 60);
	iovs[0] = iov_of(back, 60);
	sgl     = list_of(iovs, 1);
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL, NULL), -DER_REC2BIG);
	/* Beyond the end nothing is stored. */
	recxs[0].rx_idx = 1 << 21;
	iod             = array("r", DAOS_REC_ANY, recxs, 1);
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL, NULL), 0);
	CHECK_EQ(iod.iod_size, 0);
	CHECK_EQ(sgl.sg_nr_out, 0);
	/* A value is not records. */
	iod = single("r", 4);
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL, NULL), -DER_INVAL);

	/* Listing ranges upwards, one at a time, and downwards. */
	memset(&anchor, 0, sizeof(anchor));
	for (nr = 0, size = 0; !daos_anchor_is_eof(&anchor);) {
		uint32_t one = 1;

		CHECK_EQ(daos_obj_list_recx(oh, DAOS_TX_NONE, &key, &name, &size, &one, &found[nr],
					    &eprs[nr], &anchor, true, NULL),
			 0);
		nr += one;
		CHECK(nr <= 3);
	}
	CHECK_EQ(nr, 3);
	CHECK_EQ(size, 4);
	CHECK(found[0].rx_idx == 0 && found[0].rx_nr == 3 && found[2].rx_idx == 1 << 20);
	CHECK(eprs[0].epr_lo > 0 && eprs[0].epr_lo == eprs[1].epr_lo);
	memset(&anchor, 0, sizeof(anchor));
	nr = 8;
	CHECK_EQ(daos_obj_list_recx(oh, DAOS_TX_NONE, &key, &name, &size, &nr, found, NULL, &anchor,
				    false, NULL),
		 0);
	CHECK_EQ(nr, 3);
	CHECK(daos_anchor_is_eof(&anchor) && found[0].rx_idx == 1 << 20);
	/* Holes; then the rest is gone. */
	recxs[0].rx_idx = 1;
	recxs[0].rx_nr  = 12;
	iod             = array("r", 0, recxs, 1);
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, &iod, NULL, NULL), 0);
	iovs[0] = iov_of(back, 64);
	sgl     = list_of(iovs, 1);
	iod     = array("r", 4, &all, 1);
	memset(back, 0xee, 64);
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL, NULL), 0);
	CHECK(memcmp(back, memory + 20, 4) == 0 && back[4] == 0xee && back[51] == 0xee);
	CHECK(memcmp(back + 52, memory + 12, 8) == 0);

	/* More than one request carries. */
	fill(memory, large, 9);
	recxs[0].rx_idx = 5;
	recxs[0].rx_nr  = large - 4096;
	recxs[1].rx_idx = (uint64_t)1 << 40;
	recxs[1].rx_nr  = 4096;
	key             = text_of("large");
	iovs[0]         = iov_of(memory, large);
	sgl             = list_of(iovs, 1);
	iod             = array("r", 1, recxs, 2);
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, DAOS_COND_DKEY_INSERT, &key, 1, &iod, &sgl, NULL), 0);
	memset(back, 0, large);
	iovs[0] = iov_of(back, 12345);
	iovs[1] = iov_of(back + 12345, large - 12345);
	sgl     = list_of(iovs, 2);
	iod     = array("r", 1, recxs, 2);
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, DAOS_COND_DKEY_FETCH, &key, 1, &iod, &sgl, NULL, NULL), 0);
	CHECK(memcmp(back, memory, large) == 0);
	CHECK_EQ(daos_obj_close(oh, NULL), 0);
	free(memory);
	free(back);
}

static void
conditions(void)
{
	daos_handle_t oh = open_obj(new_id(DAOS_OT_MULTI_HASHED, OC_SX));
	char          value[32];
	d_iov_t       key = text_of("d"), other = text_of("other"), iovs[2];
	d_sg_list_t   sgls[2];
	daos_iod_t    iods[2];
	d_iov_t       akeys[2];

	CHECK_EQ(daos_obj_punch(oh, DAOS_TX_NONE, DAOS_COND_PUNCH, NULL), -DER_NONEXIST);
	CHECK_EQ(put(oh, DAOS_COND_DKEY_UPDATE, "d", "a", "v"), -DER_NONEXIST);
	CHECK_EQ(get(oh, DAOS_COND_DKEY_FETCH, "d", "a", value, 32), -DER_NONEXIST);
	CHECK_EQ(put(oh, DAOS_COND_DKEY_INSERT, "d", "a", "v"), 0);
	CHECK_EQ(put(oh, DAOS_COND_DKEY_INSERT, "d", "b", "v"), -DER_EXIST);
	CHECK_EQ(put(oh, DAOS_COND_AKEY_INSERT, "d", "a", "w"), -DER_EXIST);
	CHECK_EQ(put(oh, DAOS_COND_AKEY_UPDATE, "d", "b", "w"), -DER_NONEXIST);
	CHECK_EQ(get(oh, DAOS_COND_AKEY_FETCH, "d", "b", value, 32), -DER_NONEXIST);
	CHECK_EQ(put(oh, DAOS_COND_AKEY_INSERT, "d", "b", "w"), 0);
	CHECK_EQ(put(oh, DAOS_COND_PUNCH, "d", "b", "w"), -DER_INVAL);
	CHECK_EQ(put(oh, 1 << 20, "d", "b", "w"), -DER_INVAL);

	/* Of each akey: all or nothing. */
	iovs[0] = text_of("1");
	iovs[1] = text_of("2");
	sgls[0] = list_of(&iovs[0], 1);
	sgls[1] = list_of(&iovs[1], 1);
	iods[0] = single("new", 1);
	iods[1] = single("a", 1);
	iods[0].iod_flags = iods[1].iod_flags = DAOS_COND_AKEY_INSERT;
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, DAOS_COND_PER_AKEY, &key, 2, iods, sgls, NULL),
		 -DER_EXIST);
	CHECK_EQ(get(oh, 0, "d", "new", value, 32), 0);
	CHECK_STR(value, "");
	iods[1].iod_flags = DAOS_COND_AKEY_UPDATE;
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, DAOS_COND_PER_AKEY | DAOS_COND_AKEY_INSERT, &key, 2,
				 iods, sgls, NULL),
		 -DER_INVAL);
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, DAOS_COND_PER_AKEY, &key, 2, iods, sgls, NULL), 0);
	CHECK_EQ(get(oh, 0, "d", "new", value, 32), 0);
	CHECK_STR(value, "1");
	iods[0] = single("absent", DAOS_REC_ANY);
	iods[1] = single("a", DAOS_REC_ANY);
	iods[1].iod_flags = DAOS_COND_AKEY_FETCH;
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, DAOS_COND_PER_AKEY, &key, 2, iods, NULL, NULL, NULL), 0);
	iods[0].iod_flags = DAOS_COND_AKEY_FETCH;
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, DAOS_COND_PER_AKEY, &key, 2, iods, NULL, NULL, NULL),
		 -DER_NONEXIST);

	/* Written and removed at one moment. */
	iods[0] = single("a", 0);
	iods[1] = single("b", 1);
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 2, iods, sgls, NULL), 0);
	CHECK_EQ(get(oh, 0, "d", "a", value, 32), 0);
	CHECK_STR(value, "");
	CHECK_EQ(get(oh, 0, "d", "b", value, 32), 0);
	CHECK_STR(value, "2");

	/* Punches. */
	akeys[0] = text_of("b");
	akeys[1] = text_of("absent");
	CHECK_EQ(daos_obj_punch_akeys(oh, DAOS_TX_NONE, DAOS_COND_PUNCH, &key, 2, akeys, NULL),
		 -DER_NONEXIST);
	CHECK_EQ(daos_obj_punch_akeys(oh, DAOS_TX_NONE, DAOS_COND_PUNCH, &key, 1, akeys, NULL), 0);
	CHECK_EQ(daos_obj_punch_dkeys(oh, DAOS_TX_NONE, DAOS_COND_PUNCH, 1, &other, NULL), -DER_NONEXIST);
	CHECK_EQ(daos_obj_punch_dkeys(oh, DAOS_TX_NONE, DAOS_COND_PUNCH, 1, &key, NULL), 0);
	CHECK_EQ(daos_obj_punch_dkeys(oh, DAOS_TX_NONE, 0, 1, &key, NULL), 0);
	CHECK_EQ(put(oh, 0, "d", "a", "v"), 0);
	CHECK_EQ(daos_obj_punch(oh, DAOS_TX_NONE, DAOS_COND_PUNCH, NULL), 0);
	CHECK_EQ(get(oh, 0, "d", "a", value, 32), 0);
	CHECK_STR(value, "");
	CHECK_EQ(daos_obj_close(oh, NULL), 0);
}

static void
bad_arguments(void)
{
	daos_handle_t oh = open_obj(new_id(DAOS_OT_MULTI_HASHED, OC_S1)), th;
	char          memory[8192];
	d_iov_t       key = text_of("d"), none = {NULL, 0, 0}, iov = text_of("v");
	d_sg_list_t   sgl = list_of(&iov, 1);
	daos_iod_t    iod = single("a", 1);
	daos_recx_t   over = {~0ULL, 2};

	memset(memory, 'k', sizeof(memory));
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &none, 1, &iod, &sgl, NULL), -DER_INVAL);
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, NULL, 1, &iod, &sgl, NULL), -DER_INVAL);
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 0, &iod, &sgl, NULL), -DER_INVAL);
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, NULL, &sgl, NULL), -DER_INVAL);
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, &iod, NULL, NULL), -DER_REC2BIG);
	iod.iod_nr = 2;
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL), -DER_INVAL);
	iod.iod_type = DAOS_IOD_NONE;
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL), -DER_INVAL);
	iod = array("a", 1, NULL, 1);
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL), -DER_INVAL);
	iod = array("a", 1, &over, 1);
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL), -DER_INVAL);
	over.rx_idx = 0;
	over.rx_nr  = ~0ULL;
	iod         = array("a", 8, &over, 1);
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL), -DER_REC2BIG);
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL, NULL), -DER_REC2BIG);
	iod             = single("a", 1);
	iov.iov_buf_len = 0;
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL), -DER_INVAL);
	iov = text_of("v");
	key = iov_of(memory, 4097);
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL), -DER_KEY2BIG);
	key = iov_of(memory, 4096);
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL), 0);
	th.cookie = oh.cookie;
	CHECK_EQ(daos_obj_update(oh, th, 0, &key, 1, &iod, &sgl, NULL), -DER_NO_HDL);
	CHECK_EQ(daos_obj_update(coh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL), -DER_NO_HDL);
	CHECK_EQ(daos_obj_close(oh, NULL), 0);
	/* A dkey of an object with integer dkeys has 8 bytes. */
	oh = open_obj(new_id(DAOS_OT_DKEY_UINT64, OC_S1));
	CHECK_EQ(put(oh, 0, "short", "a", "v"), -DER_INVAL);
	CHECK_EQ(daos_obj_close(oh, NULL), 0);
	/* So has an akey of one with integer akeys. */
	oh = open_obj(new_id(DAOS_OT_AKEY_UINT64, OC_S1));
	CHECK_EQ(put(oh, 0, "d", "abc", "v"), -DER_INVAL);
	CHECK_EQ(put(oh, 0, "d", "12345678", "v"), 0);
	CHECK_EQ(daos_obj_close(oh, NULL), 0);
}

/* Lists all dkeys, or akeys of `dkey`, `room` bytes and `batch` keys at a time, and counts them;
 * each key ends with its number in decimal. */
static int
list(daos_handle_t oh, d_iov_t *dkey, uint32_t batch, size_t room, daos_anchor_t *anchor, char *seen)
{
	daos_key_desc_t kds[64];
	char           *memory = (char *)malloc(room);
	int             count  = 0;

	while (!daos_anchor_is_eof(anchor)) {
		uint32_t    nr = batch, at;
		d_iov_t     iovs[2];
		d_sg_list_t sgl = list_of(iovs, 2);
		char       *key = memory;
		int         rc;

		iovs[0] = iov_of(memory, room / 3);
		iovs[1] = iov_of(memory + room / 3, room - room / 3);
		if (dkey)
			rc = daos_obj_list_akey(oh, DAOS_TX_NONE, dkey, &nr, kds, &sgl, anchor, NULL);
		else
			rc = daos_obj_list_dkey(oh, DAOS_TX_NONE, &nr, kds, &sgl, anchor, NULL);
		CHECK_EQ(rc, 0);
		CHECK(nr <= batch);
		for (at = 0; at < nr; at++) {
			char text[9];
			int  number;

			CHECK(kds[at].kd_key_len >= 8 && key + kds[at].kd_key_len <= memory + room);
			memcpy(text, key + kds[at].kd_key_len - 8, 8);
			text[8] = '\0';
			number  = atoi(text);
			CHECK_EQ(seen[number], 0);
			seen[number] = 1;
			count++;
			key += kds[at].kd_key_len;
		}
	}
	free(memory);
	return count;
}

#define KEYS 300

static void
listings(enum daos_otype_t type)
{
	daos_handle_t   oh = open_obj(new_id(type, OC_SX));
	char            name[4096], seen[KEYS], digits[16];
	d_iov_t         iov = text_of("v"), key, dkey = text_of("with akeys 00000000");
	d_sg_list_t     sgl = list_of(&iov, 1);
	daos_iod_t      iod = single("a", 1);
	daos_anchor_t   anchor, parts[64], backup;
	daos_key_desc_t kd;
	uint32_t        nr, at;
	int             number;

	/* Keys of all lengths up to the longest. */
	for (number = 0; number < KEYS; number++) {
		size_t bytes = 8 + (size_t)number * number * 4088 / (KEYS - 1) / (KEYS - 1);

		memset(name, 'k', sizeof(name));
		snprintf(digits, sizeof(digits), "%08d", number);
		memcpy(name + bytes - 8, digits, 8);
		key = iov_of(name, bytes);
		CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &key, 1, &iod, &sgl, NULL), 0);
		iod.iod_name = key;
		CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &dkey, 1, &iod, &sgl, NULL), 0);
		iod.iod_name = text_of("a");
	}
	CHECK_EQ(daos_obj_punch_akeys(oh, DAOS_TX_NONE, 0, &dkey, 1, &iod.iod_name, NULL), 0);
	memset(seen, 0, sizeof(seen));
	memset(&anchor, 0, sizeof(anchor));
	CHECK_EQ(list(oh, &dkey, 7, 9000, &anchor, seen), KEYS);
	/* The dkey with the akeys is one more: it counts as number 0. */
	CHECK_EQ(daos_obj_punch_dkeys(oh, DAOS_TX_NONE, 0, 1, &dkey, NULL), 0);
	for (nr = 1; nr <= 64; nr *= 4) {
		memset(seen, 0, sizeof(seen));
		memset(&anchor, 0, sizeof(anchor));
		CHECK_EQ(list(oh, NULL, nr, 4096 + nr * 100, &anchor, seen), KEYS);
	}

	/* In parts, of the number the library likes and of others; each key is in one part. */
	for (at = 0; at <= 9; at += 3) {
		uint32_t part;

		nr = at;
		CHECK_EQ(daos_obj_anchor_split(oh, &nr, NULL), 0);
		CHECK(at ? nr == at : nr == 4);
		CHECK_EQ(daos_obj_anchor_split(oh, &nr, parts), 0);
		memset(seen, 0, sizeof(seen));
		number = 0;
		for (part = 0; part < nr; part++)
			number += list(oh, NULL, 16, 8192, &parts[part], seen);
		CHECK_EQ(number, KEYS);
	}
	memset(seen, 0, sizeof(seen));
	for (at = 0, number = 0; at < 4; at++) {
		CHECK_EQ(daos_obj_anchor_set(oh, at, &anchor), 0);
		number += list(oh, NULL, 16, 8192, &anchor, seen);
	}
	CHECK_EQ(number, KEYS);
	CHECK_EQ(daos_obj_anchor_set(oh, 4, &anchor), -DER_INVAL);

	/* A key that does not fit: its length is told, the anchor stays. */
	memset(&anchor, 0, sizeof(anchor));
	for (number = 0; !daos_anchor_is_eof(&anchor);) {
		iov = iov_of(name, 100);
		sgl = list_of(&iov, 1);
		nr  = 1;
		memcpy(&backup, &anchor, sizeof(anchor));
		if (daos_obj_list_dkey(oh, DAOS_TX_NONE, &nr, &kd, &sgl, &anchor, NULL) != 0) {
			CHECK(memcmp(&backup, &anchor, sizeof(anchor)) == 0);
			CHECK(kd.kd_key_len > 100 && kd.kd_key_len <= sizeof(name));
			iov = iov_of(name, kd.kd_key_len);
			nr  = 1;
			CHECK_EQ(daos_obj_list_dkey(oh, DAOS_TX_NONE, &nr, &kd, &sgl, &anchor, NULL), 0);
		}
		CHECK(nr <= 1);
		number += nr;
	}
	CHECK_EQ(number, KEYS);

	nr = 0;
	memset(&anchor, 0, sizeof(anchor));
	CHECK_EQ(daos_obj_list_dkey(oh, DAOS_TX_NONE, &nr, &kd, &sgl, &anchor, NULL), -DER_INVAL);
	CHECK_EQ(daos_obj_list_dkey(oh, DAOS_TX_NONE, NULL, &kd, &sgl, &anchor, NULL), -DER_INVAL);
	nr = 1;
	memset(&anchor, 0x5a, sizeof(anchor));
	CHECK_EQ(daos_obj_list_dkey(oh, DAOS_TX_NONE, &nr, &kd, &sgl, &anchor, NULL), -DER_INVAL);
	CHECK_EQ(daos_obj_close(oh, NULL), 0);
}

static void
queries(void)
{
	daos_handle_t   oh = open_obj(new_id(DAOS_OT_MULTI_UINT64, OC_SX));
	uint64_t        dkey_value, akey_value, stored = 5;
	d_iov_t         dkey = iov_of(&dkey_value, 8), akey = iov_of(&akey_value, 8), iov = iov_of(&stored, 8);
	d_sg_list_t     sgl = list_of(&iov, 1);
	daos_recx_t     recx = {0, 1}, found;
	daos_iod_t      iod  = array("", 8, &recx, 1);
	struct daos_obj_attr attr;
	d_rank_t        rank_room[8];
	d_rank_list_t   ranks = {rank_room, 8};

	iod.iod_name = akey;
	found.rx_nr  = 9;
	CHECK_EQ(daos_obj_query_key(oh, DAOS_TX_NONE, DAOS_GET_DKEY | DAOS_GET_AKEY | DAOS_GET_RECX |
				    DAOS_GET_MAX, &dkey, &akey, &found, NULL), 0);
	CHECK_EQ(found.rx_nr, 0);
	CHECK_EQ(dkey.iov_len, 0);
	dkey = iov_of(&dkey_value, 8);
	akey = iov_of(&akey_value, 8);
	for (dkey_value = 3; dkey_value <= 30; dkey_value += 3) {
		for (akey_value = 1000; akey_value <= 3000; akey_value += 1000) {
			recx.rx_idx = dkey_value * akey_value;
			CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &dkey, 1, &iod, &sgl, NULL), 0);
		}
	}
	CHECK_EQ(daos_obj_query_key(oh, DAOS_TX_NONE, DAOS_GET_DKEY | DAOS_GET_AKEY | DAOS_GET_RECX |
				    DAOS_GET_MAX, &dkey, &akey, &found, NULL), 0);
	CHECK_EQ(dkey_value, 30);
	CHECK_EQ(akey_value, 3000);
	CHECK(found.rx_idx == 90000 && found.rx_nr == 1);
	CHECK_EQ(daos_obj_query_key(oh, DAOS_TX_NONE, DAOS_GET_DKEY | DAOS_GET_MIN, &dkey, &akey, NULL,
				    NULL), 0);
	CHECK_EQ(dkey_value, 3);
	akey_value = 0;
	CHECK_EQ(daos_obj_query_key(oh, DAOS_TX_NONE, DAOS_GET_AKEY | DAOS_GET_MIN, &dkey, &akey, NULL,
				    NULL), 0);
	CHECK_EQ(akey_value, 1000);
	CHECK_EQ(daos_obj_query_key(oh, DAOS_TX_NONE, DAOS_GET_DKEY, &dkey, &akey, NULL, NULL), -DER_INVAL);
	CHECK_EQ(daos_obj_query_key(oh, DAOS_TX_NONE, DAOS_GET_MAX, &dkey, &akey, NULL, NULL), -DER_INVAL);
	CHECK_EQ(daos_obj_query_key(oh, DAOS_TX_NONE, DAOS_GET_DKEY | DAOS_GET_MAX | DAOS_GET_MIN, &dkey,
				    &akey, NULL, NULL), -DER_INVAL);
	CHECK_EQ(daos_obj_query_key(oh, DAOS_TX_NONE, DAOS_GET_RECX | DAOS_GET_MAX, &dkey, &akey, NULL,
				    NULL), -DER_INVAL);
	CHECK_EQ(daos_obj_query(oh, &attr, &ranks, NULL), 0);
	CHECK_EQ(ranks.rl_nr, 2);
	CHECK(attr.oa_rank == rank_room[0] && rank_room[0] != rank_room[1]);
	CHECK_EQ(daos_obj_close(oh, NULL), 0);
	oh = open_obj(new_id(DAOS_OT_MULTI_HASHED, OC_SX));
	CHECK_EQ(daos_obj_query_key(oh, DAOS_TX_NONE, DAOS_GET_DKEY | DAOS_GET_MAX, &dkey, &akey, NULL,
				    NULL), -DER_INVAL);
	CHECK_EQ(daos_obj_close(oh, NULL), 0);
}

#define QUEUED 32

static void
with_events(void)
{
	daos_handle_t oh = open_obj(new_id(DAOS_OT_MULTI_HASHED, OC_SX)), eq;
	daos_event_t  events[QUEUED], *done[QUEUED], alone;
	uint64_t      values[QUEUED], back[QUEUED], names[QUEUED];
	d_iov_t       keys[QUEUED], iovs[QUEUED];
	d_sg_list_t   sgls[QUEUED];
	daos_iod_t    iods[QUEUED];
	int           at, finished, round;
	bool          flag = false;

	CHECK_EQ(daos_eq_create(&eq), 0);
	for (round = 0; round < 2; round++) {
		for (at = 0; at < QUEUED; at++) {
			names[at]  = at;
			values[at] = at * 1001;
			keys[at]   = iov_of(&names[at], 8);
			iovs[at]   = iov_of(round ? &back[at] : &values[at], 8);
			sgls[at]   = list_of(&iovs[at], 1);
			iods[at]   = single("a", 8);
			CHECK_EQ(daos_event_init(&events[at], eq, NULL), 0);
			if (round)
				CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &keys[at], 1, &iods[at],
							&sgls[at], NULL, &events[at]), 0);
			else
				CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &keys[at], 1, &iods[at],
							 &sgls[at], &events[at]), 0);
		}
		for (finished = 0; finished < QUEUED;) {
			int got = daos_eq_poll(eq, 1, DAOS_EQ_WAIT, QUEUED, done);

			CHECK(got > 0);
			finished += got;
		}
		for (at = 0; at < QUEUED; at++) {
			CHECK_EQ(events[at].ev_error, 0);
			CHECK_EQ(daos_event_fini(&events[at]), 0);
		}
	}
	for (at = 0; at < QUEUED; at++)
		CHECK_EQ(back[at], at * 1001);
	CHECK_EQ(daos_eq_destroy(eq, 0), 0);
	/* An error that is found late is the event's. */
	CHECK_EQ(daos_event_init(&alone, DAOS_HDL_INVAL, NULL), 0);
	iods[0] = single("a", 8);
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, DAOS_COND_DKEY_INSERT, &keys[1], 1, iods, sgls, &alone), 0);
	while (!flag)
		CHECK_EQ(daos_event_test(&alone, DAOS_EQ_WAIT, &flag), 0);
	CHECK_EQ(alone.ev_error, -DER_EXIST);
	CHECK_EQ(daos_event_fini(&alone), 0);
	CHECK_EQ(daos_obj_close(oh, NULL), 0);
}

/* Objects of arrays and key-value stores, seen key by key, as programs that copy objects do. */
static void
by_key(void)
{
	daos_obj_id_t   oid = new_id(DAOS_OT_KV_HASHED, OC_S1);
	daos_handle_t   kv, oh;
	daos_key_desc_t kd;
	daos_anchor_t   anchor;
	char            memory[32];
	d_iov_t         key = text_of("key"), iov = iov_of(memory, sizeof(memory));
	d_sg_list_t     sgl = list_of(&iov, 1);
	uint32_t        nr  = 1;

	CHECK_EQ(daos_kv_open(coh, oid, DAOS_OO_RW, &kv, NULL), 0);
	CHECK_EQ(daos_kv_put(kv, DAOS_TX_NONE, 0, "key", 5, "value", NULL), 0);
	oh = open_obj(oid);
	memset(&anchor, 0, sizeof(anchor));
	CHECK_EQ(daos_obj_list_akey(oh, DAOS_TX_NONE, &key, &nr, &kd, &sgl, &anchor, NULL), 0);
	CHECK_EQ(nr, 1);
	CHECK(kd.kd_key_len == 1 && memory[0] == '0');
	CHECK_EQ(get(oh, DAOS_COND_AKEY_FETCH, "key", "0", memory, sizeof(memory)), 0);
	CHECK_STR(memory, "value");
	CHECK_EQ(daos_kv_close(kv, NULL), 0);
	CHECK_EQ(daos_obj_close(oh, NULL), 0);
}

int
main(int argc, char **argv)
{
	daos_handle_t oh;

	CHECK_EQ(argc, 3);
	begin(argv[1], argv[2]);
	ids();
	single_values();
	several_values();
	records();
	conditions();
	bad_arguments();
	listings(DAOS_OT_MULTI_HASHED);
	listings(DAOS_OT_MULTI_LEXICAL);
	queries();
	with_events();
	by_key();
	oh = open_obj(new_id(DAOS_OT_MULTI_HASHED, OC_S1));
	end(argv[2]);
	/* The container is gone, and so is what was open in it. */
	CHECK_EQ(put(oh, 0, "d", "a", "v"), -DER_NO_HDL);
	CHECK_EQ(daos_obj_close(oh, NULL), 0);
	return 0;
}
