// SPDX-License-Identifier: BSL-1.0
/// \file
/// Visitors that write a state's fields as bytes and read them back, without trust in the bytes.
#ifndef TOPSUM_DETAIL_STATE_FIELDS_HPP
#define TOPSUM_DETAIL_STATE_FIELDS_HPP

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <topsum/core/state.hpp>
#include <topsum/core/value.hpp>
#include <topsum/error.hpp>

namespace topsum::detail {

using saved_bytes = std::span<std::byte const>;

/// Values that are on their way between a backend's memory and saved bytes at once.
inline constexpr std::size_t saved_chunk = 65536;

/// Appends numbers and runs of bytes, each padded to 8 bytes.
class saved_writer {
 public:
  explicit saved_writer(std::vector<std::byte>& to) : to_{to} {}
  [[nodiscard]] std::size_t size() const noexcept { return to_.size(); }

  void number(std::uint64_t value) { raw(&value, sizeof value); }
  void text(std::string_view value) {
    number(value.size());
    raw(value.data(), value.size());
    pad();
  }
  void raw(void const* from, std::size_t bytes) {
    auto const* const begin = static_cast<std::byte const*>(from);
    to_.insert(to_.end(), begin, begin + bytes);
  }
  /// Room for many bytes at once, and for small parts that follow.
  void expect(std::size_t bytes) {
    if (bytes > saved_chunk) to_.reserve(to_.size() + bytes + bytes / 8);
  }
  void pad() { to_.resize((to_.size() + 7) / 8 * 8); }
  /// Overwrites a number that was written at `at`.
  void number_at(std::size_t at, std::uint64_t value) { std::memcpy(to_.data() + at, &value, sizeof value); }

 private:
  std::vector<std::byte>& to_;
};

/// Takes the same apart; throws where bytes are missing.
class saved_reader {
 public:
  saved_reader() = default;
  explicit saved_reader(saved_bytes from) : left_{from} {}
  [[nodiscard]] bool done() const noexcept { return left_.empty(); }

