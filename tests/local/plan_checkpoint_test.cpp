// SPDX-License-Identifier: BSL-1.0
// Saving and loading: a plan that was loaded goes on as if nothing had happened; bytes that do not fit are refused on all ranks.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <topsum/testing/laws.hpp>
#include <topsum/topsum.hpp>
#include <vector>

#include "support/archetype_backend.hpp"
#include "support/ranks.hpp"

namespace {

using topsum::errc;
using topsum::plan_allreduce;
using topsum::restore;
using comm_t = topsum::local::communicator;
using bytes_t = std::vector<std::byte>;

constexpr std::size_t n = 203;
topsum::layout const shapes{{"weight", {10, 20}}, {"bias", {3}}};
constexpr int steps = 10;
constexpr int half = 5;

template <class T>
std::vector<T> gradient_of(int rank, int ranks, std::uint64_t step,
                           topsum::laws::input kind = topsum::laws::input::laplace) {
  return topsum::laws::make_gradient<T>(kind, topsum::laws::spread::alike, n, rank, ranks, step);
}

// Results and all that is kept - residual, states, step -, of every rank and step; and what was saved before step `half`.
template <class T>
struct story {
  std::vector<std::vector<std::vector<T>>> results;
  std::vector<std::vector<bytes_t>> kept;
  std::vector<bytes_t> saved;
};

template <class T, class Plan>
void go_on(Plan& plan, comm_t& comm, int from, int to, story<T>& told) {
  auto const r = static_cast<std::size_t>(comm.rank());
  auto& b = plan.backend();
  for (int step = from; step < to; ++step) {
    auto const s = static_cast<std::size_t>(step);
    // Gradients that shrink: a threshold that is not the old one's lets another number of entries through.
    auto gradient = gradient_of<T>(comm.rank(), comm.size(), s);
    for (T& value : gradient) value = std::ldexp(value, -step);
    auto x = topsum::laws::place(b, gradient);
    static_cast<void>(plan(x.view()));
    told.results[r][s] = topsum::laws::fetch<T>(b, x.view(), n);
    told.kept[r][s] = plan.save();
  }
}

template <class T>
story<T> new_story(int ranks) {
  auto const P = static_cast<std::size_t>(ranks);
  story<T> told;
  told.results.assign(P, std::vector<std::vector<T>>(steps));
  told.kept.assign(P, std::vector<bytes_t>(steps));
  told.saved.resize(P);
  return told;
}

// Ten steps in one go; five in a plan that is new and loaded.
template <class T, class... S>
void check_resumption(int ranks, S const&... stages) {
  CAPTURE(ranks);
  auto whole = new_story<T>(ranks);
  topsum::local::run(ranks, [&](comm_t& comm) {
    auto plan = plan_allreduce<T>(comm, shapes, stages...);
    go_on(plan, comm, 0, half, whole);
    whole.saved[static_cast<std::size_t>(comm.rank())] = plan.save();
    go_on(plan, comm, half, steps, whole);
  });
  auto resumed = new_story<T>(ranks);
  topsum::local::run(ranks, [&](comm_t& comm) {
    auto plan = plan_allreduce<T>(comm, shapes, stages...);
    if (comm.size() % 2 == 0) {
      plan.load(whole.saved[static_cast<std::size_t>(comm.rank())]);
    } else {
      plan.load(whole.saved);
    }
    if (plan.step() != half) throw topsum::error{errc::mismatch, "the step was not loaded"};
    resumed.saved[static_cast<std::size_t>(comm.rank())] = plan.save();
    go_on(plan, comm, half, steps, resumed);
  });
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) {
    CHECK(resumed.saved[r] == whole.saved[r]);
    for (std::size_t s = half; s < steps; ++s) {
      CHECK(test::same_bits(whole.results[r][s], resumed.results[r][s]));
      CHECK(whole.kept[r][s] == resumed.kept[r][s]);
    }
  }
}

