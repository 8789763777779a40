/* A hostile client that shares no code with the engine: it writes into the shared memory while the engine
 * reads it, passes the engine its own descriptors, and outlives the process that connected.
 *
 * Arguments: what to do, the engine's socket, a file with a first message, a file with a ping, a file that
 * is there as long as connections are to be held. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* The shared memory, as the engine has it. */
#define RING_AT 8192
#define RING_BYTES (256 << 10)
#define REGION_BYTES (RING_AT + 2 * RING_BYTES)
#define WRITTEN_AT 128

#define CHECK(condition)                                                       \
	do {                                                                   \
		if (!(condition)) {                                            \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, \
				#condition, strerror(errno));                  \
			exit(1);                                               \
		}                                                              \
	} while (0)

struct conn {
	int socket;
	/* The memory, the engine's bell, and what our own bell is seen by. */
	int fds[3];
	unsigned char *map;
	uint64_t written;
	atomic_bool stop;
};

struct bytes {
	char data[4096];
	size_t count;
};

static const char *path, *hold;
static const char *prover;
static struct bytes ping;

static void load(const char *name, struct bytes *into)
{
	int fd = open(name, O_RDONLY);
	ssize_t count;

	CHECK(fd >= 0);
	count = read(fd, into->data, sizeof(into->data));
	CHECK(count > 0);
	into->count = (size_t)count;
	close(fd);
}

static int connect_to(const char *to)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0 && strlen(to) < sizeof(address.sun_path));
	strcpy(address.sun_path, to);
	CHECK(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	return fd;
}

/* Connects to the engine, reads its challenge, and has somebody who knows the secret say what is to be said. */
static int dial(struct bytes *hello)
{
	char challenge[72];
	int fd = connect_to(path), asked = connect_to(prover);
	ssize_t count;

	CHECK(recv(fd, challenge, sizeof(challenge), MSG_WAITALL) == (ssize_t)sizeof(challenge));
	CHECK(send(asked, challenge + 40, 32, MSG_NOSIGNAL) == 32);
	count = recv(asked, hello->data, sizeof(hello->data), MSG_WAITALL);
	CHECK(count > 0);
	hello->count = (size_t)count;
	close(asked);
	return fd;
}

/* Sends bytes with a descriptor. The engine may have hung up. */
static void send_with(int fd, const void *data, size_t count, int passed)
{
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec part = {.iov_base = (void *)data, .iov_len = count};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	memset(&control, 0, sizeof(control));
	if (passed >= 0) {
		struct cmsghdr *header;

		message.msg_control = control.space;
		message.msg_controllen = sizeof(control.space);
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &passed, sizeof(int));
	}
	(void)!sendmsg(fd, &message, MSG_NOSIGNAL);
}

/* Connects as a good client does. */
static void open_conn(struct conn *conn)
{
	union {
		char space[CMSG_SPACE(4 * sizeof(int))];
		struct cmsghdr align;
	} control;
	char answer[4096];
	struct iovec part = {.iov_base = answer, .iov_len = sizeof(answer)};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control.space,
				 .msg_controllen = sizeof(control.space)};
	struct cmsghdr *header;
	struct bytes hello;

	memset(conn, 0, sizeof(*conn));
	conn->socket = dial(&hello);
	send_with(conn->socket, hello.data, hello.count, -1);
	CHECK(recvmsg(conn->socket, &message, MSG_CMSG_CLOEXEC) > 0);
	header = CMSG_FIRSTHDR(&message);
	CHECK(header != NULL && header->cmsg_len == CMSG_LEN(3 * sizeof(int)));
	memcpy(conn->fds, CMSG_DATA(header), sizeof(conn->fds));
	conn->map = (unsigned char *)mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, conn->fds[0], 0);
	CHECK(conn->map != MAP_FAILED);
}

static void close_conn(struct conn *conn)
{
	int at;

	munmap(conn->map, REGION_BYTES);
	for (at = 0; at < 3; at++)
		close(conn->fds[at]);
	close(conn->socket);
}

static void ring(struct conn *conn)
{
	uint64_t one = 1;

	(void)!write(conn->fds[1], &one, sizeof(one));
}

