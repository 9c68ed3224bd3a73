// SPDX-License-Identifier: BSL-1.0
/// \file
/// What an exchange talks through: one plan's messages, with the header that makes a mistake on one rank an error on all.
#ifndef TOPSUM_EXCHANGE_CHANNEL_HPP
#define TOPSUM_EXCHANGE_CHANNEL_HPP

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <topsum/backend/host.hpp>
#include <topsum/concepts.hpp>
#include <topsum/error.hpp>
#include <topsum/exchange/shape.hpp>
#include <topsum/exchange/wire_header.hpp>
#include <topsum/layout.hpp>
#include <topsum/transport/counting.hpp>
#include <topsum/transport/subgroups.hpp>
#include <topsum/transport/verbs.hpp>

namespace topsum {

/// One plan's messages over transport `C`, moving memory of backend `B`. Owns both, and the memory for headers.
///
/// An exchange (for `dense` the plan) calls `open` first, once a step: every rank hears every other's header, and either all go on or all throw the
/// same error. Whatever is thrown later (a transport's fault, a corrupt message) breaks the plan on this rank; the others hear
/// of it with the next header.
template <class B, class C>
class channel {
  struct headers_of {
    explicit headers_of(std::size_t ranks) : out(ranks), in(ranks) {}
    std::vector<wire_header> out, in;
  };

 public:
  using backend_type = B;
  using transport_type = C;
  /// Whether `narrow` can be called: the transport is a `subgroups`.
  static constexpr bool narrows = requires(C& c) { c.enter(rank_group{}); };

  channel(B backend, C transport)
      : backend_{std::move(backend)},
        transport_{counting<C>{std::move(transport)}},
        all_{static_cast<std::size_t>(transport_.size())},
        group_{narrows ? all_.out.size() : 0} {}

  [[nodiscard]] B& backend() noexcept { return backend_; }
  [[nodiscard]] int rank() const { return transport_.rank(); }
  [[nodiscard]] int ranks() const { return transport_.size(); }
  [[nodiscard]] std::uint64_t step() const noexcept { return ours_.step; }

  /// While the returned guard lives, the ranks of this channel are those of `group`, numbered from 0; this rank is one of them. For
  /// exchanges made of others; after `open` over all ranks.
  [[nodiscard]] auto narrow(rank_group const& group)
    requires narrows
  {
    struct guard {
      guard(channel& narrowed, rank_group const& group)
          : of{narrowed}, before{narrowed.transport_.inner().group()}, headers{narrowed.headers_} {
        of.transport_.inner().enter(group);
        of.headers_ = &channel::group_;
      }
      guard(guard const&) = delete;
      guard& operator=(guard const&) = delete;
      ~guard() {
        of.transport_.inner().restore(before);
        of.headers_ = headers;
      }
      channel& of;
      rank_group before;
      headers_of channel::*headers;
    };
    return guard{*this, group};
  }

  /// Begins a step: what this rank will say in `open`. `shapes` serves error messages and must outlive the step.
  void begin(std::uint64_t fingerprint, std::uint64_t step, layout const& shapes) {
    ours_ = wire_header{wire_header::kind::step, errc::none, fingerprint, step, 0, 0, 0};
    layout_ = &shapes;
    settled_ = false;
    transport_.reset();
    control_ = {};
  }
  /// This rank saw non-finite values but goes on (the policies `drop` and `propagate`).
  void note(std::uint64_t first, std::uint64_t count) noexcept {
    ours_.a = first;
    ours_.b = count;
  }

  /// Tells every rank how many entries follow for it and hears the same from all; collective. Throws, on every rank alike, if
  /// any rank is in error or ranks disagree. 48 bytes to each peer.
  void open(std::span<std::size_t const> for_each_rank, std::span<std::size_t> from_each_rank) {
    exchange_headers([&](std::size_t r) { return std::uint64_t{for_each_rank[r]}; });
    auto const in = received();
    for (std::size_t r = 0; r < in.size(); ++r) from_each_rank[r] = static_cast<std::size_t>(in[r].count);
  }
  /// The same where nothing follows whose size the peers do not know.
  void open() {
    exchange_headers([](std::size_t) { return std::uint64_t{0}; });
  }
  /// This rank is in error: tells all, and throws what they throw. Never returns.
  [[noreturn]] void fail(errc code, std::uint64_t a = 0, std::uint64_t b = 0) {
    ours_.code = code;
    note(a, b);
    open();
    throw error{errc::mismatch, "a rank in error was not heard"};  // open() throws
  }
  /// All ranks' headers, after `open`.
  [[nodiscard]] std::span<wire_header const> headers() const noexcept { return all_.in; }
  /// Whether the error in flight is one that every rank throws alike, so that the plan can go on.
  [[nodiscard]] bool settled() const noexcept { return settled_; }