topsum::top_k const exact{.density = 0.3};
topsum::reused_threshold const reused{.density = 0.3, .every = 4};
topsum::ok_topk const lively{.boundaries_every = 3, .threshold_every = 4, .balance_above = 1.2};

// Runs `call(plan, rank)` on every rank of a plan and tells how it ended.
template <class Call, class... S>
std::vector<test::ending> ending_of_load(int ranks, Call call, S const&... stages) {
  return test::endings(ranks, [&](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, shapes, stages...);
    call(plan, comm.rank());
  });
}

// What every rank of a plan saves after some steps.
template <class... S>
std::vector<bytes_t> saved_after(int ranks, int some, S const&... stages) {
  auto told = new_story<float>(ranks);
  topsum::local::run(ranks, [&](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, shapes, stages...);
    go_on(plan, comm, 0, some, told);
    told.saved[static_cast<std::size_t>(comm.rank())] = plan.save();
  });
  return told.saved;
}

// Makes the checksum right again.
void seal(bytes_t& bytes) {
  std::uint64_t const sum = topsum::detail::checksum(std::span{bytes}.first(bytes.size() - 8));
  std::memcpy(bytes.data() + bytes.size() - 8, &sum, sizeof sum);
}

void expect_all(std::vector<test::ending> const& all, errc code, std::string const& part) {
  for (auto const& e : all) {
    CHECK_MESSAGE(e.code == code, e.what);
    CHECK_MESSAGE(e.says(part), e.what);
  }
}

}  // namespace

TEST_CASE("a loaded plan goes on bit for bit as the one that was saved") {
  for (int const ranks : {1, 2, 3, 4}) {
    check_resumption<float>(ranks, exact, topsum::gather_all{});
    check_resumption<float>(ranks, reused, topsum::gather_all{}, topsum::error_feedback{.decay = 0.9});
    check_resumption<float>(ranks, exact, lively, topsum::error_feedback{.rollback = true});
    check_resumption<float>(ranks, reused, lively);
    check_resumption<double>(ranks, topsum::layer_wise{reused}, lively, topsum::index<std::uint64_t>{});
    check_resumption<float>(ranks, topsum::dense{});
    check_resumption<float>(ranks, topsum::dense{}, topsum::error_feedback{.rollback = true});
    check_resumption<float>(ranks, reused, lively, topsum::no_residual{});
  }
}

TEST_CASE("every rule goes on bit for bit in a loaded plan") {
  for (int const ranks : {1, 3}) {
    topsum::gather_all const all;
    check_resumption<float>(ranks, topsum::sampled_threshold{.density = 0.3}, all);
    check_resumption<float>(ranks, topsum::gaussian_threshold{.density = 0.3}, all);
    check_resumption<float>(ranks, topsum::exponential_threshold{.density = 0.3, .adapt_every = 2}, all);
    check_resumption<float>(ranks, topsum::bisected_threshold{.density = 0.3, .every = 3}, all);
    check_resumption<float>(ranks, topsum::fixed_threshold{.threshold = 2, .density = 0.3}, all);
    check_resumption<float>(ranks, topsum::shared_random{.density = 0.3}, all);
  }
}

TEST_CASE("a plan in a memory space of its own is saved and loaded too") {
  check_resumption<float>(3, reused, lively, test::archetype_backend{});
  check_resumption<float>(2, topsum::dense{}, topsum::error_feedback{}, test::archetype_backend{});
}

TEST_CASE("what one backend saved another loads") {
  auto const saved = saved_after(2, half, reused, lively);
  CHECK(saved == saved_after(2, half, reused, lively, test::archetype_backend{}));
}

