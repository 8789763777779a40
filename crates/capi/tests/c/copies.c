/*
 * Object classes with copies: how they are chosen, refused and told, and what is in such objects.
 * For a system of three engines with a target each. Arguments: pool, a name for containers, and what
 * to do: "classes"; or "make" and then, when an engine is away, "look".
 */
#include <daos.h>
#include <daos_array.h>
#include <daos_fs.h>
#include <daos_kv.h>
#include <daos_obj.h>
#include <errno.h>
#include <fcntl.h>
#include "check.h"

#define BYTES (3 << 20)

static daos_handle_t poh;

/* Makes a container whose objects survive `factor` losses, and opens it. */
static daos_handle_t
make_cont(const char *name, uint64_t factor)
{
	daos_prop_t  *prop = daos_prop_alloc(1);
	daos_handle_t coh;

	CHECK(prop != NULL);
	prop->dpp_entries[0].dpe_type = DAOS_PROP_CO_REDUN_FAC;
	prop->dpp_entries[0].dpe_val  = factor;
	CHECK_EQ(daos_cont_create_with_label(poh, name, prop, NULL, NULL), 0);
	CHECK_EQ(daos_cont_open(poh, name, DAOS_COO_RW, &coh, NULL, NULL), 0);
	daos_prop_free(prop);
	return coh;
}

static void
drop_cont(const char *name, daos_handle_t coh)
{
	CHECK_EQ(daos_cont_close(coh, NULL), 0);
	CHECK_EQ(daos_cont_destroy(poh, name, 0, NULL), 0);
}

/* What daos_cont_query says of a container's redundancy. */
static void
check_factor(daos_handle_t coh, uint64_t factor)
{
	daos_prop_t            *prop = daos_prop_alloc(2);
	struct daos_prop_entry *entry;

	CHECK(prop != NULL);
	prop->dpp_entries[0].dpe_type = DAOS_PROP_CO_REDUN_FAC;
	prop->dpp_entries[1].dpe_type = DAOS_PROP_CO_REDUN_LVL;
	CHECK_EQ(daos_cont_query(coh, NULL, prop, NULL), 0);
	entry = daos_prop_entry_get(prop, DAOS_PROP_CO_REDUN_FAC);
	CHECK(entry != NULL);
	CHECK_EQ(entry->dpe_val, factor);
	entry = daos_prop_entry_get(prop, DAOS_PROP_CO_REDUN_LVL);
	CHECK(entry != NULL);
	CHECK_EQ(entry->dpe_val, DAOS_PROP_CO_REDUN_RANK);
	daos_prop_free(prop);
}

/* The class of an id made with a class or hints, or the error. */
static long long
made(daos_handle_t coh, enum daos_otype_t type, daos_oclass_id_t cid, daos_oclass_hints_t hints)
{
	static uint64_t next = 1;
	daos_obj_id_t   oid  = {next, 7}, same = {next, 7};
	int             rc   = daos_obj_generate_oid(coh, &oid, type, cid, hints, 0);

	next++;
	CHECK_EQ(daos_obj_generate_oid2(coh, &same, type, cid, hints, 0), rc);
	CHECK_EQ(same.hi, oid.hi);
	return rc == 0 ? (long long)daos_obj_id2class(oid) : rc;
}

