/* Answers that programs written for DAOS count on, where ours were others. */
#include "store.h"
#include <errno.h>
#include <fcntl.h>
#include <daos_fs.h>
#include <daos_prop.h>

/* pydaos opens its pool for reading and writes to containers in it. */
static void
writing_in_a_pool_opened_for_reading(const char *pool, const char *name)
{
	daos_handle_t   ro, cont, oh;
	daos_obj_id_t   oid = new_id(DAOS_OT_KV_HASHED, OC_S1);
	daos_pool_info_t info;

	memset(&info, 0, sizeof(info));
	CHECK_EQ(daos_pool_connect(pool, NULL, DAOS_PC_RO, &ro, &info, NULL), 0);
	CHECK_EQ(info.pi_rebuild_st.rs_state, DRS_COMPLETED);
	CHECK_EQ(daos_cont_open(ro, name, DAOS_COO_RW, &cont, NULL, NULL), 0);
	CHECK_EQ(daos_kv_open(cont, oid, DAOS_OO_RW, &oh, NULL), 0);
	CHECK_EQ(daos_kv_put(oh, DAOS_TX_NONE, 0, "k", 1, "v", NULL), 0);
	CHECK_EQ(daos_kv_close(oh, NULL), 0);
	CHECK_EQ(daos_cont_close(cont, NULL), 0);
	/* Containers are still not made in it. */
	CHECK_EQ(daos_cont_create_with_label(ro, "none-such", NULL, NULL, NULL), -DER_NO_PERM);
	CHECK_EQ(daos_pool_disconnect(ro, NULL), 0);
}

static void
modes_of_containers(const char *name)
{
	static const unsigned int bad[] = {
	    0,
	    DAOS_COO_RW | DAOS_COO_EX,
	    DAOS_COO_RO | DAOS_COO_RW,
	    DAOS_COO_EX | DAOS_COO_EVICT | DAOS_COO_EVICT_ALL,
	    DAOS_COO_RW | DAOS_COO_EVICT_ALL,
	    DAOS_COO_EX | DAOS_COO_EVICT,
	    DAOS_COO_RO | 1U << 30,
	};
	daos_handle_t    cont, evicted;
	daos_cont_info_t info;
	size_t           at;

	for (at = 0; at < sizeof(bad) / sizeof(bad[0]); at++)
		CHECK_EQ(daos_cont_open(poh, name, bad[at], &cont, NULL, NULL), -DER_INVAL);
	CHECK_EQ(daos_cont_open(poh, name, DAOS_COO_RO | DAOS_COO_RO_MDSTATS, &cont, NULL, NULL), 0);
	CHECK_EQ(daos_cont_close(cont, NULL), 0);

	/* Handles that stand in the way are evicted; to close one of these is no error. */
	CHECK_EQ(daos_cont_create_with_label(poh, "evicting", NULL, NULL, NULL), 0);
	CHECK_EQ(daos_cont_open(poh, "evicting", DAOS_COO_EX, &evicted, NULL, NULL), 0);
	CHECK_EQ(daos_cont_open(poh, "evicting", DAOS_COO_RO, &cont, NULL, NULL), -DER_BUSY);
	CHECK_EQ(daos_cont_open(poh, "evicting", DAOS_COO_RO | DAOS_COO_EVICT, &cont, &info, NULL), 0);
	CHECK_EQ(info.ci_nhandles, 1);
	CHECK_EQ(daos_cont_close(evicted, NULL), 0);
	CHECK_EQ(daos_cont_open(poh, "evicting", DAOS_COO_EX | DAOS_COO_EVICT_ALL, &evicted, &info,
				NULL),
		 0);
	CHECK_EQ(info.ci_nhandles, 1);
	CHECK_EQ(daos_cont_close(cont, NULL), 0);
	CHECK_EQ(daos_cont_close(evicted, NULL), 0);
	CHECK_EQ(daos_cont_destroy(poh, "evicting", 0, NULL), 0);
}

