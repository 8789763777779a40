/* Handlers that write: while their thread waits, out of a call for good, inside malloc.
   usage: signals MODE DIR BYTES */
#include "program.h"
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

static volatile sig_atomic_t handled;
static sigjmp_buf back;
static pthread_t main_thread;

/* Memory for the program and for everything loaded into it. Asking for it while asking is what
   would lock up with a usual malloc. */
static _Thread_local int in_malloc;
static _Atomic size_t used;
static char arena[64 << 20];
static volatile sig_atomic_t signal_in_malloc;

void *malloc(size_t size) {
    if (in_malloc) {
        static const char told[] = "malloc was called within malloc\n";
        (void)!write(2, told, sizeof told - 1);
        _exit(9);
    }
    in_malloc = 1;
    if (signal_in_malloc) {
        signal_in_malloc = 0;
        raise(SIGUSR1);
    }
    size_t room = (size + 31) & ~(size_t)15;
    size_t at = used;
    used += room;
    if (used > sizeof arena) _exit(8);
    *(size_t *)(arena + at) = size;
    in_malloc = 0;
    return arena + at + 16;
}
void free(void *place) { (void)place; }
void *calloc(size_t count, size_t size) { return malloc(count * size); }
void *realloc(void *old, size_t size) {
    char *made = malloc(size);
    if (old) {
        size_t before = *(size_t *)((char *)old - 16);
        memcpy(made, old, before < size ? before : size);
    }
    return made;
}

static void write_in_handler(int number) {
    (void)number;
    if (handled) return;
    int before = errno;
    int fd = file("handler");
    MUST(write(fd, data, bytes) == (ssize_t)bytes);
    MUST(rename("handler", "handled") == 0);
    handled = 1;
    errno = before;
}

static void leave_by_jump(int number) {
    (void)number;
    if (handled) return;
    handled = 1;
    siglongjmp(back, 1);
}

static void wait_for(const char *name) {
    while (access(name, F_OK) != 0) usleep(1000);
}

/* Sends signals to the main thread until one has been handled while it waits: the test makes the
   file when it is asked, and gives permission only after it has seen the handler's. */
static void *pester(void *unused) {
    wait_for("asked");
    while (!handled) {
        pthread_kill(main_thread, SIGUSR1);
        usleep(2000);
    }
    return unused;
}

static void handle(void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    MUST(sigaction(SIGUSR1, &action, NULL) == 0);
}

static void waiting(int flags) {
    handle(write_in_handler, flags);
    pthread_t thread;
    MUST(!pthread_create(&thread, NULL, pester, NULL));
    errno = 77;
    MUST(write(file("main"), data, bytes) == (ssize_t)bytes);
    MUST(errno == 77);
    MUST(!pthread_join(thread, NULL) && handled);
    MUST(write(file("main2"), data, bytes) == (ssize_t)bytes);
}

/* The first call is left while it waits. The next ones must be coordinated again. */
static void *jolt(void *unused) {
    wait_for("asked");
    pthread_kill(main_thread, SIGUSR1);
    return unused;
}

static void jumping(void) {
    handle(leave_by_jump, SA_NODEFER);
    pthread_t thread;
    MUST(!pthread_create(&thread, NULL, jolt, NULL));
    int fd = file("left");
    if (sigsetjmp(back, 1) == 0) {
        write(fd, data, bytes);
        MUST(!"the call came back");
    }
    MUST(!pthread_join(thread, NULL));
    MUST(write(file("main"), data, bytes) == (ssize_t)bytes);
    MUST(write(file("main2"), data, bytes) == (ssize_t)bytes);
}

/* A handler that interrupted malloc writes, before the library has ever been asked anything. */
static void in_allocator(void) {
    handle(write_in_handler, 0);
    signal_in_malloc = 1;
    free(malloc(10));
    MUST(handled);
    MUST(write(file("main"), data, bytes) == (ssize_t)bytes);
}

static void on_small_stack(void) {
    stack_t stack = {.ss_size = 16 << 10};
    stack.ss_sp = mmap(NULL, stack.ss_size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(stack.ss_sp != MAP_FAILED && sigaltstack(&stack, NULL) == 0);
    handle(write_in_handler, SA_ONSTACK);
    raise(SIGUSR1);
    MUST(handled);
}

int main(int argc, char **argv) {
    const char *mode = prepare(argc, argv);
    main_thread = pthread_self();
    if (!strcmp(mode, "waiting")) waiting(0);
    else if (!strcmp(mode, "waiting-on-stack")) {
        stack_t stack = {.ss_sp = malloc(64 << 10), .ss_size = 64 << 10};
        MUST(sigaltstack(&stack, NULL) == 0);
        waiting(SA_ONSTACK);
    }
    else if (!strcmp(mode, "jumping")) jumping();
    else if (!strcmp(mode, "in-allocator")) in_allocator();
    else if (!strcmp(mode, "on-small-stack")) on_small_stack();
    else return 2;
    return 0;
}
