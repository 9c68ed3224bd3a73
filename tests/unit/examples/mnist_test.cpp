// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "mnist/augment.hpp"
#include "mnist/convolutional_network.hpp"
#include "mnist/idx.hpp"
#include "mnist/optimizer.hpp"
#include "mnist/options.hpp"
#include "mnist/perceptron.hpp"
#include "mnist/random.hpp"
#include "mnist/sampler.hpp"
#include "mnist/table.hpp"
#include "mnist/train.hpp"

namespace {

using bytes = std::vector<std::uint8_t>;

/// The sentence that `action` throws as an `Error`; empty when it throws none.
template <class Error>
std::string complaint(std::function<void()> const& action) {
  try {
    action();
  } catch (Error const& error) {
    return error.what();
  }
  return {};
}

bool says(std::string const& text, std::string_view part) { return text.find(part) != std::string::npos; }

/// A folder of its own for one test, gone with it.
class scratch_folder {
 public:
  scratch_folder() {
    std::random_device entropy;
    path_ = std::filesystem::temp_directory_path() / ("mnist_test_" + std::to_string(entropy()));
    std::filesystem::create_directories(path_);
  }
  scratch_folder(scratch_folder const&) = delete;
  scratch_folder& operator=(scratch_folder const&) = delete;
  ~scratch_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] std::filesystem::path write(std::string const& name, bytes const& content) const {
    std::ofstream file{path_ / name, std::ios::binary};
    file.write(reinterpret_cast<char const*>(content.data()), static_cast<std::streamsize>(content.size()));
    return path_ / name;
  }

  [[nodiscard]] std::filesystem::path write_gzip(std::string const& name, bytes const& content) const {
    auto const path = path_ / name;
    gzFile const file = gzopen(path.string().c_str(), "wb");
    REQUIRE(file != nullptr);
    REQUIRE(gzwrite(file, content.data(), static_cast<unsigned>(content.size())) == static_cast<int>(content.size()));
    REQUIRE(gzclose(file) == Z_OK);
    return path;
  }

  [[nodiscard]] std::filesystem::path const& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

bytes read_file(std::filesystem::path const& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

/// An IDX file of unsigned bytes.
bytes idx(std::vector<std::uint32_t> const& extents, bytes const& values) {
  bytes content{0, 0, 0x08, static_cast<std::uint8_t>(extents.size())};
  for (std::uint32_t const extent : extents) {
    for (int shift = 24; shift >= 0; shift -= 8) content.push_back(static_cast<std::uint8_t>(extent >> shift));
  }
  content.insert(content.end(), values.begin(), values.end());
  return content;
}

bytes noise(std::size_t size) {
  std::mt19937_64 bits{7};
  bytes content(size);
  std::ranges::generate(content, [&] { return static_cast<std::uint8_t>(bits() >> 56); });
  return content;
}

/// Random images, about half of their pixels zero as in the real ones.
mnist::digits random_digits(std::size_t count, std::size_t pixels, std::uint64_t seed) {
  std::mt19937_64 bits{seed};
  mnist::digits made{pixels, pixels, std::vector<float>(count * pixels), std::vector<std::uint8_t>(count)};
  for (float& pixel : made.images) pixel = std::max(0.0f, 2 * mnist::uniform(bits) - 1);
  for (auto& label : made.labels) label = static_cast<std::uint8_t>(bits() % mnist::classes);
  return made;
}

mnist::options parse(std::vector<char const*> const& arguments) { return mnist::parse_options(arguments); }

std::string option_complaint(std::vector<char const*> const& arguments) {
  return complaint<mnist::option_error>([&] { static_cast<void>(parse(arguments)); });
}

}  // namespace

TEST_SUITE("mnist idx") {
  TEST_CASE("a gzip file comes back as it was written, over several chunks") {
    scratch_folder const folder;
    for (std::size_t const size : {0u, 1u, 65535u, 65536u, 65537u, 300000u}) {
      CAPTURE(size);
      auto const content = noise(size);
      CHECK(mnist::read_gzip(folder.write_gzip("packed.gz", content)) == content);
    }
    CHECK(mnist::read_gzip(folder.write("plain", {'p', 'l', 'a', 'i', 'n'})) == bytes{'p', 'l', 'a', 'i', 'n'});
  }

  TEST_CASE("a gzip file that is missing, cut short, damaged or too big is refused") {
    scratch_folder const folder;
    auto const refusal = [](std::filesystem::path const& path, std::size_t limit = 1u << 20) {
      return complaint<std::runtime_error>([&] { static_cast<void>(mnist::read_gzip(path, limit)); });
    };
    CHECK(says(refusal(folder.path() / "absent.gz"), "absent.gz': no such file"));
    CHECK(refusal(folder.path()) != "");

    auto const whole = read_file(folder.write_gzip("whole.gz", noise(5000)));
    for (std::size_t cut = 3; cut < whole.size(); cut += 17) {
      CAPTURE(cut);
      bytes const part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(cut));
      CHECK(says(refusal(folder.write("cut.gz", part)), "cut short"));
    }
    auto damaged = whole;
    damaged[whole.size() / 2] ^= 0x10;
    CHECK(refusal(folder.write("damaged.gz", damaged)) != "");
    CHECK(says(refusal(folder.write_gzip("big.gz", bytes(100001)), 100000), "more than 100000 bytes"));
    CHECK(refusal(folder.write_gzip("fits.gz", bytes(100000)), 100000) == "");
  }

