// SPDX-License-Identifier: BSL-1.0
// What a plan must give, computed slowly and obviously: all ranks in one process, over dense vectors, by sorting.
#ifndef TOPSUM_TESTS_SUPPORT_ORACLE_HPP
#define TOPSUM_TESTS_SUPPORT_ORACLE_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <topsum/core/piece.hpp>
#include <topsum/core/value.hpp>
#include <topsum/exchange/dense.hpp>
#include <topsum/exchange/gather_all.hpp>
#include <topsum/exchange/ok_topk.hpp>
#include <topsum/layout.hpp>
#include <topsum/select/global.hpp>
#include <topsum/select/layer_wise.hpp>
#include <topsum/select/reused_threshold.hpp>
#include <topsum/select/top_k.hpp>
#include <utility>
#include <vector>

namespace test::oracle {

template <class T>
struct entry {
  std::size_t index;
  T value;
  friend bool operator==(entry const&, entry const&) = default;
};

// Indices increase.
template <class T>
using sparse = std::vector<entry<T>>;

// The order of entries: larger magnitude first, ties to the smaller index.
template <class T>
bool comes_first(entry<T> const& a, entry<T> const& b) {
  T const x = std::abs(a.value);
  T const y = std::abs(b.value);
  return x != y ? x > y : a.index < b.index;
}

// A gradient as the oracle takes it, and a sum as a plan gives it.
template <class T>
std::vector<topsum::wide_t<T>> widened(std::vector<T> const& x) {
  std::vector<topsum::wide_t<T>> wide;
  for (T const value : x) wide.push_back(topsum::to_wide(value));
  return wide;
}
template <class T>
std::vector<T> narrowed(std::vector<topsum::wide_t<T>> const& x) {
  std::vector<T> narrow;
  for (auto const value : x) narrow.push_back(topsum::from_wide<T>(value));
  return narrow;
}

template <class T>
void in_order(sparse<T>& list) {
  std::sort(list.begin(), list.end(), [](auto const& a, auto const& b) { return a.index < b.index; });
}

// The k first of a list.
template <class T>
sparse<T> first_of(sparse<T> list, std::size_t k) {
  std::sort(list.begin(), list.end(), comes_first<T>);
  if (list.size() > k) list.resize(k);
  in_order(list);
  return list;
}

template <class T>
sparse<T> part_of(std::vector<T> const& dense, topsum::group const& g) {
  sparse<T> all;
  for (std::size_t i = 0; i < g.size(); ++i) all.push_back({g.position(i), dense[g.position(i)]});
  return all;
}

// A group as a piece of its own size: what a rule aims at there. Its positions are the group's.
struct target {
  topsum::group group;
  std::size_t count;
  std::size_t capacity;
};

// Every group of every piece, in order.
inline std::vector<target> targets_of(std::vector<topsum::piece> const& pieces) {
  std::vector<target> all;
  for (topsum::piece const& p : pieces) {
    for (std::size_t g = 0; g < topsum::group_count(p); ++g) {
      topsum::group const one = topsum::group_at(p, g);
      all.push_back({one, std::min(p.count, one.size()), std::min(p.capacity, one.size())});
    }
  }
  return all;
}

template <class T>
sparse<T> select_piece(topsum::top_k const&, std::vector<T> const& dense, target const& p, std::uint64_t, T&) {
  return first_of(part_of(dense, p.group), p.capacity);
}

template <class T>
sparse<T> select_piece(topsum::reused_threshold const& rule, std::vector<T> const& dense, target const& p,
                       std::uint64_t step, T& threshold) {
  sparse<T> all = part_of(dense, p.group);
  if (step % rule.every == 0) {
    all = first_of(std::move(all), std::min(p.count, p.capacity));
    threshold = 0;
    for (auto const& e : all) {
      T const size = std::abs(e.value);
      threshold = &e == all.data() ? size : std::min(threshold, size);
    }
    std::erase_if(all, [](auto const& e) { return e.value == 0; });
    return all;
  }
  std::erase_if(all, [&](auto const& e) { return e.value == 0 || std::abs(e.value) < threshold; });
  auto const factor = static_cast<T>(rule.nudge);
  if (3 * all.size() < 2 * p.count) {
    threshold /= factor;
  } else if (4 * all.size() > 5 * p.count) {
    threshold *= factor;
  }
  return first_of(std::move(all), p.capacity);
}

// Adds a list to sums; what no list had is absent, not zero.
template <class T>
class sums {
 public:
  explicit sums(std::size_t n) : value_(n), present_(n) {}
  void add(sparse<T> const& list) {
    for (auto const& e : list) {
      value_[e.index] = present_[e.index] ? value_[e.index] + e.value : e.value;
      present_[e.index] = true;
    }
  }
  sparse<T> list() const {
    sparse<T> all;
    for (std::size_t i = 0; i < value_.size(); ++i) {
      if (present_[i]) all.push_back({i, value_[i]});
    }
    return all;
  }

