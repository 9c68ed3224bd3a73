// SPDX-License-Identifier: BSL-1.0
// A rank that announces more than may come is found out before its entries are.
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <topsum/topsum.hpp>
#include <utility>
#include <vector>

#include "support/ranks.hpp"

namespace {

using bytes = topsum::host_span<std::byte>;
using const_bytes = topsum::host_span<std::byte const>;

// Rank 1 says `lie` wherever it should say one small number.
class lying {
 public:
  using ticket = topsum::local::communicator::ticket;
  lying(topsum::local::communicator inner, std::uint64_t lie) : inner_{std::move(inner)}, lie_{lie} {}
  [[nodiscard]] int rank() const { return inner_.rank(); }
  [[nodiscard]] int size() const { return inner_.size(); }
  [[nodiscard]] ticket start(std::span<topsum::transfer<const_bytes> const> sends,
                             std::span<topsum::transfer<bytes> const> receives) {
    std::vector<topsum::transfer<const_bytes>> said(sends.begin(), sends.end());
    for (auto& one : said) {
      std::uint64_t number = ~std::uint64_t{0};
      if (one.bytes.size() == sizeof number) std::memcpy(&number, one.bytes.data(), sizeof number);
      if (rank() == 1 && number < 100) one.bytes = std::as_bytes(std::span{&lie_, 1});
    }
    return inner_.start(std::span<topsum::transfer<const_bytes> const>{said}, receives);
  }
  void finish(ticket& group) { inner_.finish(group); }

 private:
  topsum::local::communicator inner_;
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