  TEST_CASE("an IDX file is taken apart") {
    auto const array = mnist::parse_idx(idx({2, 1, 3}, {1, 2, 3, 4, 5, 6}), "six");
    CHECK(array.extents == std::vector<std::size_t>{2, 1, 3});
    CHECK(array.values == bytes{1, 2, 3, 4, 5, 6});
    CHECK(mnist::parse_idx(idx({0, 28, 28}, {}), "empty").values.empty());
  }

  TEST_CASE("an IDX file that lies about itself is refused") {
    auto const refusal = [](bytes const& content) {
      return complaint<std::runtime_error>([&] { static_cast<void>(mnist::parse_idx(content, "bad.idx")); });
    };
    CHECK(says(refusal({}), "'bad.idx' is not a usable IDX file: it has 0 bytes"));
    CHECK(says(refusal({'P', 'K', 3, 4, 5}), "two zero bytes"));
    CHECK(says(refusal({0, 0, 0x0d, 1, 0, 0, 0, 0}), "unsigned bytes"));
    CHECK(says(refusal({0, 0, 8, 0}), "no extents"));
    CHECK(says(refusal({0, 0, 8, 2, 0, 0, 0, 1}), "header is cut short"));
    CHECK(says(refusal(idx({5}, {1, 2, 3, 4})), "more bytes than follow"));
    CHECK(says(refusal(idx({3}, {1, 2, 3, 4})), "promises 3 bytes, but 4 follow"));
    CHECK(says(refusal(idx({0}, {1})), "promises 0 bytes, but 1 follow"));
    CHECK(says(refusal(idx({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {1, 2})), "more bytes than follow"));

    auto const garbage = noise(4096);
    for (std::size_t size = 0; size < garbage.size(); size += 111) {
      bytes content(garbage.begin(), garbage.begin() + static_cast<std::ptrdiff_t>(size));
      CHECK(refusal(content) != "");
      if (size < 4) continue;
      std::ranges::copy(bytes{0, 0, 8}, content.begin());
      CHECK(refusal(content) != "");
    }
  }

  TEST_CASE("images and labels must fit each other") {
    auto const refusal = [](bytes const& images, bytes const& labels) {
      return complaint<std::runtime_error>([&] {
        static_cast<void>(mnist::join(mnist::parse_idx(images, "images"), mnist::parse_idx(labels, "labels")));
      });
    };
    CHECK(refusal(idx({2, 1, 2}, {0, 51, 102, 255}), idx({2}, {9, 0})) == "");
    CHECK(says(refusal(idx({2, 2}, {0, 51, 102, 255}), idx({2}, {9, 0})), "three extents"));
    CHECK(says(refusal(idx({2, 1, 2}, {0, 51, 102, 255}), idx({2, 1}, {9, 0})), "one extent"));
    CHECK(says(refusal(idx({2, 1, 2}, {0, 51, 102, 255}), idx({1}, {9})), "2 images, but 1 labels"));
    CHECK(says(refusal(idx({2, 1, 2}, {0, 51, 102, 255}), idx({2}, {9, 10})), "not one of the digits"));
  }

  TEST_CASE("pixels lie in [0, 1] and the last digits test") {
    auto const joined = mnist::join(mnist::parse_idx(idx({3, 1, 2}, {0, 51, 102, 255, 0, 255}), "images"),
                                    mnist::parse_idx(idx({3}, {3, 4, 5}), "labels"));
    CHECK(joined.images == std::vector<float>{0.0f, 0.2f, 0.4f, 1.0f, 0.0f, 1.0f});
    auto const parts = mnist::split(joined, 1);
    CHECK(parts.train.labels == bytes{3, 4});
    CHECK(parts.train.images == std::vector<float>{0.0f, 0.2f, 0.4f, 1.0f});
    CHECK(parts.test.labels == bytes{5});
    CHECK(parts.test.image(0)[1] == 1.0f);
    CHECK(complaint<std::runtime_error>([&] { static_cast<void>(mnist::split(joined, 3)); }) ==
          "there are 3 digits, but more than 3 are needed");
  }

  TEST_CASE("a folder without the files is refused with the file's name") {
    scratch_folder const folder;
    auto const text = complaint<std::runtime_error>([&] { static_cast<void>(mnist::read_data_set(folder.path())); });
    CHECK(says(text, "mnist10k-images-idx3-ubyte.gz"));
  }
}

TEST_SUITE("mnist network") {
  TEST_CASE("tensors describe the flat vectors") {
    mnist::multilayer_perceptron model{1};
    auto const tensors = model.tensors();
    REQUIRE(tensors.size() == 4);
    CHECK(tensors[0].name == "linear1.weight");
    CHECK(tensors[0].extents == std::vector<std::int64_t>{784, 256});
    CHECK(tensors[3].name == "linear2.bias");
    std::int64_t n = 0;
    for (auto const& tensor : tensors) {
      n += std::accumulate(tensor.extents.begin(), tensor.extents.end(), std::int64_t{1}, std::multiplies{});
    }
    CHECK(n == 203530);
    CHECK(model.parameters().size() == 203530);
    CHECK(model.gradient().size() == 203530);
    CHECK_THROWS_AS(mnist::multilayer_perceptron(1, {784}), std::invalid_argument);
    CHECK_THROWS_AS(mnist::multilayer_perceptron(1, {784, 0, 10}), std::invalid_argument);
  }

  TEST_CASE("the seed alone decides the start") {
    mnist::multilayer_perceptron first{5};
    mnist::multilayer_perceptron again{5};
    mnist::multilayer_perceptron other{6};
    CHECK(std::ranges::equal(first.parameters(), again.parameters()));
    CHECK_FALSE(std::ranges::equal(first.parameters(), other.parameters()));
  }

  TEST_CASE("the gradient is the slope of the loss") {
    auto const batch = random_digits(4, 20, 3);
    mnist::multilayer_perceptron model{11, {20, 17, 9, mnist::classes}};
    auto const parameters = model.parameters();
    std::mt19937_64 bits{1};
    for (float& value : parameters) value += 0.1f * (mnist::uniform(bits) - 0.5f);  // no bias is zero any more
    model.loss_and_gradient(batch);
    std::vector<float> const gradient(model.gradient().begin(), model.gradient().end());

    constexpr float step = 1e-3f;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      float const kept = parameters[i];
      parameters[i] = kept + step;
      double const above = model.loss_and_gradient(batch);
      parameters[i] = kept - step;
      double const below = model.loss_and_gradient(batch);
      parameters[i] = kept;
      CAPTURE(i);
      CHECK(std::abs(double{gradient[i]} - (above - below) / (2 * double{step})) < 1e-3);
    }
  }

