/* Many processes connect to one container that none of them has made yet. Of those that came while
 * the first was at it, some were told that it is busy, and some that there is no file system in it. */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <daos.h>
#include <daos_fs.h>
#include "check.h"

#define PROCESSES 40

static void
connect_once(const char *pool, const char *name, int start)
{
	dfs_t      *dfs;
	struct stat root;
	char        go;

	CHECK_EQ(dfs_init(), 0);
	CHECK_EQ(read(start, &go, 1), 0);
	CHECK_EQ(dfs_connect(pool, NULL, name, O_RDWR | O_CREAT, NULL, &dfs), 0);
	CHECK_EQ(dfs_stat(dfs, NULL, NULL, &root), 0);
	CHECK_EQ(dfs_disconnect(dfs), 0);
	CHECK_EQ(dfs_fini(), 0);
}

int
main(int argc, char **argv)
{
	pid_t pids[PROCESSES];
	int   start[2], status, at, failed = 0;
	dfs_t *dfs;

	CHECK_EQ(argc, 3);
	CHECK_EQ(pipe(start), 0);
	for (at = 0; at < PROCESSES; at++) {
		pids[at] = fork();
		CHECK(pids[at] >= 0);
		if (pids[at] == 0) {
			close(start[1]);
			connect_once(argv[1], argv[2], start[0]);
			_exit(0);
		}
	}
	/* All read the end of the pipe at once. */
	close(start[1]);
	for (at = 0; at < PROCESSES; at++) {
		CHECK_EQ(waitpid(pids[at], &status, 0), pids[at]);
		failed += status != 0;
	}
	CHECK_EQ(failed, 0);
	CHECK_EQ(dfs_init(), 0);
	CHECK_EQ(dfs_connect(argv[1], NULL, argv[2], O_RDWR, NULL, &dfs), 0);
	CHECK_EQ(dfs_disconnect(dfs), 0);
	CHECK_EQ(dfs_destroy(argv[1], NULL, argv[2], 0, NULL), 0);
	CHECK_EQ(dfs_fini(), 0);
	return 0;
}