/* Whatever is asked for, an object survives what its container demands. */
static void
test_ids(const char *label)
{
	char          name[160];
	daos_handle_t coh, plain, oh;
	daos_obj_id_t oid = {1, 9};

	snprintf(name, sizeof(name), "%s-rf1", label);
	coh = make_cont(name, DAOS_PROP_CO_REDUN_RF1);
	check_factor(coh, DAOS_PROP_CO_REDUN_RF1);

	/* Nothing named: as many copies as the factor demands, spread by type and hints. */
	CHECK_EQ(made(coh, DAOS_OT_MULTI_HASHED, OC_UNKNOWN, 0), OC_RP_2G1);
	CHECK_EQ(made(coh, DAOS_OT_KV_HASHED, OC_UNKNOWN, 0), OC_RP_2GX);
	CHECK_EQ(made(coh, DAOS_OT_ARRAY_BYTE, OC_UNKNOWN, 0), OC_RP_2GX);
	CHECK_EQ(made(coh, DAOS_OT_ARRAY, OC_UNKNOWN, DAOS_OCH_RDD_DEF | DAOS_OCH_SHD_DEF), OC_RP_2GX);
	CHECK_EQ(made(coh, DAOS_OT_MULTI_HASHED, OC_UNKNOWN, DAOS_OCH_RDD_RP), OC_RP_2G1);
	CHECK_EQ(made(coh, DAOS_OT_MULTI_HASHED, OC_UNKNOWN, DAOS_OCH_RDD_RP | DAOS_OCH_SHD_MAX), OC_RP_2GX);
	CHECK_EQ(made(coh, DAOS_OT_ARRAY, OC_UNKNOWN, DAOS_OCH_SHD_TINY), OC_RP_2G1);
	/* A wish for none does not weaken it. */
	CHECK_EQ(made(coh, DAOS_OT_ARRAY, OC_UNKNOWN, DAOS_OCH_RDD_NO | DAOS_OCH_SHD_TINY), OC_RP_2G1);

	/* Named: as strong or stronger, and possible. */
	CHECK_EQ(made(coh, DAOS_OT_KV_HASHED, OC_RP_2G1, 0), OC_RP_2G1);
	CHECK_EQ(made(coh, DAOS_OT_ARRAY_BYTE, OC_RP_3GX, 0), OC_RP_3GX);
	CHECK_EQ(made(coh, DAOS_OT_MULTI_HASHED, OC_RP_XSF, 0), OC_RP_3G1);
	CHECK_EQ(made(coh, DAOS_OT_KV_HASHED, OC_RP_TINY, 0), OC_RP_2G1);
	CHECK_EQ(made(coh, DAOS_OT_MULTI_HASHED, OC_S1, 0), -DER_INVAL);
	CHECK_EQ(made(coh, DAOS_OT_ARRAY_BYTE, OC_SX, 0), -DER_INVAL);
	CHECK_EQ(made(coh, DAOS_OT_MULTI_HASHED, OC_RP_4G1, 0), -DER_INVAL);
	CHECK_EQ(made(coh, DAOS_OT_MULTI_HASHED, OC_EC_2P1G1, 0), OC_EC_2P1G1);
	CHECK_EQ(made(coh, DAOS_OT_MULTI_HASHED, OC_EC_4P1G1, 0), -DER_INVAL);

	/* An id of another container's. */
	snprintf(name, sizeof(name), "%s-rf0", label);
	plain = make_cont(name, DAOS_PROP_CO_REDUN_RF0);
	check_factor(plain, DAOS_PROP_CO_REDUN_RF0);
	CHECK_EQ(made(plain, DAOS_OT_MULTI_HASHED, OC_UNKNOWN, 0), OC_S1);
	CHECK_EQ(made(plain, DAOS_OT_KV_HASHED, OC_UNKNOWN, DAOS_OCH_RDD_RP), OC_RP_2GX);
	CHECK_EQ(made(plain, DAOS_OT_MULTI_HASHED, OC_RP_3G1, 0), OC_RP_3G1);
	CHECK_EQ(daos_obj_generate_oid(plain, &oid, DAOS_OT_MULTI_HASHED, OC_S1, 0, 0), 0);
	CHECK_EQ(daos_obj_open(plain, oid, DAOS_OO_RW, &oh, NULL), 0);
	CHECK_EQ(daos_obj_close(oh, NULL), 0);
	CHECK_EQ(daos_obj_open(coh, oid, DAOS_OO_RW, &oh, NULL), -DER_INVAL);
	drop_cont(name, plain);
	snprintf(name, sizeof(name), "%s-rf1", label);
	drop_cont(name, coh);

	/* More copies than there are engines. */
	snprintf(name, sizeof(name), "%s-rf2", label);
	coh = make_cont(name, DAOS_PROP_CO_REDUN_RF2);
	CHECK_EQ(made(coh, DAOS_OT_KV_HASHED, OC_UNKNOWN, 0), OC_RP_3GX);
	CHECK_EQ(made(coh, DAOS_OT_KV_HASHED, OC_RP_2GX, 0), -DER_INVAL);
	drop_cont(name, coh);
}

static void
make_file_system(const char *name, const dfs_attr_t *wanted, uint64_t factor, daos_handle_t *coh, dfs_t **dfs)
{
	daos_prop_t *prop = daos_prop_alloc(1);
	dfs_attr_t   attr = *wanted;

	CHECK(prop != NULL);
	prop->dpp_entries[0].dpe_type = DAOS_PROP_CO_REDUN_FAC;
	prop->dpp_entries[0].dpe_val  = factor;
	attr.da_props                 = prop;
	CHECK_EQ(dfs_cont_create_with_label(poh, name, &attr, NULL, coh, dfs), 0);
	daos_prop_free(prop);
}

