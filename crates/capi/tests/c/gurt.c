/* Memory, hash table, lists of ranks, environment, errors and log, as a C program uses them. */

#include <daos.h>
#include <gurt/common.h>
#include <gurt/hash.h>
#include <gurt/list.h>
#include <setjmp.h>
#include "check.h"

/* A handle kept by number, the way I/O libraries keep open pools and containers. */
struct handle {
	uint64_t key;
	d_list_t entry;
	int refs;
	int *freed;
};

static struct handle *handle_of(d_list_t *link)
{
	return container_of(link, struct handle, entry);
}

static bool key_cmp(struct d_hash_table *table, d_list_t *link, const void *key, unsigned int size)
{
	(void)table;
	CHECK_EQ(size, sizeof(uint64_t));
	return handle_of(link)->key == *(const uint64_t *)key;
}

static uint32_t rec_hash(struct d_hash_table *table, d_list_t *link)
{
	(void)table;
	return d_hash_string_u32((const char *)&handle_of(link)->key, sizeof(uint64_t));
}

static void rec_addref(struct d_hash_table *table, d_list_t *link)
{
	(void)table;
	handle_of(link)->refs++;
}

static bool rec_decref(struct d_hash_table *table, d_list_t *link)
{
	(void)table;
	CHECK(handle_of(link)->refs > 0);
	return --handle_of(link)->refs == 0;
}

static void rec_free(struct d_hash_table *table, d_list_t *link)
{
	struct handle *handle = handle_of(link);

	(void)table;
	(*handle->freed)++;
	D_FREE(handle);
}

static d_hash_table_ops_t ops;

static struct handle *new_handle(uint64_t key, int *freed)
{
	struct handle *handle;

	D_ALLOC_PTR(handle);
	CHECK(handle != NULL);
	handle->key = key;
	handle->refs = 1;
	handle->freed = freed;
	D_INIT_LIST_HEAD(&handle->entry);
	return handle;
}

static int count(d_list_t *link, void *arg)
{
	CHECK(!d_hash_rec_unlinked(link));
	return ++*(int *)arg == 1000;
}

static void hash_table(uint32_t feats)
{
	struct d_hash_table *table = NULL;
	bool ephemeral = feats & D_HASH_FT_EPHEMERAL;
	int freed = 0, seen = 0;
	uint64_t key;

	CHECK_EQ(d_hash_table_create(feats, 4, NULL, &ops, &table), 0);
	for (key = 0; key < 100; key++) {
		struct handle *handle = new_handle(key, &freed);

		CHECK_EQ(d_hash_rec_insert(table, &key, sizeof(key), &handle->entry, true), 0);
		CHECK_EQ(handle->refs, ephemeral ? 1 : 2);
		CHECK_EQ(d_hash_rec_insert(table, &key, sizeof(key), &handle->entry, true),
			 -DER_EXIST);
	}
	for (key = 0; key < 110; key++) {
		d_list_t *found = d_hash_rec_find(table, &key, sizeof(key));

		CHECK_EQ(found != NULL, key < 100);
		if (found == NULL)
			continue;
		CHECK_EQ(handle_of(found)->key, key);
		d_hash_rec_decref(table, found);
	}
	CHECK_EQ(d_hash_table_traverse(table, count, &seen), 0);
	CHECK_EQ(seen, 100);
	CHECK_EQ(d_hash_table_destroy(table, false), -DER_BUSY);
	for (;;) {
		d_list_t *first = d_hash_rec_first(table);

		if (first == NULL)
			break;
		if (!ephemeral)
			CHECK(d_hash_rec_delete_at(table, first));
		d_hash_rec_decref(table, first);
	}
	CHECK_EQ(freed, 100);
	CHECK_EQ(d_hash_table_destroy(table, false), 0);
}

static void hashes(void)
{
	const char *text = "The quick brown fox jumps over the lazy dog";

	CHECK_EQ(d_hash_string_u32(text, (unsigned int)strlen(text)), 885799134u);
	CHECK(d_hash_murmur64((const unsigned char *)text, (unsigned int)strlen(text), 0) ==
	      6163679885495272987ull);
	CHECK_EQ(d_hash_jump(12345, 1000), 938);
	CHECK_EQ(d_hash_mix96(1, 2, 3), 3082062082u);
}

