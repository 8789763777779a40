/*
 * Access control lists.
 *
 * A list holds at most one entry for each principal. As text an entry is "A:FLAGS:PRINCIPAL:PERMISSIONS",
 * e.g. "A::OWNER@:rw" or "A:G:builders@:r".
 */
#ifndef AZK_DAOS_SECURITY_H
#define AZK_DAOS_SECURITY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <daos_prop.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DAOS_ACL_VERSION 1
#define DAOS_ACL_MAX_PRINCIPAL_LEN 255
#define DAOS_ACL_MAX_PRINCIPAL_BUF_LEN (DAOS_ACL_MAX_PRINCIPAL_LEN + 1)
#define DAOS_ACL_PRINCIPAL_OWNER "OWNER@"
#define DAOS_ACL_PRINCIPAL_OWNER_GRP "GROUP@"
#define DAOS_ACL_PRINCIPAL_EVERYONE "EVERYONE@"
/* Longest list of entries, bytes. */
#define DAOS_ACL_MAX_ACE_LEN 65536
#define DAOS_ACL_MAX_ACE_STR_LEN (DAOS_ACL_MAX_PRINCIPAL_LEN + 64)

/* A list in one piece of memory: entries one after the other, dal_len bytes. */
struct daos_acl {
	uint16_t dal_ver;
	uint16_t dal_reserv;
	uint32_t dal_len;
	__extension__ uint8_t dal_ace[];
};

/* Who an entry is about. */
enum daos_acl_principal_type {
	DAOS_ACL_OWNER,
	DAOS_ACL_USER,
	DAOS_ACL_OWNER_GROUP,
	DAOS_ACL_GROUP,
	DAOS_ACL_EVERYONE,
	NUM_DAOS_ACL_TYPES
};

/* What an entry does. */
enum daos_acl_access_type {
	DAOS_ACL_ACCESS_ALLOW = 1 << 0,
	DAOS_ACL_ACCESS_AUDIT = 1 << 1,
	DAOS_ACL_ACCESS_ALARM = 1 << 2
};

#define DAOS_ACL_ACCESS_ALL (DAOS_ACL_ACCESS_ALLOW | DAOS_ACL_ACCESS_AUDIT | DAOS_ACL_ACCESS_ALARM)

enum daos_acl_flags {
	DAOS_ACL_FLAG_GROUP = 1 << 0,
	DAOS_ACL_FLAG_POOL_INHERIT = 1 << 1,
	DAOS_ACL_FLAG_ACCESS_FAIL = 1 << 2,
	DAOS_ACL_FLAG_ACCESS_SUCCESS = 1 << 3
};

#define DAOS_ACL_FLAG_ALL                                     \
	(DAOS_ACL_FLAG_GROUP | DAOS_ACL_FLAG_POOL_INHERIT |    \
	 DAOS_ACL_FLAG_ACCESS_FAIL | DAOS_ACL_FLAG_ACCESS_SUCCESS)

enum daos_acl_perm {
	DAOS_ACL_PERM_READ = 1 << 0,
	DAOS_ACL_PERM_WRITE = 1 << 1,
	DAOS_ACL_PERM_CREATE_CONT = 1 << 2,
	DAOS_ACL_PERM_DEL_CONT = 1 << 3,
	DAOS_ACL_PERM_GET_PROP = 1 << 4,
	DAOS_ACL_PERM_SET_PROP = 1 << 5,
	DAOS_ACL_PERM_GET_ACL = 1 << 6,
	DAOS_ACL_PERM_SET_ACL = 1 << 7,
	DAOS_ACL_PERM_SET_OWNER = 1 << 8
};

#define DAOS_ACL_PERM_POOL_ALL                                                      \
	(DAOS_ACL_PERM_READ | DAOS_ACL_PERM_WRITE | DAOS_ACL_PERM_CREATE_CONT |      \
	 DAOS_ACL_PERM_DEL_CONT | DAOS_ACL_PERM_GET_PROP)