/* Makes a file system with these attributes; the classes it has then. */
static void
check_defaults(const char *name, const dfs_attr_t *wanted, uint64_t factor, daos_oclass_id_t file,
	       daos_oclass_id_t dir)
{
	daos_handle_t coh;
	dfs_t        *dfs;
	dfs_attr_t    found;

	make_file_system(name, wanted, factor, &coh, &dfs);
	check_factor(coh, factor);
	CHECK_EQ(dfs_query(dfs, &found), 0);
	CHECK_EQ(found.da_file_oclass_id, file);
	CHECK_EQ(found.da_dir_oclass_id, dir);
	CHECK_EQ(dfs_umount(dfs), 0);
	drop_cont(name, coh);
}

static void
test_attributes(const char *label)
{
	char       name[160];
	dfs_attr_t attr;

	snprintf(name, sizeof(name), "%s-attr", label);
	memset(&attr, 0, sizeof(attr));
	check_defaults(name, &attr, 0, OC_SX, OC_SX);
	check_defaults(name, &attr, 1, OC_RP_2GX, OC_RP_2GX);
	check_defaults(name, &attr, 2, OC_RP_3GX, OC_RP_3GX);
	strcpy(attr.da_hints, "file:max,dir:single");
	check_defaults(name, &attr, 1, OC_RP_2GX, OC_RP_2G1);
	attr.da_oclass_id = OC_RP_3G1;
	check_defaults(name, &attr, 1, OC_RP_3G1, OC_RP_3G1);
	attr.da_file_oclass_id = OC_RP_2GX;
	check_defaults(name, &attr, 1, OC_RP_2GX, OC_RP_3G1);
	attr.da_dir_oclass_id = OC_RP_2G1;
	check_defaults(name, &attr, 0, OC_RP_2GX, OC_RP_2G1);
}

static dfs_obj_info_t
info_of(dfs_t *dfs, dfs_obj_t *obj)
{
	dfs_obj_info_t info;

	CHECK_EQ(dfs_obj_get_info(dfs, obj, &info), 0);
	return info;
}

static void
check_file(dfs_t *dfs, dfs_obj_t *dir, const char *name, daos_oclass_id_t cid, daos_oclass_id_t found)
{
	dfs_obj_t *file;

	CHECK_EQ(dfs_open(dfs, dir, name, S_IFREG | 0644, O_RDWR | O_CREAT | O_EXCL, cid, 0, NULL, &file), 0);
	CHECK_EQ(info_of(dfs, file).doi_oclass_id, found);
	CHECK_EQ(dfs_obj_set_oclass(dfs, file, 0, OC_RP_3G1), ENOTSUP);
	CHECK_EQ(dfs_release(file), 0);
}