  /// Agrees on a new plan; collective. `mine` is this rank's header, `problem` its error message or empty. Throws, on every
  /// rank alike, the first problem or the first difference. Returns the plan's fingerprint: equal on all ranks, and no other
  /// living plan of these ranks has it, be its stages the same.
  [[nodiscard]] std::uint64_t agree(wire_header mine, std::string const& problem) {
    ours_ = mine;
    ours_.fingerprint |= instance() << type_bits;
    std::ranges::fill(sending(), ours_);
    trade_headers();
    expect_one_kind();
    auto const in = received();
    for (std::size_t r = 0; r < in.size(); ++r) {
      if (in[r].code != errc::none)
        throw error{in[r].code, on_rank(r) + tell(problem, static_cast<int>(r)), static_cast<int>(r)};
    }
    for (std::size_t r = 1; r < in.size(); ++r) {
      std::string const difference = different_plan(in[0], in[r]);
      if (!difference.empty()) throw error{errc::mismatch, on_rank(r) + difference, static_cast<int>(r)};
    }
    description all;
    for (std::uint64_t part : {in[0].fingerprint, in[0].a, in[0].b, in[0].step, in[0].count}) all.mix(part);
    return all.hash();
  }
  /// Agrees on a checkpoint; collective. `mine` says of which step it is and of how many old ranks (0: nothing was given), and holds
  /// in `b` a hash of what must be the same on all ranks; `problem` is this rank's error message or empty. Throws, on every rank
  /// alike, the first problem or difference. Returns the header of the first rank that was given something.
  [[nodiscard]] wire_header agree_on_load(wire_header const& mine, std::string const& problem) {
    ours_ = mine;
    settled_ = false;
    transport_.reset();
    control_ = {};
    std::ranges::fill(sending(), ours_);
    trade_headers();
    expect_one_kind();
    expect_one_plan();
    auto const in = received();
    for (std::size_t r = 0; r < in.size(); ++r) {
      if (in[r].code != errc::none) settle(in[r].code, tell(problem, static_cast<int>(r)), r);
    }
    auto const given = std::ranges::find_if(in, [](wire_header const& h) { return h.count != 0; });
    if (given == in.end()) settle(errc::bad_argument, "load: no rank was given any saved bytes", 0);
    for (std::size_t r = 0; r < in.size(); ++r) {
      if (in[r].count == 0) {
        if (r < given->count)
          settle(errc::bad_argument, detail::sentence("load: the bytes of old rank ", r, " are missing"), r);
      } else if (in[r].count != given->count || in[r].step != given->step) {
        settle(errc::mismatch,
               detail::sentence("load: saved by ", in[r].count, " ranks at step ", in[r].step, ", where others load ",
                                given->count, " ranks' at step ", given->step),
               r);
      }
      if (in[r].a != in[0].a) settle(errc::mismatch, "load: another topsum::restore than rank 0", r);
      if (in[r].b != in[0].b)
        settle(errc::mismatch,
               "load: saved by another run than rank 0's, or at another time: the exchange's state differs", r);
    }
    return *given;
  }
  /// A construction header's fingerprint for a value type's code and the size of an index.
  static constexpr std::uint64_t types(std::uint32_t value_code, std::size_t index_bytes) noexcept {
    return (std::uint64_t{value_code & 0xffU} << 8) | (index_bytes & 0xffU);
  }

  // -- small messages between hosts; counted as control, apart from the entries -------------------------------------------