  TEST_CASE("tensors of the convolutional network have the shapes that frameworks give them") {
    mnist::convolutional_network model{1};
    auto const tensors = model.tensors();
    REQUIRE(tensors.size() == 8);
    CHECK(tensors[2].name == "conv2.weight");
    CHECK(tensors[2].extents == std::vector<std::int64_t>{32, 16, 3, 3});
    CHECK(tensors[4].extents == std::vector<std::int64_t>{64, 800});
    std::int64_t n = 0;
    for (auto const& tensor : tensors)
      n += std::accumulate(tensor.extents.begin(), tensor.extents.end(), std::int64_t{1}, std::multiplies{});
    CHECK(n == 56970);
    CHECK(model.parameters().size() == 56970);
    CHECK_THROWS_AS(mnist::convolutional_network(1, {.side = 6}), std::invalid_argument);
    CHECK_THROWS_AS(mnist::convolutional_network(1, {.kernel1 = 0}), std::invalid_argument);
    CHECK_THROWS_AS(mnist::convolutional_network(1, {.hidden = 0}), std::invalid_argument);
  }

  TEST_CASE("a convolution's results are those of the textbook's sum") {
    // One window of the whole image: hidden layers aside, the first convolution alone decides which weights get a gradient.
    mnist::convolutional_shape const shape{
        .side = 9, .kernel1 = 2, .channels1 = 3, .kernel2 = 2, .channels2 = 4, .hidden = 5};
    auto const batch = random_digits(4, 81, 3);
    mnist::convolutional_network model{11, shape};
    auto const parameters = model.parameters();
    std::mt19937_64 bits{1};
    for (float& value : parameters) value += 0.1f * (mnist::uniform(bits) - 0.3f);
    model.loss_and_gradient(batch);
    std::vector<float> const gradient(model.gradient().begin(), model.gradient().end());
    std::size_t nonzero = 0;
    constexpr float step = 1e-3f;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      float const kept = parameters[i];
      parameters[i] = kept + step;
      double const above = model.loss_and_gradient(batch);
      parameters[i] = kept - step;
      double const below = model.loss_and_gradient(batch);
      parameters[i] = kept;
      CAPTURE(i);
      CHECK(std::abs(double{gradient[i]} - (above - below) / (2 * double{step})) < 3e-3);
      nonzero += gradient[i] != 0 ? 1U : 0U;
    }
    CHECK(nonzero > parameters.size() / 2);
  }

  TEST_CASE("the convolutional network's loss is that of plain loops over PyTorch's layout") {
    mnist::convolutional_shape const shape{
        .side = 10, .kernel1 = 3, .channels1 = 2, .kernel2 = 2, .channels2 = 3, .hidden = 4};
    auto const batch = random_digits(3, 100, 8);
    mnist::convolutional_network model{7, shape};
    float const* p = model.parameters().data();
    // An image is [channel][y][x] here.
    auto const convolve = [&p](std::vector<float> const& image, std::size_t in, std::size_t side, std::size_t out,
                               std::size_t kernel) {
      std::size_t const wide = side - kernel + 1;
      std::size_t const pooled = wide / 2;
      float const* const bias = p + out * in * kernel * kernel;
      std::vector<float> result(out * pooled * pooled);
      for (std::size_t o = 0; o < out; ++o) {
        for (std::size_t y = 0; y < 2 * pooled; ++y) {
          for (std::size_t x = 0; x < 2 * pooled; ++x) {
            float sum = bias[o];
            for (std::size_t c = 0; c < in; ++c) {
              for (std::size_t ky = 0; ky < kernel; ++ky) {
                for (std::size_t kx = 0; kx < kernel; ++kx)
                  sum += p[((o * in + c) * kernel + ky) * kernel + kx] * image[(c * side + y + ky) * side + x + kx];
              }
            }
            float& most = result[(o * pooled + y / 2) * pooled + x / 2];
            most = std::max(most, sum);
          }
        }
      }
      p = bias + out;
      return result;
    };
    double loss = 0;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      p = model.parameters().data();
      std::vector<float> const image(batch.image(i).begin(), batch.image(i).end());
      auto const first = convolve(image, 1, 10, 2, 3);
      auto const second = convolve(first, 2, 4, 3, 2);
      REQUIRE(second.size() == 3);  // one place, so channels are the flat order
      std::vector<float> hidden(4);
      for (std::size_t h = 0; h < 4; ++h) {
        float sum = p[12 + h];
        for (std::size_t c = 0; c < 3; ++c) sum += p[h * 3 + c] * second[c];
        hidden[h] = std::max(sum, 0.0f);
      }
      p += 16;
      std::array<float, mnist::classes> scores{};
      for (std::size_t c = 0; c < scores.size(); ++c) {
        scores[c] = p[4 * scores.size() + c];
        for (std::size_t h = 0; h < 4; ++h) scores[c] += p[c * 4 + h] * hidden[h];
      }
      loss += mnist::softmax_cross_entropy(scores, batch.labels[i]) / 3;
    }
    CHECK(model.loss_and_gradient(batch) == doctest::Approx(loss).epsilon(1e-5));
  }

  TEST_CASE("the gradient of a batch is the mean of its parts'") {
    mnist::multilayer_perceptron model{2, {12, 11, mnist::classes}};
    auto const gradient_of = [&](mnist::digits const& batch) {
      model.loss_and_gradient(batch);
      return std::vector<float>(model.gradient().begin(), model.gradient().end());
    };
    auto const parts = mnist::split(random_digits(4, 12, 8), 2);
    auto const left = gradient_of(parts.train);
    auto const right = gradient_of(parts.test);
    auto const both = gradient_of(random_digits(4, 12, 8));
    for (std::size_t i = 0; i < both.size(); ++i) CHECK(both[i] == doctest::Approx((left[i] + right[i]) / 2));
  }

  TEST_CASE("huge scores give a finite loss") {
    std::array<float, 3> scores{1e30f, -1e30f, 0.0f};
    CHECK(mnist::softmax_cross_entropy(scores, 0) == 0.0);
    CHECK(scores == std::array<float, 3>{0.0f, 0.0f, 0.0f});
  }

  TEST_CASE("dot agrees with the plain sum at every length") {
    for (std::size_t size = 0; size < 40; ++size) {
      std::vector<float> a(size);
      std::iota(a.begin(), a.end(), 1.0f);
      CHECK(mnist::dot(a, a.data()) == std::inner_product(a.begin(), a.end(), a.begin(), 0.0f));
    }
  }
}

