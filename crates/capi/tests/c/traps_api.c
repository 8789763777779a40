/*
 * Semantics that are easy to get wrong, those not about files: signs of errors, events, global
 * handles, mounts, pools, classes, the process. Numbers are those of the list of 20 that was
 * drawn up from the clients' sources; the others are in traps_fs.c.
 * Arguments: pool, a name for the container.
 */
#include <daos.h>
#include <daos_fs.h>
#include <daos_fs_sys.h>
#include <daos_uns.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"

static daos_handle_t poh, coh;
static dfs_t        *dfs;
static const char   *pool_name, *cont_name;

static dfs_obj_t *
open_file(const char *name, int flags)
{
	dfs_obj_t *file = NULL;

	CHECK_EQ(dfs_open(dfs, NULL, name, S_IFREG | 0644, flags, 0, 0, NULL, &file), 0);
	return file;
}

/* Waits for an event without a queue. */
static void
finish(daos_event_t *ev)
{
	bool flag = false;

	while (!flag)
		CHECK_EQ(daos_event_test(ev, DAOS_EQ_NOWAIT, &flag), 0);
}

/* Errors of daos_* are negative, of dfs_*, dfs_sys_* and duns_* positive, also in events. */
static void
trap_01(void)
{
	struct duns_attr_t attr;
	daos_handle_t      eqh, other;
	daos_event_t       ev, *done[2];
	dfs_sys_t         *sys;
	dfs_obj_t         *file = open_file("signs", O_RDWR | O_CREAT), *reader, *dir;
	d_iov_t            iov;
	d_sg_list_t        sgl = {1, 0, &iov};
	char               byte = 'x';
	int                rc;

	CHECK_EQ(daos_cont_open(poh, "none-such", DAOS_COO_RW, &other, NULL, NULL), -DER_NONEXIST);
	CHECK_EQ(dfs_lookup(dfs, "/none-such", O_RDONLY, &dir, NULL, NULL), ENOENT);
	CHECK_EQ(dfs_sys_mount(poh, coh, O_RDWR, 0, &sys), 0);
	CHECK_EQ(dfs_sys_remove(sys, "/none-such", false, NULL), ENOENT);
	CHECK_EQ(dfs_sys_umount(sys), 0);
	memset(&attr, 0, sizeof(attr));
	rc = duns_resolve_path("daos:///", &attr);
	CHECK_EQ(rc, EINVAL);

	CHECK_EQ(daos_eq_create(&eqh), 0);
	CHECK_EQ(daos_eq_poll(eqh, 0, DAOS_EQ_NOWAIT, 2, done), 0);
	CHECK(daos_eq_poll(DAOS_HDL_INVAL, 0, DAOS_EQ_NOWAIT, 2, done) < 0);
	reader = open_file("signs", O_RDONLY);
	d_iov_set(&iov, &byte, 1);
	CHECK_EQ(daos_event_init(&ev, eqh, NULL), 0);
	/* The launch succeeds, the failure is in the event. */
	CHECK_EQ(dfs_write(dfs, reader, &sgl, 0, &ev), 0);
	CHECK_EQ(daos_eq_poll(eqh, 1, DAOS_EQ_WAIT, 2, done), 1);
	CHECK_EQ(done[0]->ev_error, EPERM);
	CHECK_EQ(daos_cont_destroy(poh, "none-such", 0, &ev), 0);
	CHECK_EQ(daos_eq_poll(eqh, 1, DAOS_EQ_WAIT, 2, done), 1);
	CHECK_EQ(done[0]->ev_error, -DER_NONEXIST);
	/* The same event again: the error of the last time is gone. */
	CHECK_EQ(dfs_write(dfs, file, &sgl, 0, &ev), 0);
	CHECK_EQ(daos_eq_poll(eqh, 1, DAOS_EQ_WAIT, 2, done), 1);
	CHECK_EQ(done[0]->ev_error, 0);
	CHECK_EQ(daos_event_fini(&ev), 0);
	CHECK_EQ(daos_eq_destroy(eqh, 0), 0);
	/* fio takes -DER_ALREADY of a second daos_init for success; 0 is. */
	rc = daos_init();
	CHECK(rc == 0 || rc == -DER_ALREADY);
	CHECK_EQ(daos_fini(), 0);
	CHECK_EQ(dfs_release(reader), 0);
	CHECK_EQ(dfs_release(file), 0);
}