TEST_CASE("regions and global threshold of ok_topk are saved, and regions that cannot be are told") {
  topsum::exchange_shape const shape{.n = 100, .capacity = 10, .rank = 0, .ranks = 3};
  topsum::ok_topk::state<float> state{shape};
  CHECK(state.fits(shape));
  state.bounds = {0, 20, 70, 100};
  state.threshold = 77;
  CHECK(state.fits(shape));
  topsum::host b;
  auto const bytes = topsum::detail::save_fields(b, state);
  topsum::detail::saved_bytes const saved{bytes};
  topsum::ok_topk::state<float> other{shape};
  topsum::detail::load_fields(b, other, std::span{&saved, 1}, topsum::detail::loading::apply, false);
  CHECK(other.bounds == state.bounds);
  CHECK(other.threshold == 77);
  for (auto const& bounds : {std::vector<std::uint64_t>{0, 70, 20, 100}, {0, 20, 70, 101}, {1, 20, 70, 100}}) {
    state.bounds = bounds;
    CHECK_FALSE(state.fits(shape));
  }
}

TEST_CASE("a plan that has run is set back by a load") {
  topsum::local::run(2, [&](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, shapes, reused, lively);
    auto told = new_story<float>(2);
    auto again = told;
    go_on(plan, comm, 0, half, told);
    auto const saved = plan.save();
    go_on(plan, comm, half, steps, told);
    plan.load(saved);
    go_on(plan, comm, half, steps, again);
    auto const r = static_cast<std::size_t>(comm.rank());
    for (std::size_t s = half; s < steps; ++s) {
      if (!test::same_bits(told.results[r][s], again.results[r][s])) throw topsum::error{errc::mismatch, "set back"};
    }
  });
}

TEST_CASE("on another number of ranks the residuals keep their sum, exactly on small integers, and the plans go on") {
  auto const integers = topsum::laws::input::small_integers;
  for (int const before : {1, 2, 3, 4, 7}) {
    std::vector<bytes_t> saved(static_cast<std::size_t>(before));
    std::vector<std::vector<float>> old(saved.size());
    topsum::local::run(before, [&](comm_t& comm) {
      auto const r = static_cast<std::size_t>(comm.rank());
      auto plan = plan_allreduce<float>(comm, shapes, reused, lively, topsum::sum{});
      for (std::uint64_t step = 0; step < half; ++step) {
        auto x = gradient_of<float>(comm.rank(), before, step, integers);
        plan(std::span<float>{x});
      }
      saved[r] = plan.save();
      old[r].assign(plan.residual().begin(), plan.residual().end());
    });
    for (int const after : {1, 2, 3, 5}) {
      CAPTURE(before);
      CAPTURE(after);
      auto const P = static_cast<std::size_t>(after);
      std::vector<std::vector<float>> loaded(P), left(P), result(P);
      auto const all = test::endings(after, [&](comm_t& comm) {
        auto const r = static_cast<std::size_t>(comm.rank());
        auto plan = plan_allreduce<float>(comm, shapes, reused, lively, topsum::sum{});
        std::vector<bytes_t> mine;  // in falling order: the order of what is given is no matter
        for (std::size_t o = saved.size(); o-- > 0;) {
          if (o % P == r) mine.push_back(saved[o]);
        }
        plan.load(mine);
        loaded[r].assign(plan.residual().begin(), plan.residual().end());
        auto x = gradient_of<float>(comm.rank(), after, plan.step(), integers);
        plan(std::span<float>{x});
        result[r] = x;
        left[r].assign(plan.residual().begin(), plan.residual().end());
        for (int step = 0; step < half; ++step) plan(std::span<float>{x});
      });
      for (auto const& e : all) CHECK_MESSAGE((e.code == errc::none && e.rank == -1), e.what);
      std::vector<float> sum_before(n), sum_after(n), owed(n), now(n);
      for (std::size_t i = 0; i < n; ++i) {
        for (auto const& one : old) sum_before[i] += one[i];
        for (auto const& one : loaded) sum_after[i] += one[i];
        owed[i] = sum_before[i];
        for (int r = 0; r < after; ++r) owed[i] += gradient_of<float>(r, after, half, integers)[i];
        now[i] = result[0][i];
        for (auto const& one : left) now[i] += one[i];
      }
      CHECK(sum_before == sum_after);
      CHECK(owed == now);
      for (auto const& one : result) CHECK(one == result[0]);
    }
  }
}

