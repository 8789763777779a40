/* Object classes by name and number, as a C program uses them. */

#include <daos.h>
#include <gurt/common.h>
#include "check.h"

static void known(const char *name, daos_oclass_id_t id)
{
	char back[MAX_OBJ_CLASS_NAME_LEN];

	CHECK_EQ(daos_oclass_name2id(name), id);
	CHECK_EQ(daos_oclass_id2name(id, back), 0);
	CHECK_STR(back, name);
}

static void names_and_numbers(void)
{
	char name[MAX_OBJ_CLASS_NAME_LEN];

	known("S1", OC_S1);
	known("S2", OC_S2);
	known("SX", OC_SX);
	known("RP_2G1", OC_RP_2G1);
	known("RP_2GX", OC_RP_2GX);
	known("RP_2G32", OC_RP_2G32);
	known("RP_3G1", OC_RP_3G1);
	known("RP_3GX", OC_RP_3GX);
	known("RP_4G1", OC_RP_4G1);
	known("RP_4GX", OC_RP_4GX);
	known("RP_6G12", OC_RP_6G12);
	known("RP_XSF", OC_RP_XSF);
	known("EC_2P1GX", OC_EC_2P1GX);
	known("EC_2P2GX", OC_EC_2P2GX);
	known("EC_4P1GX", OC_EC_4P1GX);
	known("EC_4P2G1", OC_EC_4P2G1);
	known("EC_4P2GX", OC_EC_4P2GX);
	known("EC_4P3GX", OC_EC_4P3GX);
	known("EC_8P1GX", OC_EC_8P1GX);
	known("EC_8P2GX", OC_EC_8P2GX);
	known("EC_8P3GX", OC_EC_8P3GX);
	known("EC_16P1GX", OC_EC_16P1GX);
	known("EC_16P2GX", OC_EC_16P2GX);
	known("EC_16P3GX", OC_EC_16P3GX);
	known("EC_2P3G1", OC_EC_2P3G1);

	CHECK_EQ(daos_oclass_name2id("NONE"), OC_UNKNOWN);
	CHECK_EQ(daos_oclass_name2id(""), OC_UNKNOWN);
	CHECK_EQ(daos_oclass_name2id(NULL), OC_UNKNOWN);
	CHECK_EQ(daos_oclass_id2name(OC_UNKNOWN, name), -1);
	CHECK_STR(name, "UNKNOWN");
	CHECK_EQ(daos_oclass_id2name(OC_RESERVED, name), -1);
	CHECK_EQ(daos_oclass_id2name(OC_S1, NULL), -1);
	/* Programs compute with numbers. */
	CHECK_EQ(OC_RP_3G4, OBJ_CLASS_DEF(OR_RP_3, 4));
	CHECK_EQ(OC_EC_8P2GX >> OC_REDUN_SHIFT, OR_RS_8P2);
}

static void list_of_names(void)
{
	static char all[16384];
	ssize_t length = daos_oclass_names_list(sizeof(all), all);
	char *rest = all, *name;
	int count = 0;

	CHECK(length > 0);
	CHECK_EQ(length, strlen(all));
	while ((name = strtok_r(rest, ", ", &rest)) != NULL) {
		CHECK(daos_oclass_name2id(name) != OC_UNKNOWN);
		count++;
	}
	CHECK_EQ(count, daos_oclass_nr(0));
	CHECK_EQ(daos_oclass_names_list(10, all), -DER_OVERFLOW);
	CHECK_EQ(daos_oclass_names_list(0, all), -DER_INVAL);
	CHECK_EQ(daos_oclass_names_list(10, NULL), -DER_INVAL);
}

static void without_container(void)
{
	struct daos_oclass_attr attr;
	struct daos_oclass_list list;
	daos_anchor_t anchor;

	memset(&attr, 0, sizeof(attr));
	memset(&list, 0, sizeof(list));
	daos_anchor_init(&anchor, 0);
	CHECK_EQ(daos_obj_register_class(DAOS_HDL_INVAL, OC_S1, &attr, NULL), -DER_NO_HDL);
	CHECK_EQ(daos_obj_query_class(DAOS_HDL_INVAL, OC_S1, &attr, NULL), -DER_NO_HDL);
	CHECK_EQ(daos_obj_list_class(DAOS_HDL_INVAL, &list, &anchor, NULL), -DER_NO_HDL);
}

int main(void)
{
	names_and_numbers();
	list_of_names();
	without_container();
	return 0;
}