/* The class of a file or directory: named, else its directory's, else the container's. */
static void
test_files(const char *label)
{
	char             name[160];
	dfs_attr_t       attr;
	daos_handle_t    coh;
	dfs_t           *dfs;
	dfs_obj_t       *dir, *below, *file;
	daos_oclass_id_t cid;
	char             value[32];
	daos_size_t      size;

	snprintf(name, sizeof(name), "%s-files", label);
	memset(&attr, 0, sizeof(attr));
	make_file_system(name, &attr, 1, &coh, &dfs);
	CHECK_EQ(dfs_suggest_oclass(dfs, "file:max", &cid), 0);
	CHECK_EQ(cid, OC_RP_2GX);
	CHECK_EQ(dfs_suggest_oclass(dfs, "dir:single", &cid), 0);
	CHECK_EQ(cid, OC_RP_2G1);

	CHECK_EQ(dfs_open(dfs, NULL, "weak", S_IFREG | 0644, O_RDWR | O_CREAT, OC_SX, 0, NULL, &file), EINVAL);
	CHECK_EQ(dfs_open(dfs, NULL, "many", S_IFREG | 0644, O_RDWR | O_CREAT, OC_RP_6G1, 0, NULL, &file), EINVAL);
	CHECK_EQ(dfs_mkdir(dfs, NULL, "weak", 0755, OC_S1), EINVAL);
	CHECK_EQ(dfs_access(dfs, NULL, "weak", F_OK), ENOENT);
	check_file(dfs, NULL, "plain", 0, OC_RP_2GX);
	check_file(dfs, NULL, "wide", OC_RP_2GX, OC_RP_2GX);

	CHECK_EQ(dfs_mkdir(dfs, NULL, "dir", 0755, OC_RP_3G1), 0);
	CHECK_EQ(dfs_lookup(dfs, "/dir", O_RDWR, &dir, NULL, NULL), 0);
	CHECK_EQ(info_of(dfs, dir).doi_oclass_id, OC_RP_3G1);
	CHECK_EQ(info_of(dfs, dir).doi_file_oclass_id, OC_RP_2GX);
	CHECK_EQ(info_of(dfs, dir).doi_dir_oclass_id, OC_RP_2GX);
	check_file(dfs, dir, "before", 0, OC_RP_2GX);
	CHECK_EQ(dfs_obj_set_oclass(dfs, dir, 0, OC_S1), EINVAL);
	CHECK_EQ(dfs_obj_set_oclass(dfs, dir, 0, OC_RP_4G1), EINVAL);
	CHECK_EQ(dfs_obj_set_oclass(dfs, dir, 0, OC_RP_3GX), 0);
	CHECK_EQ(info_of(dfs, dir).doi_file_oclass_id, OC_RP_3GX);
	CHECK_EQ(info_of(dfs, dir).doi_dir_oclass_id, OC_RP_3GX);
	CHECK_EQ(info_of(dfs, dir).doi_oclass_id, OC_RP_3G1);
	check_file(dfs, dir, "after", 0, OC_RP_3GX);
	/* As the attribute that mounts show, too. */
	size = sizeof(value);
	CHECK_EQ(dfs_getxattr(dfs, dir, "user.azekura.oclass", value, &size), 0);
	CHECK_EQ(size, strlen("RP_3GX"));
	CHECK(memcmp(value, "RP_3GX", size) == 0);
	CHECK_EQ(dfs_setxattr(dfs, dir, "user.azekura.oclass", "SX", 2, 0), EINVAL);
	check_file(dfs, dir, "named", OC_RP_2G1, OC_RP_2G1);
	/* Directories below have it, too. */
	CHECK_EQ(dfs_mkdir(dfs, dir, "below", 0755, 0), 0);
	CHECK_EQ(dfs_lookup(dfs, "/dir/below", O_RDWR, &below, NULL, NULL), 0);
	CHECK_EQ(info_of(dfs, below).doi_oclass_id, OC_RP_3GX);
	check_file(dfs, below, "file", 0, OC_RP_3GX);
	CHECK_EQ(dfs_release(below), 0);
	/* Back to the container's. */
	CHECK_EQ(dfs_obj_set_oclass(dfs, dir, 0, OC_UNKNOWN), 0);
	CHECK_EQ(info_of(dfs, dir).doi_file_oclass_id, OC_RP_2GX);
	check_file(dfs, dir, "again", 0, OC_RP_2GX);
	CHECK_EQ(dfs_release(dir), 0);
	CHECK_EQ(dfs_umount(dfs), 0);
	drop_cont(name, coh);
}

static void
fill(char *memory, unsigned int seed)
{
	for (size_t at = 0; at < BYTES; at++)
		memory[at] = (char)(at * 131 + (at >> 9) + seed);
}

static daos_obj_id_t
fixed_id(daos_handle_t coh, uint64_t number, enum daos_otype_t type)
{
	daos_obj_id_t oid = {number, 3};

	CHECK_EQ(daos_obj_generate_oid(coh, &oid, type, OC_UNKNOWN, 0, 0), 0);
	return oid;
}

