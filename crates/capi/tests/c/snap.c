/* Snapshots: made, listed, read by transactions, tables of objects and mounts, rolled back to,
 * destroyed. */
#include <daos_fs.h>
#include <fcntl.h>
#include <sys/stat.h>
#include "store.h"

static daos_handle_t kv;

static int
put(daos_handle_t th, const char *key, const char *value)
{
	return daos_kv_put(kv, th, 0, key, strlen(value), value, NULL);
}

static void
expect(daos_handle_t th, const char *key, const char *wanted)
{
	char        value[64];
	daos_size_t size = sizeof(value) - 1;

	CHECK_EQ(daos_kv_get(kv, th, 0, key, &size, value, NULL), 0);
	value[size] = '\0';
	CHECK_STR(value, wanted);
}

static uint32_t
objects_at(daos_epoch_t epoch)
{
	daos_handle_t oit;
	daos_anchor_t anchor;
	daos_obj_id_t page[8];
	uint32_t      nr, seen = 0;

	memset(&anchor, 0, sizeof(anchor));
	CHECK_EQ(daos_oit_open(coh, epoch, &oit, NULL), 0);
	while (!daos_anchor_is_eof(&anchor)) {
		nr = 8;
		CHECK_EQ(daos_oit_list(oit, page, &nr, &anchor, NULL), 0);
		seen += nr;
	}
	CHECK_EQ(daos_cont_snap_oit_destroy(coh, oit, NULL), 0);
	CHECK_EQ(daos_oit_close(oit, NULL), 0);
	return seen;
}