static void ranks(void)
{
	d_rank_list_t *list = daos_rank_list_parse("3:1:2", ":");
	d_rank_list_t *copy = NULL;
	char *text = NULL;
	int at = -1;

	CHECK(list != NULL);
	CHECK_EQ(list->rl_nr, 3);
	CHECK_EQ(list->rl_ranks[0], 3);
	CHECK_EQ(d_rank_list_dup(&copy, list), 0);
	d_rank_list_sort(copy);
	CHECK_EQ(copy->rl_ranks[0], 1);
	CHECK(d_rank_list_identical(list, copy));
	CHECK(d_rank_list_find(list, 2, &at));
	CHECK_EQ(at, 2);
	CHECK_EQ(d_rank_list_append(list, 9), 0);
	CHECK_EQ(d_rank_list_to_str(list, &text), 0);
	CHECK_STR(text, "[1-3,9]");
	D_FREE(text);
	CHECK_EQ(d_rank_list_del(list, 3), 0);
	CHECK_EQ(list->rl_nr, 3);
	d_rank_list_free(copy);
	d_rank_list_free(list);
	d_rank_list_free(NULL);
	CHECK(daos_rank_list_parse("", ":") == NULL);
}

static void environment(void)
{
	const char *name = "AZEKURA_TEST_GURT";
	uint32_t narrow = 7;
	uint64_t wide = 7;
	bool flag = false;
	char *text = NULL;
	char buffer[4];

	CHECK_EQ(d_getenv_bool(name, &flag), -DER_NONEXIST);
	CHECK_EQ(d_agetenv_str(&text, name), -DER_NONEXIST);
	CHECK(text == NULL);
	CHECK_EQ(d_setenv(name, "4294967296", 1), 0);
	CHECK_EQ(d_getenv_uint32_t(name, &narrow), -DER_INVAL);
	CHECK_EQ(narrow, 7);
	CHECK_EQ(d_getenv_uint64_t(name, &wide), 0);
	CHECK_EQ(wide, 4294967296);
	CHECK_EQ(d_getenv_bool(name, &flag), 0);
	CHECK(flag);
	CHECK_EQ(d_agetenv_str(&text, name), 0);
	CHECK_STR(text, "4294967296");
	d_freeenv_str(&text);
	CHECK(text == NULL);
	CHECK_EQ(d_getenv_str(buffer, sizeof(buffer), name), -DER_TRUNC);
	CHECK_STR(buffer, "429");
	CHECK_EQ(d_unsetenv(name), 0);
}

static void memory(void)
{
	int *numbers = NULL, *more = NULL;
	char *text = NULL;
	d_sg_list_t sgl;

	D_ALLOC_ARRAY(numbers, 4);
	CHECK(numbers != NULL);
	CHECK_EQ(numbers[3], 0);
	numbers[3] = 5;
	D_REALLOC_ARRAY(more, numbers, 4, 8);
	CHECK(more != NULL && numbers == NULL);
	CHECK_EQ(more[3], 5);
	CHECK_EQ(more[7], 0);
	D_FREE(more);
	D_FREE(more);
	D_STRNDUP(text, "abcdef", 3);
	CHECK_STR(text, "abc");
	free(text);
	CHECK_EQ(d_sgl_init(&sgl, 2), 0);
	D_ALLOC(sgl.sg_iovs[0].iov_buf, 10);
	sgl.sg_iovs[0].iov_buf_len = 10;
	CHECK_EQ(d_sgl_buf_size(&sgl), 10);
	d_sgl_fini(&sgl, true);
	CHECK(sgl.sg_iovs == NULL);
}

