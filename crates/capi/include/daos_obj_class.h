/*
 * Object classes: how an object is protected and over how many groups it is spread.
 *
 * A class by number is (redundancy << OC_REDUN_SHIFT) | groups, where MAX_NUM_GROUPS stands for as many as
 * the pool has targets. Names: S1 S2 ... SX (no redundancy), RP_2G1 (2 copies, one group), EC_4P2GX (4 data
 * and 2 parity cells, as many groups as there are).
 */
#ifndef AZK_DAOS_OBJ_CLASS_H
#define AZK_DAOS_OBJ_CLASS_H

#include <inttypes.h>
#include <sys/types.h>
#include <daos_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Longest name of a class, with the zero at the end. */
#define MAX_OBJ_CLASS_NAME_LEN 24
#define MAX_NUM_GROUPS 65535
#define OC_REDUN_SHIFT 24
#define OBJ_CLASS_DEF(redun, grp_nr) ((redun) << OC_REDUN_SHIFT | (grp_nr))

/* One name for each usual number of groups. */
#define AZK_OC_GROUPS(prefix, redun)                    \
	prefix##1 = OBJ_CLASS_DEF(redun, 1),            \
	prefix##2 = OBJ_CLASS_DEF(redun, 2),            \
	prefix##4 = OBJ_CLASS_DEF(redun, 4),            \
	prefix##6 = OBJ_CLASS_DEF(redun, 6),            \
	prefix##8 = OBJ_CLASS_DEF(redun, 8),            \
	prefix##12 = OBJ_CLASS_DEF(redun, 12),          \
	prefix##16 = OBJ_CLASS_DEF(redun, 16),          \
	prefix##32 = OBJ_CLASS_DEF(redun, 32),          \
	prefix##X = OBJ_CLASS_DEF(redun, MAX_NUM_GROUPS)

enum daos_obj_redun {
	OC_UNKNOWN = 0,

	/* Redundancy: copies. */
	OR_RP_1 = 1,
	OR_RP_2 = 8,
	OR_RP_3 = 9,
	OR_RP_4 = 10,
	OR_RP_5 = 11,
	OR_RP_6 = 12,
	OR_RP_8 = 13,
	OR_RP_12 = 14,
	OR_RP_16 = 15,
	OR_RP_24 = 16,
	OR_RP_32 = 17,
	OR_RP_48 = 18,
	OR_RP_64 = 19,
	OR_RP_128 = 20,
	/* Redundancy: data and parity cells. */
	OR_RS_2P1 = 32,
	OR_RS_2P2 = 33,
	OR_RS_4P1 = 34,
	OR_RS_4P2 = 35,
	OR_RS_8P1 = 36,
	OR_RS_8P2 = 37,
	OR_RS_16P1 = 38,
	OR_RS_16P2 = 39,
	OR_RS_4P3 = 40,
	OR_RS_8P3 = 41,
	OR_RS_16P3 = 42,
	/* Not in DAOS. */
	OR_RS_2P3 = 43,

	/* By purpose: daos_obj_generate_oid() chooses. */
	OC_BACK_COMPAT = 50,
	OC_TINY = 51,
	OC_SMALL = 52,
	OC_LARGE = 53,
	OC_MAX = 54,
	OC_RP_TINY = 60,
	OC_RP_SMALL = 61,
	OC_RP_LARGE = 62,
	OC_RP_MAX = 63,
	OC_RP_SF_TINY = 70,
	OC_RP_SF_SMALL = 71,
	OC_RP_SF_LARGE = 72,
	OC_RP_SF_MAX = 73,
	OC_RP_XSF = 80,
	OC_EC_TINY = 100,
	OC_EC_SMALL = 101,
	OC_EC_LARGE = 102,
	OC_EC_MAX = 103,

