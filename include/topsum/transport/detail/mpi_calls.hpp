// SPDX-License-Identifier: BSL-1.0
/// \file
/// MPI's calls with their errors as exceptions, and what a communicator's handles share. Includes `<mpi.h>`.
#ifndef TOPSUM_TRANSPORT_DETAIL_MPI_CALLS_HPP
#define TOPSUM_TRANSPORT_DETAIL_MPI_CALLS_HPP

#include <climits>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <topsum/concepts.hpp>
#include <topsum/error.hpp>
#include <topsum/transport/verbs.hpp>

namespace topsum::mpi {

/// The types that MPI reduces itself.
template <class V>
concept reducible = std::same_as<V, float> || std::same_as<V, double> || std::same_as<V, std::uint32_t> ||
                    std::same_as<V, std::uint64_t>;

namespace detail {

inline bool is_initialized() {
  int flag = 0;
  return MPI_Initialized(&flag) == MPI_SUCCESS && flag != 0;
}
inline bool is_finalized() {
  int flag = 0;
  return MPI_Finalized(&flag) == MPI_SUCCESS && flag != 0;
}

/// MPI ends the job of those that call it too early or too late: this throws.
inline void expect_running(char const* verb) {
  if (!is_initialized()) {
    throw error{errc::bad_argument,
                std::string{"mpi: "} + verb + " before MPI_Init; make a topsum::mpi::session first"};
  }
  if (is_finalized()) throw error{errc::bad_argument, std::string{"mpi: "} + verb + " after MPI_Finalize"};
}

inline void check(int code, char const* verb) {
  if (code == MPI_SUCCESS) return;
  int kind = MPI_ERR_UNKNOWN;
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  if (MPI_Error_class(code, &kind) != MPI_SUCCESS || MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  throw error{kind == MPI_ERR_TRUNCATE ? errc::corrupt_message : errc::transport,
              std::string{"mpi: "} + verb + ": " +
                  (length > 0 ? std::string(text, static_cast<std::size_t>(length)) : "error " + std::to_string(code))};
}

/// While it lives, errors that MPI ties to no communicator return too. A completed receive has forgotten its communicator (MPICH),
/// and its error goes to MPI_COMM_WORLD or MPI_COMM_SELF, whose handler ends the job unless the user has set another.
class returning_errors {
 public:
  returning_errors() noexcept {
    for (int i = 0; i < 2; ++i) {
      MPI_Comm_get_errhandler(everybody(i), &before_[i]);
      MPI_Comm_set_errhandler(everybody(i), MPI_ERRORS_RETURN);
    }
  }
  returning_errors(returning_errors const&) = delete;
  returning_errors& operator=(returning_errors const&) = delete;
  ~returning_errors() {
    for (int i = 0; i < 2; ++i) {
      MPI_Comm_set_errhandler(everybody(i), before_[i]);
      MPI_Errhandler_free(&before_[i]);
    }
  }

 private:
  static MPI_Comm everybody(int i) noexcept { return i == 0 ? MPI_COMM_WORLD : MPI_COMM_SELF; }
  MPI_Errhandler before_[2] = {MPI_ERRHANDLER_NULL, MPI_ERRHANDLER_NULL};
};

/// The requests of one ticket, receives first. Reused, so that its vectors allocate only while they grow.
struct group {
  std::vector<MPI_Request> requests;
  std::vector<int> sizes;  // of the receives
  std::vector<int> peers;  // of the receives

  /// Gives up what is under way: afterwards nothing is written to memory of the receives.
  void drop() noexcept {
    if (!is_finalized() && !requests.empty()) {
      returning_errors const guard;
      for (std::size_t i = 0; i < requests.size(); ++i) {
        MPI_Request& one = requests[i];
        if (one == MPI_REQUEST_NULL) continue;
        if (i < sizes.size()) {
          MPI_Cancel(&one);
          MPI_Wait(&one, MPI_STATUS_IGNORE);
        } else {  // sends cannot be cancelled reliably
          int done = 0;
          MPI_Test(&one, &done, MPI_STATUS_IGNORE);
          if (done == 0) MPI_Request_free(&one);
        }
      }
    }
    clear();
  }
  void clear() noexcept {
    requests.clear();
    sizes.clear();
    peers.clear();
  }
};

/// What handles of one communicator share.
struct link {
  MPI_Comm comm = MPI_COMM_NULL;
  bool owned = false;
  MPI_Errhandler handler_before = MPI_ERRHANDLER_NULL;
  int rank = 0;
  int size = 1;
  std::size_t largest = INT_MAX;
  std::vector<std::unique_ptr<group>> spare;
  std::vector<int> counts;
  std::vector<int> places;

  link() = default;
  link(link const&) = delete;
  link& operator=(link const&) = delete;
  ~link() {
    if (comm == MPI_COMM_NULL || is_finalized()) return;
    if (handler_before != MPI_ERRHANDLER_NULL) {
      MPI_Comm_set_errhandler(comm, handler_before);
      MPI_Errhandler_free(&handler_before);
    }
    if (owned) MPI_Comm_free(&comm);
  }
};

template <reducible V>
MPI_Datatype type_of() {
  if constexpr (std::same_as<V, float>) {
    return MPI_FLOAT;
  } else if constexpr (std::same_as<V, double>) {
    return MPI_DOUBLE;
  } else if constexpr (std::same_as<V, std::uint32_t>) {
    return MPI_UINT32_T;
  } else {
    return MPI_UINT64_T;
  }
}

}  // namespace detail

}  // namespace topsum::mpi

#endif