 private:
  std::vector<T> value_;
  std::vector<bool> present_;
};

// What one step gave: the result before the reduction's division, and how many entries each rank selected and sent.
template <class T>
struct outcome {
  std::vector<T> sum;
  sparse<T> entries;
  std::vector<std::size_t> selected;
  std::vector<std::size_t> sent;
};

// All ranks of one plan with error feedback, in the wide type of its gradients.
template <class T, class Policy>
class world {
 public:
  world(Policy policy, topsum::layout const& shapes, int ranks, T decay = 1)
      : policy_{std::move(policy)},
        pieces_{policy_.pieces(shapes)},
        targets_{targets_of(pieces_)},
        n_{shapes.size()},
        ranks_{static_cast<std::size_t>(ranks)},
        decay_{decay},
        thresholds_(ranks_, std::vector<T>(targets_.size())),
        residuals_(ranks_, std::vector<T>(n_)),
        bounds_(ranks_ + 1) {}

  // gradients[rank][i]
  template <class X>
  outcome<T> step(X const& exchange, std::vector<std::vector<T>> const& gradients) {
    for (std::size_t r = 0; r < ranks_; ++r) {
      for (std::size_t i = 0; i < n_; ++i) residuals_[r][i] = decay_ * residuals_[r][i] + gradients[r][i];
    }
    outcome<T> out;
    out.sum.assign(n_, T{0});
    exchange_by(exchange, out);
    ++step_;
    return out;
  }

  std::vector<std::vector<T>> const& residuals() const { return residuals_; }
  std::size_t k() const { return topsum::total_capacity(pieces_); }

 private:
  std::vector<sparse<T>> select(outcome<T>& out) {
    std::vector<sparse<T>> all(ranks_);
    for (std::size_t r = 0; r < ranks_; ++r) {
      for (std::size_t p = 0; p < targets_.size(); ++p) {
        sparse<T> const part = select_piece(policy_.rule, residuals_[r], targets_[p], step_, thresholds_[r][p]);
        all[r].insert(all[r].end(), part.begin(), part.end());
      }
      in_order(all[r]);
      out.selected.push_back(all[r].size());
    }
    return all;
  }

  void finish(sparse<T> const& result, std::vector<sparse<T>> const& sent, outcome<T>& out) {
    std::vector<bool> applied(n_);
    for (auto const& e : result) {
      out.sum[e.index] = e.value;
      applied[e.index] = true;
    }
    for (std::size_t r = 0; r < ranks_; ++r) {
      out.sent.push_back(sent[r].size());
      for (auto const& e : sent[r]) {
        if (applied[e.index]) residuals_[r][e.index] = 0;
      }
    }
    out.entries = result;
  }

  void exchange_by(topsum::gather_all const&, outcome<T>& out) {
    auto const selected = select(out);
    sums<T> total{n_};
    for (auto const& list : selected) total.add(list);
    finish(total.list(), selected, out);
  }