#define DAOS_ACL_PERM_CONT_ALL                                                      \
	(DAOS_ACL_PERM_READ | DAOS_ACL_PERM_WRITE | DAOS_ACL_PERM_DEL_CONT |         \
	 DAOS_ACL_PERM_GET_PROP | DAOS_ACL_PERM_SET_PROP | DAOS_ACL_PERM_GET_ACL |   \
	 DAOS_ACL_PERM_SET_ACL | DAOS_ACL_PERM_SET_OWNER)
#define DAOS_ACL_PERM_ALL (DAOS_ACL_PERM_POOL_ALL | DAOS_ACL_PERM_CONT_ALL)

/* An entry: the name of a user or group follows, dae_principal_len bytes, a multiple of 8, filled with
 * zeros. */
struct daos_ace {
	uint8_t dae_access_types;
	uint8_t dae_principal_type;
	uint16_t dae_principal_len;
	uint16_t dae_access_flags;
	uint16_t dae_reserv;
	uint64_t dae_allow_perms;
	uint64_t dae_audit_perms;
	uint64_t dae_alarm_perms;
	__extension__ char dae_principal[];
};

/* A new list with copies of these entries, to be freed with daos_acl_free(). NULL on error. */
struct daos_acl *daos_acl_create(struct daos_ace *aces[], uint16_t num_aces);
struct daos_acl *daos_acl_dup(struct daos_acl *acl);
void daos_acl_free(struct daos_acl *acl);

/* Bytes of the list with its head, or -DER_INVAL. */
ssize_t daos_acl_get_size(struct daos_acl *acl);

/* The entry after `current_ace`, the first for NULL; NULL after the last. It stays the list's. */
struct daos_ace *daos_acl_get_next_ace(struct daos_acl *acl, struct daos_ace *current_ace);

/* The entry of a principal; `principal` is the name for DAOS_ACL_USER and DAOS_ACL_GROUP. */
int daos_acl_get_ace_for_principal(struct daos_acl *acl, enum daos_acl_principal_type type,
				   const char *principal, struct daos_ace **ace);

/* Add or replace the entry of a principal, or remove it; `*acl` may move. */
int daos_acl_add_ace(struct daos_acl **acl, struct daos_ace *new_ace);
int daos_acl_remove_ace(struct daos_acl **acl, enum daos_acl_principal_type type,
			const char *principal_name);

/* Print to stdout. */
void daos_acl_dump(struct daos_acl *acl);
void daos_ace_dump(struct daos_ace *ace, uint32_t tabs);

/* 0 or -DER_INVAL. */
int daos_acl_validate(struct daos_acl *acl);

/* A new entry without permissions, to be freed with daos_ace_free(). NULL on error. */
struct daos_ace *daos_ace_create(enum daos_acl_principal_type type, const char *principal_name);
void daos_ace_free(struct daos_ace *ace);
ssize_t daos_ace_get_size(struct daos_ace *ace);
bool daos_ace_is_valid(struct daos_ace *ace);

/* Whether this can be the name of a user or group: "name@" or "name@domain". */
bool daos_acl_principal_is_valid(const char *name);

/* Names of users and groups of this machine, "name@"; in new memory. */
int daos_acl_uid_to_principal(uid_t uid, char **name);
int daos_acl_gid_to_principal(gid_t gid, char **name);
int daos_acl_principal_to_uid(const char *principal, uid_t *uid);
int daos_acl_principal_to_gid(const char *principal, gid_t *gid);

/* The principal as in the text form; static memory or the entry's. */
const char *daos_ace_get_principal_str(struct daos_ace *ace);

/* The text form and back. -DER_TRUNC if `buf_len` is too small. */
int daos_ace_from_str(const char *str, struct daos_ace **ace);
int daos_ace_to_str(struct daos_ace *ace, char *buf, size_t buf_len);
int daos_ace_str_get_verbose(const char *ace_str, char *buf, size_t buf_len);
int daos_acl_from_strs(const char **ace_strs, size_t ace_nr, struct daos_acl **acl);
/* An array of new strings in new memory. */
int daos_acl_to_strs(struct daos_acl *acl, char ***ace_strs, size_t *ace_nr);
int daos_acl_principal_from_str(const char *principal_str, enum daos_acl_principal_type *type,
				char **name);
int daos_acl_to_stream(FILE *stream, struct daos_acl *acl, bool verbose);

#ifdef __cplusplus
}
#endif

#endif
