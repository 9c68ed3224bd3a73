// SPDX-License-Identifier: BSL-1.0
// The least backend that satisfies the concept: memory that the host cannot touch, and verbs that run when somebody waits.
#ifndef TOPSUM_TESTS_SUPPORT_ARCHETYPE_BACKEND_HPP
#define TOPSUM_TESTS_SUPPORT_ARCHETYPE_BACKEND_HPP

#include <array>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <topsum/backend/host.hpp>
#include <topsum/concepts.hpp>

namespace test {

template <class T>
class archetype_buffer;
class verb_queue;

// A view of memory of the archetype: no data(), no [], no iterators, no conversion to std::span.
template <class T>
class archetype_span {
 public:
  archetype_span() = default;
  template <class U>
    requires(std::is_same_v<U const, T> && !std::is_same_v<U, T>)
  archetype_span(archetype_span<U> from) noexcept : inside_{from.inside_} {}

  [[nodiscard]] std::size_t size() const noexcept { return inside_.size(); }
  [[nodiscard]] archetype_span subspan(std::size_t first, std::size_t count) const {
    return archetype_span{inside_.subspan(first, count)};
  }

 private:
  template <class>
  friend class archetype_span;
  template <class>
  friend class archetype_buffer;
  template <class>
  friend struct topsum::memory_access;
  friend class verb_queue;

  explicit archetype_span(std::span<T> inside) noexcept : inside_{inside} {}
  std::span<T> inside_;
};

// Verbs that have been called and not run yet.
class verb_queue {
 public:
  void push(std::function<void()> verb) { verbs_.push_back(std::move(verb)); }
  void drain() {
    while (!verbs_.empty()) {
      auto const verb = std::move(verbs_.front());
      verbs_.pop_front();
      verb();
    }
  }
  [[nodiscard]] std::size_t size() const noexcept { return verbs_.size(); }

  // The memory that verbs see.
  template <class T>
  static std::span<T> inside(archetype_span<T> view) noexcept {
    return view.inside_;
  }
  // The queue of a copied backend: its own.
  static std::shared_ptr<verb_queue> of_copy(std::shared_ptr<verb_queue> const&) {
    return std::make_shared<verb_queue>();
  }

 private:
  std::deque<std::function<void()>> verbs_;
};

// Owned memory of the archetype. Giving it back waits for the verbs that may use it.
template <class T>
class archetype_buffer {
 public:
  archetype_buffer() = default;
  archetype_buffer(archetype_buffer&&) noexcept = default;
  archetype_buffer& operator=(archetype_buffer&& other) noexcept {
    if (queue_) queue_->drain();
    memory_ = std::move(other.memory_);
    queue_ = std::move(other.queue_);
    return *this;
  }
  ~archetype_buffer() {
    if (queue_) queue_->drain();
  }

  [[nodiscard]] archetype_span<T> view() noexcept { return archetype_span<T>{memory_.view()}; }
  [[nodiscard]] archetype_span<T const> view() const noexcept { return archetype_span<T const>{memory_.view()}; }
  [[nodiscard]] std::size_t size() const noexcept { return memory_.size(); }

 private:
  template <template <class> class, template <class> class, class>
  friend class basic_archetype;
  archetype_buffer(std::size_t n, std::shared_ptr<verb_queue> queue) : memory_{n}, queue_{std::move(queue)} {
    if (n != 0)
      std::memset(static_cast<void*>(memory_.view().data()), 0xff, n * sizeof(T));  // NaN, and no sensible count
  }

  topsum::host_buffer<T> memory_;
  std::shared_ptr<verb_queue> queue_;
};

// The backend over a memory space and a queue: its own, or CUDA's. Copies count reads together.
template <template <class> class Span, template <class> class Buffer, class Queue>
class basic_archetype {
 public:
  using stage_tag = topsum::backend_tag;
  static constexpr std::string_view name = "archetype";
  template <class T>
  using span = Span<T>;
  template <class T>
  using buffer = Buffer<T>;

