// SPDX-License-Identifier: BSL-1.0
/// \file
/// The message in front of everything that ranks send each other.
#ifndef TOPSUM_EXCHANGE_WIRE_HEADER_HPP
#define TOPSUM_EXCHANGE_WIRE_HEADER_HPP

#include <cstdint>

#include <topsum/error.hpp>

namespace topsum {

/// The first message of every plan, of every step and of every load, to every peer: 48 bytes whatever the template arguments, so that ranks
/// in different plans, or in different steps, still understand each other.
struct wire_header {
  enum class kind : std::uint32_t { construction = 0x746f7031, step = 0x746f7032, load = 0x746f7033 };

  kind what = kind::step;
  errc code = errc::none;         ///< what went wrong on the sender
  std::uint64_t fingerprint = 0;  ///< construction: types, and a number of the plan; else: of the plan
  std::uint64_t step = 0;         ///< construction: entries that may travel, k
  std::uint64_t count = 0;  ///< construction: n; step: entries that follow for the receiver; load: old ranks, or 0
  std::uint64_t a = 0;      ///< construction: hash of the layout; step: first position of a fault, or a size
  std::uint64_t b = 0;      ///< construction: hash of the stages; step: number of faults; load: of what is shared
};
static_assert(sizeof(wire_header) == 48);

}  // namespace topsum

#endif
