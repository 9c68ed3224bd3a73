// SPDX-License-Identifier: BSL-1.0
/// \file
/// More digits from the same: each may be learned a pixel to one side.
#ifndef MNIST_AUGMENT_HPP
#define MNIST_AUGMENT_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "mnist/idx.hpp"
#include "mnist/random.hpp"

namespace mnist {

/// Where an image is moved to, by one pixel.
enum class direction : unsigned { stay, left, right, up, down };
inline constexpr std::uint64_t directions = 5;

/// Writes `image`, rows of `width` pixels, into `moved`; the row or column that comes in is empty.
inline void move_image(std::span<float const> image, std::size_t width, direction where, std::span<float> moved) {
  std::size_t const size = image.size();
  std::ranges::fill(moved, 0.0f);
  switch (where) {
    case direction::stay: std::ranges::copy(image, moved.begin()); break;
    case direction::up: std::ranges::copy(image.subspan(width), moved.begin()); break;
    case direction::down: std::ranges::copy(image.first(size - width), moved.subspan(width).begin()); break;
    case direction::left:
      std::ranges::copy(image.subspan(1), moved.begin());
      for (std::size_t last = width - 1; last < size; last += width) moved[last] = 0;
      break;
    case direction::right:
      std::ranges::copy(image.first(size - 1), moved.subspan(1).begin());
      for (std::size_t first = 0; first < size; first += width) moved[first] = 0;
      break;
  }
}

/// Makes `batch` the chosen digits, each moved in a direction that follows from (seed, its number) alone.
inline void gather_moved(digits const& all, std::span<std::size_t const> chosen, std::uint64_t seed, digits& batch) {
  batch.width = all.width;
  batch.pixels = all.pixels;
  batch.images.resize(chosen.size() * all.pixels);
  batch.labels.resize(chosen.size());
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    auto const where = static_cast<direction>(mix(seed, chosen[i]) % directions);
    move_image(all.image(chosen[i]), all.width, where, std::span{batch.images}.subspan(i * all.pixels, all.pixels));
    batch.labels[i] = all.labels[chosen[i]];
  }
}

}  // namespace mnist

#endif  // MNIST_AUGMENT_HPP
