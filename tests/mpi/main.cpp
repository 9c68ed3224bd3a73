// SPDX-License-Identifier: BSL-1.0
// doctest for several processes: their output is gathered and prefixed with the rank, and every process returns the worst exit
// code. Between collectives use CHECK, not REQUIRE: a rank that leaves a test alone makes the others wait. Tests in the suites
// "before MPI" and "after MPI" run without it.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <iostream>
#include <sstream>
#include <string>
#include <topsum/transport/mpi.hpp>
#include <vector>

namespace {

struct phase {
  int code;
  std::string text;
};

phase run(int argc, char** argv, char const* filter, char const* suites) {
  std::ostringstream text;
  doctest::Context context;
  context.setCout(&text);
  context.applyCommandLine(argc, argv);
  context.addFilter(filter, suites);
  context.setOption("no-intro", true);
  context.setOption("no-colors", true);
  int const code = context.run();
  return {code, text.str()};
}

void print(int rank, std::string const& text) {
  std::istringstream lines{text};
  std::string out;
  for (std::string line; std::getline(lines, line);) out += "[" + std::to_string(rank) + "] " + line + "\n";
  std::cout << out << std::flush;
}

// Rank 0's text, and what failed elsewhere, in the order of ranks.
void gather_and_print(phase const& mine) {
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank != 0) {
    std::string const text = mine.code == 0 ? std::string{} : mine.text;
    MPI_Send(text.data(), static_cast<int>(text.size()), MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    return;
  }
  print(0, mine.text);
  for (int other = 1; other < size; ++other) {
    MPI_Status status;
    int length = 0;
    MPI_Probe(other, 0, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_CHAR, &length);
    std::string text(static_cast<std::size_t>(length), ' ');
    MPI_Recv(text.data(), length, MPI_CHAR, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    print(other, text);
  }
}

}  // namespace

int main(int argc, char** argv) {
  phase const before = run(argc, argv, "test-suite", "before MPI");
  int worst = before.code;
  int rank = 0;
  {
    topsum::mpi::session const mpi{argc, argv};
    phase during = run(argc, argv, "test-suite-exclude", "before MPI,after MPI");
    if (before.code != 0) during = {before.code, before.text + during.text};
    worst = std::max(worst, during.code);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    gather_and_print(during);
    MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  }
  phase const after = run(argc, argv, "test-suite", "after MPI");
  if (after.code != 0) print(rank, after.text);
  return std::max(worst, after.code);
}