  basic_archetype()
    requires std::default_initializable<Queue>
      : queue_{std::make_shared<Queue>()} {}
  explicit basic_archetype(std::shared_ptr<Queue> queue) : queue_{std::move(queue)} {}
  basic_archetype(basic_archetype const& other)
      : within_{std::make_shared<topsum::host>(*other.within_)},
        queue_{Queue::of_copy(other.queue_)},
        reads_{other.reads_} {}
  basic_archetype& operator=(basic_archetype const& other) {
    queue_->drain();
    *within_ = *other.within_;
    reads_ = other.reads_;
    return *this;
  }
  ~basic_archetype() { queue_->drain(); }

  void validate() const {}
  [[nodiscard]] std::size_t allocated_bytes() const noexcept {
    queue_->drain();
    return allocated_ + within_->allocated_bytes();
  }
  // Reads of this backend and of all its copies.
  [[nodiscard]] std::size_t reads() const noexcept { return reads_->load(); }
  // Verbs waiting to run.
  [[nodiscard]] std::size_t queued() const noexcept { return queue_->size(); }

  template <class T>
  [[nodiscard]] buffer<T> allocate(std::size_t n) {
    allocated_ += n * sizeof(T);
    return buffer<T>{n, queue_};
  }
  template <class T>
  void fill(span<T> to, std::type_identity_t<T> value) {
    later([=](topsum::host& h) { h.fill(Queue::inside(to), value); });
  }
  template <class T>
  void copy(span<T> from, span<std::remove_const_t<T>> to) {
    later([=](topsum::host& h) { h.copy(Queue::inside(from), Queue::inside(to)); });
  }
  template <class T>
  void pack(span<T> from, span<std::byte> to) {
    later([=](topsum::host& h) { h.pack(Queue::inside(from), Queue::inside(to)); });
  }
  template <class T>
  void unpack(span<std::byte const> from, span<T> to) {
    later([=](topsum::host& h) { h.unpack(Queue::inside(from), Queue::inside(to)); });
  }
  // What is written is taken at once: the caller may change it afterwards.
  template <class T>
  void write(std::span<T> from, span<std::remove_const_t<T>> to) {
    std::vector<std::remove_const_t<T>> taken(from.begin(), from.end());
    later([taken = std::move(taken), to](topsum::host& h) { h.write(std::span{taken}, Queue::inside(to)); });
  }
  template <class T>
  void read(span<T> from, std::span<std::remove_const_t<T>> to) {
    ++*reads_;
    wait();
    within_->read(Queue::inside(from), to);
  }
  template <class T>
  [[nodiscard]] std::remove_const_t<T> read(span<T> from) {
    ++*reads_;
    wait();
    return within_->read(Queue::inside(from));
  }
  void wait() { queue_->drain(); }
  template <class F, class... T>
  void for_each(std::size_t n, F f, span<T>... s) {
    later([=](topsum::host& h) { h.for_each(n, f, Queue::inside(s)...); });
  }

