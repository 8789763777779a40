/* Containers and pools: attributes, properties that are kept, owners and access control lists,
 * tables of objects, lists of containers, targets and pools. */
#include "store.h"
#include <daos_cont.h>
#include <daos_mgmt.h>
#include <daos_pool.h>
#include <daos_prop.h>
#include <daos_security.h>
#include <gurt/common.h>

static void
attributes(bool of_pool)
{
	char const  *names[]   = {"first", "second", "third one"};
	char const  *values[]  = {"1", "two two", "333"};
	size_t       sizes[]   = {1, 7, 3}, size;
	char         room[3][8], list[64];
	void        *buffers[] = {room[0], room[1], room[2]};
	char const  *absent[]  = {"first", "absent"};
	char const  *reserved[] = {"azekura.c.props"};
	int          rc;

#define ATTR(call, handle, ...) (of_pool ? daos_pool_##call##_attr(poh, __VA_ARGS__) : daos_cont_##call##_attr(handle, __VA_ARGS__))
	CHECK_EQ(ATTR(set, coh, 3, names, (void const *const *)values, sizes, NULL), 0);
	memset(room, 0, sizeof(room));
	sizes[0] = sizes[2] = 8;
	sizes[1]            = 3;
	CHECK_EQ(ATTR(get, coh_ro, 3, names, buffers, sizes, NULL), 0);
	CHECK(sizes[0] == 1 && sizes[1] == 7 && sizes[2] == 3);
	CHECK_STR(room[0], "1");
	CHECK_STR(room[1], "two");
	CHECK_STR(room[2], "333");
	sizes[1] = 0;
	CHECK_EQ(ATTR(get, coh_ro, 3, names, NULL, sizes, NULL), 0);
	CHECK_EQ(sizes[1], 7);
	/* One that is not there has no bytes; it was an error. */
	CHECK_EQ(ATTR(get, coh_ro, 2, absent, buffers, sizes, NULL), 0);
	CHECK(sizes[0] == 1 && sizes[1] == 0);
	CHECK_EQ(ATTR(get, coh_ro, 0, names, buffers, sizes, NULL), -DER_INVAL);
	CHECK_EQ(ATTR(get, coh_ro, 1, reserved, buffers, sizes, NULL), 0);
	CHECK_EQ(sizes[0], 0);
	sizes[0] = 1;
	CHECK_EQ(ATTR(set, coh, 1, reserved, (void const *const *)values, sizes, NULL), -DER_INVAL);
	size = 0;
	CHECK_EQ(ATTR(list, coh_ro, NULL, &size, NULL), 0);
	CHECK_EQ(size, 6 + 7 + 10);
	memset(list, 'x', sizeof(list));
	size = 14;
	CHECK_EQ(ATTR(list, coh_ro, list, &size, NULL), 0);
	CHECK_EQ(size, 23);
	CHECK_STR(list, "first");
	CHECK_STR(list + 6, "second");
	CHECK(list[13] == 'x');
	/* Little room: as many names as there can be, not those up to the first that is too long. */
	size = 12;
	memset(list, 'x', sizeof(list));
	CHECK_EQ(ATTR(list, coh_ro, list, &size, NULL), 0);
	CHECK_EQ(size, 23);
	CHECK_STR(list, "first");
	CHECK(list[6] == 'x');
	/* Those that are there go; one that is not is no error. */
	rc = ATTR(del, coh, 2, absent, NULL);
	CHECK_EQ(rc, 0);
	size = 0;
	CHECK_EQ(ATTR(list, coh_ro, NULL, &size, NULL), 0);
	CHECK_EQ(size, 17);
	CHECK_EQ(ATTR(del, coh, 3, names, NULL), 0);
	CHECK_EQ(ATTR(list, coh_ro, NULL, &size, NULL), 0);
	CHECK_EQ(size, 0);
	if (!of_pool)
		CHECK_EQ(daos_cont_del_attr(coh_ro, 3, names, NULL), -DER_NO_PERM);
}

