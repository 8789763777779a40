/* What the headers define in place: inline functions and macros. Needs no system. */
#include <setjmp.h>
#include <daos.h>
#include <daos_fs_sys.h>
#include <daos_task.h>
#include <daos_uns.h>
#include <gurt/common.h>
#include <gurt/hash.h>
#include "check.h"

/* A program may set its own; there is one facility. */
#undef D_LOGFAC
#define D_LOGFAC DD_FAC(tests)

struct entry {
	int number;
	d_list_t link;
};

static void lists(void)
{
	struct entry entries[4];
	struct entry *at, *next, *popped;
	d_list_t *pos;
	int i, sum = 0;
	D_LIST_HEAD(head);
	D_LIST_HEAD(other);

	CHECK(d_list_empty(&head));
	CHECK(d_list_pop_entry(&head, struct entry, link) == NULL);
	for (i = 0; i < 4; i++) {
		entries[i].number = i;
		if (i % 2 == 0)
			d_list_add_tail(&entries[i].link, &head);
		else
			d_list_add(&entries[i].link, &head);
	}
	/* 3 1 0 2 */
	d_list_for_each_entry(at, &head, link)
		sum = sum * 10 + at->number;
	CHECK_EQ(sum, 3102);
	sum = 0;
	d_list_for_each_entry_reverse(at, &head, link)
		sum = sum * 10 + at->number;
	CHECK_EQ(sum, 2013);
	sum = 0;
	d_list_for_each(pos, &head)
		sum++;
	CHECK_EQ(sum, 4);
	d_list_move_tail(&entries[3].link, &head);
	d_list_move(&entries[2].link, &other);
	/* head: 1 0 3, other: 2 */
	d_list_splice_init(&other, &head);
	CHECK(d_list_empty(&other));
	sum = 0;
	d_list_for_each_entry_safe(at, next, &head, link) {
		sum = sum * 10 + at->number;
		d_list_del_init(&at->link);
		CHECK(d_list_empty(&at->link));
		if (sum == 2103 / 100)
			break;
	}
	CHECK_EQ(sum, 21);
	popped = d_list_pop_entry(&head, struct entry, link);
	CHECK_EQ(popped->number, 0);
	CHECK(container_of(&popped->link, struct entry, link) == popped);
	d_list_del(head.next);
	CHECK(d_list_empty(&head));
}

static void memory(void)
{
	struct entry *one = NULL;
	int *numbers = NULL, *more = NULL;
	char *text = NULL, *other = NULL;
	int i;

	D_ALLOC_PTR(one);
	CHECK(one != NULL && one->number == 0);
	D_FREE(one);
	CHECK(one == NULL);
	D_FREE(one);
	D_ALLOC_ARRAY(numbers, 3);
	for (i = 0; i < 3; i++)
		CHECK_EQ(numbers[i], 0);
	numbers[2] = 7;
	D_REALLOC_ARRAY(more, numbers, 3, 1000);
	CHECK(more != NULL && numbers == NULL);
	CHECK_EQ(more[2], 7);
	for (i = 3; i < 1000; i++)
		CHECK_EQ(more[i], 0);
	D_REALLOC_NZ(numbers, more, 2 * sizeof(*more));
	CHECK(numbers != NULL && more == NULL);
	D_FREE(numbers);
	D_ALLOC(text, 10);
	CHECK_EQ(text[9], 0);
	D_FREE(text);
	D_STRNDUP(text, "abcdef", 3);
	CHECK_STR(text, "abc");
	D_FREE(text);
	D_STRNDUP_S(text, "abcdef");
	CHECK_STR(text, "abcdef");
	D_ASPRINTF(other, "%s-%d", text, 42);
	CHECK_STR(other, "abcdef-42");
	/* The memory is malloc's. */
	free(text);
	D_FREE(other);
}

static int locks(void)
{
	pthread_mutex_t mutex;
	pthread_rwlock_t rwlock;
	pthread_spinlock_t spin;
	int rc;

	CHECK_EQ(D_MUTEX_INIT(&mutex, NULL), 0);
	CHECK_EQ(D_MUTEX_LOCK(&mutex), 0);
	rc = D_MUTEX_TRYLOCK(&mutex);
	CHECK_EQ(rc, -DER_BUSY);
	D_MUTEX_UNLOCK(&mutex);
	D_MUTEX_DESTROY(&mutex);
	CHECK_EQ(D_RWLOCK_INIT(&rwlock, NULL), 0);
	D_RWLOCK_RDLOCK(&rwlock);
	D_RWLOCK_UNLOCK(&rwlock);
	D_RWLOCK_DESTROY(&rwlock);
	CHECK_EQ(D_SPIN_INIT(&spin, PTHREAD_PROCESS_PRIVATE), 0);
	D_SPIN_LOCK(&spin);
	D_SPIN_UNLOCK(&spin);
	D_SPIN_DESTROY(&spin);
	D_GOTO(out, rc = 5);
out:
	return rc;
}

