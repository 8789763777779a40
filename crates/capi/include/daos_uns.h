/*
 * Paths that lead to containers: "daos://pool/cont/path", "/pool/cont/path", or a file or directory of
 * this machine that has a container as an attribute.
 */
#ifndef AZK_DAOS_UNS_H
#define AZK_DAOS_UNS_H

#include <daos_cont.h>
#include <daos_obj_class.h>
#include <daos_prop.h>

#ifdef __cplusplus
extern "C" {
#endif

/* da_flags. */
enum {
	/* The path may begin with /pool/cont. */
	DUNS_NO_PREFIX = 1 << 0,
	/* Do not look at parent directories. */
	DUNS_NO_REVERSE_LOOKUP = 1 << 1,
	/* The path is not looked up in this machine's file system. */
	DUNS_NO_CHECK_PATH = 1 << 2
};

/* Where a path leads, and how to create a container at one. */
struct duns_attr_t {
	daos_cont_layout_t da_type;
	/* In, to create: class and chunk size (bytes) of files, properties. */
	daos_oclass_id_t da_oclass_id;
	daos_size_t da_chunk_size;
	daos_prop_t *da_props;
	/* In. */
	uint32_t da_flags;
	/* Labels or uuids as text. */
	char da_pool[DAOS_PROP_LABEL_MAX_LEN + 1];
	char da_cont[DAOS_PROP_LABEL_MAX_LEN + 1];
	/* Out, freed by duns_destroy_attr(): system, and the path inside the container. */
	char *da_sys;
	char *da_rel_path;
	bool da_on_lustre;
	bool da_no_prefix;
	uuid_t da_puuid;
	uuid_t da_cuuid;
	daos_oclass_id_t da_dir_oclass_id;
	daos_oclass_id_t da_file_oclass_id;
	char da_hints[DAOS_CONT_HINT_MAX_LEN];
};

#define DUNS_XATTR_NAME "user.daos"
#define DUNS_MAX_XATTR_LEN 170
#define DUNS_XATTR_FMT "DAOS.%s://%36s/%36s"
#define DUNS_LUSTRE_XATTR_FMT "%36s/%36s"

/* All functions return 0 or an errno. */

/* Creates a container and a file (or, for a POSIX container, a directory) that leads to it. */
int duns_create_path(daos_handle_t poh, const char *path, struct duns_attr_t *attrp);

/* Finds out where a path leads. */
int duns_resolve_path(const char *path, struct duns_attr_t *attr);

/* Destroys the container and what leads to it. */
int duns_destroy_path(daos_handle_t poh, const char *path);

/* Reads the attribute's text. */
int duns_parse_attr(char *str, daos_size_t len, struct duns_attr_t *attr);

int duns_set_sys_name(struct duns_attr_t *attrp, const char *sys);

/* Frees what duns_resolve_path() allocated, not `attrp` itself. */
void duns_destroy_attr(struct duns_attr_t *attrp);

/* Makes a path that leads to a container that exists. */
int duns_link_cont(daos_handle_t poh, const char *cont, const char *path);

#ifdef __cplusplus
}
#endif

#endif