TEST_SUITE("mnist augmentation") {
  TEST_CASE("an image moves by one pixel, and nothing wraps around") {
    std::vector<float> const image{1, 2, 3, 4, 5, 6};
    auto const moved = [&](mnist::direction where) {
      std::vector<float> result(6, 9.0f);
      mnist::move_image(image, 3, where, result);
      return result;
    };
    CHECK(moved(mnist::direction::stay) == image);
    CHECK(moved(mnist::direction::left) == std::vector<float>{2, 3, 0, 5, 6, 0});
    CHECK(moved(mnist::direction::right) == std::vector<float>{0, 1, 2, 0, 4, 5});
    CHECK(moved(mnist::direction::up) == std::vector<float>{4, 5, 6, 0, 0, 0});
    CHECK(moved(mnist::direction::down) == std::vector<float>{0, 0, 0, 1, 2, 3});
  }

  TEST_CASE("a batch follows from the seed and keeps its labels") {
    auto const all = random_digits(20, 30, 4);
    std::vector<std::size_t> const chosen{3, 19, 3, 0, 7, 12};
    mnist::digits batch, again, other;
    mnist::gather_moved(all, chosen, 1, batch);
    mnist::gather_moved(all, chosen, 1, again);
    mnist::gather_moved(all, chosen, 2, other);
    CHECK(batch.size() == 6);
    CHECK(batch.labels ==
          bytes{all.labels[3], all.labels[19], all.labels[3], all.labels[0], all.labels[7], all.labels[12]});
    CHECK(batch.images == again.images);
    CHECK(std::ranges::equal(batch.image(0), batch.image(2)));
    CHECK(batch.images != other.images);
  }
}

