// SPDX-License-Identifier: BSL-1.0
/// \file
/// What agreements of `aligned` exchanges share.
#ifndef TOPSUM_DETAIL_AGREEMENT_HPP
#define TOPSUM_DETAIL_AGREEMENT_HPP

#include <cstddef>
#include <cstdint>
#include <span>

#include <topsum/codec/packed.hpp>
#include <topsum/exchange/channel.hpp>

namespace topsum {

namespace detail {

/// Nothing is kept between steps.
struct no_agreement_state {
  explicit no_agreement_state(exchange_shape const&) {}
};

/// The index half of a plan's codec; `packed` where it has none.
template <class K>
[[nodiscard]] constexpr auto index_codec_of(K const& codec) {
  if constexpr (requires { codec.indices; }) {
    return codec.indices;
  } else {
    return packed{};
  }
}

}  // namespace detail

}  // namespace topsum

#endif