  template <class R, class I>
  void reserve_selection(std::span<topsum::piece const> pieces) {
    wait();
    within_->reserve_selection<R, I>(pieces);
  }
  template <class T, class Formula, class I>
  void select_top_k(topsum::source<basic_archetype, T, Formula> const& from, std::span<topsum::piece const> pieces,
                    topsum::entries_view<basic_archetype, topsum::wide_t<T>, I> const& out,
                    span<topsum::wide_t<T>> kth) {
    later([from = raw(from), pieces = taken(pieces), out = raw(out), kth](topsum::host& h) {
      h.select_top_k(from, std::span{pieces}, out, Queue::inside(kth));
    });
  }
  template <class T, class Formula, class I>
  void select_at_least(topsum::source<basic_archetype, T, Formula> const& from, std::span<topsum::piece const> pieces,
                       span<std::type_identity_t<topsum::wide_t<T> const>> thresholds,
                       topsum::entries_view<basic_archetype, topsum::wide_t<T>, I> const& out,
                       span<std::size_t> counts) {
    later([from = raw(from), pieces = taken(pieces), thresholds, out = raw(out), counts](topsum::host& h) {
      h.select_at_least(from, std::span{pieces}, Queue::inside(thresholds), out, Queue::inside(counts));
    });
  }
  template <class R, class I>
  void reserve_quotas(topsum::quotas const& wanted) {
    wait();
    within_->reserve_quotas<R, I>(wanted);
  }
  template <class T, class Formula, class I>
  void select_quotas(topsum::source<basic_archetype, T, Formula> const& from, topsum::quotas const& wanted,
                     topsum::entries_view<basic_archetype, topsum::wide_t<T>, I> const& out) {
    later([from = raw(from), wanted, out = raw(out)](topsum::host& h) { h.select_quotas(from, wanted, out); });
  }
  template <class T, class Formula, class Predicate, class I>
  void select_if(topsum::source<basic_archetype, T, Formula> const& from, std::span<topsum::piece const> pieces,
                 Predicate predicate, topsum::entries_view<basic_archetype, topsum::wide_t<T>, I> const& out) {
    later([from = raw(from), pieces = taken(pieces), predicate, out = raw(out)](topsum::host& h) {
      h.select_if(from, std::span{pieces}, predicate, out);
    });
  }
  template <class T, class Formula>
  void accumulate(topsum::source<basic_archetype, T, Formula> const& from,
                  span<std::type_identity_t<topsum::wide_t<T>>> out) {
    later([from = raw(from), out](topsum::host& h) { h.accumulate(from, Queue::inside(out)); });
  }
  template <class T, class Formula, class I>
  void select_at(topsum::source<basic_archetype, T, Formula> const& from,
                 topsum::entries_view<basic_archetype, topsum::wide_t<T>, I> const& out) {
    later([from = raw(from), out = raw(out)](topsum::host& h) { h.select_at(from, out); });
  }
  template <class T, class Formula>
  void moments(topsum::source<basic_archetype, T, Formula> const& from, std::span<topsum::piece const> pieces,
               span<std::type_identity_t<topsum::wide_t<T> const>> thresholds, span<topsum::moments> out) {
    later([from = raw(from), pieces = taken(pieces), thresholds, out](topsum::host& h) {
      h.moments(from, std::span{pieces}, Queue::inside(thresholds), Queue::inside(out));
    });
  }
  template <class T, class Formula>
  void sample_kth(topsum::source<basic_archetype, T, Formula> const& from, std::span<topsum::piece const> pieces,
                  topsum::sampling how, span<std::type_identity_t<topsum::wide_t<T>>> out) {
    later([from = raw(from), pieces = taken(pieces), how, out](topsum::host& h) {
      h.sample_kth(from, std::span{pieces}, how, Queue::inside(out));
    });
  }

  template <class R, class I>
  using list = topsum::entries_view<basic_archetype, R, I>;