TEST_CASE("residual and step alone go into a plan of another exchange, selection or density") {
  auto const saved = saved_after(3, half, exact, topsum::gather_all{});
  auto const into = [&](auto const&... stages) {
    return ending_of_load(
        3,
        [&](auto& plan, int rank) {
          plan.load(saved[static_cast<std::size_t>(rank)], restore::residual);
          if (plan.step() != half) throw topsum::error{errc::mismatch, "the step was not loaded"};
          if (std::ranges::count(plan.residual(), 0.0F) > 150) throw topsum::error{errc::mismatch, "no residual"};
          for (int step = 0; step < half; ++step) {
            auto x = gradient_of<float>(rank, 3, plan.step());
            plan(std::span<float>{x});
          }
        },
        stages...);
  };
  for (auto const& all : {into(exact, lively), into(topsum::layer_wise{reused}, topsum::gather_all{}),
                          into(topsum::top_k{.density = 0.2}, topsum::gather_all{}),
                          into(topsum::dense{}, topsum::error_feedback{.rollback = true})}) {
    for (auto const& e : all) CHECK_MESSAGE((e.code == errc::none && e.rank == -1), e.what);
  }
}

TEST_CASE("a plan that differs from the one saved is refused on every rank, with what differs") {
  auto const saved = saved_after(2, half, exact, topsum::gather_all{});
  auto const loads = [&](auto& plan, int rank) { plan.load(saved[static_cast<std::size_t>(rank)]); };
  expect_all(ending_of_load(2, loads, topsum::top_k{.density = 0.2}, topsum::gather_all{}), errc::mismatch,
             "saved from a plan with global{.rule = top_k{.density = 0.3");
  expect_all(ending_of_load(2, loads, exact, lively), errc::mismatch, "this one has ok_topk{");
  expect_all(ending_of_load(2, loads, exact, lively), errc::mismatch, "pass topsum::restore::residual");
  expect_all(ending_of_load(2, loads, topsum::dense{}, topsum::error_feedback{}), errc::mismatch,
             "saved from a plan with gather_all{}, this one has dense{}");
  expect_all(ending_of_load(2, loads, exact, topsum::gather_all{}, topsum::error_feedback{.decay = 0.5}),
             errc::mismatch, "saved from a plan with error_feedback{.decay = 1");
  expect_all(ending_of_load(2, loads, exact, topsum::gather_all{}, topsum::no_residual{}), errc::mismatch,
             "this one has no_residual{}");
  auto const residual = [&](auto& plan, int rank) {
    plan.load(saved[static_cast<std::size_t>(rank)], restore::residual);
  };
  expect_all(ending_of_load(2, residual, exact, topsum::gather_all{}, topsum::no_residual{}), errc::mismatch,
             "a residual goes on in the same store");
  auto const other = [&](topsum::layout const& shape, auto value) {
    return test::endings(2, [&](comm_t& comm) {
      auto plan = plan_allreduce<decltype(value)>(comm, shape, exact, topsum::gather_all{});
      plan.load(saved[static_cast<std::size_t>(comm.rank())]);
    });
  };
  expect_all(other(n + 1, 0.0F), errc::mismatch, "n = 203 was saved where this plan has 204");
  expect_all(other(n, 0.0F), errc::mismatch, "another layout");
  expect_all(other(shapes, 0.0), errc::mismatch, "another value type");
}

