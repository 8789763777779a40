/*
 * Listings of directories: in pages, in parts, with attributes, by condition.
 * Arguments: pool, a name for the container.
 */
#include <time.h>
#include "mounted.h"

#define ENTRIES 60

/* Counts a name of the kind "e12" or, every third, one of 250 bytes that begins so. */
static void
count_name(const char *name, int *seen)
{
	int i = -1;

	CHECK_EQ(sscanf(name, "e%d", &i), 1);
	CHECK(i >= 0 && i < ENTRIES);
	CHECK_EQ(strlen(name) == 250, i % 3 == 0);
	seen[i]++;
}

static int
filler(dfs_t *fs, dfs_obj_t *dir, const char name[], void *arg)
{
	struct stat st;

	/* The API may be used from inside. */
	CHECK_EQ(dfs_stat(fs, dir, name, &st), 0);
	count_name(name, (int *)arg);
	return 0;
}

static int
stopper(dfs_t *fs, dfs_obj_t *dir, const char name[], void *arg)
{
	(void)fs, (void)dir, (void)name, (void)arg;
	return 77;
}

static void
test_listing(void)
{
	dfs_obj_t      *dir;
	struct dirent   dirs[16];
	struct stat     stats[16];
	daos_anchor_t   anchor, parts[5];
	char            name[300];
	int             seen[ENTRIES], i;
	uint32_t        nr, count;
	dfs_pipeline_t *pipe;
	dfs_predicate_t pred;
	uint64_t        scanned, all;
	daos_obj_id_t   oids[16];
	daos_size_t     csizes[16];

	CHECK_EQ(dfs_open(dfs, NULL, "list", S_IFDIR | 0755, O_RDWR | O_CREAT, OC_SX, 0, NULL, &dir), 0);
	memset(&anchor, 0, sizeof(anchor));
	nr = 16;
	CHECK_EQ(dfs_readdir(dfs, dir, &anchor, &nr, dirs), 0);
	CHECK_EQ(nr, 0);
	CHECK(daos_anchor_is_eof(&anchor));
	for (i = 0; i < ENTRIES; i++) {
		memset(name, 'n', sizeof(name));
		name[sprintf(name, "e%d", i)] = i % 3 == 0 ? '_' : 0;
		name[250]                     = 0;
		CHECK_EQ(dfs_release(open_file(dir, name, O_RDWR | O_CREAT)), 0);
	}
	for (count = 1; count <= 16; count += 5) {
		memset(seen, 0, sizeof(seen));
		memset(&anchor, 0, sizeof(anchor));
		while (!daos_anchor_is_eof(&anchor)) {
			nr = count;
			CHECK_EQ(dfs_readdir(dfs, dir, &anchor, &nr, dirs), 0);
			CHECK(nr <= count);
			while (nr > 0) {
				CHECK_EQ(dirs[--nr].d_type, DT_REG);
				count_name(dirs[nr].d_name, seen);
			}
		}
		nr = 3;
		CHECK_EQ(dfs_readdir(dfs, dir, &anchor, &nr, dirs), 0);
		CHECK_EQ(nr, 0);
		for (i = 0; i < ENTRIES; i++)
			CHECK_EQ(seen[i], 1);
	}
	memset(seen, 0, sizeof(seen));
	memset(&anchor, 0, sizeof(anchor));
	while (!daos_anchor_is_eof(&anchor)) {
		nr = 16;
		CHECK_EQ(dfs_readdirplus(dfs, dir, &anchor, &nr, dirs, stats), 0);
		while (nr > 0) {
			CHECK(S_ISREG(stats[--nr].st_mode));
			CHECK_EQ(stats[nr].st_ino, dirs[nr].d_ino);
			count_name(dirs[nr].d_name, seen);
		}
	}
	memset(&anchor, 0, sizeof(anchor));
	while (!daos_anchor_is_eof(&anchor)) {
		nr = 7;
		CHECK_EQ(dfs_iterate(dfs, dir, &anchor, &nr, 1024, filler, seen), 0);
		CHECK(nr <= 7);
	}
	for (i = 0; i < ENTRIES; i++)
		CHECK_EQ(seen[i], 2);
	memset(&anchor, 0, sizeof(anchor));
	nr = 7;
	CHECK_EQ(dfs_iterate(dfs, dir, &anchor, &nr, 1024, stopper, NULL), 77);
	CHECK_EQ(nr, 1);

	/* Parts of a directory, by anchors and by number. */
	memset(seen, 0, sizeof(seen));
	nr = 5;
	CHECK_EQ(dfs_obj_anchor_split(dir, &nr, parts), 0);
	CHECK_EQ(nr, 5);
	for (i = 0; i < 10; i++) {
		anchor = parts[i % 5];
		if (i >= 5)
			CHECK_EQ(dfs_obj_anchor_set(dir, i - 5, &anchor), 0);
		while (!daos_anchor_is_eof(&anchor)) {
			nr = 16;
			CHECK_EQ(dfs_readdir(dfs, dir, &anchor, &nr, dirs), 0);
			while (nr > 0)
				count_name(dirs[--nr].d_name, seen);
		}
	}
	for (i = 0; i < ENTRIES; i++)
		CHECK_EQ(seen[i], 2);
	CHECK_EQ(dfs_obj_anchor_set(dir, 5, &anchor), EINVAL);
	nr = 0;
	CHECK_EQ(dfs_obj_anchor_split(dir, &nr, NULL), 0);
	CHECK(nr >= 1);

	/* From a name on. */
	memset(&anchor, 0, sizeof(anchor));
	CHECK_EQ(dfs_dir_anchor_set(dir, "e7", &anchor), 0);
	nr = 1;
	CHECK_EQ(dfs_readdir(dfs, dir, &anchor, &nr, dirs), 0);
	CHECK_EQ(nr, 1);
	CHECK_STR(dirs[0].d_name, "e7");

	/* By condition. */
	memset(&pred, 0, sizeof(pred));
	strcpy(pred.dp_name, "e_");
	CHECK_EQ(dfs_pipeline_create(dfs, pred, DFS_FILTER_NAME, &pipe), 0);
	memset(&anchor, 0, sizeof(anchor));
	count = 0;
	all   = 0;
	while (!daos_anchor_is_eof(&anchor)) {
		nr = 16;
		CHECK_EQ(dfs_readdir_with_filter(dfs, dir, pipe, &anchor, &nr, dirs, oids, csizes, &scanned), 0);
		all += scanned;
		count += nr;
		while (nr > 0) {
			CHECK_EQ(strlen(dirs[--nr].d_name), 2);
			CHECK_EQ(csizes[nr], 1 << 20);
			CHECK(oids[nr].lo != 0);
		}
	}
	/* Of e0 to e9 those that are no long names. */
	CHECK_EQ(count, 6);
	CHECK_EQ(all, ENTRIES);
	CHECK_EQ(dfs_pipeline_destroy(pipe), 0);
	CHECK_EQ(dfs_pipeline_destroy(pipe), EINVAL);
	CHECK_EQ(dfs_pipeline_destroy(NULL), 0);
	pred.dp_newer = time(NULL) + 10000;
	CHECK_EQ(dfs_pipeline_create(dfs, pred, DFS_FILTER_NEWER, &pipe), 0);
	memset(&anchor, 0, sizeof(anchor));
	nr = 16;
	CHECK_EQ(dfs_readdir_with_filter(dfs, dir, pipe, &anchor, &nr, dirs, NULL, NULL, &scanned), 0);
	CHECK_EQ(nr, 0);
	CHECK_EQ(scanned, ENTRIES);
	CHECK_EQ(dfs_pipeline_destroy(pipe), 0);

	memset(&anchor, 0xff, sizeof(anchor));
	nr = 3;
	CHECK_EQ(dfs_readdir(dfs, dir, &anchor, &nr, dirs), EINVAL);
	CHECK_EQ(dfs_release(dir), 0);
	CHECK_EQ(dfs_remove(dfs, NULL, "list", true, NULL), 0);
}

int
main(int argc, char **argv)
{
	CHECK_EQ(argc, 3);
	begin(argv[1], argv[2]);
	test_listing();
	end(argv[2]);
	return 0;
}