/* A transfer of nothing completes its event, like any other. */
static void
trap_02(void)
{
	dfs_obj_t    *file = open_file("nothing", O_RDWR | O_CREAT);
	d_iov_t       none[2];
	d_sg_list_t   empty = {0, 0, NULL}, zero = {2, 0, none}, *lists[2];
	dfs_iod_t     no_ranges = {0, NULL};
	daos_handle_t eqh;
	daos_event_t  ev, lone, *done;
	daos_size_t   read_size, size = 1;

	lists[0] = &empty;
	lists[1] = &zero;
	d_iov_set(&none[0], NULL, 0);
	d_iov_set(&none[1], &size, 0);
	CHECK_EQ(daos_eq_create(&eqh), 0);
	CHECK_EQ(daos_event_init(&ev, eqh, NULL), 0);
	CHECK_EQ(daos_event_init(&lone, DAOS_HDL_INVAL, NULL), 0);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(dfs_write(dfs, file, lists[i], 4096, &ev), 0);
		CHECK_EQ(daos_eq_poll(eqh, 1, DAOS_EQ_WAIT, 1, &done), 1);
		CHECK(done == &ev && ev.ev_error == 0);
		read_size = 77;
		CHECK_EQ(dfs_read(dfs, file, lists[i], 0, &read_size, &ev), 0);
		CHECK_EQ(daos_eq_poll(eqh, 1, DAOS_EQ_WAIT, 1, &done), 1);
		CHECK(done == &ev && ev.ev_error == 0);
		CHECK_EQ(read_size, 0);
		read_size = 77;
		CHECK_EQ(dfs_read(dfs, file, lists[i], 0, &read_size, &lone), 0);
		finish(&lone);
		CHECK_EQ(lone.ev_error, 0);
		CHECK_EQ(read_size, 0);
		read_size = 77;
		CHECK_EQ(dfs_readx(dfs, file, &no_ranges, lists[i], &read_size, &lone), 0);
		finish(&lone);
		CHECK_EQ(read_size, 0);
		CHECK_EQ(dfs_writex(dfs, file, &no_ranges, lists[i], NULL), 0);
	}
	/* And changes nothing. */
	CHECK_EQ(dfs_get_size(dfs, file, &size), 0);
	CHECK_EQ(size, 0);
	CHECK_EQ(daos_event_fini(&lone), 0);
	CHECK_EQ(daos_event_fini(&ev), 0);
	CHECK_EQ(daos_eq_destroy(eqh, 0), 0);
	CHECK_EQ(dfs_release(file), 0);
}

/* An I/O as fio has it: its event inside. */
struct io_unit {
	char         block[4096];
	daos_event_t ev;
	daos_size_t  read_size;
	d_iov_t      iov;
	d_sg_list_t  sgl;
	int          number;
};

#define UNITS 8

static void *
one_queue_per_thread(void *arg)
{
	dfs_obj_t     *file = (dfs_obj_t *)arg;
	daos_handle_t  eqh;
	struct io_unit units[UNITS];
	daos_event_t  *done[UNITS];
	int            seen[UNITS] = {0};

	CHECK_EQ(daos_eq_create(&eqh), 0);
	for (int i = 0; i < UNITS; i++) {
		units[i].number = i;
		d_iov_set(&units[i].iov, units[i].block, sizeof(units[i].block));
		units[i].sgl.sg_nr   = 1;
		units[i].sgl.sg_iovs = &units[i].iov;
		CHECK_EQ(daos_event_init(&units[i].ev, eqh, NULL), 0);
		CHECK_EQ(dfs_read(dfs, file, &units[i].sgl, i * 4096, &units[i].read_size, &units[i].ev),
			 0);
	}
	for (int left = 2 * UNITS; left > 0;) {
		int n = daos_eq_poll(eqh, 0, DAOS_EQ_NOWAIT, UNITS, done);

		CHECK(n >= 0 && n <= UNITS);
		for (int i = 0; i < n; i++) {
			struct io_unit *io =
			    (struct io_unit *)((char *)done[i] - offsetof(struct io_unit, ev));

			CHECK_EQ(io->ev.ev_error, 0);
			CHECK_EQ(io->read_size, 4096);
			CHECK_EQ(io->block[7], 'a' + io->number);
			CHECK_EQ(daos_event_fini(&io->ev), 0);
			left--;
			if (seen[io->number]++ > 0)
				continue;
			memset(io->block, 0, sizeof(io->block));
			CHECK_EQ(daos_event_init(&io->ev, eqh, NULL), 0);
			CHECK_EQ(dfs_read(dfs, file, &io->sgl, io->number * 4096, &io->read_size, &io->ev),
				 0);
		}
	}
	CHECK_EQ(daos_eq_destroy(eqh, 0), 0);
	return NULL;
}

