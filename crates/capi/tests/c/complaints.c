/* Errors whose reason a user should read: each function says it once for each kind of error. */
#include <daos.h>
#include <daos_fs.h>
#include "check.h"

int
main(void)
{
	daos_handle_t none = {12345}, coh;
	int           at;

	for (at = 0; at < 3; at++) {
		CHECK_EQ(daos_pool_disconnect(none, NULL), -DER_NO_HDL);
		CHECK_EQ(daos_cont_open(none, "c", DAOS_COO_RW | DAOS_COO_EX, &coh, NULL, NULL), -DER_NO_HDL);
		CHECK_EQ(dfs_umount((dfs_t *)&none), EINVAL);
	}
	CHECK_EQ(daos_cont_open(none, "", DAOS_COO_RW, &coh, NULL, NULL), -DER_INVAL);
	return 0;
}
