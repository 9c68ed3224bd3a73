// SPDX-License-Identifier: BSL-1.0
/// \file
/// One exception type for everything that can go wrong, and what went wrong as a code.
#ifndef TOPSUM_ERROR_HPP
#define TOPSUM_ERROR_HPP

#include <charconv>
#include <concepts>
#include <stdexcept>
#include <string>
#include <string_view>

namespace topsum {

namespace detail {

inline void append(std::string& text, std::string_view part) { text.append(part); }
inline void append(std::string& text, char const* part) { text.append(part); }
template <class N>
  requires std::integral<N> || std::floating_point<N>
void append(std::string& text, N number) {
  char digits[32];
  auto const end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  text.append(digits, end);
}

/// The parts, words and numbers, one behind the other.
template <class... Parts>
[[nodiscard]] std::string sentence(Parts const&... parts) {
  std::string text;
  (append(text, parts), ...);
  return text;
}

}  // namespace detail

/// What went wrong. `docs/errors.md` says for each which state is kept.
enum class errc : unsigned {
  none = 0,
  bad_argument = 1,     ///< a parameter, layout or communicator that cannot work
  mismatch = 2,         ///< ranks, or a plan and what it loads, disagree on n, layout, stages, types or step
  wrong_size = 3,       ///< a gradient or result of another size than the layout
  nonfinite = 4,        ///< NaN or infinity in a gradient (or its sum with the residual overflowed)
  corrupt_message = 5,  ///< received data failed its checks
  transport = 6,        ///< the transport reported a fault
  timeout = 7,          ///< a rank did not answer within the time limit
  out_of_memory = 8,    ///< a plan's memory could not be allocated
  broken_plan = 9,      ///< a plan used after a transport fault left it between two steps
  stage_failed = 10,    ///< a stage of one rank threw something else than topsum::error
};

/// The code in words, e.g. "wrong size".
[[nodiscard]] constexpr std::string_view to_string(errc code) noexcept {
  switch (code) {
    case errc::none: return "none";
    case errc::bad_argument: return "bad argument";
    case errc::mismatch: return "mismatch between ranks";
    case errc::wrong_size: return "wrong size";
    case errc::nonfinite: return "non-finite gradient";
    case errc::corrupt_message: return "corrupt message";
    case errc::transport: return "transport fault";
    case errc::timeout: return "time limit reached";
    case errc::out_of_memory: return "out of memory";
    case errc::broken_plan: return "broken plan";
    case errc::stage_failed: return "a stage threw";
  }
  return "unknown error code";
}

/// Every error of the library: says what was expected, what came, and on which rank.
class error : public std::runtime_error {
 public:
  /// `rank` is the rank at fault, or -1 where the fault is not one rank's.
  error(errc code, std::string const& what, int rank = -1)
      : std::runtime_error{detail::sentence("topsum: ", what)}, code_{code}, rank_{rank} {}

  [[nodiscard]] errc code() const noexcept { return code_; }
  /// The rank at fault (the same on every rank that throws), or -1.
  [[nodiscard]] int rank() const noexcept { return rank_; }

 private:
  errc code_;
  int rank_;
};

}  // namespace topsum

#endif