/* Events without a queue move on while they are tested; with one, the caller's struct is found
 * from the event. */
static void
trap_03(void)
{
	dfs_obj_t    *file = open_file("events", O_RDWR | O_CREAT);
	char          block[4096];
	d_iov_t       iov;
	d_sg_list_t   sgl = {1, 0, &iov};
	daos_event_t  ev;
	bool          flag = false;
	pthread_t     threads[4];

	CHECK_EQ(sizeof(daos_event_t), 176);
	CHECK_EQ(__alignof__(daos_event_t), 8);
	CHECK_EQ(daos_event_init(&ev, DAOS_HDL_INVAL, NULL), 0);
	/* One that was never launched is finished. */
	CHECK_EQ(daos_event_test(&ev, DAOS_EQ_NOWAIT, &flag), 0);
	CHECK(flag);
	for (int i = 0; i < UNITS; i++) {
		memset(block, 'a' + i, sizeof(block));
		d_iov_set(&iov, block, sizeof(block));
		CHECK_EQ(dfs_write(dfs, file, &sgl, i * 4096, &ev), 0);
		finish(&ev);
		CHECK_EQ(ev.ev_error, 0);
	}
	CHECK_EQ(daos_event_fini(&ev), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, one_queue_per_thread, file), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	CHECK_EQ(dfs_release(file), 0);
}

/* Global handles as IOR makes them: asks for the length, sets both lengths, fills. */
#define EXPORT(glob, call)                                                                         \
	do {                                                                                       \
		memset(&(glob), 0, sizeof(glob));                                                  \
		CHECK_EQ(call, 0);                                                                 \
		CHECK((glob).iov_buf_len > 0);                                                     \
		(glob).iov_buf = malloc((glob).iov_buf_len);                                       \
		(glob).iov_len = (glob).iov_buf_len;                                               \
		CHECK_EQ(call, 0);                                                                 \
	} while (0)

