// SPDX-License-Identifier: BSL-1.0
// What coding a message costs on one core, in units of the loop `residual[i] += gradient[i]` over the n values that its entries
// were selected from.
//
//   bench/codec [--log2-n 24] [--repetitions 9] [--json]
//
// The entries are the 1 % and 0.1 % largest of Laplace-distributed values. A repetition times that loop, encodes all entries to one
// message and decodes it; the table shows the median of the sum of both over the loop's time in the same repetition, the medians of
// each in nanoseconds an entry, and the message's bits an entry.

#include "select_inputs.hpp"

#include <topsum/testing/inputs.hpp>
#include <topsum/topsum.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

namespace {

using topsum::host;
using list = topsum::entries<host, float, std::uint32_t>;

struct settings {
  int log2_n = 24;
  int repetitions = 9;
  bool json = false;
};

template <class Run>
double seconds(Run const& run) {
  auto const start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

class contest {
 public:
  contest(settings const& chosen, double density)
      : chosen_{chosen}, density_{density}, n_{std::size_t{1} << chosen.log2_n}, residual_(n_) {
    gradient_ = topsum::laws::make_input<float>(topsum::laws::input::laplace, n_, 1);
    topsum::global const policy{topsum::top_k{.density = density}};
    auto const pieces = policy.pieces(topsum::layout{n_});
    selected_ = list{backend_, topsum::total_capacity(pieces)};
    decoded_ = list{backend_, topsum::total_capacity(pieces)};
    topsum::nonfinite_record fault;
    topsum::source<host, float, topsum::plain_gradient<float>> const from{gradient_, {}, {}, {}, {&fault, 1}};
    std::vector<float> kth(1);
    backend_.select_top_k(from, std::span<topsum::piece const>{pieces}, selected_.view(),
                          topsum::host_span<float>{kth});
  }

  template <class K>
  void compare(std::string_view name, K const& codec) {
    std::size_t const count = selected_.view().count[0];
    std::vector<std::byte> message(codec.template bytes<float, std::uint32_t>(count, 0, n_));
    std::vector<double> total;
    std::vector<double> encoding;
    std::vector<double> decoding;
    for (int i = 0; i < chosen_.repetitions; ++i) {
      double floor = 1e9;
      for (bool const prefetch : {false, true})
        floor = std::min(floor, seconds([&] { bench::floor_loop<float>(residual_, gradient_, prefetch); }));
      double const encode = seconds([&] {
        codec.encode(backend_, topsum::run_of(selected_.view(), 0, count), 0, n_,
                     topsum::host_span<std::byte>{message});
      });
      double const decode = seconds([&] {
        codec.decode(backend_, topsum::host_span<std::byte const>{message}, count, 0, n_, decoded_.view(),
                     topsum::host_span<std::uint32_t>{&fault_, 1});
      });
      total.push_back((encode + decode) / floor);
      encoding.push_back(1e9 * encode / static_cast<double>(count));
      decoding.push_back(1e9 * decode / static_cast<double>(count));
    }
    double const bits = 8 * static_cast<double>(message.size()) / static_cast<double>(count);
    if (chosen_.json) {
      std::printf(
          "{\"name\": \"%.*s\", \"n\": %zu, \"density\": %g, \"value_type\": \"float\", \"ratio_to_floor\": %.4f, "
          "\"encode_ns\": %.3f, \"decode_ns\": %.3f, \"bits_an_entry\": %.3f}\n",
          static_cast<int>(name.size()), name.data(), n_, density_, median(total), median(encoding), median(decoding),
          bits);
    } else {
      std::printf("%-20.*s %6.2f %% %9.3f %9.2f %9.2f %9.2f\n", static_cast<int>(name.size()), name.data(),
                  100 * density_, median(total), median(encoding), median(decoding), bits);
    }
  }

 private:
  settings chosen_;
  double density_;
  std::size_t n_;
  std::vector<float> residual_;
  std::vector<float> gradient_;
  host backend_;
  list selected_;
  list decoded_;
  std::uint32_t fault_ = 0;
};

settings read(int argc, char** argv) {
  settings s;
  for (int i = 1; i < argc; ++i) {
    std::string_view const a = argv[i];
    if (a == "--json") {
      s.json = true;
    } else if (i + 1 < argc && a == "--log2-n") {
      s.log2_n = std::clamp(std::atoi(argv[++i]), 10, 28);
    } else if (i + 1 < argc && a == "--repetitions") {
      s.repetitions = std::max(1, std::atoi(argv[++i]));
    } else {
      std::fprintf(stderr, "usage: bench/codec [--log2-n N] [--repetitions N] [--json]\n");
      std::exit(2);
    }
  }
  return s;
}

}  // namespace

int main(int argc, char** argv) {
  settings const s = read(argc, argv);
  if (!s.json) {
    std::printf("%-20s %8s %9s %9s %9s %9s\n", "", "density", "of floor", "encode", "decode", "bits");
    std::printf("%-20s %8s %9s %9s %9s %9s\n", "", "", "", "ns", "ns", "an entry");
  }
  using namespace topsum;
  for (double const density : {0.01, 0.001}) {
    contest c{s, density};
    c.compare("raw", raw{});
    c.compare("elias_fano_half", coded{elias_fano{}, as<half>{}});
    c.compare("elias_fano_bfloat16", coded{elias_fano{}, as<bfloat16>{}});
    c.compare("elias_fano", coded{elias_fano{}, as_is{}});
    c.compare("packed_half", coded{packed{}, as<half>{}});
    c.compare("bitmap_half", coded{bitmap{}, as<half>{}});
    c.compare("elias_fano_int8", coded{elias_fano{}, int8{}});
    c.compare("elias_fano_lookup2", coded{elias_fano{}, lookup<2>{}});
    c.compare("elias_fano_sign", coded{elias_fano{}, sign{}});
    c.compare("elias_fano_qsgd4", coded{elias_fano{}, qsgd<4>{}});
  }
}