/* The checker wants nobody else, and can see to that. */
static void
checking_what_is_open(void)
{
	daos_handle_t cont;

	CHECK_EQ(dfs_cont_create_with_label(poh, "checked", NULL, NULL, NULL, NULL), 0);
	CHECK_EQ(daos_cont_open(poh, "checked", DAOS_COO_RW, &cont, NULL, NULL), 0);
	CHECK_EQ(dfs_cont_check(poh, "checked", DFS_CHECK_RELINK, NULL), EBUSY);
	CHECK_EQ(dfs_cont_check(poh, "checked", DFS_CHECK_RELINK | DFS_CHECK_EVICT_ALL, NULL), 0);
	CHECK_EQ(daos_cont_close(cont, NULL), 0);
	CHECK_EQ(daos_cont_destroy(poh, "checked", 0, NULL), 0);
}

/* When a container was opened and changed: both were the time of its creation. */
static void
times_of_containers(void)
{
	daos_cont_info_t first, second, info;
	daos_handle_t    cont;
	struct timespec  time;

	CHECK_EQ(daos_cont_create_with_label(poh, "times", NULL, NULL, NULL), 0);
	CHECK_EQ(daos_cont_open(poh, "times", DAOS_COO_RO | DAOS_COO_RO_MDSTATS, &cont, &first, NULL),
		 0);
	CHECK_EQ(first.ci_md_otime, 0);
	CHECK_EQ(daos_hlc2timespec(first.ci_md_mtime, &time), 0);
	CHECK(time.tv_sec > 1700000000);
	CHECK_EQ(daos_cont_close(cont, NULL), 0);
	CHECK_EQ(daos_cont_open(poh, "times", DAOS_COO_RO, &cont, &second, NULL), 0);
	CHECK(second.ci_md_otime > first.ci_md_mtime);
	CHECK_EQ(second.ci_md_mtime, first.ci_md_mtime);
	CHECK_EQ(daos_cont_query(cont, &info, NULL, NULL), 0);
	CHECK_EQ(info.ci_md_otime, second.ci_md_otime);
	CHECK_EQ(daos_cont_close(cont, NULL), 0);
	CHECK_EQ(daos_cont_open(poh, "times", DAOS_COO_RW, &cont, &info, NULL), 0);
	CHECK(info.ci_md_otime > second.ci_md_otime && info.ci_md_mtime > second.ci_md_otime);
	CHECK_EQ(daos_cont_close(cont, NULL), 0);
	CHECK_EQ(daos_cont_destroy(poh, "times", 0, NULL), 0);
}

/* Without room only the number is asked for; it was an error. */
static void
number_of_containers(void)
{
	struct daos_pool_cont_info one;
	daos_size_t                count = 0;

	CHECK_EQ(daos_pool_list_cont(poh, &count, &one, NULL), 0);
	CHECK(count > 0);
}

/* An error found before anything began is the event's; it was the launch's, and programs that wait
 * for the event waited for ever. Finalizing twice is no error. */
static void
errors_of_events(void)
{
	daos_handle_t eqh, none = {99}, oh;
	daos_event_t  ev, *done;
	daos_size_t   size = 0;

	CHECK_EQ(daos_eq_create(&eqh), 0);
	CHECK_EQ(daos_event_init(&ev, eqh, NULL), 0);
	CHECK_EQ(daos_kv_get(none, DAOS_TX_NONE, 0, "k", &size, NULL, &ev), 0);
	CHECK_EQ(daos_eq_poll(eqh, 1, DAOS_EQ_WAIT, 1, &done), 1);
	CHECK(done == &ev);
	CHECK_EQ(ev.ev_error, -DER_NO_HDL);
	CHECK_EQ(daos_cont_open(none, "c", DAOS_COO_RW, &oh, NULL, &ev), 0);
	CHECK_EQ(daos_eq_poll(eqh, 1, DAOS_EQ_WAIT, 1, &done), 1);
	CHECK_EQ(ev.ev_error, -DER_NO_HDL);
	CHECK_EQ(daos_event_fini(&ev), 0);
	CHECK_EQ(daos_event_fini(&ev), 0);
	CHECK_EQ(daos_eq_destroy(eqh, 0), 0);
}