  /// `all[r * mine.size() + i]` is mine[i] of rank r.
  template <std::size_t N>
  void share(std::array<std::uint64_t, N> const& mine, std::span<std::uint64_t> all) {
    control([&] {
      collective::all_gather(transport_, host_, std::as_bytes(std::span{mine}), std::as_writable_bytes(all));
    });
  }
  /// One number to each rank, one from each.
  void trade(std::span<std::size_t const> to, std::span<std::size_t> from) {
    control([&] { collective::all_to_all(transport_, host_, std::as_bytes(to), std::as_writable_bytes(from)); });
  }
  /// One number to rank `to`, one from rank `from`; `nobody` for none. Returns what came, 0 for none.
  [[nodiscard]] std::uint64_t pass(int to, std::uint64_t number, int from) {
    std::uint64_t came = 0;
    control([&] {
      swap(transport_, host_, to, std::as_bytes(std::span{&number, 1}), from,
           std::as_writable_bytes(std::span{&came, 1}));
    });
    return came;
  }
  /// The root's number, on every rank.
  void broadcast(std::uint64_t& number, int root) {
    control([&] { collective::broadcast(transport_, host_, std::as_writable_bytes(std::span{&number, 1}), root); });
  }
  /// Elementwise sum over ranks, in place. `scratch` holds at least ceil(size / ranks).
  template <class V>
  void sum(std::span<V> values, std::span<V> scratch) {
    collective::all_reduce(transport_, host_, values, combine::sum, scratch);
  }
  /// The same, counted as control.
  template <class V>
  void sum_control(std::span<V> values, std::span<V> scratch) {
    control([&] { sum(values, scratch); });
  }

  // -- the backend's memory -------------------------------------------------------------------------------------------------

  using ticket = typename counting<C>::ticket;

  /// Posts a group of messages. The backend's queue is drained first unless the transport is ordered by its stream.
  [[nodiscard]] ticket start(std::span<transfer<const_bytes_in<B>> const> sends,
                             std::span<transfer<bytes_in<B>> const> receives) {
    return collective::start(transport_, backend_, sends, receives);
  }
  void finish(ticket& group) { transport_.finish(group); }
  static constexpr int nobody = -1;
  /// One message to rank `to`, one from rank `from`; `nobody` for none.
  void pass(int to, const_bytes_in<B> out, int from, bytes_in<B> in) { swap(transport_, backend_, to, out, from, in); }
  void broadcast(bytes_in<B> bytes, int root) { collective::broadcast(transport_, backend_, bytes, root); }

  void all_gather_v(const_bytes_in<B> mine, bytes_in<B> all, std::span<std::size_t const> sizes) {
    collective::all_gather_v(transport_, backend_, mine, all, sizes);
  }
  template <class R>
  void all_reduce(typename B::template span<R> values, typename B::template span<R> scratch) {
    collective::all_reduce(transport_, backend_, values, combine::sum, scratch);
  }
  /// Whether `all_reduce` over values of R needs scratch of ceil(n / ranks) values.
  template <class R>
  static constexpr bool all_reduce_needs_scratch = !can_all_reduce<counting<C>, typename B::template span<R>>;

  // -- counts of this step ----------------------------------------------------------------------------------------------------

  [[nodiscard]] std::uint64_t bytes_sent() const { return transport_.tally().bytes; }
  [[nodiscard]] std::uint64_t messages_sent() const { return transport_.tally().messages; }
  [[nodiscard]] std::uint64_t control_bytes_sent() const noexcept { return control_; }

 private:
  template <class F>
  void control(F&& f) {
    std::uint64_t const before = bytes_sent();
    f();
    control_ += bytes_sent() - before;
  }

  template <class On>
  static void swap(counting<C>& transport, On& backend, int to, const_bytes_in<On> out, int from, bytes_in<On> in) {
    transfer<const_bytes_in<On>> const send{to, out};
    transfer<bytes_in<On>> const receive{from, in};
    collective::send_recv(transport, backend,
                          std::span<transfer<const_bytes_in<On>> const>{&send, to < 0 || out.size() == 0 ? 0U : 1U},
                          std::span<transfer<bytes_in<On>> const>{&receive, from < 0 || in.size() == 0 ? 0U : 1U});
  }

  void trade_headers() {
    control([&] {
      collective::all_to_all(transport_, host_, std::as_bytes(std::span<wire_header const>{sending()}),
                             std::as_writable_bytes(received()));
    });
  }

  template <class CountFor>
  void exchange_headers(CountFor count_for) {
    auto const out = sending();
    for (std::size_t r = 0; r < out.size(); ++r) {
      out[r] = ours_;
      out[r].count = count_for(r);
    }
    trade_headers();
    expect_one_kind();
    expect_one_plan();
    auto const in = received();
    for (std::size_t r = 0; r < in.size(); ++r) {
      if (in[r].code != errc::none) settle(in[r].code, describe_fault(in[r]), r);
    }
    for (std::size_t r = 0; r < in.size(); ++r) {
      if (in[r].step != in[0].step)
        settle(errc::mismatch,
               detail::sentence("is at step ", in[r].step, " of the plan where rank 0 is at step ", in[0].step), r);
    }
  }

