// SPDX-License-Identifier: Apache-2.0

// The same measurement with MPI_Allreduce. bench/allreduce/run builds it if mpicxx is installed.
//
//   mpirun -np N mpi_allreduce SMALLEST_BYTES LARGEST_BYTES
#include <mpi.h>

#include <cstdlib>

#include "bench/allreduce/plan.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int world = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  const size_t smallest = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 8;
  const size_t largest = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1 << 20;
  float* const data = static_cast<float*>(std::aligned_alloc(4096, std::max<size_t>(largest, 4096)));
  bool good = true;
  for (const size_t bytes : ringmaster::bench::Sizes(smallest, largest)) {
    good = ringmaster::bench::Measure(
               bytes, data, rank, world,
               [](float* values, size_t count) {
                 MPI_Allreduce(MPI_IN_PLACE, values, static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                               MPI_COMM_WORLD);
               },
               [] { MPI_Barrier(MPI_COMM_WORLD); },
               [](const std::vector<double>& mine) {
                 std::vector<double> all(mine.size());
                 MPI_Allreduce(mine.data(), all.data(), static_cast<int>(mine.size()), MPI_DOUBLE, MPI_MAX,
                               MPI_COMM_WORLD);
                 return all;
               }) &&
           good;
  }
  std::free(data);
  if (!good) std::fprintf(stderr, "rank %d: wrong sum\n", rank);
  MPI_Finalize();
  return good ? 0 : 1;
}
