/* Standard I/O. usage: stdio MODE DIR BYTES */
#include "program.h"
#include <pthread.h>

static FILE *stream(const char *name, size_t buffer) {
    FILE *made = fopen(name, "w+");
    MUST(made);
    if (buffer) MUST(setvbuf(made, malloc(buffer), _IOFBF, buffer) == 0);
    return made;
}

/* Puts the data in pieces of 1,000 bytes. */
static void trickle(FILE *to) {
    for (size_t at = 0; at < bytes; at += 1000) {
        size_t piece = bytes - at < 1000 ? bytes - at : 1000;
        MUST(fwrite(data + at, 1, piece, to) == piece);
    }
}

static void writes(void) {
    FILE *to = stream("fwrite", 0);
    MUST(fwrite(data, 1, bytes, to) == bytes && fclose(to) == 0);
    to = stream("fwrite_unlocked", 0);
    MUST(fwrite_unlocked(data, bytes, 1, to) == 1 && fclose(to) == 0);
    to = stream("fflush", 2 * bytes);
    trickle(to);
    MUST(fflush(to) == 0 && fflush(to) == 0 && fclose(to) == 0);
    to = stream("fclose", 2 * bytes);
    trickle(to);
    MUST(fclose(to) == 0);
    /* Twice the data through a buffer of once the data: one flush of a full buffer on the way. */
    to = stream("overflow", bytes);
    trickle(to);
    trickle(to);
    MUST(fclose(to) == 0);
    char *text = malloc(bytes + 1);
    memset(text, 'a', bytes);
    text[bytes] = 0;
    to = stream("fputs", 0);
    MUST(fputs(text, to) >= 0 && fclose(to) == 0);
    /* Small buffers never ask, and a stream in memory has nobody to ask for. */
    to = stream("small", 0);
    trickle(to);
    MUST(fclose(to) == 0);
    to = fmemopen(NULL, 2 * bytes, "w");
    MUST(fwrite(data, 1, bytes, to) == bytes && fclose(to) == 0);
    MUST(fflush(NULL) == 0);
}

static void reads(void) {
    char *room = malloc(bytes);
    FILE *from = fopen("fwrite", "r");
    MUST(from && fread(room, 1, bytes, from) == bytes && memcmp(room, data, bytes) == 0);
    rewind(from);
    MUST(fread_unlocked(room, bytes, 1, from) == 1 && memcmp(room, data, bytes) == 0);
    MUST(fread(room, 1, bytes, from) == 0 && feof(from));
    fclose(from);
}

static FILE *shared;
static pthread_barrier_t ready;

static void *push(void *unused) {
    pthread_barrier_wait(&ready);
    for (int round = 0; round < 20; round++) MUST(fwrite(data, 1, bytes, shared) == bytes);
    return unused;
}

static void *hold(void *unused) {
    pthread_barrier_wait(&ready);
    for (int round = 0; round < 20; round++) {
        flockfile(shared);
        MUST(fwrite(data, 1, bytes, shared) == bytes);
        funlockfile(shared);
    }
    return unused;
}

/* One permission for all; who holds the stream waits for it. */
static void lock(void) {
    pthread_t all[4];
    shared = stream("shared", 0);
    pthread_barrier_init(&ready, NULL, 4);
    for (int at = 0; at < 4; at++) {
        MUST(!pthread_create(&all[at], NULL, at % 2 ? push : hold, NULL));
    }
    for (int at = 0; at < 4; at++) MUST(!pthread_join(all[at], NULL));
    MUST(fclose(shared) == 0);
}

int main(int argc, char **argv) {
    const char *mode = prepare(argc, argv);
    if (!strcmp(mode, "writes")) writes();
    else if (!strcmp(mode, "reads")) { writes(); reads(); }
    else if (!strcmp(mode, "lock")) lock();
    else return 2;
    return 0;
}
