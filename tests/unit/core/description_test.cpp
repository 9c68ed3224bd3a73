// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <topsum/topsum.hpp>

namespace {

template <class S>
std::uint64_t hash_of(S const& stage) {
  topsum::description d;
  topsum::describe(d, stage);
  return d.hash();
}

struct plain {
  static constexpr std::string_view name = "plain";
};

struct halves : topsum::scope<topsum::top_k> {
  static constexpr std::string_view name = "halves";
};

}  // namespace

TEST_CASE("a stage reads as it is written") {
  CHECK(topsum::to_text(topsum::top_k{.density = 0.01}) == "top_k{.density = 0.01, .k = default, .at_most = default}");
  CHECK(topsum::to_text(topsum::global{topsum::top_k{.k = 5}}) ==
        "global{.rule = top_k{.density = 0.01, .k = 5, .at_most = default}}");
  CHECK(topsum::to_text(topsum::reused_threshold{}) ==
        "reused_threshold{.density = 0.01, .k = default, .every = 32, .nudge = 1.012, .at_most = default}");
  CHECK(topsum::to_text(topsum::error_feedback{.rollback = true}) == "error_feedback{.decay = 1, .rollback = true}");
  CHECK(topsum::to_text(topsum::dense{}) == "dense{}");
  CHECK(topsum::to_text(plain{}) == "plain{}");
}

TEST_CASE("stages one behind the other are set apart, stages inside stages are not") {
  topsum::description d;
  topsum::describe(d, topsum::layer_wise{topsum::top_k{.k = 1}});
  topsum::describe(d, topsum::raw{});
  topsum::describe(d, topsum::sum{});
  CHECK(d.text() == "layer_wise{.rule = top_k{.density = 0.01, .k = 1, .at_most = default}}, raw{}, sum{}");
}

TEST_CASE("every parameter of every stage changes the hash") {
  using topsum::error_feedback;
  using topsum::ok_topk;
  using topsum::reused_threshold;
  using topsum::top_k;
  std::multiset<std::uint64_t> const hashes{hash_of(top_k{}),
                                            hash_of(top_k{.density = 0.02}),
                                            hash_of(top_k{.k = 0}),
                                            hash_of(top_k{.k = 1}),
                                            hash_of(top_k{.at_most = 0}),
                                            hash_of(top_k{.at_most = 1}),
                                            hash_of(top_k{.k = 1, .at_most = 1}),
                                            hash_of(topsum::global{top_k{}}),
                                            hash_of(topsum::layer_wise{top_k{}}),
                                            hash_of(reused_threshold{}),
                                            hash_of(reused_threshold{.every = 31}),
                                            hash_of(reused_threshold{.nudge = 1.5}),
                                            hash_of(reused_threshold{.at_most = 32}),
                                            hash_of(reused_threshold{.k = 32}),
                                            hash_of(error_feedback{}),
                                            hash_of(error_feedback{.decay = 0.5}),
                                            hash_of(error_feedback{.rollback = true}),
                                            hash_of(topsum::no_residual{}),
                                            hash_of(ok_topk{}),
                                            hash_of(ok_topk{.boundaries_every = 63}),
                                            hash_of(ok_topk{.threshold_every = 31}),
                                            hash_of(ok_topk{.bucket = 3}),
                                            hash_of(ok_topk{.balance_above = 3}),
                                            hash_of(ok_topk{.region_capacity = 3}),
                                            hash_of(topsum::gather_all{}),
                                            hash_of(topsum::dense{}),
                                            hash_of(topsum::raw{}),
                                            hash_of(topsum::mean{}),
                                            hash_of(topsum::sum{})};
  for (std::uint64_t const h : hashes) CHECK(hashes.count(h) == 1);
}

TEST_CASE("neighbouring densities that print alike to few digits are told apart") {
  double const next = std::nextafter(0.01, 1.0);
  CHECK(hash_of(topsum::top_k{.density = 0.01}) != hash_of(topsum::top_k{.density = next}));
  CHECK(topsum::to_text(topsum::top_k{.density = 0.01}) != topsum::to_text(topsum::top_k{.density = next}));
}

TEST_CASE("raw data change the hash by where they end") {
  topsum::description a;
  a.mix("ab");
  a.mix("c");
  topsum::description b;
  b.mix("a");
  b.mix("bc");
  CHECK(a.hash() != b.hash());
  CHECK(a.text().empty());
}

TEST_CASE("a scope that lists nothing itself lists its rule, so that ranks find out when rules differ") {
  halves const a{{.rule = {.density = 0.1}}};
  halves const b{{.rule = {.density = 0.2}}};
  CHECK(topsum::to_text(a) == "halves{.rule = top_k{.density = 0.1, .k = default, .at_most = default}}");
  CHECK(hash_of(a) != hash_of(b));
}