/* Makes a container with properties, tells them again, changes some. */
static void
properties(const char *name)
{
	char                     label[128], renamed[128];
	struct daos_prop_co_roots roots;
	struct daos_prop_entry   *entry;
	daos_prop_t              *prop = daos_prop_alloc(5), *told;
	daos_handle_t            cont;
	uint64_t                 number;
	uuid_t                   uuid;

	snprintf(label, sizeof(label), "%s-props", name);
	snprintf(renamed, sizeof(renamed), "%s-renamed", name);
	memset(&roots, 0, sizeof(roots));
	roots.cr_oids[1] = new_id(DAOS_OT_KV_HASHED, OC_S1);
	prop->dpp_entries[0].dpe_type = DAOS_PROP_CO_LABEL;
	prop->dpp_entries[0].dpe_str  = strdup(label);
	prop->dpp_entries[1].dpe_type = DAOS_PROP_CO_LAYOUT_TYPE;
	prop->dpp_entries[1].dpe_val  = DAOS_PROP_CO_LAYOUT_HDF5;
	prop->dpp_entries[2].dpe_type = DAOS_PROP_CO_ROOTS;
	CHECK_EQ(daos_prop_entry_set_ptr(&prop->dpp_entries[2], &roots, sizeof(roots)), 0);
	prop->dpp_entries[3].dpe_type = DAOS_PROP_CO_CSUM;
	prop->dpp_entries[3].dpe_val  = DAOS_PROP_CO_CSUM_SHA256;
	prop->dpp_entries[4].dpe_type = DAOS_PROP_CO_ALLOCED_OID;
	/* Without the numbers that were asked for there is no container. */
	prop->dpp_entries[4].dpe_val = UINT64_MAX;
	CHECK(daos_cont_create(poh, &uuid, prop, NULL) < 0);
	prop->dpp_entries[4].dpe_val = 1 << 21;
	CHECK_EQ(daos_cont_create(poh, &uuid, prop, NULL), 0);
	daos_prop_free(prop);
	CHECK_EQ(daos_cont_open(poh, label, DAOS_COO_RW, &cont, NULL, NULL), 0);
	/* What is copied here under its ids has none of the numbers that are given out; a copy of this one goes on behind them. */
	CHECK(daos_cont_alloc_oids(cont, 10, &number, NULL) == 0 && number >= 1 << 21);
	told                          = daos_prop_alloc(1);
	told->dpp_entries[0].dpe_type = DAOS_PROP_CO_ALLOCED_OID;
	CHECK_EQ(daos_cont_query(cont, NULL, told, NULL), 0);
	CHECK(told->dpp_entries[0].dpe_val >= number + 9);
	daos_prop_free(told);

	told = daos_prop_alloc(0);
	CHECK_EQ(daos_cont_query(cont, NULL, told, NULL), 0);
	entry = daos_prop_entry_get(told, DAOS_PROP_CO_LABEL);
	CHECK(entry != NULL);
	CHECK_STR(entry->dpe_str, label);
	entry = daos_prop_entry_get(told, DAOS_PROP_CO_LAYOUT_TYPE);
	CHECK(entry != NULL && entry->dpe_val == DAOS_PROP_CO_LAYOUT_HDF5);
	entry = daos_prop_entry_get(told, DAOS_PROP_CO_CSUM);
	CHECK(entry != NULL && entry->dpe_val == DAOS_PROP_CO_CSUM_SHA256);
	entry = daos_prop_entry_get(told, DAOS_PROP_CO_ROOTS);
	CHECK(entry != NULL && memcmp(entry->dpe_val_ptr, &roots, sizeof(roots)) == 0);
	/* What it has may be set again; what is fixed may not be changed. */
	entry = daos_prop_entry_get(told, DAOS_PROP_CO_LABEL);
	free(entry->dpe_str);
	entry->dpe_str = strdup(renamed);
	CHECK_EQ(daos_cont_set_prop(cont, told, NULL), 0);
	CHECK_EQ(daos_cont_set_prop(coh_ro, told, NULL), -DER_NO_PERM);
	entry          = daos_prop_entry_get(told, DAOS_PROP_CO_CSUM);
	entry->dpe_val = DAOS_PROP_CO_CSUM_CRC32;
	CHECK_EQ(daos_cont_set_prop(cont, told, NULL), -DER_NO_PERM);
	daos_prop_free(told);
	told                          = daos_prop_alloc(1);
	told->dpp_entries[0].dpe_type = DAOS_PROP_CO_LABEL;
	CHECK_EQ(daos_cont_query(cont, NULL, told, NULL), 0);
	CHECK_STR(told->dpp_entries[0].dpe_str, renamed);
	daos_prop_free(told);
	CHECK_EQ(daos_cont_status_clear(cont, NULL), 0);
	CHECK_EQ(daos_cont_aggregate(cont, DAOS_EPOCH_MAX, NULL), 0);
	CHECK_EQ(daos_cont_close(cont, NULL), 0);
	CHECK_EQ(daos_cont_destroy(poh, renamed, 0, NULL), 0);
}