/* Global handles hold no server state: they are good after the exporter closed its own. */
static void
trap_04(void)
{
	daos_handle_t exporter, cont, poh2, coh2, bad;
	d_iov_t       pool_glob, cont_glob, dfs_glob, file_glob, small;
	dfs_t        *mount, *mount2, *wrong;
	dfs_obj_t    *file, *file2;
	mode_t        mode;
	daos_size_t   chunk, read_size;
	char          tiny[4], data[4] = "abc", back[4];
	char          other_name[160];
	d_iov_t       iov;
	d_sg_list_t   sgl = {1, 0, &iov};

	CHECK_EQ(daos_pool_connect(pool_name, NULL, DAOS_PC_RW, &exporter, NULL, NULL), 0);
	CHECK_EQ(daos_cont_open(exporter, cont_name, DAOS_COO_RW, &cont, NULL, NULL), 0);
	CHECK_EQ(dfs_mount(exporter, cont, O_RDWR, &mount), 0);
	CHECK_EQ(dfs_open(mount, NULL, "global", S_IFREG | 0640, O_RDWR | O_CREAT, 0, 1 << 16, NULL, &file),
		 0);
	d_iov_set(&iov, data, 4);
	CHECK_EQ(dfs_write(mount, file, &sgl, 0, NULL), 0);
	EXPORT(pool_glob, daos_pool_local2global(exporter, &pool_glob));
	EXPORT(cont_glob, daos_cont_local2global(cont, &cont_glob));
	EXPORT(dfs_glob, dfs_local2global(mount, &dfs_glob));
	EXPORT(file_glob, dfs_obj_local2global(mount, file, &file_glob));
	d_iov_set(&small, tiny, sizeof(tiny));
	CHECK_EQ(daos_pool_local2global(exporter, &small), -DER_TRUNC);
	d_iov_set(&small, tiny, sizeof(tiny));
	CHECK_EQ(daos_cont_local2global(cont, &small), -DER_TRUNC);
	d_iov_set(&small, tiny, sizeof(tiny));
	CHECK_EQ(dfs_local2global(mount, &small), ENOBUFS);
	d_iov_set(&small, tiny, sizeof(tiny));
	CHECK_EQ(dfs_obj_local2global(mount, file, &small), ENOBUFS);
	CHECK_EQ(dfs_release(file), 0);
	CHECK_EQ(dfs_umount(mount), 0);
	CHECK_EQ(daos_cont_close(cont, NULL), 0);
	CHECK_EQ(daos_pool_disconnect(exporter, NULL), 0);

	CHECK_EQ(daos_pool_global2local(pool_glob, &poh2), 0);
	CHECK_EQ(daos_cont_global2local(poh2, cont_glob, &coh2), 0);
	CHECK_EQ(dfs_global2local(poh2, coh2, O_RDWR, dfs_glob, &mount2), 0);
	CHECK_EQ(dfs_obj_global2local(mount2, O_RDWR, file_glob, &file2), 0);
	CHECK_EQ(dfs_get_mode(file2, &mode), 0);
	CHECK_EQ(mode, S_IFREG | 0640);
	CHECK_EQ(dfs_get_chunk_size(file2, &chunk), 0);
	CHECK_EQ(chunk, 1 << 16);
	d_iov_set(&iov, back, 4);
	CHECK_EQ(dfs_read(mount2, file2, &sgl, 0, &read_size, NULL), 0);
	CHECK_EQ(read_size, 4);
	CHECK_STR(back, "abc");
	CHECK_EQ(dfs_release(file2), 0);

	/* One kind is not taken for another, and a file not into another container. */
	CHECK_EQ(daos_pool_global2local(cont_glob, &bad), -DER_INVAL);
	CHECK_EQ(daos_cont_global2local(poh2, pool_glob, &bad), -DER_INVAL);
	CHECK_EQ(dfs_global2local(poh2, coh2, O_RDWR, file_glob, &wrong), EINVAL);
	snprintf(other_name, sizeof(other_name), "%s-4", cont_name);
	CHECK_EQ(dfs_cont_create_with_label(poh, other_name, NULL, NULL, &bad, &wrong), 0);
	CHECK_EQ(dfs_obj_global2local(wrong, O_RDWR, file_glob, &file2), EINVAL);
	CHECK_EQ(dfs_umount(wrong), 0);
	CHECK(dfs_global2local(poh2, bad, O_RDWR, dfs_glob, &wrong) > 0);
	CHECK_EQ(daos_cont_close(bad, NULL), 0);
	CHECK_EQ(daos_cont_destroy(poh, other_name, 0, NULL), 0);

	CHECK_EQ(dfs_umount(mount2), 0);
	CHECK_EQ(daos_cont_close(coh2, NULL), 0);
	CHECK_EQ(daos_pool_disconnect(poh2, NULL), 0);
	free(pool_glob.iov_buf);
	free(cont_glob.iov_buf);
	free(dfs_glob.iov_buf);
	free(file_glob.iov_buf);
}

