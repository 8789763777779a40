/* Each rank writes a file of its own. usage: ranks BYTES */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank;
    char name[32];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    size_t bytes = strtoul(argv[1], NULL, 10);
    char *data = malloc(bytes);
    for (size_t at = 0; at < bytes; at++) data[at] = (char)(at * 7 + at / 251);
    snprintf(name, sizeof name, "rank%d", rank);
    MPI_Barrier(MPI_COMM_WORLD);
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (write(fd, data, bytes) != (ssize_t)bytes) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Finalize();
}