static int
entry_count(void)
{
	daos_prop_t            *prop = NULL;
	struct daos_prop_entry *entry;
	struct daos_ace        *ace = NULL;
	struct daos_acl        *acl;
	int                     count = 0;

	CHECK_EQ(daos_cont_get_acl(coh_ro, &prop, NULL), 0);
	CHECK_EQ(prop->dpp_nr, 3);
	entry = daos_prop_entry_get(prop, DAOS_PROP_CO_ACL);
	CHECK(entry != NULL);
	acl = (struct daos_acl *)entry->dpe_val_ptr;
	CHECK_EQ(daos_acl_validate(acl), 0);
	while ((ace = daos_acl_get_next_ace(acl, ace)) != NULL)
		count++;
	daos_prop_free(prop);
	return count;
}

static void
lists_of_access(void)
{
	const char      *two[]   = {"A::OWNER@:rw", "A::someone@:r"};
	const char      *more[]  = {"A::someone@:rw", "A:G:builders@:r"};
	char             someone[] = "someone@", nobody[] = "nobody-knows-this-one@", root[] = "root@";
	struct daos_acl *acl     = NULL;
	daos_prop_t     *prop;

	CHECK(entry_count() > 0);
	CHECK_EQ(daos_acl_from_strs(two, 2, &acl), 0);
	CHECK_EQ(daos_cont_overwrite_acl(coh_ro, acl, NULL), -DER_NO_PERM);
	CHECK_EQ(daos_cont_overwrite_acl(coh, acl, NULL), 0);
	daos_acl_free(acl);
	CHECK_EQ(entry_count(), 2);
	CHECK_EQ(daos_acl_from_strs(more, 2, &acl), 0);
	CHECK_EQ(daos_cont_update_acl(coh, acl, NULL), 0);
	daos_acl_free(acl);
	CHECK_EQ(entry_count(), 3);
	CHECK_EQ(daos_cont_delete_acl(coh, DAOS_ACL_GROUP, someone, NULL), -DER_NONEXIST);
	CHECK_EQ(daos_cont_delete_acl(coh, DAOS_ACL_USER, someone, NULL), 0);
	CHECK_EQ(daos_cont_delete_acl(coh, DAOS_ACL_USER, someone, NULL), -DER_NONEXIST);
	CHECK_EQ(entry_count(), 2);
	CHECK_EQ(daos_cont_overwrite_acl(coh, NULL, NULL), -DER_INVAL);

	CHECK_EQ(daos_cont_set_owner(coh, nobody, NULL, NULL), -DER_NONEXIST);
	CHECK_EQ(daos_cont_set_owner(coh, NULL, NULL, NULL), -DER_INVAL);
	CHECK_EQ(daos_cont_set_owner(coh, root, root, NULL), 0);
	CHECK_EQ(daos_cont_set_owner_no_check(coh, nobody, NULL, NULL), 0);
	CHECK_EQ(daos_cont_get_acl(coh, &prop, NULL), 0);
	CHECK_STR(daos_prop_entry_get(prop, DAOS_PROP_CO_OWNER)->dpe_str, nobody);
	CHECK_STR(daos_prop_entry_get(prop, DAOS_PROP_CO_OWNER_GROUP)->dpe_str, root);
	daos_prop_free(prop);
}

#define OBJECTS 40

static int
keep_marked(daos_obj_id_t oid, d_iov_t *marker)
{
	(void)oid;
	return marker != NULL && marker->iov_len == 4 && memcmp(marker->iov_buf, "mark", 4) == 0;
}

