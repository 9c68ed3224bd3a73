// SPDX-License-Identifier: BSL-1.0
/// \file
/// Exchange: one exchange inside each node, another between nodes.
#ifndef TOPSUM_EXCHANGE_HIERARCHICAL_HPP
#define TOPSUM_EXCHANGE_HIERARCHICAL_HPP

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <topsum/codec/raw.hpp>
#include <topsum/codec/switching.hpp>
#include <topsum/detail/list_messages.hpp>
#include <topsum/exchange/channel.hpp>

namespace topsum {

/// Which ranks share a node: 0 to `ranks_per_node` - 1, and so on. The last node may be smaller.
struct node_topology {
  int ranks_per_node = 1;
};

/// Exchange: the ranks of a node reduce their selections by `inner`; the first rank of each node, its leader, exchanges the node's sums
/// with the other leaders by `outer`; and hands the result to its node.
///
///     topsum::hierarchical{topsum::gather_all{}, topsum::ok_topk{}, {.ranks_per_node = 8}}
///
/// Needs no communicators of its own.
/// Where `outer` selects again, a leader passes on the k largest sums of its node, and keeps the others in its residual; else all,
/// up to k times `ranks_per_node`. If both exchanges apply all they get, so does this, and a scope keeps its promise.
/// Between nodes a leader sends what `outer` sends over P / `ranks_per_node` ranks; a rank sends what `inner` sends over its node; a leader
/// moreover the result, up to log2(`ranks_per_node`) times, as it is or as a bitmap with values, whichever is smaller. 12 words to
/// each of all peers for headers, and again to each peer that an inner or outer exchange has. Latency: the sum of the three.
/// Memory: that of both, O(min(n, kP)) beside them. Deterministic where both are. Any P.
/// Prefer it where links between nodes are slower than those within, and shared by the ranks of a node.
template <exchange Inner, exchange Outer>
struct hierarchical {
  static_assert(Inner::kind != exchange_kind::dense && Inner::kind != exchange_kind::aligned &&
                    Outer::kind != exchange_kind::dense && Outer::kind != exchange_kind::aligned,
                "topsum: hierarchical is made of exchanges of selected entries; `dense` and `aligned` are none");
  using stage_tag = exchange_tag;
  static constexpr std::string_view name = "hierarchical";
  static constexpr bool applies_all = Inner::kind == exchange_kind::union_of && Outer::kind == exchange_kind::union_of;
  static constexpr exchange_kind kind = applies_all ? exchange_kind::union_of : exchange_kind::reselecting;
  /// The plan's channel is to be one that can be narrowed to a node.
  static constexpr bool narrows = true;

  Inner inner;
  Outer outer;
  node_topology nodes;

  constexpr hierarchical(Inner within, Outer between, node_topology on) : inner{within}, outer{between}, nodes{on} {}

  void validate() const {
    if (nodes.ranks_per_node < 1)
      throw error{errc::bad_argument,
                  detail::sentence("hierarchical: .ranks_per_node = ", nodes.ranks_per_node, "; write at least 1")};
    inner.validate();
    outer.validate();
  }

  [[nodiscard]] rank_group node_of(exchange_shape const& s) const {
    int const leader = s.rank - s.rank % nodes.ranks_per_node;
    return {leader, 1, std::min(nodes.ranks_per_node, s.ranks - leader)};
  }
  [[nodiscard]] rank_group leaders(exchange_shape const& s) const {
    return {0, nodes.ranks_per_node, (s.ranks - 1) / nodes.ranks_per_node + 1};
  }
  /// What `inner` is asked to do on this rank.
  [[nodiscard]] exchange_shape inner_shape(exchange_shape const& s) const {
    return {s.n, s.capacity, s.rank % nodes.ranks_per_node, node_of(s).count, false};
  }
  /// What `outer` is, on the node's leader.
  [[nodiscard]] exchange_shape outer_shape(exchange_shape const& s) const {
    std::size_t const most = applies_all
                                 ? std::min(s.n, s.capacity *
                                                     static_cast<std::size_t>(std::min(nodes.ranks_per_node, s.ranks)))
                                 : s.capacity;
    return {s.n, most, s.rank / nodes.ranks_per_node, leaders(s).count, false};
  }

  /// Those of both; a node's own, so not the same on all ranks.
  template <class R>
  struct state {
    static constexpr bool of_this_rank = true;
    state(exchange_shape const& s, hierarchical const& stage)
        : inner{detail::new_exchange_state<typename Inner::template state<R>>(stage.inner_shape(s), stage.inner)},
          outer{detail::new_exchange_state<typename Outer::template state<R>>(stage.outer_shape(s), stage.outer)},
          inner_shape_{stage.inner_shape(s)},
          outer_shape_{stage.outer_shape(s)} {}
    template <class V>
    void visit(V& visitor) {
      visitor("inner", inner);
      visitor("outer", outer);
    }
    [[nodiscard]] bool fits(exchange_shape const&) const {
      return detail::exchange_state_fits(inner, inner_shape_) && detail::exchange_state_fits(outer, outer_shape_);
    }
    typename Inner::template state<R> inner;
    typename Outer::template state<R> outer;

   private:
    exchange_shape inner_shape_, outer_shape_;
  };

