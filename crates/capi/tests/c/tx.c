/* Transactions: writes that wait for the commit, over several targets; lost conflicts; restart,
 * abort, read-only; one transaction used with events of a queue and without. */
#include "store.h"

static daos_handle_t kv, other;

static void
expect(daos_handle_t store, const char *key, const char *wanted)
{
	char        value[64];
	daos_size_t size = sizeof(value) - 1;

	CHECK_EQ(daos_kv_get(store, DAOS_TX_NONE, 0, key, &size, value, NULL), 0);
	value[size] = '\0';
	CHECK_STR(value, wanted);
}

static int
put(daos_handle_t store, daos_handle_t th, uint64_t flags, const char *key, const char *value)
{
	return daos_kv_put(store, th, flags, key, strlen(value), value, NULL);
}

int
main(int argc, char **argv)
{
	daos_handle_t th, eq;
	daos_event_t  event, *done;
	char          value[64];
	daos_size_t   size;
	daos_epoch_t  epoch = 0;

	CHECK_EQ(argc, 3);
	begin(argv[1], argv[2]);
	CHECK_EQ(daos_kv_open(coh, new_id(DAOS_OT_KV_HASHED, OC_SX), DAOS_OO_RW, &kv, NULL), 0);
	CHECK_EQ(daos_kv_open(coh, new_id(DAOS_OT_KV_HASHED, OC_S1), DAOS_OO_RW, &other, NULL), 0);

	/* Over several targets, at one moment. */
	CHECK_EQ(daos_tx_open(coh, &th, 0, NULL), 0);
	CHECK_EQ(daos_tx_hdl2epoch(th, &epoch), -DER_UNINIT);
	CHECK_EQ(put(kv, th, 0, "a", "1"), 0);
	CHECK_EQ(put(kv, th, 0, "b", "2"), 0);
	CHECK_EQ(put(other, th, 0, "c", "3"), 0);
	expect(kv, "a", "");
	CHECK_EQ(daos_tx_commit(th, NULL), 0);
	expect(kv, "a", "1");
	expect(kv, "b", "2");
	expect(other, "c", "3");
	CHECK_EQ(daos_tx_hdl2epoch(th, &epoch), 0);
	CHECK(epoch > 0);
	CHECK_EQ(daos_tx_commit(th, NULL), -DER_ALREADY);
	CHECK_EQ(daos_tx_restart(th, NULL), -DER_NO_PERM);
	CHECK_EQ(put(kv, th, 0, "a", "9"), -DER_NO_HDL);
	CHECK_EQ(daos_tx_close(th, NULL), 0);
	CHECK_EQ(daos_tx_close(th, NULL), -DER_NO_HDL);
	CHECK_EQ(put(kv, th, 0, "a", "9"), -DER_NO_HDL);

	/* Given up. */
	CHECK_EQ(daos_tx_open(coh, &th, 0, NULL), 0);
	CHECK_EQ(put(kv, th, 0, "a", "9"), 0);
	CHECK_EQ(daos_tx_abort(th, NULL), 0);
	CHECK_EQ(daos_tx_close(th, NULL), 0);
	expect(kv, "a", "1");

	/* What it read has changed: restart, and then it works. */
	CHECK_EQ(daos_tx_open(coh, &th, 0, NULL), 0);
	size = sizeof(value);
	CHECK_EQ(daos_kv_get(kv, th, 0, "a", &size, value, NULL), 0);
	CHECK_EQ(put(other, th, 0, "c", "from a"), 0);
	CHECK_EQ(put(kv, DAOS_TX_NONE, 0, "a", "changed"), 0);
	CHECK_EQ(daos_tx_commit(th, NULL), -DER_TX_RESTART);
	expect(other, "c", "3");
	CHECK_EQ(put(kv, th, 0, "a", "9"), -DER_TX_RESTART);
	CHECK_EQ(daos_tx_restart(th, NULL), 0);
	size = sizeof(value);
	CHECK_EQ(daos_kv_get(kv, th, 0, "a", &size, value, NULL), 0);
	CHECK_EQ(size, strlen("changed"));
	CHECK_EQ(put(other, th, 0, "c", "from a"), 0);
	CHECK_EQ(daos_tx_commit(th, NULL), 0);
	expect(other, "c", "from a");
	CHECK_EQ(daos_tx_close(th, NULL), 0);

	/* A condition that does not hold undoes all of it. */
	CHECK_EQ(daos_tx_open(coh, &th, 0, NULL), 0);
	CHECK_EQ(put(kv, th, 0, "d", "4"), 0);
	CHECK_EQ(put(other, th, DAOS_COND_KEY_INSERT, "c", "4"), -DER_EXIST);
	CHECK_EQ(put(other, th, DAOS_COND_KEY_INSERT, "late", "4"), 0);
	CHECK_EQ(put(other, DAOS_TX_NONE, 0, "late", "first"), 0);
	CHECK_EQ(daos_tx_commit(th, NULL), -DER_EXIST);
	expect(kv, "d", "");
	CHECK_EQ(daos_tx_close(th, NULL), 0);

	/* Only for reading. */
	CHECK_EQ(daos_tx_open(coh, &th, DAOS_TF_RDONLY, NULL), 0);
	CHECK_EQ(put(kv, th, 0, "a", "9"), -DER_NO_PERM);
	size = sizeof(value);
	CHECK_EQ(daos_kv_get(kv, th, 0, "a", &size, value, NULL), 0);
	CHECK_EQ(daos_tx_commit(th, NULL), 0);
	CHECK_EQ(daos_tx_close(th, NULL), 0);

	/* Parts of one transaction in a queue's context and in the thread's. */
	CHECK_EQ(daos_eq_create(&eq), 0);
	CHECK_EQ(daos_event_init(&event, eq, NULL), 0);
	CHECK_EQ(daos_tx_open(coh, &th, 0, NULL), 0);
	CHECK_EQ(daos_kv_put(kv, th, 0, "e", 1, "5", &event), 0);
	CHECK_EQ(daos_eq_poll(eq, 0, DAOS_EQ_WAIT, 1, &done), 1);
	CHECK_EQ(done->ev_error, 0);
	CHECK_EQ(put(other, th, 0, "f", "6"), 0);
	CHECK_EQ(daos_tx_commit(th, &event), 0);
	CHECK_EQ(daos_eq_poll(eq, 0, DAOS_EQ_WAIT, 1, &done), 1);
	CHECK_EQ(done->ev_error, 0);
	expect(kv, "e", "5");
	expect(other, "f", "6");
	CHECK_EQ(daos_tx_close(th, NULL), 0);
	CHECK_EQ(daos_event_fini(&event), 0);
	CHECK_EQ(daos_eq_destroy(eq, 0), 0);

	CHECK_EQ(daos_tx_open(coh, NULL, 0, NULL), -DER_INVAL);
	CHECK_EQ(daos_tx_open(coh, &th, 1 << 9, NULL), -DER_INVAL);
	CHECK_EQ(daos_tx_open(kv, &th, 0, NULL), -DER_NO_HDL);
	CHECK_EQ(daos_tx_open_snap(coh, 5, &th, NULL), -DER_NONEXIST);
	CHECK_EQ(daos_kv_close(kv, NULL), 0);
	CHECK_EQ(daos_kv_close(other, NULL), 0);
	end(argv[2]);
	return 0;
}
