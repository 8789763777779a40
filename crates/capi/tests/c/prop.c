/* Property lists as a C program makes, merges and reads them. */

#include <daos.h>
#include <gurt/common.h>
#include "check.h"

static void made_by_hand(void)
{
	daos_prop_t *prop = daos_prop_alloc(3);
	daos_prop_t *other = daos_prop_alloc(1);
	daos_prop_t *merged;
	struct daos_prop_co_roots roots;
	struct daos_prop_entry *entry;

	CHECK(prop != NULL && other != NULL);
	CHECK_EQ(prop->dpp_nr, 3);
	prop->dpp_entries[0].dpe_type = DAOS_PROP_CO_LABEL;
	CHECK_EQ(daos_prop_set_str(prop, DAOS_PROP_CO_LABEL, "mine-and-more", 4), 0);
	CHECK_STR(prop->dpp_entries[0].dpe_str, "mine");
	prop->dpp_entries[1].dpe_type = DAOS_PROP_CO_LAYOUT_TYPE;
	prop->dpp_entries[1].dpe_val = DAOS_PROP_CO_LAYOUT_HDF5;
	prop->dpp_entries[2].dpe_type = DAOS_PROP_CO_ROOTS;
	memset(&roots, 7, sizeof(roots));
	CHECK_EQ(daos_prop_set_ptr(prop, DAOS_PROP_CO_ROOTS, &roots, sizeof(roots)), 0);
	CHECK(daos_prop_entry_get(prop, DAOS_PROP_CO_CSUM) == NULL);
	CHECK_EQ(daos_prop_set_str(prop, DAOS_PROP_CO_CSUM, "x", 1), -DER_NONEXIST);
	CHECK_EQ(daos_prop_set_str(prop, DAOS_PROP_CO_LAYOUT_TYPE, "x", 1), -DER_INVAL);
	CHECK(daos_prop_is_set(&prop->dpp_entries[0]));

	other->dpp_entries[0].dpe_type = DAOS_PROP_CO_LABEL;
	CHECK_EQ(daos_prop_entry_set_str(&other->dpp_entries[0], "yours", 5), 0);
	merged = daos_prop_merge(prop, other);
	CHECK(merged != NULL);
	CHECK_EQ(merged->dpp_nr, 3);
	entry = daos_prop_entry_get(merged, DAOS_PROP_CO_LABEL);
	CHECK_STR(entry->dpe_str, "yours");
	entry = daos_prop_entry_get(merged, DAOS_PROP_CO_ROOTS);
	CHECK(memcmp(entry->dpe_val_ptr, &roots, sizeof(roots)) == 0);
	CHECK(entry->dpe_val_ptr != prop->dpp_entries[2].dpe_val_ptr);
	daos_prop_free(merged);
	daos_prop_free(other);
	daos_prop_free(prop);
	daos_prop_free(NULL);
	CHECK(daos_prop_alloc(DAOS_PROP_ENTRIES_MAX_NR + 1) == NULL);
}

static void from_text(void)
{
	const char *text = "label:mine;cksum:crc32;rd_fac:2;dedup:off";
	daos_prop_t *prop = NULL;

	CHECK_EQ(daos_prop_from_str(text, strlen(text), &prop), 0);
	CHECK_EQ(prop->dpp_nr, 4);
	CHECK_STR(daos_prop_entry_get(prop, DAOS_PROP_CO_LABEL)->dpe_str, "mine");
	CHECK_EQ(daos_prop_entry_get(prop, DAOS_PROP_CO_CSUM)->dpe_val, DAOS_PROP_CO_CSUM_CRC32);
	CHECK_EQ(daos_prop_entry_get(prop, DAOS_PROP_CO_REDUN_FAC)->dpe_val, DAOS_PROP_CO_REDUN_RF2);
	daos_prop_free(prop);
	CHECK_EQ(daos_prop_from_str("rd_fac:9", 8, &prop), -DER_INVAL);
	CHECK_EQ(daos_prop_from_str("status:healthy", 14, &prop), -DER_INVAL);
	CHECK_EQ(daos_prop_from_str(NULL, 3, &prop), -DER_INVAL);
	CHECK_EQ(daos_prop_from_str(text, 0, &prop), -DER_INVAL);
	/* Only as far as the length goes. */
	CHECK_EQ(daos_prop_from_str(text, 10, &prop), 0);
	CHECK_EQ(prop->dpp_nr, 1);
	daos_prop_free(prop);
}

static void status_and_labels(void)
{
	struct daos_co_status status;
	uint64_t value;

	daos_prop_val_2_co_status(DAOS_PROP_CO_STATUS_VAL(DAOS_PROP_CO_UNCLEAN, 0, 17), &status);
	CHECK_EQ(status.dcs_status, DAOS_PROP_CO_UNCLEAN);
	CHECK_EQ(status.dcs_pm_ver, 17);
	value = daos_prop_co_status_2_val(&status);
	CHECK(value == DAOS_PROP_CO_STATUS_VAL(DAOS_PROP_CO_UNCLEAN, 0, 17));
	CHECK(daos_label_is_valid("a-b_c.d:e"));
	CHECK(!daos_label_is_valid("a/b"));
	CHECK(!daos_label_is_valid(""));
	CHECK(!daos_label_is_valid("67e55044-10b1-426f-9247-bb680e5fe0c8"));
}

int main(void)
{
	made_by_hand();
	from_text();
	status_and_labels();
	return 0;
}