static void pieces(void)
{
	d_sg_list_t from, to;
	d_iov_t iov;
	char text[8] = "seven!!";

	d_iov_set(&iov, text, sizeof(text));
	CHECK_EQ(iov.iov_len, 8);
	CHECK_EQ(iov.iov_buf_len, 8);
	CHECK_EQ(d_sgl_init(&from, 2), 0);
	CHECK_EQ(d_sgl_init(&to, 2), 0);
	CHECK(from.sg_iovs[1].iov_buf == NULL);
	d_iov_set(&from.sg_iovs[0], text, 4);
	d_iov_set(&from.sg_iovs[1], text + 4, 4);
	CHECK_EQ(d_sgl_buf_size(&from), 8);
	d_iov_set(&to.sg_iovs[0], d_calloc(1, 6), 6);
	d_iov_set(&to.sg_iovs[1], d_calloc(1, 6), 6);
	d_sgl_buf_copy(&to, &from);
	CHECK_EQ(memcmp(to.sg_iovs[1].iov_buf, "n!!", 4), 0);
	CHECK_EQ(to.sg_iovs[1].iov_len, 4);
	d_sgl_fini(&to, true);
	d_sgl_fini(&from, false);
	CHECK(from.sg_iovs == NULL);
	d_sgl_fini(NULL, true);
	CHECK_EQ(d_sgl_init(&from, 0), 0);
	d_sgl_fini(&from, true);
}

static void ids(void)
{
	daos_obj_id_t id = { 1, 2 };
	daos_handle_t handle = DAOS_HDL_INVAL;
	daos_anchor_t anchor = DAOS_ANCHOR_INIT;
	daos_key_t key = { NULL, 0, 0 };

	CHECK(daos_handle_is_inval(handle) && !daos_handle_is_valid(handle));
	handle.cookie = 3;
	CHECK(daos_handle_is_valid(handle));
	CHECK(daos_key_is_null(key));
	anchor.da_type = DAOS_ANCHOR_TYPE_EOF;
	CHECK(daos_anchor_is_eof(&anchor));
	CHECK_EQ(daos_anchor_init(&anchor, 0), 0);
	CHECK(!daos_anchor_is_eof(&anchor));
	daos_anchor_fini(&anchor);

	id.hi |= (uint64_t)DAOS_OT_ARRAY_BYTE << OID_FMT_TYPE_SHIFT;
	/* The codes of EC_4P2 and of GX in ids. */
	id.hi |= (uint64_t)0xa2 << OID_FMT_CLASS_SHIFT;
	id.hi |= (uint64_t)0xff00 << OID_FMT_META_SHIFT;
	CHECK_EQ(daos_obj_id2type(id), DAOS_OT_ARRAY_BYTE);
	CHECK(daos_is_array(id) && daos_is_dkey_uint64(id) && !daos_is_kv(id));
	CHECK(!daos_is_akey_lexical(id) && !daos_is_dkey_lexical(id) && !daos_is_akey_uint64(id));
	CHECK(daos_is_kv_type(DAOS_OT_KV_LEXICAL) && daos_is_dkey_lexical_type(DAOS_OT_KV_LEXICAL));
	CHECK(!daos_obj_id_is_nil(id) && daos_obj_id_is_nil(DAOS_OBJ_NIL));
	id.hi = 0xfffffff0;
	daos_obj_oid_cycle(&id);
	CHECK_EQ(id.hi, (0xfffffff0ULL + 999999937) & 0xffffffffULL);
}