TEST_SUITE("mnist optimizer") {
  TEST_CASE("the rate warms up, then falls to zero") {
    mnist::rate_schedule const rate{.peak = 0.5, .warm_up_steps = 4, .total_steps = 24};
    CHECK(rate(0) == doctest::Approx(0.125));
    CHECK(rate(3) == doctest::Approx(0.5));
    CHECK(rate(4) == doctest::Approx(0.5));
    CHECK(rate(14) == doctest::Approx(0.25));
    CHECK(rate(23) > 0);
    CHECK(rate(24) == 0);
    CHECK(mnist::rate_schedule{.peak = 1, .warm_up_steps = 0, .total_steps = 0}(0) == 0);
  }

  TEST_CASE("one rank descends alike with momentum before and after its reduction") {
    mnist::rate_schedule const rate{.peak = 0.1, .warm_up_steps = 2, .total_steps = 10};
    mnist::optimizer before{2, mnist::momentum_place::local, 0.5, rate};
    mnist::optimizer after{2, mnist::momentum_place::global, 0.5, rate};
    mnist::optimizer none{2, mnist::momentum_place::none, 0.5, rate};
    std::vector<float> a(2), b(2), c(2);
    for (float const slope : {1.0f, -2.0f, 4.0f}) {
      for (auto& [descent, parameters] : {std::pair{&before, &a}, std::pair{&after, &b}, std::pair{&none, &c}}) {
        std::vector<float> gradient{slope, 2 * slope};
        descent->before_reduction(gradient);
        descent->apply(*parameters, gradient);
      }
    }
    CHECK(a == b);
    CHECK(a[0] == doctest::Approx(-0.05 * 1 + 0.1 * 1.5 - 0.1 * 3.25));
    CHECK(c[0] == doctest::Approx(-0.05 * 1 + 0.1 * 2 - 0.1 * rate(2) / 0.1 * 4));
    CHECK(a[1] == doctest::Approx(2 * a[0]));
  }
}

