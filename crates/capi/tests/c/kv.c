/* Key-value stores: values of all sizes, conditions, listings, removal. */
#include "store.h"

int
main(int argc, char **argv)
{
	daos_obj_id_t   oid;
	daos_handle_t   kv, ro;
	unsigned char  *value = (unsigned char *)malloc(1 << 20), *back = (unsigned char *)malloc(1 << 20);
	size_t          sizes[] = {0, 1, 1023, 1024, 1025, 4095, 4096, 4097, 100000, 1 << 20};
	char            name[64], names[512];
	daos_key_desc_t kds[7];
	daos_anchor_t   anchor;
	daos_size_t     size;
	uint32_t        nr;
	int             at, seen = 0;

	CHECK_EQ(argc, 3);
	begin(argv[1], argv[2]);
	oid = new_id(DAOS_OT_MULTI_HASHED, OC_S1);
	CHECK_EQ(daos_kv_open(coh, oid, DAOS_OO_RW, &kv, NULL), -DER_INVAL);
	oid = new_id(DAOS_OT_KV_HASHED, OC_SX);
	CHECK_EQ(daos_kv_open(coh, oid, DAOS_OO_RW, &kv, NULL), 0);
	CHECK_EQ(daos_kv_open(coh_ro, oid, DAOS_OO_RO, &ro, NULL), 0);
	fill(value, 1 << 20, 1);
	for (at = 0; at < 10; at++) {
		snprintf(name, sizeof(name), "key %d", at);
		CHECK_EQ(daos_kv_put(kv, DAOS_TX_NONE, 0, name, sizes[at], value, NULL), 0);
	}
	for (at = 0; at < 10; at++) {
		snprintf(name, sizeof(name), "key %d", at);
		size = 77;
		CHECK_EQ(daos_kv_get(ro, DAOS_TX_NONE, 0, name, &size, NULL, NULL), 0);
		CHECK_EQ(size, sizes[at]);
		memset(back, 0xee, 1 << 20);
		size = 1 << 20;
		CHECK_EQ(daos_kv_get(kv, DAOS_TX_NONE, DAOS_COND_KEY_GET, name, &size, back, NULL), 0);
		CHECK_EQ(size, sizes[at]);
		CHECK(memcmp(back, value, sizes[at]) == 0);
		CHECK(sizes[at] == 1 << 20 || back[sizes[at]] == 0xee);
		if (sizes[at] > 0) {
			size = sizes[at] - 1;
			CHECK_EQ(daos_kv_get(kv, DAOS_TX_NONE, 0, name, &size, back, NULL), -DER_REC2BIG);
			CHECK_EQ(size, sizes[at]);
		}
	}
	size = 9;
	CHECK_EQ(daos_kv_get(kv, DAOS_TX_NONE, 0, "absent", &size, back, NULL), 0);
	CHECK_EQ(size, 0);
	CHECK_EQ(daos_kv_get(kv, DAOS_TX_NONE, DAOS_COND_KEY_GET, "absent", &size, back, NULL), -DER_NONEXIST);
	CHECK_EQ(daos_kv_get(kv, DAOS_TX_NONE, DAOS_COND_KEY_GET, "absent", &size, NULL, NULL), -DER_NONEXIST);
	CHECK_EQ(daos_kv_put(kv, DAOS_TX_NONE, DAOS_COND_KEY_INSERT, "key 1", 1, value, NULL), -DER_EXIST);
	CHECK_EQ(daos_kv_put(kv, DAOS_TX_NONE, DAOS_COND_KEY_UPDATE, "absent", 1, value, NULL), -DER_NONEXIST);
	CHECK_EQ(daos_kv_put(kv, DAOS_TX_NONE, DAOS_COND_KEY_GET, "key 1", 1, value, NULL), -DER_INVAL);
	CHECK_EQ(daos_kv_put(ro, DAOS_TX_NONE, 0, "key 1", 1, value, NULL), -DER_NO_PERM);
	CHECK_EQ(daos_kv_put(kv, DAOS_TX_NONE, 0, "", 1, value, NULL), -DER_INVAL);
	CHECK_EQ(daos_kv_put(kv, DAOS_TX_NONE, 0, NULL, 1, value, NULL), -DER_INVAL);
	CHECK_EQ(daos_kv_put(kv, DAOS_TX_NONE, 0, "x", 1, NULL, NULL), -DER_INVAL);

	memset(&anchor, 0, sizeof(anchor));
	while (!daos_anchor_is_eof(&anchor)) {
		d_iov_t     iov = iov_of(names, sizeof(names));
		d_sg_list_t sgl = list_of(&iov, 1);
		char       *key = names;
		uint32_t    one;

		nr = 7;
		CHECK_EQ(daos_kv_list(kv, DAOS_TX_NONE, &nr, kds, &sgl, &anchor, NULL), 0);
		for (one = 0; one < nr; one++) {
			CHECK_EQ(kds[one].kd_key_len, 5);
			CHECK(memcmp(key, "key ", 4) == 0);
			seen |= 1 << (key[4] - '0');
			key += kds[one].kd_key_len;
		}
	}
	CHECK_EQ(seen, 0x3ff);
	CHECK_EQ(daos_kv_remove(kv, DAOS_TX_NONE, DAOS_COND_KEY_REMOVE, "absent", NULL), -DER_NONEXIST);
	CHECK_EQ(daos_kv_remove(kv, DAOS_TX_NONE, 0, "absent", NULL), 0);
	CHECK_EQ(daos_kv_remove(kv, DAOS_TX_NONE, DAOS_COND_KEY_REMOVE, "key 3", NULL), 0);
	CHECK_EQ(daos_kv_get(kv, DAOS_TX_NONE, DAOS_COND_KEY_GET, "key 3", &size, NULL, NULL), -DER_NONEXIST);
	CHECK_EQ(daos_kv_destroy(ro, DAOS_TX_NONE, NULL), -DER_NO_PERM);
	CHECK_EQ(daos_kv_destroy(kv, DAOS_TX_NONE, NULL), 0);
	CHECK_EQ(daos_kv_get(kv, DAOS_TX_NONE, DAOS_COND_KEY_GET, "key 4", &size, NULL, NULL), -DER_NONEXIST);
	CHECK_EQ(daos_kv_close(ro, NULL), 0);
	CHECK_EQ(daos_kv_close(kv, NULL), 0);
	CHECK_EQ(daos_kv_close(kv, NULL), -DER_NO_HDL);
	CHECK_EQ(daos_kv_remove(kv, DAOS_TX_NONE, 0, "key 4", NULL), -DER_NO_HDL);
	free(value);
	free(back);
	end(argv[2]);
	return 0;
}