static void
arrays_of_every_type(void)
{
	static const enum daos_otype_t types[] = {DAOS_OT_ARRAY, DAOS_OT_ARRAY_ATTR, DAOS_OT_ARRAY_BYTE};
	daos_handle_t                  oh;
	daos_size_t                    cell, chunk;
	size_t                         at;

	for (at = 0; at < 3; at++) {
		daos_obj_id_t oid = new_id(types[at], OC_SX);

		CHECK_EQ(daos_array_create(coh, oid, DAOS_TX_NONE, 1, 5000, &oh, NULL), 0);
		CHECK_EQ(daos_array_close(oh, NULL), 0);
		CHECK_EQ(daos_array_open(coh, oid, DAOS_TX_NONE, DAOS_OO_RW, &cell, &chunk, &oh, NULL), 0);
		CHECK(cell == 1 && chunk == 5000);
		CHECK_EQ(daos_array_close(oh, NULL), 0);
	}
}

static void
empty_values(void)
{
	daos_obj_id_t oid = new_id(DAOS_OT_KV_HASHED, OC_S1);
	daos_handle_t oh;
	daos_size_t   size = 9;
	char          room[8];

	CHECK_EQ(daos_kv_open(coh, oid, DAOS_OO_RW, &oh, NULL), 0);
	CHECK_EQ(daos_kv_put(oh, DAOS_TX_NONE, 0, "k", 0, NULL, NULL), 0);
	CHECK_EQ(daos_kv_get(oh, DAOS_TX_NONE, 0, "k", &size, NULL, NULL), 0);
	CHECK_EQ(size, 0);
	size = sizeof(room);
	CHECK_EQ(daos_kv_get(oh, DAOS_TX_NONE, 0, "k", &size, room, NULL), 0);
	CHECK_EQ(size, 0);
	CHECK_EQ(daos_kv_put(oh, DAOS_TX_NONE, 0, "k", 1, NULL, NULL), -DER_INVAL);
	CHECK_EQ(daos_kv_close(oh, NULL), 0);
}

/* Ranges of one update have no records in common. */
static void
ranges_that_overlap(void)
{
	daos_handle_t oh       = open_obj(new_id(DAOS_OT_MULTI_HASHED, OC_S1));
	daos_recx_t   recxs[3] = {{0, 3}, {4, 1}, {3, 2}}, all = {0, 10};
	d_iov_t       dkey = text_of("d"), value = text_of("123456"), empty[2];
	d_sg_list_t   sgl = list_of(&value, 1);
	daos_iod_t    iod;
	daos_iom_t    iom;
	char          back[10];

	memset(&iod, 0, sizeof(iod));
	iod.iod_name  = text_of("a");
	iod.iod_type  = DAOS_IOD_ARRAY;
	iod.iod_size  = 1;
	iod.iod_nr    = 3;
	iod.iod_recxs = recxs;
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &dkey, 1, &iod, &sgl, NULL), -DER_INVAL);
	recxs[2].rx_idx = 5;
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &dkey, 1, &iod, &sgl, NULL), 0);
	/* Records of another size than was thought are read all the same if they fit. */
	iod.iod_size    = 3;
	iod.iod_nr      = 1;
	recxs[0].rx_idx = 100;
	recxs[0].rx_nr  = 2;
	iod.iod_name    = text_of("size");
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &dkey, 1, &iod, &sgl, NULL), 0);
	iod.iod_size = 1;
	value        = iov_of(back, sizeof(back));
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &dkey, 1, &iod, &sgl, NULL, NULL), 0);
	CHECK(iod.iod_size == 3 && memcmp(back, "123456", 6) == 0 && value.iov_len == 6);
	iod.iod_size = 1;
	value        = iov_of(back, 5);
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &dkey, 1, &iod, &sgl, NULL, NULL), -DER_REC2BIG);
	CHECK_EQ(iod.iod_size, 3);
	/* A hole at the end is not counted as read. */
	iod.iod_size   = 3;
	recxs[0].rx_nr = 3;
	value          = iov_of(back, sizeof(back));
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &dkey, 1, &iod, &sgl, NULL, NULL), 0);
	CHECK_EQ(value.iov_len, 6);
	/* A list of pieces that are not there. */
	sgl.sg_iovs = NULL;
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &dkey, 1, &iod, &sgl, NULL, NULL), -DER_INVAL);
	sgl          = list_of(&value, 1);
	iod.iod_name = text_of("a");
	iod.iod_size = 1;
	/* The only range is the first and the last one. */
	iod.iod_nr    = 1;
	iod.iod_recxs = &all;
	all.rx_nr     = 3;
	value         = iov_of(back, sizeof(back));
	memset(&iom, 0, sizeof(iom));
	CHECK_EQ(daos_obj_fetch(oh, DAOS_TX_NONE, 0, &dkey, 1, &iod, &sgl, &iom, NULL), 0);
	CHECK(iom.iom_nr_out == 1 && iom.iom_recx_lo.rx_nr == 3 && iom.iom_recx_hi.rx_nr == 3);
	/* Pieces without memory hold nothing. */
	memset(empty, 0, sizeof(empty));
	sgl = list_of(empty, 2);
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &dkey, 1, &iod, &sgl, NULL), -DER_REC2BIG);
	CHECK_EQ(daos_obj_close(oh, NULL), 0);
}