TEST_SUITE("mnist sampler") {
  TEST_CASE("the ranks' shares of an epoch are disjoint, and as large as batches allow") {
    constexpr int ranks = 3;
    constexpr std::size_t examples = 100;
    std::vector<int> times(examples);
    for (int rank = 0; rank < ranks; ++rank) {
      mnist::sampler batches{examples, 8, rank, ranks, 9};
      REQUIRE(batches.steps_per_epoch() == 4);
      for (std::size_t step = 0; step < 4; ++step) {
        for (std::size_t const example : batches(step)) ++times.at(example);
      }
    }
    CHECK(*std::ranges::max_element(times) == 1);
    CHECK(std::accumulate(times.begin(), times.end(), 0) == 96);
  }

  TEST_CASE("an epoch's order follows from seed and epoch alone") {
    auto const order = [](std::uint64_t seed, std::uint64_t epoch, bool detour) {
      mnist::sampler batches{50, 50, 0, 1, seed};
      if (detour) batches.start_epoch(17);
      batches.start_epoch(epoch);
      auto const all = batches(0);
      return std::vector<std::size_t>(all.begin(), all.end());
    };
    CHECK(order(1, 3, false) == order(1, 3, true));
    CHECK(order(1, 3, false) != order(1, 4, false));
    CHECK(order(1, 3, false) != order(2, 3, false));
  }

  TEST_CASE("batches that do not fit are refused") {
    auto const refusal = complaint<std::runtime_error>([] { mnist::sampler{100, 26, 0, 4, 1}; });
    CHECK(refusal == "4 ranks with a batch of 26 each do not fit 100 training examples");
    CHECK_NOTHROW(mnist::sampler{100, 25, 3, 4, 1});
    CHECK_THROWS_AS((mnist::sampler{100, 0, 0, 4, 1}), std::runtime_error);
  }
}

