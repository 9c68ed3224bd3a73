// SPDX-License-Identifier: BSL-1.0
/// \file
/// Which tensors a gradient concatenates.
#ifndef TOPSUM_LAYOUT_HPP
#define TOPSUM_LAYOUT_HPP

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include <topsum/core/stage.hpp>
#include <topsum/error.hpp>

namespace topsum {

/// The extents of a tensor, outermost first. Takes integers of any type, checked when a plan is made.
class extents {
 public:
  extents() = default;
  /// `{512, 784}`: one extent an argument.
  template <std::integral... E>
    requires(sizeof...(E) > 0)
  extents(E... each) : values_{checked(each)...} {}
  /// From a range of integers, such as a std::vector<std::int64_t>.
  template <std::ranges::input_range Range>
    requires(std::integral<std::ranges::range_value_t<Range>> && !std::same_as<std::remove_cvref_t<Range>, extents>)
  explicit(false) extents(Range const& range) {
    for (auto e : range) values_.push_back(checked(e));
  }

  /// -1 stands for an extent that was negative or beyond 63 bits.
  [[nodiscard]] std::vector<std::int64_t> const& values() const noexcept { return values_; }

  friend bool operator==(extents const&, extents const&) = default;

 private:
  template <std::integral E>
  static std::int64_t checked(E e) noexcept {
    return std::in_range<std::int64_t>(e) && !std::cmp_less(e, 0) ? static_cast<std::int64_t>(e) : -1;
  }
  std::vector<std::int64_t> values_;
};

/// One tensor: a name for error messages and reports, and its extents. No extents: a scalar, of size 1.
struct tensor {
  std::string name;
  extents shape;
};

/// The tensors that a gradient concatenates, in order, and where each begins. Also made from a plain number of values.
///
/// A layout never throws: what is wrong with it (a negative extent, sizes beyond 63 bits) is said by `validate`, which a plan
/// calls, so that a mistake on one rank becomes an error on every rank. Cost: O(tensors).
class layout {
 public:
  /// One unnamed tensor of no values.
  layout() : layout(0) {}
  /// One unnamed tensor of `n` values; n >= 0.
  template <std::integral N>
  explicit(false) layout(N n) : layout(std::vector<tensor>{tensor{"gradient", extents(n)}}) {}
  layout(std::initializer_list<tensor> tensors) : layout(std::vector<tensor>(tensors)) {}
  explicit(false) layout(std::vector<tensor> tensors) : tensors_{std::move(tensors)} {
    place();
    if (!defect_.empty()) offsets_.assign(1, 0);
  }

  /// n: values in all tensors together; 0 for a layout that `validate` refuses.
  [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(offsets_.back()); }
  [[nodiscard]] std::vector<tensor> const& tensors() const noexcept { return tensors_; }
  /// First position of tensor t; t in [0, tensors().size()].
  [[nodiscard]] std::size_t offset(std::size_t t) const { return static_cast<std::size_t>(offsets_.at(t)); }

  /// The tensor that holds `position` < size(), and the place within it, as text: `fc1.weight[17]`. O(log tensors).
  [[nodiscard]] std::string where(std::size_t position) const {
    auto const after = std::upper_bound(offsets_.begin(), offsets_.end(), position);
    if (after == offsets_.begin() || after == offsets_.end()) return detail::sentence("[", position, "]");
    auto const t = static_cast<std::size_t>(after - offsets_.begin()) - 1;
    return detail::sentence(tensors_[t].name, "[", position - offsets_[t], "]");
  }

  /// Throws errc::bad_argument with the first thing that is wrong.
  void validate() const {
    if (!defect_.empty()) throw error{errc::bad_argument, detail::sentence("layout: ", defect_)};
  }

  /// The same on ranks whose layouts agree in names and extents.
  [[nodiscard]] std::uint64_t hash() const {
    description d;
    for (tensor const& t : tensors_) {
      d.mix(t.name);
      for (std::int64_t e : t.shape.values()) d.mix(static_cast<std::uint64_t>(e));
      d.mix(std::uint64_t{t.shape.values().size()});
    }
    return d.hash();
  }

 private:
  static constexpr std::uint64_t largest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

  /// Fills the offsets; stops at the first defect.
  void place() {
    offsets_.push_back(0);
    for (tensor const& t : tensors_) {
      std::uint64_t size = 1;
      for (std::int64_t e : t.shape.values()) {
        if (e < 0) {
          defect_ = detail::sentence(
              "tensor \"", t.name,
              "\" has an extent that is negative or beyond 63 bits; an extent counts elements, 0 or more");
          return;
        }
        if (e != 0 && size > largest / static_cast<std::uint64_t>(e)) {
          defect_ = detail::sentence("the extents of tensor \"", t.name, "\" overflow 63 bits");
          return;
        }
        size *= static_cast<std::uint64_t>(e);
      }
      if (size > largest - offsets_.back()) {
        defect_ = detail::sentence("the sizes of the tensors add up to more than 63 bits, at tensor \"", t.name, "\"");
        return;
      }
      offsets_.push_back(offsets_.back() + size);
    }
  }

  std::vector<tensor> tensors_;
  std::vector<std::uint64_t> offsets_;
  std::string defect_;
};

}  // namespace topsum

#endif