  template <class R, class I>
  void reserve_lists(std::size_t lists, std::size_t longest) {
    wait();
    within_->reserve_lists<R, I>(lists, longest);
  }
  template <class R, class I>
  void merge_sum(std::type_identity_t<std::span<list<R, I> const>> lists, list<R, I> const& out) {
    std::vector<topsum::entries_view<topsum::host, R, I>> views;
    for (auto const& one : lists) views.push_back(raw(one));
    later([views = std::move(views), out = raw(out)](topsum::host& h) { h.merge_sum(std::span{views}, out); });
  }
  template <class R, class I>
  void top_of(list<R, I> const& a, std::size_t k, list<R, I> const& out) {
    later([a = raw(a), k, out = raw(out)](topsum::host& h) { h.top_of(a, k, out); });
  }
  template <class R, class I>
  void intersect(list<R, I> const& a, list<R, I> const& b, list<R, I> const& out) {
    later([a = raw(a), b = raw(b), out = raw(out)](topsum::host& h) { h.intersect(a, b, out); });
  }
  template <class R, class I>
  void difference(list<R, I> const& a, list<R, I> const& b, list<R, I> const& out) {
    later([a = raw(a), b = raw(b), out = raw(out)](topsum::host& h) { h.difference(a, b, out); });
  }
  template <class R, class I>
  void keep_at_least(list<R, I> const& a, topsum::bits_t<R> t, std::size_t ties, list<R, I> const& out) {
    later([a = raw(a), t, ties, out = raw(out)](topsum::host& h) { h.keep_at_least(a, t, ties, out); });
  }
  template <class R, class I>
  void count_at_least(list<R, I> const& a, topsum::bits_t<R> t, span<std::size_t> out) {
    later([a = raw(a), t, out](topsum::host& h) { h.count_at_least(a, t, Queue::inside(out)); });
  }
  template <class R, class I>
  void histogram(list<R, I> const& a, topsum::bits_t<R> prefix, int known, int width,
                 span<std::type_identity_t<I>> bins) {
    later([a = raw(a), prefix, known, width, bins](topsum::host& h) {
      h.histogram(a, prefix, known, width, Queue::inside(bins));
    });
  }
  template <class R, class I>
  void lower_bounds(list<R, I> const& a, span<std::uint64_t const> bounds, span<std::size_t> out) {
    later([a = raw(a), bounds, out](topsum::host& h) { h.lower_bounds(a, Queue::inside(bounds), Queue::inside(out)); });
  }
  template <class R, class I>
  void cuts(list<R, I> const& a, std::size_t parts, std::size_t n, span<std::uint64_t> out) {
    later([a = raw(a), parts, n, out](topsum::host& h) { h.cuts(a, parts, n, Queue::inside(out)); });
  }
  template <class R, class I>
  void check(list<R, I> const& a, std::size_t begin, std::size_t end, span<std::uint32_t> fault) {
    later([a = raw(a), begin, end, fault](topsum::host& h) { h.check(a, begin, end, Queue::inside(fault)); });
  }
  template <class R, class I, class T>
  void look_up(span<T const> dense, list<R, I> const& a) {
    later([a = raw(a), dense](topsum::host& h) { h.look_up(Queue::inside(dense), a); });
  }
  template <class R, class I>
  void subtract(list<R, I> const& a, span<std::type_identity_t<R>> dense) {
    later([a = raw(a), dense](topsum::host& h) { h.subtract(a, Queue::inside(dense)); });
  }
  template <class R, class I>
  void add(list<R, I> const& a, span<std::type_identity_t<R>> dense) {
    later([a = raw(a), dense](topsum::host& h) { h.add(a, Queue::inside(dense)); });
  }
  template <class R, class I, class T>
  void assign(list<R, I> const& a, span<T> dense) {
    later([a = raw(a), dense](topsum::host& h) { h.assign(a, Queue::inside(dense)); });
  }
  template <class R, class I>
  void clear(list<R, I> const& a, span<std::type_identity_t<R>> dense) {
    later([a = raw(a), dense](topsum::host& h) { h.clear(a, Queue::inside(dense)); });
  }
  template <class R, class I>
  void divide(list<R, I> const& a, std::type_identity_t<R> divisor) {
    later([a = raw(a), divisor](topsum::host& h) { h.divide(a, divisor); });
  }
  template <class R, class I>
  void deal(list<R, I> const& a, topsum::interleaving const& where, list<R, I> const& out, span<std::size_t> ends) {
    later([a = raw(a), where, out = raw(out), ends](topsum::host& h) { h.deal(a, where, out, Queue::inside(ends)); });
  }
  template <class R, class I>
  void positions(list<R, I> const& a, topsum::interleaving const& where, std::size_t owner) {
    later([a = raw(a), where, owner](topsum::host& h) { h.positions(a, where, owner); });
  }
  template <class R, class I>
  void pad(list<R, I> const& a, std::size_t count) {
    later([a = raw(a), count](topsum::host& h) { h.pad(a, count); });
  }
  template <class R, class I>
  void kth_of(list<R, I> const& a, std::span<topsum::piece const> pieces, span<std::type_identity_t<R>> out) {
    later([a = raw(a), pieces = taken(pieces), out](topsum::host& h) { h.kth_of(a, pieces, Queue::inside(out)); });
  }
  template <class R, class I>
  void drop_last(list<R, I> const& a, std::span<topsum::piece const> pieces, span<std::type_identity_t<R> const> kth,
                 span<std::type_identity_t<R>> drop, list<R, I> const& out) {
    later([a = raw(a), pieces = taken(pieces), kth, drop, out = raw(out)](topsum::host& h) {
      h.drop_last(a, pieces, Queue::inside(kth), Queue::inside(drop), out);
    });
  }
  template <class R, class I>
  void count_groups(list<R, I> const& a, std::span<topsum::piece const> pieces, span<std::uint32_t> marks,
                    span<std::size_t> out) {
    later([a = raw(a), pieces = taken(pieces), marks, out](topsum::host& h) {
      h.count_groups(a, pieces, Queue::inside(marks), Queue::inside(out));
    });
  }