static void
values(void)
{
	daos_epoch_t       first, second, epochs[4];
	daos_epoch_range_t range;
	daos_handle_t      th, other;
	daos_cont_info_t   info;
	enum daos_snapshot_opts both;
	daos_anchor_t      anchor;
	char               monday[] = "monday", names[4][DAOS_SNAPSHOT_MAX_LEN];
	char              *buffers[4] = {names[0], names[1], NULL, names[3]};
	int                nr = 4;

	CHECK_EQ(put(DAOS_TX_NONE, "a", "old"), 0);
	CHECK_EQ(put(DAOS_TX_NONE, "b", "gone"), 0);
	CHECK_EQ(daos_cont_create_snap(coh, &first, monday, NULL), 0);
	CHECK_EQ(daos_cont_create_snap(coh, &second, monday, NULL), -DER_EXIST);
	CHECK_EQ(put(DAOS_TX_NONE, "a", "new"), 0);
	CHECK_EQ(daos_kv_remove(kv, DAOS_TX_NONE, 0, "b", NULL), 0);
	CHECK_EQ(put(DAOS_TX_NONE, "c", "later"), 0);
	CHECK_EQ(daos_kv_open(coh, new_id(DAOS_OT_KV_HASHED, OC_S1), DAOS_OO_RW, &other, NULL), 0);
	CHECK_EQ(daos_kv_put(other, DAOS_TX_NONE, 0, "x", 1, "y", NULL), 0);
	both = (enum daos_snapshot_opts)(DAOS_SNAP_OPT_CR | DAOS_SNAP_OPT_OIT);
	CHECK_EQ(daos_cont_create_snap_opt(coh, &second, NULL, both, NULL), 0);
	CHECK(second > first);
	CHECK_EQ(daos_cont_create_snap_opt(coh, &second, NULL, DAOS_SNAP_OPT_OIT, NULL), -DER_INVAL);
	CHECK_EQ(daos_cont_create_snap(coh_ro, NULL, NULL, NULL), -DER_NO_PERM);
	CHECK_EQ(daos_cont_create_snap(poh, NULL, NULL, NULL), -DER_NO_HDL);

	/* What there is. */
	memset(&anchor, 0, sizeof(anchor));
	CHECK_EQ(daos_cont_list_snap(coh, &nr, epochs, buffers, &anchor, NULL), 0);
	CHECK(daos_anchor_is_eof(&anchor));
	CHECK_EQ(nr, 2);
	CHECK(epochs[0] == first && epochs[1] == second);
	CHECK_STR(names[0], "monday");
	CHECK_STR(names[1], "");
	nr = 1;
	memset(&anchor, 0, sizeof(anchor));
	CHECK_EQ(daos_cont_list_snap(coh, &nr, NULL, NULL, &anchor, NULL), 0);
	CHECK_EQ(nr, 2);
	CHECK_EQ(daos_cont_query(coh, &info, NULL, NULL), 0);
	CHECK_EQ(info.ci_nsnapshots, 2);
	CHECK(info.ci_lsnapshot == second);

	/* What the first shows. */
	CHECK_EQ(daos_tx_open_snap(coh, first + 1, &th, NULL), -DER_NONEXIST);
	CHECK_EQ(daos_tx_open_snap(coh, first, &th, NULL), 0);
	expect(th, "a", "old");
	expect(th, "b", "gone");
	expect(th, "c", "");
	CHECK_EQ(put(th, "a", "x"), -DER_NO_PERM);
	CHECK_EQ(daos_tx_commit(th, NULL), 0);
	CHECK_EQ(daos_tx_close(th, NULL), 0);
	expect(DAOS_TX_NONE, "a", "new");
	expect(DAOS_TX_NONE, "b", "");
	CHECK_EQ(objects_at(first), 1);
	CHECK_EQ(objects_at(second), 2);
	CHECK_EQ(objects_at(DAOS_EPOCH_MAX), 2);
	CHECK_EQ(daos_oit_open(coh, first + 1, &th, NULL), -DER_NONEXIST);
	CHECK_EQ(daos_cont_snap_oit_create(coh, first, NULL, NULL), 0);
	CHECK_EQ(daos_cont_snap_oit_create(coh, first + 1, NULL, NULL), -DER_NONEXIST);

	/* Back to it, when nobody else has the container open. */
	CHECK_EQ(daos_cont_rollback(coh, first, NULL), -DER_BUSY);
	CHECK_EQ(daos_cont_close(coh_ro, NULL), 0);
	CHECK_EQ(daos_cont_rollback(coh, first + 1, NULL), -DER_NONEXIST);
	CHECK_EQ(daos_cont_rollback(coh, first, NULL), 0);
	expect(DAOS_TX_NONE, "a", "old");
	expect(DAOS_TX_NONE, "b", "gone");
	expect(DAOS_TX_NONE, "c", "");
	CHECK_EQ(put(DAOS_TX_NONE, "a", "newest"), 0);
	CHECK_EQ(daos_tx_open_snap(coh, second, &th, NULL), 0);
	expect(th, "a", "new");
	CHECK_EQ(daos_tx_close(th, NULL), 0);

	range.epr_lo = range.epr_hi = first;
	CHECK_EQ(daos_cont_destroy_snap(coh, range, NULL), 0);
	CHECK_EQ(daos_cont_destroy_snap(coh, range, NULL), -DER_NONEXIST);
	range.epr_hi = DAOS_EPOCH_MAX;
	CHECK_EQ(daos_cont_destroy_snap(coh, range, NULL), 0);
	range.epr_hi = 0;
	CHECK_EQ(daos_cont_destroy_snap(coh, range, NULL), -DER_INVAL);
	CHECK_EQ(daos_tx_open_snap(coh, second, &th, NULL), -DER_NONEXIST);
	expect(DAOS_TX_NONE, "a", "newest");
	CHECK_EQ(daos_kv_close(other, NULL), 0);
}