TEST_CASE("a rank that cannot load makes every rank throw, and all go on as before") {
  topsum::error_feedback const undone{.rollback = true};  // the last case is a step that fails
  auto const saved = saved_after(3, half, reused, lively, undone);
  auto const later = saved_after(3, half + 1, reused, lively, undone);
  auto const four = saved_after(4, half, reused, lively, undone);
  auto const try_load = [&](auto const& give, errc code, std::string const& part) {
    CAPTURE(part);
    auto told = new_story<float>(3);
    auto const all = test::endings(3, [&](comm_t& comm) {
      auto plan = plan_allreduce<float>(comm, shapes, reused, lively, undone);
      plan.load(saved);
      auto const e = test::ending_of([&] { give(plan, comm.rank()); });
      if (e.code != code || !e.says(part) || e.rank != 1) throw std::logic_error{"rank at fault and words: " + e.what};
      if (plan.save() != saved[static_cast<std::size_t>(comm.rank())]) throw std::logic_error{"something was loaded"};
      go_on(plan, comm, half, steps, told);
    });
    for (auto const& e : all) CHECK_MESSAGE((e.code == errc::none && e.rank == -1), e.what);
  };
  auto const given_on_1 = [&](bytes_t const& bytes) {
    return [&saved, &bytes](auto& plan, int rank) {
      plan.load(rank == 1 ? bytes : saved[static_cast<std::size_t>(rank)]);
    };
  };
  bytes_t const none;
  try_load(given_on_1(none), errc::bad_argument, "on rank 1: load: these are not bytes that plan.save() made");
  try_load(given_on_1(saved[0]), errc::bad_argument, "on rank 1: load: the bytes of old rank 1 of 3 are missing");
  try_load(given_on_1(later[1]), errc::mismatch, "saved by 3 ranks at step 6, where others load 3 ranks' at step 5");
  try_load(given_on_1(four[1]), errc::mismatch, "saved by 4 ranks at step 5");
  try_load(
      [&](auto& plan, int rank) {
        plan.load(rank == 1 ? std::vector<bytes_t>{} : std::vector<bytes_t>{saved[static_cast<std::size_t>(rank)]});
      },
      errc::bad_argument, "on rank 1: load: the bytes of old rank 1 are missing");
  try_load([&](auto& plan, int rank) { plan.load(saved, rank == 1 ? restore::residual : restore::everything); },
           errc::mismatch, "on rank 1: load: another topsum::restore than rank 0");
  try_load(
      [&](auto& plan, int rank) {
        plan.load(rank == 1 ? std::vector<bytes_t>{saved[1], later[0]} : saved);
      },
      errc::mismatch, "on rank 1: load: given bytes of step 5 of 3 ranks, and of step 6 of 3 ranks");
  try_load(
      [&](auto& plan, int rank) {
        auto x = gradient_of<float>(rank, 3, half);
        rank == 1 ? static_cast<void>(plan(std::span<float>{x})) : plan.load(saved);
      },
      errc::mismatch, "on rank 1: runs a step where rank 0 loads into a plan");
}

TEST_CASE("a state of another run that ranks must share is refused") {
  auto const saved = saved_after(3, half, reused, lively);
  auto other = saved[1];
  topsum::local::run(3, [&](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, shapes, reused, lively);
    for (std::uint64_t step = 0; step < half; ++step) {
      auto x = gradient_of<float>(comm.rank(), 3, step + 100);
      plan(std::span<float>{x});
    }
    if (comm.rank() == 1) other = plan.save();
  });
  expect_all(ending_of_load(
                 3, [&](auto& plan, int rank) { plan.load(rank == 1 ? other : saved[static_cast<std::size_t>(rank)]); },
                 reused, lively),
             errc::mismatch, "on rank 1: load: saved by another run");
}

TEST_CASE("loading nothing at all is an error") {
  expect_all(ending_of_load(2, [](auto& plan, int) { plan.load(std::vector<bytes_t>{}); }), errc::bad_argument,
             "no rank was given any saved bytes");
}

TEST_CASE("truncated bytes are refused at every length") {
  auto const saved = saved_after(1, half, reused, lively);
  topsum::local::run(1, [&](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, shapes, reused, lively);
    std::size_t refused = 0;
    for (std::size_t size = 0; size < saved[0].size(); ++size) {
      bytes_t cut(saved[0].begin(), saved[0].begin() + static_cast<std::ptrdiff_t>(size));
      refused += test::ending_of([&] { plan.load(cut); }).code == errc::bad_argument ? 1U : 0U;
      if (size % 8 != 0 || size < 16) continue;
      seal(cut);
      auto const e = test::ending_of([&] { plan.load(cut); });
      CHECK_MESSAGE((e.code == errc::bad_argument || e.code == errc::mismatch), e.what);
    }
    CHECK(refused == saved[0].size());
    plan.load(saved[0]);
  });
}

