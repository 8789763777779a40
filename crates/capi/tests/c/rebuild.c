/*
 * What daos_pool_query says of a rebuild. Arguments: pool, a name for nothing, and what there is: "idle"; "busy", something moves;
 * "stopped", something is to move and may not; "ends", something moves and comes to an end; "done", others stand in.
 */
#include <unistd.h>
#include <daos.h>
#include <daos_errno.h>
#include "check.h"

static daos_handle_t poh;

static struct daos_rebuild_status
status(uint64_t bits)
{
	daos_pool_info_t info;

	memset(&info, 0, sizeof(info));
	info.pi_bits = bits;
	CHECK_EQ(daos_pool_query(poh, NULL, &info, NULL, NULL), 0);
	CHECK_EQ(info.pi_ntargets, 3);
	return info.pi_rebuild_st;
}

int
main(int argc, char **argv)
{
	struct daos_rebuild_status st;
	const char                *role;
	daos_pool_info_t           first;

	CHECK_EQ(argc, 4);
	role = argv[3];
	CHECK_EQ(daos_init(), 0);
	memset(&first, 0, sizeof(first));
	CHECK_EQ(daos_pool_connect(argv[1], NULL, DAOS_PC_RW, &poh, &first, NULL), 0);
	st = status(DPI_REBUILD_STATUS);
	if (strcmp(role, "ends") == 0) {
		/* As programs wait that have excluded a target; what they are shown is of now, not of when they came. */
		while ((st = status(DPI_REBUILD_STATUS)).rs_state == DRS_IN_PROGRESS)
			usleep(50000);
		role = "done";
	}
	/* Told at connection, too, and to those who ask for all. */
	CHECK_EQ(status(DPI_ALL).rs_state, st.rs_state);
	if (strcmp(role, "idle") == 0) {
		CHECK_EQ(first.pi_rebuild_st.rs_state, DRS_COMPLETED);
		CHECK_EQ(st.rs_state, DRS_COMPLETED);
		CHECK_EQ(st.rs_version, 0);
		CHECK_EQ(st.rs_errno, 0);
	} else if (strcmp(role, "busy") == 0) {
		CHECK_EQ(first.pi_rebuild_st.rs_state, DRS_IN_PROGRESS);
		CHECK_EQ(st.rs_done, 0);
		CHECK(st.rs_version > 0);
		CHECK_EQ(st.rs_errno, 0);
	} else if (strcmp(role, "stopped") == 0) {
		CHECK_EQ(first.pi_rebuild_st.rs_state, DRS_NOT_STARTED);
		CHECK_EQ(st.rs_state, DRS_NOT_STARTED);
		CHECK_EQ(st.rs_errno, -DER_OP_CANCELED);
	} else {
		CHECK_STR(role, "done");
		CHECK_EQ(st.rs_state, DRS_COMPLETED);
		CHECK(st.rs_version > 0);
		CHECK_EQ(st.rs_errno, 0);
		/* What came, and how long it took at most: less than a second may be none. */
		CHECK(st.rs_obj_nr > 0);
		CHECK(st.rs_rec_nr > 0);
		CHECK(st.rs_size > 0);
		CHECK(st.rs_seconds < 3600);
		/* It moves no more, so nothing is left. */
		CHECK_EQ(st.rs_toberb_obj_nr, 0);
	}
	CHECK_EQ(daos_pool_disconnect(poh, NULL), 0);
	CHECK_EQ(daos_fini(), 0);
	return 0;
}