  void expect_one_plan() {
    auto const in = received();
    for (std::size_t r = 0; r < in.size(); ++r) {
      if (in[r].fingerprint != in[0].fingerprint)
        settle(errc::mismatch, detail::sentence("runs another plan than rank 0", in_order), r);
    }
  }

  /// Some ranks make a plan, others run a step or load: the same error on all.
  void expect_one_kind() {
    auto const in = received();
    for (std::size_t r = 1; r < in.size(); ++r) {
      if (in[r].what == in[0].what) continue;
      settle(errc::mismatch, detail::sentence(doing(in[r].what), " where rank 0 ", doing(in[0].what), in_order), r);
    }
  }
  static constexpr std::string_view doing(wire_header::kind what) noexcept {
    switch (what) {
      case wire_header::kind::construction: return "makes a plan";
      case wire_header::kind::load: return "loads into a plan";
      case wire_header::kind::step: break;
    }
    return "runs a step";
  }

  [[noreturn]] void settle(errc code, std::string const& what, std::size_t rank) {
    settled_ = true;
    throw error{code, on_rank(rank) + what, static_cast<int>(rank)};
  }

  [[nodiscard]] std::string describe_fault(wire_header const& h) const {
    switch (h.code) {
      case errc::nonfinite:
        return detail::sentence("NaN or infinity in the gradient (or its sum with the residual overflowed) at ",
                                layout_->where(static_cast<std::size_t>(h.a)), ", position ", h.a, "; ", h.b,
                                " such values in all; pass topsum::on_nonfinite::drop to count them as zero");
      case errc::wrong_size:
        return detail::sentence("passed ", h.a, " values where the layout's tensors add up to ", layout_->size());
      case errc::broken_plan:
        return "its plan was left between two steps by an earlier fault; make a new plan on every rank, over a new "
               "communicator if the old one failed";
      default: return std::string{to_string(h.code)};
    }
  }

  [[nodiscard]] std::span<wire_header> sending() noexcept {
    return std::span{(this->*headers_).out}.first(static_cast<std::size_t>(ranks()));
  }
  [[nodiscard]] std::span<wire_header> received() noexcept {
    return std::span{(this->*headers_).in}.first(static_cast<std::size_t>(ranks()));
  }

  static constexpr int type_bits = 16;

  /// Where this plan's headers lie: rank 0's number names the plan on all ranks.
  [[nodiscard]] std::uint64_t instance() const noexcept {
    return reinterpret_cast<std::uintptr_t>(all_.out.data()) / alignof(wire_header);
  }

  static constexpr char const* in_order = "; all ranks must make the same plans and calls in the same order";

  static std::string on_rank(std::size_t r) { return detail::sentence("on rank ", r, ": "); }

  [[nodiscard]] static std::string different_plan(wire_header const& first, wire_header const& other) {
    auto const both = [](std::string const& what, std::uint64_t there, std::uint64_t here) {
      return detail::sentence(what, " = ", there, " where rank 0 has ", here);
    };
    if (first.count != other.count) return both("n", other.count, first.count);
    if (first.a != other.a) return "another layout (names or extents of tensors) than rank 0";
    if ((first.fingerprint ^ other.fingerprint) << (64 - type_bits) != 0)
      return "another value or index type than rank 0";
    if (first.step != other.step)
      return both("k (entries that may travel, from density or count)", other.step, first.step);
    if (first.b != other.b) return "other stages or parameters than rank 0";
    return {};
  }

  /// The problem of rank `root`, in its words, on every rank.
  std::string tell(std::string const& problem, int root) {
    std::array<char, 512> text{};
    if (rank() == root) std::memcpy(text.data(), problem.data(), std::min(problem.size(), text.size() - 1));
    collective::broadcast(transport_, host_, std::as_writable_bytes(std::span{text}), root);
    return std::string{text.data()};
  }

  B backend_;
  counting<C> transport_;
  host host_;  // runs the loops of built verbs over small host data
  wire_header ours_;
  layout const* layout_ = nullptr;
  headers_of all_, group_;  // of all ranks, of those of a group
  headers_of channel::*headers_ = &channel::all_;
  std::uint64_t control_ = 0;
  bool settled_ = false;
};

}  // namespace topsum

#endif
