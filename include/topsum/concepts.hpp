// SPDX-License-Identifier: BSL-1.0
/// \file
/// Start reading here: every concept of the library, in the order in which data flow.
///
///     residual.accumulate -> select -> encode -> exchange (send, reduce, re-select, gather) -> decode -> residual.keep -> result
///
/// A *stage* is a small copyable value with parameters: a selection policy, a residual store, a codec, an exchange, a
/// reduction. It owns nothing. What it keeps between steps it names as `state`, the memory it needs as `workspace`: the
/// plan owns both. All loops run in a *backend*'s verbs, all bytes travel by a *transport*'s verbs. Under each concept
/// stand its laws; `topsum/testing/laws.hpp` checks them on any model, yours included.
#ifndef TOPSUM_CONCEPTS_HPP
#define TOPSUM_CONCEPTS_HPP

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <topsum/codec/as.hpp>
#include <topsum/codec/index_codes.hpp>
#include <topsum/core/entries.hpp>
#include <topsum/core/interleaving.hpp>
#include <topsum/core/memory.hpp>
#include <topsum/core/moments.hpp>
#include <topsum/core/partition.hpp>
#include <topsum/core/piece.hpp>
#include <topsum/core/random.hpp>
#include <topsum/core/source.hpp>
#include <topsum/core/stage.hpp>
#include <topsum/core/state.hpp>
#include <topsum/core/value.hpp>
#include <topsum/layout.hpp>