/* Only containers with a file system are mounted; flags say how. */
static void
trap_15(void)
{
	char          name[160];
	daos_handle_t plain, reader;
	dfs_t        *mount;
	dfs_attr_t    attr;

	snprintf(name, sizeof(name), "%s-15", cont_name);
	CHECK_EQ(daos_cont_create_with_label(poh, name, NULL, NULL, NULL), 0);
	CHECK_EQ(daos_cont_open(poh, name, DAOS_COO_RW, &plain, NULL, NULL), 0);
	CHECK_EQ(dfs_mount(poh, plain, O_RDWR, &mount), EINVAL);
	CHECK_EQ(daos_cont_close(plain, NULL), 0);
	CHECK_EQ(daos_cont_destroy(poh, name, 0, NULL), 0);

	CHECK_EQ(dfs_mount(poh, coh, O_RDWR | DFS_RELAXED, &mount), 0);
	CHECK_EQ(dfs_umount(mount), 0);
	CHECK_EQ(dfs_mount(poh, coh, DFS_RDWR | DFS_BALANCED, &mount), 0);
	CHECK_EQ(dfs_query(mount, &attr), 0);
	CHECK_EQ(attr.da_mode, DFS_BALANCED);
	CHECK_EQ(dfs_umount(mount), 0);
	CHECK_EQ(dfs_mount(poh, coh, DFS_RDONLY, &mount), 0);
	CHECK_EQ(dfs_mkdir(mount, NULL, "no", 0755, 0), EPERM);
	CHECK_EQ(dfs_umount(mount), 0);
	CHECK_EQ(daos_cont_open(poh, cont_name, DAOS_COO_RO, &reader, NULL, NULL), 0);
	CHECK_EQ(dfs_mount(poh, reader, O_RDWR, &mount), EPERM);
	CHECK_EQ(dfs_mount(poh, reader, O_RDONLY, &mount), 0);
	CHECK_EQ(dfs_umount(mount), 0);
	CHECK_EQ(daos_cont_close(reader, NULL), 0);
}

/* IOR adds up both kinds of media of a pool, total and free. */
static void
trap_17(void)
{
	daos_pool_info_t info;
	daos_handle_t    again;

	for (int all = 0; all < 2; all++) {
		memset(&info, 0, sizeof(info));
		info.pi_bits = all ? (uint64_t)DPI_ALL : (uint64_t)DPI_SPACE;
		CHECK_EQ(daos_pool_query(poh, NULL, &info, NULL, NULL), 0);
		for (int media = DAOS_MEDIA_SCM; media <= DAOS_MEDIA_NVME; media++) {
			uint64_t total = info.pi_space.ps_space.s_total[media];
			uint64_t avail = info.pi_space.ps_space.s_free[media];

			CHECK(total > 0);
			CHECK(avail > 0 && avail <= total);
			CHECK(info.pi_space.ps_free_min[media] <= info.pi_space.ps_free_max[media]);
		}
		CHECK_EQ(info.pi_ntargets, 4);
		CHECK_EQ(info.pi_nnodes, 2);
	}
	memset(&info, 0, sizeof(info));
	info.pi_bits = DPI_SPACE;
	CHECK_EQ(daos_pool_connect(pool_name, NULL, DAOS_PC_RO, &again, &info, NULL), 0);
	CHECK(info.pi_space.ps_space.s_total[DAOS_MEDIA_NVME] > 0);
	/* 0 is "in progress": programs that wait for a rebuild waited for ever. */
	CHECK_EQ(info.pi_rebuild_st.rs_state, DRS_COMPLETED);
	CHECK_EQ(info.pi_rebuild_st.rs_errno, 0);
	CHECK_EQ(daos_pool_disconnect(again, NULL), 0);
}

/* Every class name that IO500 configurations use; OC_UNKNOWN for others. */
static void
trap_18(void)
{
	static const char *const known[] = {"SX",       "S1",        "RP_2G1",    "RP_2GX",    "RP_3GX",
					    "RP_2G32",  "EC_2P1GX",  "EC_2P2GX",  "EC_4P2GX",  "EC_8P2GX",
					    "EC_16P1GX", "EC_16P2GX"};
	static const char *const unknown[] = {"", "SY", "RP_0G1", "RP_2", "EC_2P1", "S1 ", "nonsense"};
	char                     name[MAX_OBJ_CLASS_NAME_LEN];

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		int id = daos_oclass_name2id(known[i]);

		CHECK(id != OC_UNKNOWN);
		CHECK_EQ(daos_oclass_id2name((daos_oclass_id_t)id, name), 0);
		CHECK_STR(name, known[i]);
	}
	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
		CHECK_EQ(daos_oclass_name2id(unknown[i]), OC_UNKNOWN);
}