static int
stop(daos_obj_id_t oid, d_iov_t *marker)
{
	(void)oid;
	(void)marker;
	return -1;
}

static void
tables(void)
{
	daos_obj_id_t oids[OBJECTS], page[7];
	char          listed[OBJECTS];
	daos_handle_t oit;
	daos_anchor_t anchor;
	d_iov_t       mark = text_of("mark"), none = {NULL, 0, 0};
	uint32_t      nr, one;
	int           at, round, seen;

	for (at = 0; at < OBJECTS; at++) {
		daos_handle_t kv;

		/* On one target, or on all; with more keys on some than on others. */
		oids[at] = new_id(DAOS_OT_KV_HASHED, at % 2 ? OC_SX : OC_S1);
		CHECK_EQ(daos_kv_open(coh, oids[at], DAOS_OO_RW, &kv, NULL), 0);
		CHECK_EQ(daos_kv_put(kv, DAOS_TX_NONE, 0, "one", 1, "1", NULL), 0);
		if (at % 3 == 0)
			CHECK_EQ(daos_kv_put(kv, DAOS_TX_NONE, 0, "two", 1, "2", NULL), 0);
		CHECK_EQ(daos_kv_close(kv, NULL), 0);
	}
	CHECK_EQ(daos_oit_open(coh, 12345, &oit, NULL), -DER_NONEXIST);
	CHECK_EQ(daos_oit_open(poh, 0, &oit, NULL), -DER_NO_HDL);
	CHECK_EQ(daos_oit_open(coh, DAOS_EPOCH_MAX, &oit, NULL), 0);
	for (at = 0; at < 10; at++)
		CHECK_EQ(daos_oit_mark(oit, oids[at], &mark, NULL), 0);
	CHECK_EQ(daos_oit_mark(oit, oids[9], NULL, NULL), 0);
	CHECK_EQ(daos_oit_mark(oit, oids[9], &none, NULL), -DER_INVAL);
	CHECK_EQ(daos_oit_mark(oit, new_id(DAOS_OT_KV_HASHED, OC_SX), &mark, NULL), -DER_NONEXIST);
	for (round = 0; round < 3; round++) {
		memset(&anchor, 0, sizeof(anchor));
		memset(listed, 0, sizeof(listed));
		for (seen = 0; !daos_anchor_is_eof(&anchor);) {
			nr = 7;
			if (round == 0)
				CHECK_EQ(daos_oit_list(oit, page, &nr, &anchor, NULL), 0);
			else if (round == 1)
				CHECK_EQ(daos_oit_list_unmarked(oit, page, &nr, &anchor, NULL), 0);
			else
				CHECK_EQ(daos_oit_list_filter(oit, page, &nr, &anchor, keep_marked, NULL), 0);
			CHECK(nr <= 7);
			for (one = 0; one < nr; one++, seen++) {
				for (at = 0; at < OBJECTS; at++)
					if (page[one].hi == oids[at].hi && page[one].lo == oids[at].lo)
						break;
				/* Those that were made, and none twice, whatever targets it is on. */
				CHECK(at < OBJECTS);
				CHECK(!listed[at]);
				listed[at] = 1;
			}
		}
		CHECK_EQ(seen, round == 0 ? OBJECTS : round == 1 ? OBJECTS - 9 : 9);
	}
	memset(&anchor, 0, sizeof(anchor));
	nr = 7;
	CHECK(daos_oit_list_filter(oit, page, &nr, &anchor, stop, NULL) != 0);
	CHECK_EQ(daos_oit_list_filter(oit, page, &nr, &anchor, NULL, NULL), -DER_INVAL);
	nr = 0;
	CHECK_EQ(daos_oit_list(oit, page, &nr, &anchor, NULL), -DER_INVAL);
	CHECK_EQ(daos_oit_close(oit, NULL), 0);
	CHECK_EQ(daos_oit_list(oit, page, &nr, &anchor, NULL), -DER_NO_HDL);
}