  template <class B, class R, class I, class K>
  struct workspace {
    workspace(B& b, K const& codec, exchange_shape const& s, hierarchical const& stage)
        : node{stage.node_of(s)},
          leaders{stage.leaders(s)},
          of_node{b, codec, stage.inner_shape(s), stage.inner},
          leads{s.rank == node.first},
          outer_capacity{stage.outer_shape(s).capacity} {
      auto const ranks = static_cast<std::size_t>(s.ranks);
      // Quotas are filled up with zeros, one for each owner at most.
      std::size_t const filled = Inner::kind == exchange_kind::quota || Outer::kind == exchange_kind::quota ? ranks : 0;
      std::size_t const sums = leads ? of_node.result_capacity() : 0;
      std::size_t const all = std::min(s.n, (s.capacity + filled) * ranks);
      if (leads) of_leaders.emplace(b, codec, stage.outer_shape(s), stage.outer);
      std::size_t const passed_on = leads ? std::min(s.n, outer_capacity + filled) : 0;
      cut = entries<B, R, I>{b, std::min(sums, outer_capacity)};
      left = entries<B, R, I>{b, std::min(s.n, sums + (K::lossless ? 0 : passed_on))};
      negative = entries<B, R, I>{b, K::lossless ? 0 : passed_on};
      result = entries<B, R, I>{b, all};
      messages.emplace(b, switching<raw>{}, name, s.n, all);
      returned.emplace(b, all);
      b.template reserve_lists<R, I>(2, all);
    }
    [[nodiscard]] std::size_t result_capacity() const noexcept { return result.capacity(); }

    rank_group node, leaders;
    typename Inner::template workspace<B, R, I, K> of_node;
    bool leads;
    std::size_t outer_capacity;
    std::optional<typename Outer::template workspace<B, R, I, K>> of_leaders;
    entries<B, R, I> cut, left, negative, result;
    std::optional<detail::list_messages<B, R, I, switching<raw>>> messages;  // results travel as they are
    std::optional<detail::growing_list<B, R, I>> returned;
  };

  /// One step; collective. `count` is the number of entries in `selection`.
  template <class B, class C, class R, class I, class K>
  exchange_outcome<B, R, I> run(channel<B, C>& channel, K const& codec, entries_view<B, R, I> selection,
                                std::size_t count, state<R> const& before, state<R>& after,
                                workspace<B, R, I, K>& memory) const {
    static_assert(topsum::channel<B, C>::narrows);
    B& backend = channel.backend();
    channel.open();
    memory.returned->clear(backend);
    auto const take_back = [&](auto const& list) {
      if (list) memory.returned->add(backend, *list);
    };

    auto const of_node = among(channel, memory.node, "within a node", [&] {
      return inner.run(channel, codec, selection, count, before.inner, after.inner, memory.of_node);
    });
    take_back(of_node.returned);
    auto list = memory.result.view();
    std::size_t size = 0;
    if (memory.leads) {
      auto const sums = fit(backend, of_node.result, memory);
      auto const outcome = among(channel, memory.leaders, "between nodes", [&] {
        return outer.run(channel, codec, sums, backend.read(sums.count), before.outer, after.outer, *memory.of_leaders);
      });
      take_back(outcome.returned);
      keep_rest(backend, sums, outcome.applied, codec, memory);
      list = outcome.result;
      size = backend.read(list.count);
    }
    among(channel, memory.node, "within a node",
          [&] { return memory.messages->broadcast(channel, switching<raw>{}, list, size, 0, memory.result.view()); });
    return {memory.result.view(), of_node.applied, of_node.sent, memory.returned->get()};
  }

  void describe(description& out) const {
    out.open(name);
    out("ranks_per_node", nodes.ranks_per_node);
    out("inner", inner);
    out("outer", outer);
    out.close();
  }

 private:
  /// Works among the ranks of a group. What goes wrong there is told in everybody's numbers.
  template <class Channel, class F>
  static auto among(Channel& channel, rank_group const& group, std::string_view whom, F const& work) {
    auto const guard = channel.narrow(group);
    try {
      return work();
    } catch (error const& e) {
      if (e.code() != errc::corrupt_message) throw;
      throw error{
          e.code(),
          detail::sentence("hierarchical, ", whom, " of ", group.count, " ranks from ", group.first, " on, every ",
                           group.stride, ": ", std::string_view{e.what()}.substr(std::string_view{"topsum: "}.size())),
          e.rank() < 0 ? e.rank() : group.world(e.rank())};
    }
  }

  /// The node's sums, or as many of the largest as may travel.
  template <class B, class View, class M>
  static View fit(B& backend, View sums, M& memory) {
    if (sums.capacity() <= memory.outer_capacity || backend.read(sums.count) <= memory.outer_capacity) return sums;
    backend.top_of(sums, memory.outer_capacity, memory.cut.view());
    backend.difference(sums, memory.cut.view(), memory.left.view());
    memory.returned->add(backend, memory.left.view());
    return memory.cut.view();
  }

  /// What the leaders did not apply of this node's sums goes back.
  template <class B, class View, class K, class M>
  static void keep_rest(B& backend, View sums, View applied, K const&, M& memory) {
    if constexpr (!K::lossless) {
      View const one[] = {applied};
      backend.merge_sum(std::span<View const>{one}, memory.negative.view());
      backend.divide(memory.negative.view(), -1);
      View const both[] = {sums, memory.negative.view()};
      backend.merge_sum(std::span<View const>{both}, memory.left.view());
      memory.returned->add(backend, memory.left.view());
    } else if constexpr (Outer::kind != exchange_kind::union_of) {
      backend.difference(sums, applied, memory.left.view());
      memory.returned->add(backend, memory.left.view());
    }
  }
};

}  // namespace topsum

#endif