static void names(void)
{
	char longest[130];
	struct daos_co_status status, back;
	uuid_t uuid;
	char text[DAOS_UUID_STR_SIZE];

	CHECK(daos_label_is_valid("tank") && daos_label_is_valid("a-b.c_d:e"));
	CHECK(!daos_label_is_valid("") && !daos_label_is_valid(NULL) && !daos_label_is_valid("a b"));
	CHECK(!daos_label_is_valid("6b1f8b1e-6a5c-4a0e-9a0f-0123456789ab"));
	memset(longest, 'x', sizeof(longest));
	longest[128] = '\0';
	CHECK(!daos_label_is_valid(longest));
	longest[127] = '\0';
	CHECK(daos_label_is_valid(longest));
	CHECK(daos_is_valid_uuid_string("6B1F8B1E-6A5C-4A0E-9A0F-0123456789AB", UUID_SST_UPPER));
	CHECK(!daos_is_valid_uuid_string("6B1F8B1E-6A5C-4A0E-9A0F-0123456789AB", UUID_SST_LOWER));
	CHECK(!daos_is_valid_uuid_string("6B1F8B1E", UUID_SST_NONE));

	status.dcs_status = DAOS_PROP_CO_UNCLEAN;
	status.dcs_flags = 0x8001;
	status.dcs_pm_ver = 0xfedcba98;
	daos_prop_val_2_co_status(daos_prop_co_status_2_val(&status), &back);
	CHECK_EQ(back.dcs_status, status.dcs_status);
	CHECK_EQ(back.dcs_flags, status.dcs_flags);
	CHECK_EQ(back.dcs_pm_ver, status.dcs_pm_ver);
	CHECK_STR(daos_pool_cont_filter_func_str(PCF_FUNC_GE), ">=");
	CHECK_STR(daos_pool_cont_filter_key_str((enum daos_pool_cont_filter_key)PCF_KEY_MAX), "UNKNOWN");

	uuid_generate(uuid);
	uuid_unparse_lower(uuid, text);
#ifndef __cplusplus
	{
		char ours[DAOS_UUID_STR_SIZE];
		const unsigned char *constant = uuid;

		CHECK_STR(azk_name_uuid(uuid, ours), text);
		CHECK_STR(AZK_NAME(uuid), text);
		CHECK_STR(AZK_NAME(constant), text);
		CHECK_STR(AZK_NAME("tank"), "tank");
		CHECK_STR(AZK_NAME(text), text);
	}
#endif
}

/* Numbers are those of the list, and d_errstr() knows each name. */
static void errors(void)
{
	int known = 0;

#define KNOWN(name, text)                            \
	CHECK_STR(d_errstr(-(name)), #name);         \
	CHECK(strlen(d_errdesc(-(name))) > 2);       \
	known++;
	D_FOREACH_GURT_ERR(KNOWN)
	CHECK_EQ(known, 46);
	D_FOREACH_DAOS_ERR(KNOWN)
	CHECK_EQ(known, 98);
	CHECK_STR(d_errstr(0), "DER_SUCCESS");
	CHECK_EQ(DER_NO_PERM, 1001);
	CHECK_EQ(DER_QUOTA_LIMIT, 1046);
	CHECK_EQ(DER_IO, 2001);
	CHECK_EQ(DER_IGNORE, 2052);
	CHECK_EQ(DER_UNKNOWN, 501000);
	CHECK_EQ(d_errno2der(ENOENT), -DER_NONEXIST);
	CHECK_EQ(d_errno2der(EXDEV), -DER_MISC);
}

static jmp_buf away;

static void jump(const int result, const char *expression, const char *file, const int line)
{
	CHECK_EQ(result, 0);
	CHECK_STR(expression, "1 + 1 == 3");
	CHECK(file != NULL && line > 0);
	longjmp(away, 1);
}

static void logging(void)
{
	volatile int jumps = 0;

	D_ERROR("an error that is meant to be seen: %d\n", 1);
	D_WARN("below the level\n");
	D_DEBUG(DB_IO, "below the level: %s\n", "text");
	DL_ERROR(-DER_NOSPACE, "one with a code, %d", 2);
	DS_ERROR(ENOSPC, "one with an errno");
	D_CDEBUG(jumps == 0, DLOG_ERR, DB_ALL, "one by condition\n");
	D_ASSERT(1 + 1 == 2);
	D_ASSERTF(1 + 1 == 2, "%d\n", 2);
	D_CASSERT(sizeof(int) == 4, "what the layout needs");
	CHECK_EQ(d_register_alt_assert(jump), 0);
	if (setjmp(away) == 0)
		D_ASSERT(1 + 1 == 3);
	else
		jumps++;
	CHECK_EQ(jumps, 1);
	printf(DF_RC " " DF_U64 "\n", DP_RC(-DER_INVAL), (uint64_t)1);
}

int main(void)
{
	lists();
	memory();
	CHECK_EQ(locks(), 5);
	pieces();
	ids();
	names();
	errors();
	logging();
	CHECK_EQ(d_u32_hash(1, 32), 0x9e370001);
	CHECK_EQ(d_u64_hash(1, 8), 0xcb);
	return 0;
}