/* No class is weaker than a container's redundancy factor, and no other class is taken instead. */
static void
trap_19(void)
{
	char           name[160];
	daos_prop_t   *prop = daos_prop_alloc(1);
	dfs_attr_t     attr;
	dfs_obj_t     *file;
	dfs_obj_info_t info;
	int            rc;

	CHECK_EQ(DAOS_PROP_PO_REDUN_FAC_MAX, 4);
	CHECK_EQ(DAOS_PROP_CO_REDUN_RF4, 4);
	CHECK(prop != NULL);
	prop->dpp_entries[0].dpe_type = DAOS_PROP_CO_REDUN_FAC;
	prop->dpp_entries[0].dpe_val  = DAOS_PROP_CO_REDUN_RF1;
	memset(&attr, 0, sizeof(attr));
	attr.da_props          = prop;
	attr.da_file_oclass_id = OC_SX;
	attr.da_dir_oclass_id  = OC_S1;
	snprintf(name, sizeof(name), "%s-19", cont_name);
	CHECK(dfs_cont_create_with_label(poh, name, &attr, NULL, NULL, NULL) > 0);
	CHECK_EQ(daos_cont_destroy(poh, name, 0, NULL), -DER_NONEXIST);
	/* Beyond what this system holds: an error, not another factor. */
	prop->dpp_entries[0].dpe_val = 9;
	CHECK_EQ(daos_cont_create_with_label(poh, name, prop, NULL, NULL), -DER_INVAL);
	daos_prop_free(prop);
	rc = dfs_open(dfs, NULL, "copies", S_IFREG | 0644, O_RDWR | O_CREAT, OC_RP_2G1, 0, NULL, &file);
	if (rc == 0) {
		CHECK_EQ(dfs_obj_get_info(dfs, file, &info), 0);
		CHECK_EQ(info.doi_oclass_id, OC_RP_2G1);
		CHECK_EQ(dfs_release(file), 0);
	} else {
		CHECK_EQ(rc, EINVAL);
	}
}

/* daos_init is counted; a child that calls daos_reinit goes on with what its parent opened. */
static void
trap_20(void)
{
	dfs_obj_t  *file = open_file("forked", O_RDWR | O_CREAT);
	struct stat st;
	pid_t       pid;
	int         status;

	CHECK_EQ(daos_init(), 0);
	CHECK_EQ(daos_init(), 0);
	CHECK_EQ(daos_fini(), 0);
	CHECK_EQ(daos_fini(), 0);
	CHECK_EQ(dfs_ostat(dfs, file, &st), 0);
	CHECK_EQ(dfs_init(), 0);
	CHECK_EQ(dfs_init(), 0);
	CHECK_EQ(dfs_fini(), 0);
	CHECK_EQ(dfs_fini(), 0);
	CHECK_EQ(dfs_ostat(dfs, file, &st), 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		d_iov_t     iov;
		d_sg_list_t sgl = {1, 0, &iov};

		CHECK_EQ(daos_reinit(), 0);
		CHECK_EQ(dfs_ostat(dfs, file, &st), 0);
		d_iov_set(&iov, (void *)"child", 5);
		CHECK_EQ(dfs_write(dfs, file, &sgl, 0, NULL), 0);
		/* Twice, as libraries that each do it. */
		CHECK_EQ(daos_reinit(), 0);
		CHECK_EQ(dfs_write(dfs, file, &sgl, 5, NULL), 0);
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK_EQ(dfs_ostat(dfs, file, &st), 0);
	CHECK_EQ(st.st_size, 10);
	CHECK_EQ(dfs_release(file), 0);
}

int
main(int argc, char **argv)
{
	CHECK_EQ(argc, 3);
	pool_name = argv[1];
	cont_name = argv[2];
	CHECK_EQ(daos_init(), 0);
	CHECK_EQ(daos_pool_connect(pool_name, NULL, DAOS_PC_RW, &poh, NULL, NULL), 0);
	CHECK_EQ(dfs_cont_create_with_label(poh, cont_name, NULL, NULL, &coh, &dfs), 0);
	trap_01();
	trap_02();
	trap_03();
	trap_04();
	trap_15();
	trap_17();
	trap_18();
	trap_19();
	trap_20();
	CHECK_EQ(dfs_umount(dfs), 0);
	CHECK_EQ(daos_cont_close(coh, NULL), 0);
	CHECK_EQ(daos_cont_destroy(poh, cont_name, 0, NULL), 0);
	CHECK_EQ(daos_pool_disconnect(poh, NULL), 0);
	CHECK_EQ(daos_fini(), 0);
	return 0;
}