/* Conditions were judged at the commit only. */
static void
conditions_in_transactions(void)
{
	daos_handle_t oh = open_obj(new_id(DAOS_OT_MULTI_HASHED, OC_S1)), th;
	d_iov_t       there = text_of("there"), absent = text_of("absent"), value = text_of("v"), akey;
	d_sg_list_t   sgl = list_of(&value, 1);
	daos_iod_t    iod;

	memset(&iod, 0, sizeof(iod));
	iod.iod_name = text_of("a");
	iod.iod_type = DAOS_IOD_SINGLE;
	iod.iod_size = 1;
	iod.iod_nr   = 1;
	CHECK_EQ(daos_obj_update(oh, DAOS_TX_NONE, 0, &there, 1, &iod, &sgl, NULL), 0);
	CHECK_EQ(daos_tx_open(coh, &th, 0, NULL), 0);
#define UPDATE(flags, dkey) daos_obj_update(oh, th, flags, dkey, 1, &iod, &sgl, NULL)
	CHECK_EQ(UPDATE(DAOS_COND_DKEY_INSERT, &there), -DER_EXIST);
	CHECK_EQ(UPDATE(DAOS_COND_DKEY_UPDATE, &absent), -DER_NONEXIST);
	CHECK_EQ(UPDATE(DAOS_COND_AKEY_INSERT, &there), -DER_EXIST);
	CHECK_EQ(UPDATE(DAOS_COND_AKEY_UPDATE, &absent), -DER_NONEXIST);
	iod.iod_name = text_of("b");
	CHECK_EQ(UPDATE(DAOS_COND_AKEY_UPDATE, &there), -DER_NONEXIST);
	iod.iod_flags = DAOS_COND_AKEY_UPDATE;
	CHECK_EQ(UPDATE(DAOS_COND_PER_AKEY, &there), -DER_NONEXIST);
	iod.iod_flags = 0;
	akey          = text_of("b");
	CHECK_EQ(daos_obj_punch_akeys(oh, th, DAOS_COND_PUNCH, &there, 1, &akey, NULL), -DER_NONEXIST);
	CHECK_EQ(daos_obj_punch_dkeys(oh, th, DAOS_COND_PUNCH, 1, &absent, NULL), -DER_NONEXIST);
	/* None of these is part of it. */
	CHECK_EQ(UPDATE(DAOS_COND_AKEY_INSERT, &there), 0);
	CHECK_EQ(UPDATE(DAOS_COND_DKEY_INSERT, &absent), 0);
	CHECK_EQ(daos_tx_commit(th, NULL), 0);
	CHECK_EQ(daos_tx_close(th, NULL), 0);
	CHECK_EQ(daos_obj_close(oh, NULL), 0);
}