namespace topsum {

// ---------------------------------------------------------------------------------------------------------------------
// Values and indices

/// A gradient's value type: opened by a specialisation of `value_traits`.
/// 1. Every T converts to `wide_t<T>` exactly (`to_wide`), and back again to the nearest T (`from_wide`), so that magnitudes keep
/// their order.  2. `code` is unique per format and the same on every rank.  3. `T{}` is zero.
template <class T>
concept value_type = std::is_trivially_copyable_v<T> && requires {
  typename value_traits<T>::wide;
  requires std::floating_point<typename value_traits<T>::wide>;
  { value_traits<T>::code } -> std::convertible_to<std::uint32_t>;
  requires value_traits<T>::code > 0 && value_traits<T>::code < 256;
  topsum::to_wide(T{});
  topsum::from_wide<T>(typename value_traits<T>::wide{});
};

/// The type of an entry's index.
template <class I>
concept index_type = std::same_as<I, std::uint32_t> || std::same_as<I, std::uint64_t>;

/// Every stage names its slot and itself, says no to bad parameters, and describes itself (optional: a `name` alone will do).
template <class S, class Tag>
concept stage_for = std::copy_constructible<S> && std::same_as<stage_tag_t<S>, Tag> && requires(S const& s) {
  { S::name } -> std::convertible_to<std::string_view>;
  s.validate();  // throws errc::bad_argument
};

// ---------------------------------------------------------------------------------------------------------------------
// Backend: where data live and loops run

/// Memory of a backend: buffers that own, spans that view, and the only ways in and out.
/// 1. `allocate` gives uninitialised memory.  2. Verbs take effect in the order of their calls.
/// 3. A verb may be queued; `wait` and `read` return when all queued verbs have run.
template <class B>
concept memory_backend = requires(B& b, std::size_t n, typename B::template span<float> s,
                                  typename B::template span<float const> c, host_span<float> out,
                                  host_span<float const> in, typename B::template span<std::byte> w,
                                  typename B::template span<std::byte const> r) {
  { b.template allocate<float>(n) } -> std::same_as<typename B::template buffer<float>>;
  { b.allocated_bytes() } -> std::convertible_to<std::size_t>;
  { s.size() } -> std::convertible_to<std::size_t>;
  { s.subspan(n, n) } -> std::convertible_to<typename B::template span<float>>;
  { s } -> std::convertible_to<typename B::template span<float const>>;
  b.fill(s, 1.0F);
  b.copy(c, s);                          // same type
  b.pack(c, w);                          // values -> bytes
  b.unpack(r, s);                        // bytes -> values
  b.write(in, s);                        // host -> here
  b.read(c, out);                        // here -> host; waits
  { b.read(c) } -> std::same_as<float>;  // a scalar is a span of one
  b.wait();
  b.for_each(
      n, [](std::size_t, float& x) { x += 1; }, s);  // elementwise, over spans of at least n
};

/// Verbs over n values: each evaluates the whole source exactly once (`core/source.hpp`), in one pass over memory.
/// Each replaces `out` by the entries of all groups of all pieces, indices increasing strictly, and never exceeds a group's
/// capacity. What is kept for each group follows the order of pieces, and of groups in them (`core/piece.hpp`).
/// Order of entries everywhere: larger magnitude first, ties to the smaller index. Non-finite elements count as zero.
/// 1. `select_top_k`: exactly the `count` first entries of each group in that order, zeros included;
///    `kth[g]` is the last one's magnitude (0 where count is 0).
/// 2. `select_at_least`: the elements with |x| >= thresholds[g] and x != 0, the first `capacity` of them in that order;
///    `counts[g]` is their number before the cut, at most 2 * max(count, capacity).
/// 3. `select_if`: the elements for which `predicate(position, x)` holds, the first `capacity` of them in that order.
/// 4. `accumulate`: no selection; `out[i]` is the accumulator.
/// 5. `select_quotas(from, wanted, out)`: exactly the `wanted.of(r)` first entries of each owner's coordinates, zeros included
///    (`core/interleaving.hpp`).
/// 6. `select_at(from, list)`: the list's values become the accumulators at its indices, which increase strictly.
///
/// Verbs that peek: they store nothing, in the states and in `fault` neither, and give one value a group.
/// 7. `moments`: sums over a group's elements with |x| >= thresholds[g] and x != 0, in the order that `moments` states. A group
///    whose threshold is not finite is not read. Reads what a pass reads, writes nothing: two thirds of its bytes.
/// 8. `sample_kth`: the magnitude of rank `sampling::rank` among the elements at `sampling::places`; 0 where `count` is 0.
template <class B, class T = float, class I = std::uint32_t>
concept selecting_backend = requires(
    B& b, source<B, T, decayed_residual_sum<T>> const& from, std::span<piece const> pieces,
    entries_view<B, wide_t<T>, I> out, typename B::template span<wide_t<T>> dense,
    typename B::template span<wide_t<T> const> thresholds, typename B::template span<std::size_t> counts,
    typename B::template span<moments> sums, sampling how, quotas const& wanted) {
  b.template reserve_selection<wide_t<T>, I>(pieces);  // scratch for any of these pieces; allocates, once
  b.select_top_k(from, pieces, out, dense);
  b.select_at_least(from, pieces, thresholds, out, counts);
  b.select_if(
      from, pieces, [](std::size_t, wide_t<T>) { return true; }, out);
  b.template reserve_quotas<wide_t<T>, I>(wanted);  // scratch; allocates, once
  b.select_quotas(from, wanted, out);
  b.accumulate(from, dense);
  b.select_at(from, out);
  b.moments(from, pieces, thresholds, sums);
  b.sample_kth(from, pieces, how, dense);
};

/// Verbs over lists of entries: O(their lengths).
/// 1. `merge_sum`: union of the lists; equal indices are summed in the order of the lists, from the first.
/// 2. `top_of`: the k first entries of a list in the order above.  3. `intersect(a, b, out)`: the entries of a whose index b has;
/// `difference(a, b, out)`: those whose index b lacks; `out` may be `a`.
/// 4. `keep_at_least`: magnitude above `t`, and the first `ties` of those equal to it; `out` may be `a`.
/// 5. `count_at_least`: out[0] entries above, out[1] equal to `t`.
/// 6. `histogram(list, prefix, known, width, bins)`: counts by the `width` bits that follow the leading `known` bits of a
///    magnitude, of the entries whose leading bits equal those of `prefix`.
/// 7. `lower_bounds`: out[j] = entries with an index below bounds[j].  8. `cuts(list, parts, n, out)`: out[i-1] = index of entry
///    floor(i m / parts) of m, for 0 < i < parts; floor(i n / parts) when m = 0.
/// 9. `check(list, begin, end, fault)`: unless the count fits, and indices increase strictly and lie in [begin, end), empties
///    the list and sets fault to 1.
/// 10. `look_up(dense, list)`: value = to_wide(dense[index]), 0 where that is not finite; `subtract`, `add`: dense[index] -=, += value; `assign`: dense[index] = from_wide<T>(value); `clear`: dense[index] = 0.
/// 11. `divide`: values /= divisor.
///
/// Of the groups of pieces, in order; a list's entries that lie in no piece are passed over, and dropped by `drop_last`.
/// 12. `kth_of(list, pieces, out)`, whole pieces only: out[g] = magnitude of the list's `count`-th entry, in the order above, in
///     piece g; of the last one where it has fewer, 0 where none.
/// 13. `drop_last(list, pieces, kth, drop, out)`: where drop[g] != 0 without the entry of group g that comes last among those of
///     magnitude kth[g]; drop[g] is 0 then. `out` has room for the whole list, and may be it.
/// 14. `count_groups(list, pieces, marks, out)`: out[0] = groups that have an entry. `marks` holds a number a group, for its use.
///
/// Of the owners of an `interleaving`:
/// 15. `deal(list, where, out, ends)`: the list's entries by owner, and in an owner's part by place, which takes the index's place;
///     ends[r] = entries of owners up to r.  16. `positions(list, where, owner)`: an owner's places become positions.
/// 17. `pad(list, count)`: zeros are added at the smallest indices that the list lacks, until it has `count` entries.
template <class B, class R = float, class I = std::uint32_t, class T = R>
concept list_backend = requires(
    B& b, entries_view<B, R, I> a, entries_view<B, R, I> out, std::size_t k, bits_t<R> t,
    std::span<entries_view<B, R, I> const> lists, int width, typename B::template span<R> dense,
    typename B::template span<I> bins, typename B::template span<std::uint64_t> positions,
    typename B::template span<std::uint64_t const> bounds, typename B::template span<std::size_t> counts,
    typename B::template span<std::uint32_t> fault, typename B::template span<T> result, std::span<piece const> pieces,
    interleaving const& where) {
  b.template reserve_lists<R, I>(k, k);  // lists merged at once, longest list of top_of; allocates, once
  b.merge_sum(lists, out);
  b.top_of(a, k, out);
  b.intersect(a, a, out);
  b.difference(a, a, out);
  b.keep_at_least(a, t, k, out);
  b.count_at_least(a, t, counts);
  b.histogram(a, t, width, width, bins);
  b.lower_bounds(a, bounds, counts);
  b.cuts(a, k, k, positions);
  b.check(a, k, k, fault);
  b.look_up(typename B::template span<T const>{result}, a);
  b.subtract(a, dense);
  b.add(a, dense);
  b.assign(a, result);
  b.clear(a, dense);
  b.divide(a, R{2});
  b.kth_of(a, pieces, dense);
  b.drop_last(a, pieces, dense, dense, out);
  b.count_groups(a, pieces, fault, counts);
  b.deal(a, where, out, counts);
  b.positions(a, where, k);
  b.pad(a, k);
};

/// Verbs that code messages: O(entries). `out` and `in` hold the message exactly; bytes behind what is written stay.
/// 1. Any bytes decode without harm: whatever they hold, only the target is written, and what was not encoded so gives indices that
/// do not pass `check`.
/// 2. `encode_bits`: each index less `first`, in `width` bits.  3. `encode_elias_fano`: see `codec/index_codes.hpp`.
/// 4. `encode_bitmap`: bit i - first of `out` is set.
/// 5. `quantise`: the header that a value codec makes of all values, then its code of each, low bits first.
template <class B, class Q, class R = float, class I = std::uint32_t>
concept coding_backend = requires(B& b, typename B::template span<I const> indices,
                                  typename B::template span<I> decoded, typename B::template span<R const> values,
                                  typename B::template span<R> dequantised, typename B::template span<std::byte> out,
                                  typename B::template span<std::byte const> in, std::size_t first, int width,
                                  elias_fano_shape shape, Q const& codec) {
  b.encode_bits(indices, first, width, out);
  b.decode_bits(in, first, width, decoded);
  b.encode_elias_fano(indices, first, shape, out);
  b.decode_elias_fano(in, first, shape, decoded);
  b.encode_bitmap(indices, first, out);
  b.decode_bitmap(in, first, decoded);
  b.quantise(indices, values, codec, out);
  b.dequantise(in, codec, dequantised);
};

/// Where data live and loops run. Stages are written in these verbs alone, so that they run on every backend.
/// Every verb gives the same bits on every backend, vector width and thread count; a `for_each` does so where its function does.
template <class B>
concept backend = stage_for<B, backend_tag> && memory_backend<B> && selecting_backend<B> && list_backend<B> &&
                  coding_backend<B, as_is>;

// ---------------------------------------------------------------------------------------------------------------------
// Stages

/// How the entries of one group are chosen. `select` is a pure function of (input, step, state): it reads `before` and writes
/// all of `after`. `fixed_count` rules select exactly `count(size)` entries, so that nobody has to ask how many.
/// 1. At most `capacity` entries a group, cut by magnitude.  2. Indices increase.  3. Values are the accumulators, bit for bit.
/// 4. The same input, step and state give the same entries.  5. Every size from 0, every input, all zeros included.
/// 6. A new state that took over what the old one shows (`core/state.hpp`) is as good as the old one.
template <class S, class B, class T = float, class I = std::uint32_t>
concept selection_rule = stage_for<S, rule_tag> && requires(S const& s, B& b,
                                                            source<B, T, decayed_residual_sum<T>> const& from,
                                                            std::span<piece const> pieces, std::uint64_t step,
                                                            typename S::template state<B, wide_t<T>> const& before,
                                                            typename S::template state<B, wide_t<T>>& after,
                                                            entries_view<B, wide_t<T>, I> out, std::size_t size) {
  { S::fixed_count } -> std::convertible_to<bool>;
  { s.count(size) } -> std::same_as<std::size_t>;     // k for a group of `size` values
  { s.capacity(size) } -> std::same_as<std::size_t>;  // .at_most for it
  typename S::template state<B, wide_t<T>>;
  requires std::constructible_from<typename S::template state<B, wide_t<T>>, B&, std::span<piece const>>;
  requires visitable_state<typename S::template state<B, wide_t<T>>>;
  s.select(b, from, pieces, step, before, after, out);
};

/// What a step selects: a scope with a rule, or a policy of your own. Laws as for a rule, and
/// 1. The pieces of a list lie in the layout, in order, without overlap.
template <class S, class B, class T = float, class I = std::uint32_t>
concept selection_policy = stage_for<S, selection_tag> && requires(
                                                              S const& s, B& b, layout const& shapes,
                                                              source<B, T, decayed_residual_sum<T>> const& from,
                                                              partition const& pieces, std::uint64_t step,
                                                              typename S::template state<B, wide_t<T>> const& before,
                                                              typename S::template state<B, wide_t<T>>& after,
                                                              entries_view<B, wide_t<T>, I> out) {
  { S::fixed_count } -> std::convertible_to<bool>;  // whether every step selects as many as the partition's capacity
  { s.pieces(shapes) } -> std::convertible_to<partition>;
  requires std::constructible_from<typename S::template state<B, wide_t<T>>, B&, partition const&>;
  requires visitable_state<typename S::template state<B, wide_t<T>>>;
  s.select(b, from, pieces, step, before, after, out);
};

/// A policy that learns from what all ranks got: so that ranks decide alike, it decides by nothing else. Called once a step that
/// succeeds, with the reduced result.
/// 1. What it writes is the same on every rank.
template <class S, class B, class T = float, class I = std::uint32_t>
concept observing_policy = selection_policy<S, B, T, I> &&
                           requires(S const& s, B& b, entries_view<B, wide_t<T>, I> result, partition const& pieces,
                                    std::uint64_t step, typename S::template state<B, wide_t<T>>& after) {
                             s.observe(b, result, pieces, step, after);
                           };

/// A policy that applies one rule to pieces of its making.
template <class S, class B, class T = float, class I = std::uint32_t>
concept selection_scope = selection_policy<S, B, T, I> && requires(S const& s) {
  requires selection_rule<std::remove_cvref_t<decltype(s.rule)>, B, T, I>;
};

/// Keeps what did not travel. A step reads its `source` once, then tells by `keep` which entries were applied, and by `take_back`
/// which sums an owner could not pass on.
/// 1. Sum of residuals and applied entries = accumulators.  2. Nothing non-finite is ever stored.
/// 3. A step without `commit` leaves the finite gradients in the residual, or (`rolls_back`) no trace.
/// 4. A new state that took over what the old one shows is as good as the old one.
template <class S, class B, class T = float, class I = std::uint32_t>
concept residual_store = stage_for<S, residual_tag> && requires(S const& s, B& b, std::size_t n,
                                                                typename S::template state<B, T>& memory,
                                                                typename B::template span<T const> gradient,
                                                                typename B::template span<nonfinite_record> fault,
                                                                entries_view<B, wide_t<T>, I> list,
                                                                typename B::template span<wide_t<T>> dense) {
  { S::keeps } -> std::convertible_to<bool>;  // whether anything is kept at all
  requires std::constructible_from<typename S::template state<B, T>, B&, std::size_t, S const&>;
  requires visitable_state<typename S::template state<B, T>>;
  s.template accumulate<B, T>(b, gradient, memory, fault);  // -> source<B, T, ...>
  s.keep(b, memory, list);                                  // these entries were applied, with these values
  s.take_back(b, memory, list);                             // these sums came back, from whichever ranks they are
  s.keep_dense(b, memory, dense);                           // n values were applied, these
  s.commit(memory);
};

/// A store that tells a step's accumulators again, at any indices, until `keep` is called: what `aligned` exchanges ask for.
/// 1. `look_up` gives the values that the step's pass saw, 0 where they were not finite.
template <class S, class B, class T = float, class I = std::uint32_t>
concept readable_store = residual_store<S, B, T, I> &&
                         requires(S const& s, B& b, typename S::template state<B, T>& memory,
                                  typename B::template span<T const> gradient,
                                  entries_view<B, wide_t<T>, I> list) { s.look_up(b, memory, gradient, list); };

/// A store that can undo its last `commit`, until the next step begins, where `rolls_back()` says so.
/// 1. Everything is as it was before the step.
template <class S, class B, class T = float, class I = std::uint32_t>
concept discarding_store = residual_store<S, B, T, I> &&
                           requires(S const& s, typename S::template state<B, T>& memory) {
                             { s.rolls_back() } -> std::convertible_to<bool>;
                             s.discard(memory);
                           };

/// Entries <-> bytes. The size is a function of (count, first, extent) alone, so that receivers know it from the count.
/// `decode` fills the list and checks every count and index it reads: a message that fails empties it and sets `fault`.
/// 1. decode(encode(x)) = x for a lossless codec.  2. Any bytes decode without harm.
/// 3. `bytes_at_most(count, messages, extent)` bounds the sum of `bytes` over any `messages` that hold `count` entries in all.
template <class S, class B, class R = float, class I = std::uint32_t>
concept codec = stage_for<S, codec_tag> &&
                requires(S const& s, B& b, entries_run<B, R, I> run, entries_view<B, R, I> list, std::size_t count,
                         std::size_t first, std::size_t extent, typename B::template span<std::byte> out,
                         typename B::template span<std::byte const> in,
                         typename B::template span<std::uint32_t> fault) {
                  { S::lossless } -> std::convertible_to<bool>;
                  { s.template bytes<R, I>(count, first, extent) } -> std::same_as<std::size_t>;
                  { s.template bytes_at_most<R, I>(count, count, extent) } -> std::same_as<std::size_t>;
                  s.encode(b, run, first, extent, out);
                  s.decode(b, in, count, first, extent, list, fault);
                };

/// A part of `coded`: increasing indices in [first, first + extent) <-> bytes, whose number follows from count and extent.
/// 1. decode(encode(x)) = x.  2. Any bytes decode without harm; `coded` checks what came.  3. `bytes_at_most` as for a codec.
template <class S, class B, class I = std::uint32_t>
concept index_codec = stage_for<S, index_codec_tag> &&
                      requires(S const& s, B& b, typename B::template span<I const> indices,
                               typename B::template span<I> decoded, std::size_t count,
                               typename B::template span<std::byte> out,
                               typename B::template span<std::byte const> in) {
                        { s.bytes(count, count) } -> std::same_as<std::size_t>;
                        { s.bytes_at_most(count, count, count) } -> std::same_as<std::size_t>;
                        s.template encode<B, I>(b, indices, count, count, out);
                        s.template decode<B, I>(b, in, count, count, decoded);
                      };

/// The other part: a value <-> a code of `bits<R>` bits, with the help of a header that all values of a message make together (an
/// empty class for none).
/// 1. value(code(x)) = x where `lossless`, and finite for finite x.  2. Pure functions.
template <class S, class R = float>
concept value_codec = stage_for<S, value_codec_tag> &&
                      requires(S const& s, typename S::template header<R> const& header, R const* values,
                               std::size_t count, R x, std::uint64_t number) {
                        { S::lossless } -> std::convertible_to<bool>;
                        requires std::is_trivially_copyable_v<typename S::template header<R>>;
                        requires S::template bits<R> > 0 && S::template bits<R> <= 64;
                        { s.template summarise<R>(values, count) } -> std::same_as<typename S::template header<R>>;
                        { s.template code<R>(header, x, number) } -> std::same_as<std::uint64_t>;
                        { s.template value<R>(header, number) } -> std::same_as<R>;
                      };

/// Who selects what is applied (`docs/exchanges.md` says which promises of a scope survive which kind).
enum class exchange_kind : unsigned char {
  dense,        ///< no selection: the whole accumulator is applied
  union_of,     ///< every selected entry is applied
  reselecting,  ///< owners select again by magnitude, k of the whole
  quota,        ///< owners select a fixed number each
  aligned       ///< all ranks agree on one support first
};

/// The schedule of messages that turns all ranks' selections into one result, equal on all ranks. Checked by the plan, whose
/// `run` gives it a `channel` (see `exchange/channel.hpp`).
/// 1. The same result on every rank, bit for bit, whatever the order of arrival.  2. Conservation: see `residual_store`.
/// 3. Any number of ranks, empty selections, any k.  4. Messages and bytes as its documentation's formula says.
/// 5. Its `state<R>` lies on the host, is the same on every rank, and works from any step on when it is new; it shows its fields
/// (`core/state.hpp`), and may say by `fits(shape)` whether loaded ones can be.
template <class S>
concept exchange = stage_for<S, exchange_tag> && requires {
  { S::kind } -> std::convertible_to<exchange_kind>;
};

/// An exchange that sends a fixed number of entries to each owner. Where the policy selects exactly k of the whole gradient, it
/// selects by these quotas instead, in the same pass (`selects_by_quota`); else the exchange cuts and fills what was selected.
template <class S>
concept quota_exchange = exchange<S> && S::kind == exchange_kind::quota && requires(S const& s, std::size_t n) {
  { s.shares(n, n, n) } -> std::same_as<quotas>;  // n, k, ranks
};
template <class S, class B, class T = float, class I = std::uint32_t>
concept selects_by_quota = selection_policy<S, B, T, I> &&
                           requires(S const& s, B& b, source<B, T, decayed_residual_sum<T>> const& from,
                                    quotas const& wanted,
                                    entries_view<B, wide_t<T>, I> out) { s.select_quotas(b, from, wanted, out); };

/// Whether an exchange applies every entry that a policy selected, so that the policy's promise is kept: it says so by `keeps_scope`
/// where its kind does not.
template <class S>
inline constexpr bool keeps_scope = [] {
  if constexpr (requires { S::keeps_scope; }) {
    return static_cast<bool>(S::keeps_scope);
  } else {
    return S::kind == exchange_kind::union_of || S::kind == exchange_kind::dense;
  }
}();

/// An exchange that also tells how many ranks sent each entry of its result, where the shape asks for it (`contributors`).
template <class S>
concept counts_contributors = exchange<S> && requires { requires S::counts_contributors; };

/// Turns sums over ranks into the result.
/// 1. Elementwise, the same on every rank.
template <class S>
concept reduction = stage_for<S, reduction_tag> && requires(S const& s, int ranks) {
  { s.divisor(ranks) } -> std::convertible_to<double>;  // result = sum / divisor
};

/// A reduction whose `divisor` takes the number of ranks that sent an entry.
template <class S>
concept contributor_reduction = reduction<S> && requires { requires S::by_contributors; };

// ---------------------------------------------------------------------------------------------------------------------
// Transport: moves bytes between ranks. Handles are cheap to copy. Sizes are known to both sides before a call; transfers of
// zero bytes are skipped on both. Messages between two ranks arrive in order. Faults are thrown as errc::transport or timeout.

/// One message of a group: to or from `peer`.
template <class Span>
struct transfer {
  int peer;
  Span bytes;
};

/// How an all-reduce combines.
enum class combine : unsigned char { sum, maximum };

/// The bytes that verbs move: in host memory, or in the memory of backend `B`.
template <class B>
using bytes_in = typename B::template span<std::byte>;
/// The same, to be read only.
template <class B>
using const_bytes_in = typename B::template span<std::byte const>;

/// Anything with ranks.
template <class C>
concept transport = std::copy_constructible<C> && requires(C& c) {
  { c.rank() } -> std::convertible_to<int>;
  { c.size() } -> std::convertible_to<int>;
};

/// Groups of sends and receives that travel together: `start` posts, `finish` returns when all are complete.
/// 1. A started group needs no further call to reach a peer that waits for it, except the peer's own `finish`.
template <class C, class Bytes = host_span<std::byte>, class ConstBytes = host_span<std::byte const>>
concept can_send_recv = transport<C> && requires(C& c, std::span<transfer<ConstBytes> const> sends,
                                                 std::span<transfer<Bytes> const> receives) {
  typename C::ticket;
  { c.start(sends, receives) } -> std::same_as<typename C::ticket>;
  c.finish(std::declval<typename C::ticket&>());
};

/// Every rank's `mine`, in rank order, on every rank.
template <class C, class Bytes = host_span<std::byte>, class ConstBytes = host_span<std::byte const>>
concept can_all_gather = transport<C> && requires(C& c, ConstBytes mine, Bytes all) { c.all_gather(mine, all); };

/// The same with a size for each rank, known to all.
template <class C, class Bytes = host_span<std::byte>, class ConstBytes = host_span<std::byte const>>
concept can_all_gather_v = transport<C> &&
                           requires(C& c, ConstBytes mine, Bytes all, host_span<std::size_t const> sizes) {
                             c.all_gather_v(mine, all, sizes);
                           };

/// Block j of `from` goes to rank j; block i of `to` comes from rank i. Equal blocks.
template <class C, class Bytes = host_span<std::byte>, class ConstBytes = host_span<std::byte const>>
concept can_all_to_all = transport<C> && requires(C& c, ConstBytes from, Bytes to) { c.all_to_all(from, to); };

/// The same with sizes in bytes: `from_sizes[j]` to rank j, `to_sizes[i]` from rank i.
template <class C, class Bytes = host_span<std::byte>, class ConstBytes = host_span<std::byte const>>
concept can_all_to_all_v = transport<C> &&
                           requires(C& c, ConstBytes from, Bytes to, host_span<std::size_t const> sizes) {
                             c.all_to_all_v(from, sizes, to, sizes);
                           };

/// Elementwise over ranks, in place. As deterministic as the transport is.
template <class C, class Values = host_span<float>>
concept can_all_reduce = transport<C> && requires(C& c, Values values) { c.all_reduce(values, combine::sum); };

/// The root's bytes, on every rank.
template <class C, class Bytes = host_span<std::byte>>
concept can_broadcast = transport<C> && requires(C& c, Bytes bytes, int root) { c.broadcast(bytes, root); };

/// Whether a transport's host messages are copied to a device and back, as it says by
/// `static constexpr bool stages_host_memory = true`: good for headers and counts, not for a plan's data.
template <class C>
inline constexpr bool stages_host_memory = requires { requires C::stages_host_memory; };

/// Whether that would be needed for the data of a plan on backend `B`.
template <class C, class B>
inline constexpr bool stages_data = stages_host_memory<C> && std::same_as<bytes_in<B>, host_span<std::byte>>;

/// Whether a transport can move a backend's memory: it takes that backend's spans, and the host's for headers. What verbs it
/// lacks is built (`transport/verbs.hpp`).
template <class C, class B>
concept reaches = can_send_recv<C> && can_send_recv<C, bytes_in<B>, const_bytes_in<B>> && !stages_data<C, B>;

}  // namespace topsum

#endif
