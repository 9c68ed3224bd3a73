// SPDX-License-Identifier: BSL-1.0
// A rank that announces more than may come is found out before its entries are; one that sends garbage does no harm but to the plan.
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <random>
#include <span>
#include <string>
#include <topsum/testing/laws.hpp>
#include <topsum/topsum.hpp>
#include <utility>
#include <vector>

#include "support/ranks.hpp"

namespace {

using bytes = topsum::host_span<std::byte>;
using const_bytes = topsum::host_span<std::byte const>;

// A rank whose messages are changed on their way out, by what derives from this.
template <class Changed>
class tampering {
 public:
  using ticket = topsum::local::communicator::ticket;
  explicit tampering(topsum::local::communicator inner) : inner_{std::move(inner)} {}
  [[nodiscard]] int rank() const { return inner_.rank(); }
  [[nodiscard]] int size() const { return inner_.size(); }
  [[nodiscard]] ticket start(std::span<topsum::transfer<const_bytes> const> sends,
                             std::span<topsum::transfer<bytes> const> receives) {
    std::vector<topsum::transfer<const_bytes>> said(sends.begin(), sends.end());
    for (auto& one : said) {
      if (rank() == 1) one.bytes = static_cast<Changed&>(*this).change(one.bytes);
    }
    return inner_.start(std::span<topsum::transfer<const_bytes> const>{said}, receives);
  }
  void finish(ticket& group) { inner_.finish(group); }

 private:
  topsum::local::communicator inner_;
};

// Rank 1 says `lie` wherever it should say one small number.
class lying : public tampering<lying> {
 public:
  lying(topsum::local::communicator inner, std::uint64_t lie) : tampering{std::move(inner)}, lie_{lie} {}
  [[nodiscard]] const_bytes change(const_bytes said) const {
    std::uint64_t number = ~std::uint64_t{0};
    if (said.size() == sizeof number) std::memcpy(&number, said.data(), sizeof number);
    return number < 100 ? std::as_bytes(std::span{&lie_, 1}) : said;
  }

 private:
  std::uint64_t lie_;
};

// How a step of rank 0 ends, where both ranks have ten entries and together never more than twenty.
template <class Exchange>
test::ending step_with(Exchange const& exchange, std::uint64_t lie) {
  auto const all = test::endings(
      2,
      [&](topsum::local::communicator& comm) {
        auto plan = topsum::plan_allreduce<float>(lying{comm, lie}, 1000, topsum::top_k{.k = 10}, exchange);
        std::vector<float> x(1000);
        for (std::size_t i = 0; i < 10; ++i) x[(comm.rank() == 0 ? 0 : 500) + i] = 1;
        plan(std::span<float>{x});
      },
      std::chrono::seconds{2});
  return all[0];
}

// By the number, not by what follows it.
void expect_found_out(test::ending const& how) {
  CHECK(how.code == topsum::errc::corrupt_message);
  CHECK_MESSAGE(how.says("rank 1 announced more"), how.what);
}

}  // namespace

TEST_CASE("recursive_doubling takes no more entries than all selections have") {
  for (std::uint64_t const lie : {std::uint64_t{11}, std::uint64_t{20}, std::uint64_t{21}, ~std::uint64_t{0}})
    expect_found_out(step_with(topsum::recursive_doubling{}, lie));
}

TEST_CASE("split_gather takes no more sums than all selections have") {
  for (std::uint64_t const lie : {std::uint64_t{11}, std::uint64_t{20}, std::uint64_t{501}, ~std::uint64_t{0}})
    expect_found_out(step_with(topsum::split_gather{}, lie));
}

TEST_CASE("merge_tree takes no more than k entries") {
  for (std::uint64_t const lie : {std::uint64_t{11}, ~std::uint64_t{0}})
    expect_found_out(step_with(topsum::merge_tree{}, lie));
}

namespace {

// Rank 1's messages come with some bytes changed; headers and single counts stay.
class garbling : public tampering<garbling> {
 public:
  garbling(topsum::local::communicator inner, std::uint64_t seed) : tampering{std::move(inner)}, random_{seed} {}
  [[nodiscard]] const_bytes change(const_bytes said) {
    if (said.size() <= 8 || said.size() == sizeof(topsum::wire_header)) return said;
    auto& kept = kept_.emplace_back(said.begin(), said.end());
    for (int i = 0; i < 4; ++i) kept[random_() % kept.size()] = static_cast<std::byte>(random_());
    return const_bytes{kept};
  }

 private:
  std::mt19937_64 random_;
  std::list<std::vector<std::byte>> kept_;  // messages are read after `start`
};

// Steps end well, or with an error that says what came; never otherwise.
template <class... Stages>
void expect_no_harm(Stages const&... stages) {
  int found = 0;
  std::string const what = (topsum::to_text(stages) + ...);
  CAPTURE(what);
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    auto const all = test::endings(
        3,
        [&](topsum::local::communicator& comm) {
          auto plan = topsum::plan_allreduce<float>(garbling{comm, seed}, 1200, topsum::top_k{.k = 90}, stages...);
          for (std::uint64_t step = 0; step < 2; ++step) {
            auto x = topsum::laws::make_gradient<float>(topsum::laws::input::laplace, topsum::laws::spread::alike, 1200,
                                                        comm.rank(), 3, step);
            plan(std::span<float>{x});
          }
        },
        std::chrono::milliseconds{100});
    for (auto const& how : all) {
      found += how.code == topsum::errc::corrupt_message ? 1 : 0;
      CHECK_MESSAGE((how.code == topsum::errc::none || how.code == topsum::errc::corrupt_message ||
                     how.code == topsum::errc::timeout || how.code == topsum::errc::transport ||
                     how.code == topsum::errc::broken_plan || how.code == topsum::errc::nonfinite),
                    how.what);
    }
  }
  CHECK(found > 0);
}

}  // namespace

TEST_CASE("garbage from one rank harms no exchange beyond its plan") {
  topsum::coded const codec{topsum::elias_fano{}, topsum::as<topsum::half>{}};
  auto const both = [&](auto const& exchange) {
    expect_no_harm(exchange);
    expect_no_harm(exchange, codec);
  };
  both(topsum::gather_all{});
  both(topsum::recursive_doubling{});
  both(topsum::split_gather{});
  both(topsum::merge_tree{});
  both(topsum::spar_reduce_scatter{});
  both(topsum::interleaved_quota{});
  both(topsum::ok_topk{.boundaries_every = 1, .threshold_every = 2});
  both(topsum::aligned{topsum::leader{}});
  both(topsum::aligned{topsum::owners{}});
  both(topsum::hierarchical{topsum::gather_all{}, topsum::ok_topk{}, {.ranks_per_node = 2}});
}