TEST_CASE("a flipped bit is noticed, wherever it is") {
  auto const saved = saved_after(1, half, reused, lively);
  topsum::local::run(1, [&](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, shapes, reused, lively);
    std::size_t refused = 0;
    for (std::size_t at = 0; at < saved[0].size(); ++at) {
      auto bytes = saved[0];
      bytes[at] ^= static_cast<std::byte>(1U << (at % 8));
      refused += test::ending_of([&] { plan.load(bytes); }).code == errc::bad_argument ? 1U : 0U;
    }
    CHECK(refused == saved[0].size());
  });
}

TEST_CASE("bytes that were changed on purpose, with a right checksum, never crash the load or the steps after it") {
  auto const saved = saved_after(2, half, reused, lively);
  std::size_t loads = 0;
  for (std::size_t at = 0; at + 8 < saved[0].size(); ++at) {
    // Head, descriptions and states have many bytes that matter, the residual one in eight.
    bool const in_residual = at > 250 && at + 250 < saved[0].size();
    if (in_residual && at % 8 != 3) continue;
    for (std::byte const flip : {std::byte{1}, std::byte{0x80}, std::byte{0xff}}) {
      auto bytes = saved;
      for (auto& one : bytes) {  // on both ranks, so that the step's checks are reached
        one[at] ^= flip;
        seal(one);
      }
      auto const all = test::endings(2, [&](comm_t& comm) {
        auto plan = plan_allreduce<float>(comm, shapes, reused, lively);
        plan.load(bytes[static_cast<std::size_t>(comm.rank())]);
        for (int step = 0; step < 2; ++step) {
          auto x = gradient_of<float>(comm.rank(), 2, plan.step());
          plan(std::span<float>{x});
        }
      });
      CHECK(all[0].code == all[1].code);
      loads += all[0].code == errc::none ? 1U : 0U;
    }
  }
  CHECK(loads > 10);
}

TEST_CASE("a residual that holds NaN or infinity is refused") {
  auto const saved = saved_after(1, half, exact, topsum::gather_all{});
  topsum::local::run(1, [&](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, shapes, exact, topsum::gather_all{});
    auto bytes = saved[0];
    plan.load(bytes);
    std::vector<float> const residual(plan.residual().begin(), plan.residual().end());
    auto const where = std::search(bytes.begin(), bytes.end(), std::as_bytes(std::span{residual}).begin(),
                                   std::as_bytes(std::span{residual}).end());
    if (where == bytes.end()) throw std::logic_error{"the residual is there as it is"};
    std::uint32_t const infinity = 0xff800000;
    std::memcpy(bytes.data() + (where - bytes.begin()) + 4 * 17, &infinity, 4);
    seal(bytes);
    auto const e = test::ending_of([&] { plan.load(bytes); });
    CHECK(e.code == errc::bad_argument);
    CHECK_MESSAGE(e.says("\"residual\" holds NaN or infinity"), e.what);
  });
}

TEST_CASE("a plan that a fault left between two steps can neither be saved nor loaded") {
  auto const all = test::endings(2, [](comm_t& comm) {
    auto plan = plan_allreduce<float>(comm, shapes, exact);
    auto const saved = plan.save();
    if (comm.rank() == 1) return;
    auto x = gradient_of<float>(0, 2, 0);
    CHECK(test::ending_of([&] { plan(std::span<float>{x}); }).code == errc::transport);
    CHECK(test::ending_of([&] { static_cast<void>(plan.save()); }).code == errc::broken_plan);
    auto const e = test::ending_of([&] { plan.load(saved); });
    CHECK_MESSAGE((e.code == errc::broken_plan || e.code == errc::transport), e.what);
  });
  CHECK(all[0].code == errc::none);
}
