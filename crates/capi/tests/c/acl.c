/* Access control lists as a C program makes, changes and reads them. */

#include <daos.h>
#include <daos_security.h>
#include <gurt/common.h>
#include "check.h"

static void from_and_to_text(void)
{
	const char *texts[] = {"A::EVERYONE@:r", "A::OWNER@:rwdtTaAo", "A:G:GROUP@:rwtT",
			       "A::alice@:rw"};
	const char *wanted[] = {"A::OWNER@:rwdtTaAo", "A::alice@:rw", "A:G:GROUP@:rwtT",
				"A::EVERYONE@:r"};
	struct daos_acl *acl = NULL, *copy;
	char **out = NULL;
	size_t count = 0, at;

	CHECK_EQ(daos_acl_from_strs(texts, 4, &acl), 0);
	CHECK_EQ(daos_acl_validate(acl), 0);
	CHECK_EQ(acl->dal_ver, DAOS_ACL_VERSION);
	CHECK_EQ(daos_acl_get_size(acl), sizeof(*acl) + acl->dal_len);
	CHECK_EQ(daos_acl_to_strs(acl, &out, &count), 0);
	CHECK_EQ(count, 4);
	for (at = 0; at < count; at++) {
		CHECK_STR(out[at], wanted[at]);
		free(out[at]);
	}
	free(out);
	copy = daos_acl_dup(acl);
	CHECK(copy != NULL && memcmp(copy, acl, daos_acl_get_size(acl)) == 0);
	daos_acl_free(copy);
	daos_acl_free(acl);
	CHECK_EQ(daos_acl_from_strs(texts, 0, &acl), -DER_INVAL);
	texts[3] = "A::alice:rw";
	CHECK_EQ(daos_acl_from_strs(texts, 4, &acl), -DER_INVAL);
}

static void by_hand(void)
{
	struct daos_ace *aces[2];
	struct daos_ace *found = NULL;
	struct daos_acl *acl;
	char text[DAOS_ACL_MAX_ACE_STR_LEN];
	int seen = 0;

	aces[0] = daos_ace_create(DAOS_ACL_EVERYONE, NULL);
	aces[1] = daos_ace_create(DAOS_ACL_GROUP, "staff@");
	CHECK(aces[0] != NULL && aces[1] != NULL);
	CHECK(!daos_ace_is_valid(aces[0]));
	aces[0]->dae_access_types = aces[1]->dae_access_types = DAOS_ACL_ACCESS_ALLOW;
	aces[0]->dae_allow_perms = DAOS_ACL_PERM_READ;
	aces[1]->dae_allow_perms = DAOS_ACL_PERM_READ | DAOS_ACL_PERM_WRITE;
	CHECK(daos_ace_is_valid(aces[0]) && daos_ace_is_valid(aces[1]));
	CHECK_EQ(daos_ace_get_size(aces[1]), sizeof(struct daos_ace) + 8);
	CHECK_EQ(daos_ace_to_str(aces[1], text, sizeof(text)), 0);
	CHECK_STR(text, "A:G:staff@:rw");
	CHECK_EQ(daos_ace_to_str(aces[1], text, 5), -DER_TRUNC);
	CHECK_EQ(daos_ace_str_get_verbose("A:G:staff@:rw", text, sizeof(text)), 0);
	CHECK_STR(text, "Allow:Group:staff@:Read/Write");

	acl = daos_acl_create(aces, 2);
	CHECK(acl != NULL);
	CHECK_EQ(daos_acl_get_ace_for_principal(acl, DAOS_ACL_GROUP, "staff@", &found), 0);
	CHECK_STR(daos_ace_get_principal_str(found), "staff@");
	CHECK_EQ(daos_acl_get_ace_for_principal(acl, DAOS_ACL_USER, "staff@", &found),
		 -DER_NONEXIST);
	CHECK_EQ(daos_acl_get_ace_for_principal(acl, DAOS_ACL_USER, NULL, &found), -DER_INVAL);
	aces[1]->dae_allow_perms = 0;
	CHECK_EQ(daos_acl_add_ace(&acl, aces[1]), 0);
	CHECK_EQ(daos_acl_get_ace_for_principal(acl, DAOS_ACL_GROUP, "staff@", &found), 0);
	CHECK_EQ(found->dae_allow_perms, 0);
	for (found = daos_acl_get_next_ace(acl, NULL); found != NULL;
	     found = daos_acl_get_next_ace(acl, found))
		seen++;
	CHECK_EQ(seen, 2);
	CHECK_EQ(daos_acl_remove_ace(&acl, DAOS_ACL_EVERYONE, NULL), 0);
	CHECK_EQ(daos_acl_remove_ace(&acl, DAOS_ACL_EVERYONE, NULL), -DER_NONEXIST);
	CHECK_EQ(daos_acl_to_stream(stdout, acl, true), 0);
	daos_acl_dump(acl);
	daos_acl_free(acl);
	daos_ace_free(aces[0]);
	daos_ace_free(aces[1]);
}

static void principals(void)
{
	enum daos_acl_principal_type type = DAOS_ACL_OWNER;
	char *name = NULL;
	uid_t uid = 77;

	CHECK(daos_acl_principal_is_valid("bob@") && daos_acl_principal_is_valid("bob@x.org"));
	CHECK(!daos_acl_principal_is_valid("bob") && !daos_acl_principal_is_valid(NULL));
	CHECK_EQ(daos_acl_principal_from_str("u:bob@", &type, &name), 0);
	CHECK_EQ(type, DAOS_ACL_USER);
	CHECK_STR(name, "bob@");
	D_FREE(name);
	CHECK_EQ(daos_acl_principal_from_str("EVERYONE@", &type, &name), 0);
	CHECK_EQ(type, DAOS_ACL_EVERYONE);
	CHECK(name == NULL);
	CHECK_EQ(daos_acl_principal_from_str("bob@", &type, &name), -DER_INVAL);
	CHECK_EQ(daos_acl_uid_to_principal(0, &name), 0);
	CHECK_EQ(daos_acl_principal_to_uid(name, &uid), 0);
	CHECK_EQ(uid, 0);
	D_FREE(name);
	CHECK_EQ(daos_acl_principal_to_uid("no-such-user-anywhere@", &uid), -DER_NONEXIST);
}

static void nonsense(void)
{
	struct daos_acl *acl = daos_acl_create(NULL, 0);

	CHECK(acl != NULL);
	CHECK_EQ(daos_acl_validate(acl), 0);
	acl->dal_ver = 9;
	CHECK_EQ(daos_acl_validate(acl), -DER_INVAL);
	daos_acl_free(acl);
	CHECK_EQ(daos_acl_validate(NULL), -DER_INVAL);
	CHECK(daos_acl_dup(NULL) == NULL);
	CHECK(daos_ace_create(DAOS_ACL_USER, NULL) == NULL);
	CHECK(daos_ace_create(NUM_DAOS_ACL_TYPES, "x@") == NULL);
	CHECK_EQ(daos_acl_get_size(NULL), -DER_INVAL);
	CHECK(!daos_ace_is_valid(NULL));
	daos_acl_free(NULL);
	daos_ace_free(NULL);
}

int main(void)
{
	from_and_to_text();
	by_hand();
	principals();
	nonsense();
	return 0;
}
