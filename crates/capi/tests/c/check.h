/* Checks for the C tests: a check that fails says where, with both values, and ends the program. */
#ifndef AZK_TEST_CHECK_H
#define AZK_TEST_CHECK_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);            \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* Both as integers; for return codes and counts. */
#define CHECK_EQ(got, wanted)                                                                      \
	do {                                                                                       \
		long long check_got    = (long long)(got);                                         \
		long long check_wanted = (long long)(wanted);                                      \
		if (check_got != check_wanted) {                                                   \
			fprintf(stderr, "%s:%d: %s is %lld, not %s = %lld\n", __FILE__, __LINE__,  \
				#got, check_got, #wanted, check_wanted);                           \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#define CHECK_STR(got, wanted)                                                                     \
	do {                                                                                       \
		const char *check_got    = (got);                                                  \
		const char *check_wanted = (wanted);                                               \
		if (check_got == NULL || strcmp(check_got, check_wanted) != 0) {                   \
			fprintf(stderr, "%s:%d: %s is \"%s\", not \"%s\"\n", __FILE__, __LINE__,   \
				#got, check_got ? check_got : "(null)", check_wanted);             \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#endif