static void
pools(const char *pool, const char *name)
{
	struct daos_pool_cont_info    conts[64];
	struct daos_pool_cont_info2   found[64];
	daos_pool_cont_filter_t       filter;
	daos_pool_cont_filter_part_t  part;
	daos_mgmt_pool_info_t         all[8];
	daos_target_info_t            target;
	daos_size_t                   count = 0, at;
	uint32_t                      major = 99, minor, patch, mine = 0;
	char                         *tag;

	CHECK_EQ(daos_pool_list_cont(poh, &count, NULL, NULL), 0);
	CHECK(count >= 1 && count <= 64);
	at = count - 1;
	CHECK_EQ(daos_pool_list_cont(poh, &at, conts, NULL), count > 1 ? -DER_TRUNC : 0);
	CHECK_EQ(at, count);
	CHECK_EQ(daos_pool_list_cont(poh, &count, conts, NULL), 0);
	for (at = 0; at < count; at++)
		mine += strcmp(conts[at].pci_label, name) == 0;
	CHECK_EQ(mine, 1);
	CHECK_EQ(daos_pool_list_cont(poh, NULL, conts, NULL), -DER_INVAL);

	CHECK_EQ(daos_pool_cont_filter_init(&filter, PCF_COMBINE_LOGICAL_AND), 0);
	part.pcfp_func  = PCF_FUNC_GE;
	part.pcfp_key   = PCF_KEY_NUM_HANDLES;
	part.pcfp_val64 = 2;
	CHECK_EQ(daos_pool_cont_filter_add(&filter, &part), 0);
	part.pcfp_key = PCF_KEY_MAX;
	CHECK_EQ(daos_pool_cont_filter_add(&filter, &part), -DER_INVAL);
	count = 64;
	CHECK_EQ(daos_pool_filter_cont(poh, &filter, &count, found, NULL), 0);
	for (at = 0, mine = 0; at < count; at++) {
		CHECK(found[at].pci_cinfo.ci_nhandles >= 2);
		mine += strcmp(found[at].pci_id.pci_label, name) == 0;
	}
	CHECK_EQ(mine, 1);
	/* More conditions than DAOS takes: they may be added, and it is the use that fails. */
	part.pcfp_key = PCF_KEY_NUM_HANDLES;
	for (at = 1; at < DAOS_POOL_CONT_FILTER_MAX_NPARTS; at++)
		CHECK_EQ(daos_pool_cont_filter_add(&filter, &part), 0);
	count = 64;
	CHECK_EQ(daos_pool_filter_cont(poh, &filter, &count, found, NULL), 0);
	CHECK_EQ(daos_pool_cont_filter_add(&filter, &part), 0);
	CHECK_EQ(daos_pool_filter_cont(poh, &filter, &count, found, NULL), -DER_INVAL);
	daos_pool_cont_filter_fini(&filter);

	CHECK_EQ(daos_pool_query_target(poh, 1, 1, &target, NULL), 0);
	CHECK_EQ(target.ta_state, DAOS_TS_UP_IN);
	CHECK(target.ta_space.s_total[DAOS_MEDIA_SCM] > 0);
	CHECK_EQ(daos_pool_query_target(poh, 2, 1, &target, NULL), -DER_NONEXIST);
	CHECK_EQ(daos_pool_query_target(poh, 0, 0, NULL, NULL), -DER_INVAL);

	count = 8;
	CHECK_EQ(daos_mgmt_list_pools(NULL, &count, all, NULL), 0);
	CHECK_EQ(count, 1);
	CHECK_STR(all[0].mgpi_label, pool);
	CHECK_EQ(all[0].mgpi_svc->rl_nr, 1);
	free(all[0].mgpi_label);
	d_rank_list_free(all[0].mgpi_svc);
	CHECK_EQ(dc_mgmt_srv_version(&major, &minor, &patch, &tag), 0);
	CHECK(major != 99 && strlen(tag) > 2);
	free(tag);
}

int
main(int argc, char **argv)
{
	CHECK_EQ(argc, 3);
	begin(argv[1], argv[2]);
	attributes(true);
	attributes(false);
	properties(argv[2]);
	lists_of_access();
	/* Attributes of the user are not the library's. */
	attributes(false);
	CHECK_EQ(entry_count(), 2);
	tables();
	pools(argv[1], argv[2]);
	end(argv[2]);
	return 0;
}