  template <class I>
  void encode_bits(span<I const> indices, std::size_t first, int width, span<std::byte> out) {
    later([indices, first, width, out](topsum::host& h) {
      h.encode_bits(Queue::inside(indices), first, width, Queue::inside(out));
    });
  }
  template <class I>
  void decode_bits(span<std::byte const> in, std::size_t first, int width, span<I> indices) {
    later([in, first, width, indices](topsum::host& h) {
      h.decode_bits(Queue::inside(in), first, width, Queue::inside(indices));
    });
  }
  template <class I>
  void encode_elias_fano(span<I const> indices, std::size_t first, topsum::elias_fano_shape shape,
                         span<std::byte> out) {
    later([indices, first, shape, out](topsum::host& h) {
      h.encode_elias_fano(Queue::inside(indices), first, shape, Queue::inside(out));
    });
  }
  template <class I>
  void decode_elias_fano(span<std::byte const> in, std::size_t first, topsum::elias_fano_shape shape, span<I> indices) {
    later([in, first, shape, indices](topsum::host& h) {
      h.decode_elias_fano(Queue::inside(in), first, shape, Queue::inside(indices));
    });
  }
  template <class I>
  void encode_bitmap(span<I const> indices, std::size_t first, span<std::byte> out) {
    later(
        [indices, first, out](topsum::host& h) { h.encode_bitmap(Queue::inside(indices), first, Queue::inside(out)); });
  }
  template <class I>
  void decode_bitmap(span<std::byte const> in, std::size_t first, span<I> indices) {
    later([in, first, indices](topsum::host& h) { h.decode_bitmap(Queue::inside(in), first, Queue::inside(indices)); });
  }
  template <class I, class R, class Values>
  void quantise(span<I const> indices, span<R const> values, Values const& codec, span<std::byte> out) {
    later([indices, values, codec, out](topsum::host& h) {
      h.quantise(Queue::inside(indices), Queue::inside(values), codec, Queue::inside(out));
    });
  }
  template <class R, class Values>
  void dequantise(span<std::byte const> in, Values const& codec, span<R> values) {
    later([in, codec, values](topsum::host& h) { h.dequantise(Queue::inside(in), codec, Queue::inside(values)); });
  }

 private:
  template <class Verb>
  void later(Verb verb) {
    queue_->push([verb = std::move(verb), within = within_] { verb(*within); });
  }
  static std::vector<topsum::piece> taken(std::span<topsum::piece const> pieces) {
    return {pieces.begin(), pieces.end()};
  }
  template <class R, class I>
  static topsum::entries_view<topsum::host, R, I> raw(list<R, I> const& a) {
    return {Queue::inside(a.indices), Queue::inside(a.values), Queue::inside(a.count)};
  }
  template <class T, class Formula>
  static topsum::source<topsum::host, T, Formula> raw(topsum::source<basic_archetype, T, Formula> const& from) {
    topsum::source<topsum::host, T, Formula> inside{
        Queue::inside(from.gradient), {}, {}, from.formula, Queue::inside(from.fault)};
    for (std::size_t j = 0; j < Formula::states; ++j) {
      inside.states_in[j] = Queue::inside(from.states_in[j]);
      inside.states_out[j] = Queue::inside(from.states_out[j]);
    }
    return inside;
  }

  std::shared_ptr<topsum::host> within_ = std::make_shared<topsum::host>();
  std::shared_ptr<Queue> queue_;
  std::shared_ptr<std::atomic<std::size_t>> reads_ = std::make_shared<std::atomic<std::size_t>>(0);
  std::size_t allocated_ = 0;
};

using archetype_backend = basic_archetype<archetype_span, archetype_buffer, verb_queue>;

}  // namespace test

// Transports that copy by themselves may reach the memory.
template <class T>
struct topsum::memory_access<test::archetype_span<T>> {
  static std::byte const* address(test::archetype_span<T> view) noexcept {
    return memory_access<std::span<T>>::address(view.inside_);
  }
  static std::byte* writable_address(test::archetype_span<T> view) noexcept
    requires(!std::is_const_v<T>)
  {
    return memory_access<std::span<T>>::writable_address(view.inside_);
  }
  static auto as_bytes(test::archetype_span<T> view) noexcept {
    auto const bytes = memory_access<std::span<T>>::as_bytes(view.inside_);
    return test::archetype_span<typename decltype(bytes)::element_type>{bytes};
  }
};

#endif