static void
files(const char *pool)
{
	static const char name[] = "snap-files";
	char         tuesday[] = "tuesday", data[8];
	dfs_t       *dfs, *old;
	dfs_obj_t   *file;
	struct stat  st;
	d_iov_t      iov;
	d_sg_list_t  sgl = {1, 0, &iov};
	daos_size_t  read;
	daos_handle_t files_poh, files_coh;
	daos_epoch_t epoch;

	CHECK_EQ(dfs_init(), 0);
	CHECK_EQ(dfs_connect(pool, NULL, name, O_RDWR | O_CREAT, NULL, &dfs), 0);
	CHECK_EQ(dfs_open(dfs, NULL, "file", S_IFREG | 0644, O_RDWR | O_CREAT, 0, 0, NULL, &file), 0);
	d_iov_set(&iov, (void *)"before", 6);
	CHECK_EQ(dfs_write(dfs, file, &sgl, 0, NULL), 0);
	CHECK_EQ(daos_pool_connect(pool, NULL, DAOS_PC_RW, &files_poh, NULL, NULL), 0);
	CHECK_EQ(daos_cont_open(files_poh, name, DAOS_COO_RW, &files_coh, NULL, NULL), 0);
	CHECK_EQ(daos_cont_create_snap(files_coh, &epoch, tuesday, NULL), 0);
	d_iov_set(&iov, (void *)"afterwards", 10);
	CHECK_EQ(dfs_write(dfs, file, &sgl, 0, NULL), 0);
	CHECK_EQ(dfs_release(file), 0);
	CHECK_EQ(dfs_remove(dfs, NULL, "file", false, NULL), 0);
	CHECK_EQ(dfs_mkdir(dfs, NULL, "later", 0755, 0), 0);

	CHECK_EQ(dfs_mount_snap(files_poh, files_coh, O_RDWR, epoch, NULL, &old), EINVAL);
	CHECK_EQ(dfs_mount_snap(files_poh, files_coh, O_RDONLY, epoch + 1, NULL, &old), ENOENT);
	CHECK_EQ(dfs_mount_snap(files_poh, files_coh, O_RDONLY, epoch, NULL, &old), 0);
	CHECK_EQ(dfs_stat(old, NULL, "later", &st), ENOENT);
	CHECK_EQ(dfs_stat(old, NULL, "file", &st), 0);
	CHECK_EQ(st.st_size, 6);
	CHECK_EQ(dfs_open(old, NULL, "file", S_IFREG, O_RDONLY, 0, 0, NULL, &file), 0);
	d_iov_set(&iov, data, sizeof(data));
	CHECK_EQ(dfs_read(old, file, &sgl, 0, &read, NULL), 0);
	CHECK_EQ(read, 6);
	CHECK_EQ(memcmp(data, "before", 6), 0);
	CHECK_EQ(dfs_release(file), 0);
	CHECK(dfs_mkdir(old, NULL, "new", 0755, 0) != 0);
	CHECK_EQ(dfs_umount(old), 0);
	CHECK_EQ(dfs_umount(old), EINVAL);

	/* By name, with the handles that go with it. */
	CHECK_EQ(dfs_connect_snap(pool, NULL, name, O_RDONLY, 0, "wednesday", &old), ENOENT);
	CHECK_EQ(dfs_connect_snap(pool, NULL, name, O_RDWR, 0, tuesday, &old), EINVAL);
	CHECK_EQ(dfs_connect_snap(pool, NULL, name, O_RDONLY, 0, tuesday, &old), 0);
	CHECK_EQ(dfs_stat(old, NULL, "file", &st), 0);
	CHECK_EQ(dfs_stat(dfs, NULL, "file", &st), ENOENT);
	CHECK_EQ(dfs_disconnect(old), 0);
	CHECK_EQ(daos_cont_close(files_coh, NULL), 0);
	CHECK_EQ(daos_pool_disconnect(files_poh, NULL), 0);
	CHECK_EQ(dfs_disconnect(dfs), 0);
	CHECK_EQ(dfs_destroy(pool, NULL, name, 0, NULL), 0);
	CHECK_EQ(dfs_fini(), 0);
}

int
main(int argc, char **argv)
{
	CHECK_EQ(argc, 3);
	begin(argv[1], argv[2]);
	CHECK_EQ(daos_kv_open(coh, new_id(DAOS_OT_KV_HASHED, OC_SX), DAOS_OO_RW, &kv, NULL), 0);
	values();
	CHECK_EQ(daos_kv_close(kv, NULL), 0);
	CHECK_EQ(daos_cont_open(poh, argv[2], DAOS_COO_RO, &coh_ro, NULL, NULL), 0);
	end(argv[2]);
	files(argv[1]);
	return 0;
}