TEST_SUITE("mnist options") {
  TEST_CASE("every option is understood, in both spellings") {
    auto const chosen = parse({"--exchange", "gather_all", "--policy=layer_wise", "--rule", "top_k", "--density=0.25",
                               "--momentum", "0", "--momentum-where=none", "--rate", "1e-2", "--epochs=3", "--batch",
                               "7", "--seed", "18446744073709551615", "--data=some=where", "--compare"});
    CHECK(chosen.exchange == mnist::exchange_kind::gather_all);
    CHECK(chosen.policy == mnist::policy_kind::layer_wise);
    CHECK(chosen.rule == mnist::rule_kind::top_k);
    CHECK(chosen.density == 0.25);
    CHECK(chosen.momentum == 0);
    CHECK(mnist::momentum_of(chosen) == mnist::momentum_place::none);
    CHECK(chosen.rate == 1e-2);
    CHECK(chosen.epochs == 3);
    CHECK(chosen.batch == 7);
    CHECK(chosen.seed == ~std::uint64_t{0});
    CHECK(chosen.data == "some=where");
    CHECK(chosen.compare);
    CHECK_FALSE(chosen.help);
    CHECK(parse({"--help"}).help);
    CHECK(parse({"--seed", "1", "--seed", "2"}).seed == 2);
  }

  TEST_CASE("what is not said takes its default") {
    CHECK(mnist::momentum_of(parse({"--exchange", "dense"})) == mnist::momentum_place::global);
    CHECK(mnist::momentum_of(parse({"--exchange", "ok_topk"})) == mnist::momentum_place::local);
    mnist::options given;
    given.data = "elsewhere";
    CHECK(mnist::parse_options({}, given).data == "elsewhere");
  }

  TEST_CASE("a wrong option gets a clear message") {
    CHECK(option_complaint({"--densty", "1"}) == "there is no option '--densty'; --help lists all");
    CHECK(option_complaint({"train"}) == "there is no option 'train'; --help lists all");
    CHECK(option_complaint({"--compare=yes"}) == "there is no option '--compare=yes'; --help lists all");
    CHECK(option_complaint({""}) == "there is no option ''; --help lists all");
    CHECK(option_complaint({"--epochs"}) == "--epochs needs a value; --help says which");
    CHECK(option_complaint({"--exchange", "fast"}) ==
          "--exchange must be one of dense, gather_all, interleaved_quota, ok_topk, not 'fast'");
    CHECK(option_complaint({"--policy="}) ==
          "--policy must be one of global, layer_wise, all_dimension, adtopk, not ''");
    CHECK(option_complaint({"--data="}) == "--data must be a folder, not ''");
    for (char const* const value : {"0", "-0.1", "1.01", "nan", "inf", "1%", "", " 0.1", "0,1", "1e999"}) {
      CAPTURE(value);
      CHECK(says(option_complaint({"--density", value}), "--density must be a number above 0 and at most 1"));
    }
    for (char const* const value : {"1", "-0.1", "nan", "x"}) {
      CHECK(says(option_complaint({"--momentum", value}), "--momentum must be a number from 0 to below 1"));
    }
    for (char const* const value : {"0", "-1", "inf", "nan"}) {
      CHECK(says(option_complaint({"--rate", value}), "--rate must be a positive number"));
    }
    for (char const* const value : {"0", "-1", "1.5", "99999999999999999999", "+1"}) {
      CHECK(says(option_complaint({"--epochs", value}), "--epochs must be a count from 1"));
      CHECK(says(option_complaint({"--batch", value}), "--batch must be a count from 1"));
    }
    CHECK(says(option_complaint({"--seed", "-1"}), "--seed must be a whole number"));
    CHECK(mnist::option_error::exit_code == 2);
  }

  TEST_CASE("the help names every option") {
    for (auto const& known : mnist::detail::valued_options) CHECK(says(std::string{mnist::usage}, known.name));
    CHECK(says(std::string{mnist::usage}, "--compare"));
  }

  TEST_CASE("policies that promise something by row go with the exchange that keeps it") {
    CHECK(says(option_complaint({"--policy", "all_dimension"}), "under --exchange gather_all only"));
    CHECK(says(option_complaint({"--policy=adtopk", "--exchange=interleaved_quota"}), "--policy adtopk"));
    CHECK(says(option_complaint({"--policy=layer_wise", "--exchange=interleaved_quota"}), "--policy global"));
    CHECK(parse({"--policy", "adtopk", "--exchange", "gather_all", "--network", "convolutional"}).network ==
          mnist::network_kind::convolutional);
  }

  TEST_CASE("a comparison is three trainings") {
    auto const runs = mnist::runs_of(parse({"--compare", "--epochs=2"}));
    REQUIRE(runs.size() == 3);
    CHECK(runs[0].name == "dense");
    CHECK(runs[1].name == "ok_topk, global");
    CHECK(runs[2].name == "ok_topk, layer_wise");
    CHECK(runs[2].chosen.policy == mnist::policy_kind::layer_wise);
    CHECK(runs[2].chosen.epochs == 2);
    CHECK(mnist::momentum_of(runs[0].chosen) == mnist::momentum_place::global);
    CHECK(mnist::momentum_of(runs[1].chosen) == mnist::momentum_place::local);
    CHECK(mnist::runs_of(parse({"--exchange=gather_all"})).size() == 1);
  }
}

