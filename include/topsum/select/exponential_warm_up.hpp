// SPDX-License-Identifier: BSL-1.0
/// \file
/// A schedule of densities for the first epochs.
#ifndef TOPSUM_SELECT_EXPONENTIAL_WARM_UP_HPP
#define TOPSUM_SELECT_EXPONENTIAL_WARM_UP_HPP

#include <cstdint>
#include <string_view>

#include <topsum/error.hpp>

namespace topsum {

/// Densities that fall by a factor from phase to phase, an epoch say, until the last one: 25 %, 6.25 %, 1.5625 %, 0.39 %, 0.1 %, 0.1 %, ...
///
/// Early gradients are large and change direction; a dense beginning keeps little waiting. No stage: each phase has a plan of its
/// own, which takes over the residual (`restore::residual`, see docs/checkpoints.md), so that memory, counts and messages are
/// those of its density, and every rule, scope and exchange can follow a schedule.
/// Source: DGC (Lin et al., ICLR'18, section 3.3). Products are taken one by one: the same densities on every rank.
struct exponential_warm_up {
  static constexpr std::string_view name = "exponential_warm_up";

  double first = 0.25;   ///< density of phase 0, in (0, 1]; 1 begins dense
  double factor = 0.25;  ///< density of a phase over that of the phase before, in (0, 1)
  double last = 0.001;   ///< density from which on nothing changes, in (0, first]

  /// Throws errc::bad_argument.
  void validate() const {
    auto const refuse = [](std::string_view parameter, double value, std::string_view range) {
      throw error{errc::bad_argument, detail::sentence(name, ": ", parameter, " = ", value, " is outside ", range)};
    };
    if (!(first > 0.0 && first <= 1.0)) refuse(".first", first, "(0, 1]");
    if (!(factor > 0.0 && factor < 1.0)) refuse(".factor", factor, "(0, 1)");
    if (!(last > 0.0 && last <= first)) refuse(".last", last, "(0, .first]");
  }

  /// Density of a phase, counted from 0. O(number of phases that differ). Throws like `validate`.
  [[nodiscard]] double density(std::uint64_t phase) const {
    validate();
    double now = first;
    for (std::uint64_t p = 0; p < phase && now > last; ++p) now *= factor;
    return now > last ? now : last;
  }
};

}  // namespace topsum

#endif
