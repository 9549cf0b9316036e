/* Messages and collectives over MPI in C, with the loops of the OSU micro-benchmarks: osu_latency (two buffers at each
   end), osu_bw (windows of 64 messages, each answered), and collectives with a barrier after each operation.
   mpi_loops OPERATION LARGEST: prints a line "bytes seconds" per size: the time of one operation or window, the median
   of seven loops; that of a collective is averaged over ranks. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOPS 7
#define WINDOW 64

static void *buffer(size_t size)
{
    void *found = NULL;
    if (posix_memalign(&found, 4096, size + 4096)) exit(1);
    memset(found, 1, size);
    return found;
}

static int later(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void once(const char *name, size_t size, int rank, int ranks, char *send, char *receive)
{
    int count = size / 4, each = count / ranks;
    if (!strcmp(name, "message")) {
        if (rank == 0) {
            MPI_Send(send, size, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(receive, size, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (rank == 1) {
            MPI_Recv(receive, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(send, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
    } else if (!strcmp(name, "window")) {
        MPI_Request requests[WINDOW];
        if (rank == 0) {
            for (int i = 0; i < WINDOW; i++) MPI_Isend(send, size, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[i]);
            MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
            MPI_Recv(receive, 1, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (rank == 1) {
            for (int i = 0; i < WINDOW; i++) MPI_Irecv(receive, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[i]);
            MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
            MPI_Send(send, 1, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
    } else if (!strcmp(name, "all_reduce"))
        MPI_Allreduce(send, receive, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (!strcmp(name, "all_gather"))
        MPI_Allgather(send, each, MPI_FLOAT, receive, each, MPI_FLOAT, MPI_COMM_WORLD);
    else if (!strcmp(name, "alltoall"))
        MPI_Alltoall(send, each, MPI_FLOAT, receive, each, MPI_FLOAT, MPI_COMM_WORLD);
    else
        MPI_Bcast(receive, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const char *name = argv[1];
    size_t largest = strtoull(argv[2], NULL, 10);
    char *send = buffer(largest), *receive = buffer(largest);
    int message = !strcmp(name, "message"), window = !strcmp(name, "window");
    for (size_t size = 8; size <= largest; size *= 8) {
        int iterations = size < 65536 ? 1000 : size < (4 << 20) ? 100 : 10;
        if (window) iterations /= 10;
        double times[LOOPS + 1];
        for (int loop = 0; loop <= LOOPS; loop++) { /* the first one warms up */
            MPI_Barrier(MPI_COMM_WORLD);
            double spent = 0, sum, start = MPI_Wtime();
            for (int i = 0; i < iterations; i++) {
                double began = message || window ? 0 : MPI_Wtime();
                once(name, size, rank, ranks, send, receive);
                if (message || window) continue;
                spent += MPI_Wtime() - began;
                MPI_Barrier(MPI_COMM_WORLD);
            }
            if (message || window) spent = MPI_Wtime() - start;
            spent /= iterations;
            MPI_Allreduce(&spent, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
            times[loop] = message ? spent / 2 : window ? spent : sum / ranks;
        }
        qsort(times + 1, LOOPS, sizeof *times, later);
        if (rank == 0) printf("%zu %.9g\n", size, times[1 + LOOPS / 2]);
    }
    MPI_Finalize();
    return 0;
}