  // Block b of the ring is summed from rank b upwards.
  void exchange_by(topsum::dense const&, outcome<T>& out) {
    for (std::size_t b = 0; b < ranks_; ++b) {
      for (std::size_t i = b * n_ / ranks_; i < (b + 1) * n_ / ranks_; ++i) {
        out.sum[i] = residuals_[b][i];
        for (std::size_t s = 1; s < ranks_; ++s) out.sum[i] += residuals_[(b + s) % ranks_][i];
      }
    }
    for (auto& r : residuals_) r.assign(n_, T{0});
    out.selected.assign(ranks_, n_);
    out.sent.assign(ranks_, n_);
  }

  void exchange_by(topsum::ok_topk const& x, outcome<T>& out) {
    std::vector<sparse<T>> const selected = select(out);
    if (step_ % x.boundaries_every == 0) place_regions(selected);

    // What a rank has for one owner is cut to the capacity of a message.
    std::size_t const room = message_room(x);
    std::vector<sparse<T>> sent(ranks_);
    std::vector<std::vector<sparse<T>>> message(ranks_, std::vector<sparse<T>>(ranks_));
    for (std::size_t r = 0; r < ranks_; ++r) {
      for (std::size_t owner = 0; owner < ranks_; ++owner) {
        for (auto const& e : selected[r]) {
          if (e.index >= bounds_[owner] && e.index < bounds_[owner + 1]) message[r][owner].push_back(e);
        }
        if (r != owner) message[r][owner] = first_of(message[r][owner], room);
        sent[r].insert(sent[r].end(), message[r][owner].begin(), message[r][owner].end());
      }
    }

    // The owner sums its own entries, then those of the rank before it, and so on round.
    sparse<T> reduced;
    for (std::size_t owner = 0; owner < ranks_; ++owner) {
      sums<T> total{n_};
      for (std::size_t s = 0; s < ranks_; ++s) total.add(message[(owner + ranks_ - s) % ranks_][owner]);
      sparse<T> const part = total.list();
      reduced.insert(reduced.end(), part.begin(), part.end());
    }

    auto const pass = [&] {
      return static_cast<std::size_t>(std::count_if(
          reduced.begin(), reduced.end(), [&](auto const& e) { return std::abs(e.value) >= global_threshold_; }));
    };
    if (step_ % x.threshold_every == 0 || pass() > k()) global_threshold_ = kth_magnitude(reduced);
    std::erase_if(reduced, [&](auto const& e) { return std::abs(e.value) < global_threshold_; });
    finish(first_of(reduced, k()), sent, out);
  }

  // Boundary i is the mean over ranks of the index of entry floor(i m / P) of m.
  void place_regions(std::vector<sparse<T>> const& selected) {
    for (std::size_t i = 1; i < ranks_; ++i) {
      std::size_t sum = 0;
      for (auto const& list : selected) sum += list.empty() ? i * n_ / ranks_ : list[i * list.size() / ranks_].index;
      bounds_[i] = sum / ranks_;
    }
    bounds_[0] = 0;
    bounds_[ranks_] = n_;
  }

  std::size_t message_room(topsum::ok_topk const& x) const {
    double const share = std::ceil(x.region_capacity * static_cast<double>(k()) / static_cast<double>(ranks_));
    return share >= static_cast<double>(k())
               ? k()
               : std::min(k(), std::max<std::size_t>(64, static_cast<std::size_t>(share)));
  }

  // 0 where there are fewer than k.
  T kth_magnitude(sparse<T> list) const {
    if (k() == 0 || list.size() < k()) return 0;
    std::sort(list.begin(), list.end(), comes_first<T>);
    return std::abs(list[k() - 1].value);
  }

  Policy policy_;
  std::vector<topsum::piece> pieces_;
  std::vector<target> targets_;
  std::size_t n_;
  std::size_t ranks_;
  T decay_;
  std::uint64_t step_ = 0;
  std::vector<std::vector<T>> thresholds_;  // [rank][group]
  std::vector<std::vector<T>> residuals_;
  std::vector<std::size_t> bounds_;
  T global_threshold_ = 0;
};

}  // namespace test::oracle

#endif