/* Writes a ping into the ring, and says that it is there. */
static void send_ping(struct conn *conn)
{
	size_t at;

	for (at = 0; at < ping.count; at++)
		conn->map[RING_AT + (conn->written + at) % RING_BYTES] = (unsigned char)ping.data[at];
	conn->written += ping.count;
	__atomic_store_n((uint64_t *)(void *)(conn->map + WRITTEN_AT), conn->written, __ATOMIC_SEQ_CST);
	ring(conn);
}

static void hold_on(void)
{
	struct stat found;

	printf("holding\n");
	fflush(stdout);
	while (stat(hold, &found) == 0)
		usleep(5000);
}

/* Changes positions, flags, state words and what is in the ring, again and again. */
static void *scribble(void *argument)
{
	static const size_t places[] = {0, 64, 128, 136, 192, 256, 264, 320, 4096, 6136, RING_AT, RING_AT + 24};
	struct conn *conn = (struct conn *)argument;
	uint64_t seed = (uint64_t)(uintptr_t)conn | 1, value;

	while (!atomic_load(&conn->stop)) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		value = seed >> 40;
		switch (seed >> 60) {
		case 0: value = UINT64_MAX; break;
		case 1: value = RING_BYTES + 1; break;
		case 2: value = seed; break;
		case 3: value = 0; break;
		/* Close to the truth. */
		default: value = conn->written + (seed >> 32 & 255); break;
		}
		__atomic_store_n((uint64_t *)(void *)(conn->map + places[(seed >> 33) % 12]), value, __ATOMIC_RELAXED);
		if ((seed >> 50) % 512 == 0)
			(void)!fallocate(conn->fds[0], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, REGION_BYTES);
	}
	return NULL;
}

static void race(void)
{
	struct conn conn;
	pthread_t thread;
	int round, sent;

	for (round = 0; round < 200; round++) {
		open_conn(&conn);
		CHECK(pthread_create(&thread, NULL, scribble, &conn) == 0);
		for (sent = 0; sent < 100; sent++)
			send_ping(&conn);
		atomic_store(&conn.stop, true);
		CHECK(pthread_join(thread, NULL) == 0);
		close_conn(&conn);
	}
	hold_on();
}

/* Gives the engine our end of its own connections, in the middle of a first message and later: as long as it
 * kept one, it would not see that we are gone. */
static void loops(void)
{
	enum { COUNT = 300 };
	static int sockets[COUNT];
	struct conn conn;
	int at;

	for (at = 0; at < COUNT; at++) {
		struct bytes hello;
		size_t half;

		sockets[at] = dial(&hello);
		half = hello.count * (size_t)(at % 7) / 7;
		send_with(sockets[at], hello.data, half, at % 2 == 0 ? sockets[at] : -1);
		send_with(sockets[at], hello.data + half, at % 3 == 0 ? 1 : hello.count - half, sockets[at]);
		if (at > 0)
			send_with(sockets[at - 1], "x", 1, sockets[at]);
	}
	for (at = 0; at < 50; at++) {
		open_conn(&conn);
		send_with(conn.socket, "x", 1, conn.socket);
		send_ping(&conn);
		close_conn(&conn);
	}
	hold_on();
	for (at = 0; at < COUNT; at++)
		close(sockets[at]);
}

/* Connections whose process is gone, while another one has them. */
static void orphans(void)
{
	enum { COUNT = 40 };
	static struct conn conns[COUNT];
	int done[2], at, round;
	char byte;
	pid_t owner;

	CHECK(pipe(done) == 0);
	owner = fork();
	CHECK(owner >= 0);
	if (owner == 0) {
		for (at = 0; at < COUNT; at++)
			open_conn(&conns[at]);
		owner = fork();
		CHECK(owner >= 0);
		if (owner > 0)
			_exit(0);
		close(done[0]);
		for (round = 0; round < 20; round++)
			for (at = 0; at < COUNT; at++)
				send_ping(&conns[at]);
		hold_on();
		_exit(0);
	}
	close(done[1]);
	CHECK(waitpid(owner, NULL, 0) == owner);
	/* Until the last one that has the pipe is gone. */
	CHECK(read(done[0], &byte, 1) == 0);
}

int main(int argc, char **argv)
{
	CHECK(argc == 6);
	path = argv[2];
	hold = argv[5];
	prover = argv[3];
	load(argv[4], &ping);
	if (strcmp(argv[1], "race") == 0)
		race();
	else if (strcmp(argv[1], "loops") == 0)
		loops();
	else if (strcmp(argv[1], "orphans") == 0)
		orphans();
	else
		return 1;
	return 0;
}