/* Writes a key-value store, an array and a file, or reads and changes them. */
static void
use(daos_handle_t coh, dfs_t *dfs, bool make)
{
	static char     data[BYTES], back[BYTES];
	daos_handle_t   oh;
	daos_array_iod_t iod;
	daos_range_t    range = {0, BYTES};
	d_iov_t         iov;
	d_sg_list_t     sgl = {1, 0, &iov};
	dfs_obj_t      *file;
	daos_size_t     size, cell, chunk;
	char            key[16], value[32];

	CHECK_EQ(daos_kv_open(coh, fixed_id(coh, 1, DAOS_OT_KV_HASHED), DAOS_OO_RW, &oh, NULL), 0);
	for (int number = 0; number < 40; number++) {
		snprintf(key, sizeof(key), "key%d", number);
		snprintf(back, sizeof(back), "value of %d", number);
		if (!make) {
			size = sizeof(value);
			CHECK_EQ(daos_kv_get(oh, DAOS_TX_NONE, 0, key, &size, value, NULL), 0);
			CHECK_STR(value, back);
		}
		CHECK_EQ(daos_kv_put(oh, DAOS_TX_NONE, 0, key, strlen(back) + 1, back, NULL), 0);
	}
	CHECK_EQ(daos_kv_close(oh, NULL), 0);

	fill(data, 1);
	iod.arr_nr   = 1;
	iod.arr_rgs  = &range;
	if (make)
		CHECK_EQ(daos_array_create(coh, fixed_id(coh, 2, DAOS_OT_ARRAY), DAOS_TX_NONE, 1, 1 << 18,
					   &oh, NULL), 0);
	else
		CHECK_EQ(daos_array_open(coh, fixed_id(coh, 2, DAOS_OT_ARRAY), DAOS_TX_NONE, DAOS_OO_RW,
					 &cell, &chunk, &oh, NULL), 0);
	if (!make) {
		d_iov_set(&iov, back, BYTES);
		CHECK_EQ(daos_array_read(oh, DAOS_TX_NONE, &iod, &sgl, NULL), 0);
		CHECK(memcmp(back, data, BYTES) == 0);
	}
	d_iov_set(&iov, data, BYTES);
	CHECK_EQ(daos_array_write(oh, DAOS_TX_NONE, &iod, &sgl, NULL), 0);
	CHECK_EQ(daos_array_close(oh, NULL), 0);

	CHECK_EQ(dfs_open(dfs, NULL, "file", S_IFREG | 0644, make ? O_RDWR | O_CREAT : O_RDWR, OC_RP_3GX, 0,
			  NULL, &file), 0);
	CHECK_EQ(info_of(dfs, file).doi_oclass_id, OC_RP_3GX);
	if (!make) {
		d_iov_set(&iov, back, BYTES);
		CHECK_EQ(dfs_read(dfs, file, &sgl, 0, &size, NULL), 0);
		CHECK_EQ(size, BYTES);
		CHECK(memcmp(back, data, BYTES) == 0);
	}
	d_iov_set(&iov, data, BYTES);
	CHECK_EQ(dfs_write(dfs, file, &sgl, 0, NULL), 0);
	CHECK_EQ(dfs_release(file), 0);
}

static void
test_objects(const char *label, bool make)
{
	char          name[160];
	dfs_attr_t    attr;
	daos_handle_t coh, plain;
	dfs_t        *dfs;

	snprintf(name, sizeof(name), "%s-objects", label);
	if (make) {
		plain = make_cont(name, 1);
	} else {
		CHECK_EQ(daos_cont_open(poh, name, DAOS_COO_RW, &plain, NULL, NULL), 0);
	}
	snprintf(name, sizeof(name), "%s-tree", label);
	if (make) {
		memset(&attr, 0, sizeof(attr));
		make_file_system(name, &attr, 1, &coh, &dfs);
	} else {
		CHECK_EQ(daos_cont_open(poh, name, DAOS_COO_RW, &coh, NULL, NULL), 0);
		CHECK_EQ(dfs_mount(poh, coh, O_RDWR, &dfs), 0);
	}
	use(plain, dfs, make);
	CHECK_EQ(dfs_umount(dfs), 0);
	CHECK_EQ(daos_cont_close(coh, NULL), 0);
	CHECK_EQ(daos_cont_close(plain, NULL), 0);
}

int
main(int argc, char **argv)
{
	CHECK_EQ(argc, 4);
	CHECK_EQ(daos_init(), 0);
	CHECK_EQ(daos_pool_connect(argv[1], NULL, DAOS_PC_RW, &poh, NULL, NULL), 0);
	if (strcmp(argv[3], "classes") == 0) {
		test_ids(argv[2]);
		test_attributes(argv[2]);
		test_files(argv[2]);
	} else {
		test_objects(argv[2], strcmp(argv[3], "make") == 0);
	}
	CHECK_EQ(daos_pool_disconnect(poh, NULL), 0);
	CHECK_EQ(daos_fini(), 0);
	return 0;
}