TEST_SUITE("mnist training") {
  TEST_CASE("a small network learns, and the result adds up") {
    mnist::data_set const data{random_digits(64, 30, 1), random_digits(64, 30, 1)};  // tests what it was taught
    auto const chosen = parse({"--exchange=dense", "--epochs=60", "--batch=16", "--rate=0.1"});
    mnist::multilayer_perceptron model{1, {30, 40, mnist::classes}};
    std::vector<std::string> lines;
    auto const result = mnist::train(
        model, data, chosen, 0, 1,
        [](std::span<float>) { return mnist::reduction_cost{.wire_bytes = 100, .select_seconds = 2}; },
        [&](std::string_view line) { lines.emplace_back(line); });
    CHECK(result.accuracy > 0.5);  // of ten classes, from noise that moves about
    CHECK(result.loss < 2.0);
    CHECK(result.steps == 240);
    CHECK(result.parameters == model.parameters().size());
    CHECK(result.wire_bytes == doctest::Approx(100));
    CHECK(result.select_seconds == doctest::Approx(2));
    CHECK(result.exchange_seconds == 0);
    REQUIRE(lines.size() == 60);
    CHECK(says(lines[8], "epoch   9 of 60"));

    mnist::multilayer_perceptron other{1, {30, 40, mnist::classes}};
    auto const quiet = [](std::string_view) { FAIL("only rank 0 prints"); };
    auto const nothing = [](std::span<float>) { return mnist::reduction_cost{}; };
    CHECK(mnist::train(other, data, chosen, 1, 2, nothing, quiet).steps == 120);
  }

  TEST_CASE("the table") {
    CHECK(mnist::spaced(0) == "0");
    CHECK(mnist::spaced(999) == "999");
    CHECK(mnist::spaced(1000) == "1 000");
    CHECK(mnist::spaced(1234567.4) == "1 234 567");
    CHECK(mnist::dense_wire_bytes(1000, 4) == 6000);
    CHECK(mnist::dense_wire_bytes(1000, 1) == 0);
    std::vector<mnist::table_row> const rows{
        {"dense", {.accuracy = 0.968, .parameters = 1000, .wire_bytes = 6000}},
        {"ok_topk, layer_wise", {.accuracy = 1, .parameters = 1000, .wire_bytes = 150, .select_seconds = 0.0125}}};
    auto const text = mnist::format_table(rows, 4);
    CHECK(std::ranges::count(text, '\n') == 4);
    CHECK(says(text, "dense                  96.8 %           6 000   100.0 %"));
    CHECK(says(text, "ok_topk, layer_wise   100.0 %             150     2.5 %     0.000   12.500"));
    CHECK(says(mnist::format_table(rows, 1), " -  "));
  }
}