	AZK_OC_GROUPS(OC_S, OR_RP_1),
	AZK_OC_GROUPS(OC_RP_2G, OR_RP_2),
	AZK_OC_GROUPS(OC_RP_3G, OR_RP_3),
	AZK_OC_GROUPS(OC_RP_4G, OR_RP_4),
	AZK_OC_GROUPS(OC_RP_5G, OR_RP_5),
	AZK_OC_GROUPS(OC_RP_6G, OR_RP_6),
	OC_RP_12G1 = OBJ_CLASS_DEF(OR_RP_12, 1),
	OC_RP_16G1 = OBJ_CLASS_DEF(OR_RP_16, 1),
	OC_RP_24G1 = OBJ_CLASS_DEF(OR_RP_24, 1),
	OC_RP_32G1 = OBJ_CLASS_DEF(OR_RP_32, 1),
	OC_RP_48G1 = OBJ_CLASS_DEF(OR_RP_48, 1),
	OC_RP_64G1 = OBJ_CLASS_DEF(OR_RP_64, 1),
	OC_RP_128G1 = OBJ_CLASS_DEF(OR_RP_128, 1),
	AZK_OC_GROUPS(OC_EC_2P1G, OR_RS_2P1),
	AZK_OC_GROUPS(OC_EC_2P2G, OR_RS_2P2),
	AZK_OC_GROUPS(OC_EC_2P3G, OR_RS_2P3),
	AZK_OC_GROUPS(OC_EC_4P1G, OR_RS_4P1),
	AZK_OC_GROUPS(OC_EC_4P2G, OR_RS_4P2),
	AZK_OC_GROUPS(OC_EC_4P3G, OR_RS_4P3),
	AZK_OC_GROUPS(OC_EC_8P1G, OR_RS_8P1),
	AZK_OC_GROUPS(OC_EC_8P2G, OR_RS_8P2),
	AZK_OC_GROUPS(OC_EC_8P3G, OR_RS_8P3),
	AZK_OC_GROUPS(OC_EC_16P1G, OR_RS_16P1),
	AZK_OC_GROUPS(OC_EC_16P2G, OR_RS_16P2),
	AZK_OC_GROUPS(OC_EC_16P3G, OR_RS_16P3),
	OC_RESERVED = 1 << 30
};

enum daos_obj_schema { DAOS_OS_SINGLE, DAOS_OS_STRIPED, DAOS_OS_DYN_STRIPED, DAOS_OS_DYN_CHUNKED };

enum daos_obj_resil { DAOS_RES_EC, DAOS_RES_REPL };

/* A class in parts. */
struct daos_oclass_attr {
	enum daos_obj_schema ca_schema;
	enum daos_obj_resil ca_resil;
	/* How many members may be lost. */
	unsigned int ca_resil_degree;
	unsigned int ca_grp_nr;
	union {
		/* DAOS_RES_REPL. */
		struct daos_rp_attr {
			unsigned int r_proto;
			unsigned int r_num;
		} rp;
		/* DAOS_RES_EC: data cells, parity cells, bytes of a cell. */
		struct daos_ec_attr {
			unsigned short e_k;
			unsigned short e_p;
			unsigned int e_len;
		} ec;
	} u;
};

typedef uint32_t daos_oclass_id_t;
typedef uint16_t daos_oclass_hints_t;

struct daos_oclass_list {
	uint32_t cl_nr;
	uint32_t cl_nr_out;
	daos_oclass_id_t *cl_cids;
	struct daos_oclass_attr *cl_cattrs;
};

/* The class of a name in any case, or OC_UNKNOWN. */
int daos_oclass_name2id(const char *name);

/* Writes the name of a class to MAX_OBJ_CLASS_NAME_LEN bytes at `name`. 0, or -1 and "UNKNOWN". */
int daos_oclass_id2name(daos_oclass_id_t oc_id, char *name);

/* All names, each with ", " behind it: their length, or -DER_OVERFLOW if `size` bytes are too few. */
ssize_t daos_oclass_names_list(size_t size, char *str);

/* How many classes have names. `opts` is 0. */
int daos_oclass_nr(int opts);

/* Classes of one's own: -DER_NOSYS. */
int daos_obj_register_class(daos_handle_t coh, daos_oclass_id_t cid, struct daos_oclass_attr *attr,
			    daos_event_t *ev);
int daos_obj_query_class(daos_handle_t coh, daos_oclass_id_t cid, struct daos_oclass_attr *attr,
			 daos_event_t *ev);
int daos_obj_list_class(daos_handle_t coh, struct daos_oclass_list *list, daos_anchor_t *anchor,
			daos_event_t *ev);

#ifdef __cplusplus
}
#endif

#endif