static void
files(const char *name)
{
	char          label[128];
	daos_handle_t cont;
	uuid_t        uuid;
	dfs_attr_t    attr;
	dfs_t        *dfs;
	dfs_obj_t    *file;
	daos_size_t   chunk;
	struct stat   stbuf;

	snprintf(label, sizeof(label), "%s-dfs", name);
	memset(&attr, 0, sizeof(attr));
	attr.da_chunk_size = 100000;
	attr.da_props      = daos_prop_alloc(1);
	attr.da_props->dpp_entries[0].dpe_type = DAOS_PROP_CO_CSUM;
	attr.da_props->dpp_entries[0].dpe_val  = DAOS_PROP_CO_CSUM_SHA512;
	CHECK_EQ(dfs_cont_create_with_label(poh, label, &attr, &uuid, &cont, &dfs), 0);
	daos_prop_free(attr.da_props);
	/* Chunks are whole blocks. */
	CHECK_EQ(dfs_open(dfs, NULL, "a", S_IFREG | 0600, O_RDWR | O_CREAT, 0, 0, NULL, &file), 0);
	CHECK_EQ(dfs_get_chunk_size(file, &chunk), 0);
	CHECK_EQ(chunk, 102400);
	CHECK_EQ(dfs_release(file), 0);
	CHECK_EQ(dfs_open(dfs, NULL, "b", S_IFREG | 0600, O_RDWR | O_CREAT, 0, 10000, NULL, &file), 0);
	CHECK_EQ(dfs_get_chunk_size(file, &chunk), 0);
	CHECK_EQ(chunk, 12288);
	CHECK_EQ(dfs_release(file), 0);
	/* Writes say where: there is no end to add to. It was taken and meant nothing. */
	CHECK_EQ(dfs_open(dfs, NULL, "b", S_IFREG | 0600, O_RDWR | O_APPEND, 0, 0, NULL, &file), ENOTSUP);
	CHECK_EQ(dfs_lookup(dfs, "/b", O_RDWR | O_APPEND, &file, NULL, NULL), ENOTSUP);
	/* A lookup with O_TRUNC empties the file; it did not. */
	CHECK_EQ(dfs_lookup(dfs, "/b", O_RDWR, &file, NULL, NULL), 0);
	CHECK_EQ(dfs_punch(dfs, file, 5, DFS_MAX_FSIZE), 0);
	CHECK_EQ(dfs_release(file), 0);
	memset(&stbuf, 0, sizeof(stbuf));
	CHECK_EQ(dfs_stat(dfs, NULL, "b", &stbuf), 0);
	CHECK_EQ(stbuf.st_size, 5);
	CHECK_EQ(dfs_lookup(dfs, "/b", O_RDWR | O_TRUNC, &file, NULL, &stbuf), 0);
	CHECK_EQ(stbuf.st_size, 0);
	CHECK_EQ(dfs_release(file), 0);
	CHECK_EQ(dfs_umount(dfs), 0);
	CHECK_EQ(daos_cont_close(cont, NULL), 0);
	CHECK_EQ(daos_cont_destroy(poh, label, 0, NULL), 0);
}

int
main(int argc, char **argv)
{
	CHECK_EQ(argc, 3);
	begin(argv[1], argv[2]);
	writing_in_a_pool_opened_for_reading(argv[1], argv[2]);
	modes_of_containers(argv[2]);
	times_of_containers();
	checking_what_is_open();
	number_of_containers();
	errors_of_events();
	arrays_of_every_type();
	empty_values();
	ranges_that_overlap();
	conditions_in_transactions();
	files(argv[2]);
	end(argv[2]);
	return 0;
}