  std::uint64_t number() {
    std::uint64_t value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view text() {
    saved_bytes const bytes = block();
    return {reinterpret_cast<char const*>(bytes.data()), bytes.size()};
  }
  /// A number of bytes, and that many, padded.
  saved_bytes block() { return padded(number()); }
  /// `size` bytes, padded.
  saved_bytes padded(std::uint64_t size) {
    if (size > left_.size()) cut_short();
    return take((static_cast<std::size_t>(size) + 7) / 8 * 8).first(static_cast<std::size_t>(size));
  }

 private:
  [[noreturn]] static void cut_short() {
    throw error{errc::bad_argument, "load: the saved bytes are damaged: they end too early"};
  }
  saved_bytes take(std::size_t bytes) {
    if (bytes > left_.size()) cut_short();
    saved_bytes const taken = left_.first(bytes);
    left_ = left_.subspan(bytes);
    return taken;
  }
  saved_bytes left_;
};

/// A number that tells fields apart by name and type.
template <class V>
[[nodiscard]] std::uint64_t field_mark(std::string_view name) noexcept {
  std::uint64_t mark = 0xcbf29ce484222325ULL;
  for (char const c : name) mark = (mark ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return mark << 8 | std::uint64_t{sizeof(V)} << 2 | std::uint64_t{std::is_signed_v<V>} << 1 |
         std::uint64_t{std::is_floating_point_v<V>};
}

/// Sorts fields by what they are; a visitor derives from it and has `on_host(name, span)` and `in_backend<V>(name, span)`.
template <class Derived, class B>
class field_visitor {
 public:
  explicit field_visitor(B& backend) : backend_{backend} {}

  template <class F>
  void operator()(std::string_view name, F& field) {
    using V = buffer_element_t<B, F>;
    auto& self = static_cast<Derived&>(*this);
    if constexpr (!std::is_void_v<V>) {
      self.template in_backend<V>(name, field.view());
    } else if constexpr (std::is_arithmetic_v<F>) {
      self.on_host(name, std::span<F>{&field, 1});
    } else if constexpr (is_number_vector<F>) {
      self.on_host(name, std::span{field});
    } else {
      static_assert(
          visitable_state<F>,
          "topsum: a state shows a field that is no number, std::vector of numbers, buffer of numbers, or state");
      visit_state(field, self);
    }
  }

 protected:
  B& backend_;
};

/// Writes fields: a mark, the number of values, the values.
template <class B>
class field_writer : public field_visitor<field_writer<B>, B> {
 public:
  field_writer(B& backend, saved_writer to) : field_visitor<field_writer<B>, B>{backend}, to_{to} {}

  template <class V>
  void on_host(std::string_view name, std::span<V> values) {
    begin<V>(name, values.size());
    to_.raw(values.data(), values.size_bytes());
    to_.pad();
  }
  template <class V, class Span>
  void in_backend(std::string_view name, Span values) {
    begin<V>(name, values.size());
    to_.expect(values.size() * sizeof(V));
    std::vector<V> chunk(std::min(values.size(), saved_chunk));
    for (std::size_t at = 0; at < values.size(); at += chunk.size()) {
      std::size_t const size = std::min(chunk.size(), values.size() - at);
      this->backend_.read(typename B::template span<V const>{values.subspan(at, size)}, std::span{chunk}.first(size));
      to_.raw(chunk.data(), size * sizeof(V));
    }
    to_.pad();
  }

 private:
  template <class V>
  void begin(std::string_view name, std::size_t count) {
    to_.number(field_mark<V>(name));
    to_.number(count);
  }
  saved_writer to_;
};

/// What a loader does with what it reads.
enum class loading { check, apply };

/// Reads fields that one rank wrote, or several: floating-point numbers are then summed in the order of `from`, others are the
/// first one's; without any, all become zero. Throws before the first field that does not fit is written to.
template <class B>
class field_loader : public field_visitor<field_loader<B>, B> {
 public:
  /// `finite`: whether a number that is not finite is refused.
  field_loader(B& backend, std::span<saved_bytes const> from, loading how, bool finite)
      : field_visitor<field_loader<B>, B>{backend}, from_(from.begin(), from.end()), how_{how}, finite_{finite} {}

  template <class V>
  void on_host(std::string_view name, std::span<V> values) {
    open<V>(name, values.size());
    std::vector<V> sums(values.size());
    sum(name, 0, std::span{sums});
    if (how_ == loading::apply) std::ranges::copy(sums, values.begin());
  }
  template <class V, class Span>
  void in_backend(std::string_view name, Span values) {
    open<V>(name, values.size());
    std::vector<V> chunk(std::min(values.size(), saved_chunk));
    for (std::size_t at = 0; at < values.size(); at += chunk.size()) {
      auto const sums = std::span{chunk}.first(std::min(chunk.size(), values.size() - at));
      sum(name, at, sums);
      if (how_ == loading::check) continue;
      this->backend_.write(std::span<V const>{sums}, values.subspan(at, sums.size()));
      this->backend_.wait();
    }
  }
  /// Every byte must have been read.
  void finish() const {
    for (saved_reader const& one : from_) {
      if (!one.done()) throw error{errc::mismatch, "load: more fields were saved than this plan has"};
    }
  }

 private:
  template <class V>
  void open(std::string_view name, std::size_t count) {
    values_.clear();
    for (saved_reader& one : from_) {
      if (one.number() != field_mark<V>(name))
        throw error{errc::mismatch, sentence("load: another field was saved where this plan has \"", name, "\"")};
      if (std::uint64_t const saved = one.number(); saved != count)
        throw error{errc::mismatch,
                    sentence("load: \"", name, "\" was saved with ", saved, " values where this plan's has ", count)};
      values_.push_back(one.padded(std::uint64_t{count} * sizeof(V)));
    }
  }
  /// Values [at, at + size) of the field that is open.
  template <class V>
  void sum(std::string_view name, std::size_t at, std::span<V> to) const {
    if (to.empty()) return;
    std::ranges::fill(to, V{0});
    for (std::size_t source = 0; source < values_.size(); ++source) {
      std::byte const* const bytes = values_[source].data() + at * sizeof(V);
      if (source == 0) {
        std::memcpy(to.data(), bytes, to.size_bytes());
      } else if constexpr (std::floating_point<V>) {
        for (std::size_t i = 0; i < to.size(); ++i) {
          V value{};
          std::memcpy(&value, bytes + i * sizeof(V), sizeof(V));
          to[i] += value;
        }
      }
    }
    if constexpr (std::floating_point<V>) {
      if (finite_ && !std::ranges::all_of(to, [](V x) { return is_finite(x); }))
        throw error{errc::bad_argument, sentence("load: \"", name, "\" holds NaN or infinity",
                                                 values_.size() > 1 ? ", or a sum over old ranks overflows" : "")};
    }
  }

  std::vector<saved_reader> from_;
  std::vector<saved_bytes> values_;
  loading how_;
  bool finite_;
};

/// The fields of a state, as bytes.
template <class B, class State>
[[nodiscard]] std::vector<std::byte> save_fields(B& backend, State& state) {
  std::vector<std::byte> bytes;
  field_writer<B> writer{backend, saved_writer{bytes}};
  visit_state(state, writer);
  return bytes;
}

/// Checks bytes against the fields of a state, or takes them over.
template <class B, class State>
void load_fields(B& backend, State& state, std::span<saved_bytes const> from, loading how, bool finite) {
  field_loader<B> loader{backend, from, how, finite};
  visit_state(state, loader);
  loader.finish();
}

}  // namespace topsum::detail

#endif