#define CHECK_ERROR(name, text)                          \
	CHECK_STR(d_errstr(-name), #name);               \
	CHECK(strlen(d_errdesc(-name)) > 4);             \
	CHECK(strncmp(d_errdesc(-name), "Unknown", 7) != 0);

static void errors(void)
{
	D_FOREACH_GURT_ERR(CHECK_ERROR)
	D_FOREACH_DAOS_ERR(CHECK_ERROR)
	CHECK_STR(d_errstr(0), "DER_SUCCESS");
	CHECK_STR(d_errstr(DER_NONEXIST), "DER_UNKNOWN");
	CHECK_STR(d_errstr(-DER_UNKNOWN), "DER_UNKNOWN");
	CHECK_STR(d_errdesc(0), "Success");
	CHECK_STR(d_errdesc(-3), "Unknown error -3");
}

static void clocks(void)
{
	struct timespec time;
	time_t seconds = 0;

	CHECK_EQ(daos_hlc2timespec(1700000000123456789ull, &time), 0);
	CHECK_EQ(time.tv_sec, 1700000000);
	CHECK_EQ(time.tv_nsec, 123456789);
	CHECK_EQ(daos_hlc2timestamp(1700000000123456789ull, &seconds), 0);
	CHECK_EQ(seconds, 1700000000);
	CHECK_EQ(daos_hlc2timespec(1, NULL), -DER_INVAL);
}

static jmp_buf asserted;

static void on_assert(const int result, const char *expression, const char *file, const int line)
{
	(void)file;
	CHECK_EQ(result, 0);
	CHECK(line > 0);
	CHECK_STR(expression, "1 == 2");
	longjmp(asserted, 1);
}

static void assertions(void)
{
	CHECK_EQ(d_register_alt_assert(NULL), -DER_INVAL);
	CHECK_EQ(d_register_alt_assert(on_assert), 0);
	D_ASSERT(1 == 1);
	if (setjmp(asserted) == 0) {
		D_ASSERT(1 == 2);
		CHECK(!"an assertion that fails does not return");
	}
}

/* What the log writes, read back from the file it was told to write to. */
static void logging(void)
{
	char path[] = "/tmp/azekura-gurt-XXXXXX";
	char text[4096];
	FILE *file;
	size_t length;
	int descriptor = mkstemp(path);

	CHECK(descriptor >= 0);
	close(descriptor);
	d_setenv("D_LOG_FILE", path, 1);
	d_setenv("D_LOG_MASK", "WARN,mem=DEBUG", 1);
	CHECK_EQ(d_log_init(), 0);
	D_ERROR("number %d\n", 42);
	D_WARN("a warning\n");
	D_INFO("an information\n");
	D_DEBUG(DLOG_DBG, "a detail\n");
	DL_ERROR(-DER_NONEXIST, "with a reason");
	d_log_fini();
	file = fopen(path, "r");
	CHECK(file != NULL);
	length = fread(text, 1, sizeof(text) - 1, file);
	text[length] = 0;
	fclose(file);
	remove(path);
	CHECK(strstr(text, "number 42\n") != NULL);
	CHECK(strstr(text, "a warning\n") != NULL);
	CHECK(strstr(text, "DER_NONEXIST") != NULL);
	CHECK(strstr(text, "logging()") != NULL);
	CHECK(strstr(text, "an information") == NULL);
	CHECK(strstr(text, "a detail") == NULL);
	d_log_disable_logging();
	CHECK_EQ(azk_log_enabled(8), 0);
}

int main(void)
{
	uint32_t locks[] = {D_HASH_FT_NOLOCK, 0, D_HASH_FT_MUTEX, D_HASH_FT_RWLOCK};
	size_t at;

	ops.hop_key_cmp = key_cmp;
	ops.hop_rec_hash = rec_hash;
	ops.hop_rec_addref = rec_addref;
	ops.hop_rec_decref = rec_decref;
	ops.hop_rec_free = rec_free;
	for (at = 0; at < ARRAY_SIZE(locks); at++) {
		hash_table(locks[at]);
		hash_table(locks[at] | D_HASH_FT_EPHEMERAL);
		hash_table(locks[at] | D_HASH_FT_EPHEMERAL | D_HASH_FT_LRU);
		hash_table(locks[at] | D_HASH_FT_GLOCK | D_HASH_FT_LRU);
	}
	hashes();
	ranks();
	environment();
	memory();
	errors();
	clocks();
	assertions();
	logging();
	return 0;
}
