/* SPDX-License-Identifier: Apache-2.0 */

/* A training loop of MPI for tests/process/mpi_run: an all-reduce in each step, a state that depends on every
 * step, and a checkpoint of rank 0, from which the next start continues.
 *
 *   mpi_program CHECKPOINT STEPS [FAULT]
 *
 * Faults of rank 1, in every start: import (before MPI is there), exit (at step 5). With "signal", every rank waits
 * for a SIGUSR1 before it ends.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char* Variable(const char* name) {
  const char* value = getenv(name);
  return value == NULL ? "?" : value;
}

static volatile sig_atomic_t signals = 0;

static void Count(int number) {
  (void)number;
  ++signals;
}

static void Save(const char* path, long step, long state) {
  char partial[4096];
  snprintf(partial, sizeof partial, "%s.partial", path);
  FILE* file = fopen(partial, "w");
  if (file == NULL) MPI_Abort(MPI_COMM_WORLD, 2);
  fprintf(file, "%ld %ld\n", step, state);
  fclose(file);
  rename(partial, path);
}

int main(int argc, char** argv) {
  const char* path = argv[1];
  const long steps = atol(argv[2]);
  const char* fault = argc > 3 ? argv[3] : "";
  const int first = strcmp(Variable("RINGMASTER_RANK"), "1") == 0;
  if (strcmp(fault, "import") == 0 && first) {
    fprintf(stderr, "Traceback (most recent call last):\nModuleNotFoundError: No module named 'x'\n");
    return 1;
  }
  MPI_Init(&argc, &argv);
  if (strcmp(fault, "signal") == 0) signal(SIGUSR1, Count);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  long place[2] = {0, 1};
  if (rank == 0) {
    FILE* file = fopen(path, "r");
    if (file != NULL && fscanf(file, "%ld %ld", &place[0], &place[1]) != 2) MPI_Abort(MPI_COMM_WORLD, 3);
    if (file != NULL) fclose(file);
  }
  MPI_Bcast(place, 2, MPI_LONG, 0, MPI_COMM_WORLD);
  printf("rank %d of %d on %s\n", rank, size, Variable("RINGMASTER_POD"));
  if (rank == 0) printf("rank 0 continues after step %ld\n", place[0]);
  printf("rank %d sees GPUs %s\n", rank, Variable("CUDA_VISIBLE_DEVICES"));
  fflush(stdout);
  for (long step = place[0] + 1; step <= steps; ++step) {
    if (rank == 1 && step >= 5 && strcmp(fault, "exit") == 0) {
      fprintf(stderr, "the data is broken\n");
      exit(1);
    }
    long mine = (rank + 1) * step, sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    place[1] = (place[1] * 31 + sum) % 1000003;
    usleep(20000);
    if (rank != 0) continue;
    // A step that is saved is not done again, so it is reported before.
    printf("{\"step\": %ld, \"loss\": %ld, \"total_steps\": %ld}\n", step, place[1], steps);
    fflush(stdout);
    Save(path, step, place[1]);
  }
  while (strcmp(fault, "signal") == 0 && signals == 0) usleep(20000);
  if (signals > 0) printf("rank %d got %d signals\n", rank, (int)signals);
  fflush(stdout);
  MPI_Finalize();
  return 0;
}
