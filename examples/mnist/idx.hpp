// SPDX-License-Identifier: BSL-1.0
/// \file
/// The digits: MNIST's IDX files, packed with gzip, read into memory and checked.
#ifndef MNIST_IDX_HPP
#define MNIST_IDX_HPP

#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace mnist {

/// The number of classes: the digits 0 to 9.
inline constexpr std::size_t classes = 10;

/// Labelled images, one after the other; pixels lie in [0, 1].
struct digits {
  std::size_t width = 0;             ///< pixels in a row of an image
  std::size_t pixels = 0;            ///< of one image
  std::vector<float> images;         ///< `pixels * size()` values
  std::vector<std::uint8_t> labels;  ///< one an image, below `classes`

  [[nodiscard]] std::size_t size() const noexcept { return labels.size(); }
  [[nodiscard]] std::span<float const> image(std::size_t i) const {
    return std::span{images}.subspan(i * pixels, pixels);
  }
};

/// What a network learns from, and what it is judged by.
struct data_set {
  digits train;
  digits test;
};

/// An array of bytes with the extents that its IDX header gives.
struct idx_array {
  std::vector<std::size_t> extents;
  std::vector<std::uint8_t> values;  ///< as many as the product of the extents
};

/// The content of a gzip file (a file that is not packed comes as it is).
/// Throws std::runtime_error when it cannot be read, is cut short or damaged, or unpacks to more than `limit` bytes.
[[nodiscard]] inline std::vector<std::uint8_t> read_gzip(std::filesystem::path const& path,
                                                         std::size_t limit = std::size_t{1} << 28) {
  auto const fail = [&](std::string const& why) {
    return std::runtime_error{"cannot read '" + path.string() + "': " + why};
  };
  struct closer {
    void operator()(gzFile_s* file) const noexcept { gzclose_r(file); }
  };
  std::unique_ptr<gzFile_s, closer> const file{gzopen(path.string().c_str(), "rb")};
  if (!file) throw fail("no such file, or no permission to open it");

  std::vector<std::uint8_t> content;
  constexpr unsigned chunk = 1u << 16;
  for (;;) {
    auto const old_size = content.size();
    content.resize(old_size + chunk);
    int const count = gzread(file.get(), content.data() + old_size, chunk);
    int status = Z_OK;
    char const* const message = gzerror(file.get(), &status);
    if (status == Z_BUF_ERROR) throw fail("it is cut short");
    if (count < 0 || status != Z_OK) throw fail(status == Z_ERRNO ? "the system refuses to read it" : message);
    content.resize(old_size + static_cast<std::size_t>(count));
    if (content.size() > limit) throw fail("it unpacks to more than " + std::to_string(limit) + " bytes");
    if (count == 0) return content;
  }
}

/// Takes an IDX file of unsigned bytes apart; `name` is for messages.
/// Throws std::runtime_error unless its size is exactly what its header says.
[[nodiscard]] inline idx_array parse_idx(std::span<std::uint8_t const> content, std::string const& name) {
  auto const fail = [&](std::string const& why) {
    return std::runtime_error{"'" + name + "' is not a usable IDX file: " + why};
  };
  if (content.size() < 4) throw fail("it has " + std::to_string(content.size()) + " bytes, too few for a header");
  if (content[0] != 0 || content[1] != 0) throw fail("it does not begin with two zero bytes");
  if (content[2] != 0x08) throw fail("its values are not unsigned bytes (type code 8)");
  std::size_t const rank = content[3];
  std::size_t const header = 4 + 4 * rank;
  if (rank == 0) throw fail("it has no extents");
  if (content.size() < header) throw fail("its header is cut short");

  idx_array array;
  std::size_t const available = content.size() - header;
  std::size_t total = 1;
  for (std::size_t at = 4; at < header; at += 4) {
    std::size_t extent = 0;
    for (std::uint8_t const byte : content.subspan(at, 4)) extent = extent << 8 | byte;
    array.extents.push_back(extent);
    if (extent != 0 && total > available / extent) throw fail("its header promises more bytes than follow");
    total *= extent;
  }
  if (total != available) {
    throw fail("its header promises " + std::to_string(total) + " bytes, but " + std::to_string(available) + " follow");
  }
  auto const values = content.subspan(header);
  array.values.assign(values.begin(), values.end());
  return array;
}

/// Joins images and labels. Throws std::runtime_error when they do not fit each other.
[[nodiscard]] inline digits join(idx_array const& images, idx_array const& labels) {
  if (images.extents.size() != 3) throw std::runtime_error{"the images must have three extents: count, height, width"};
  if (labels.extents.size() != 1) throw std::runtime_error{"the labels must have one extent: count"};
  if (images.extents[1] == 0 || images.extents[2] == 0) throw std::runtime_error{"the images have no pixels"};
  if (images.extents[0] != labels.extents[0]) {
    throw std::runtime_error{"there are " + std::to_string(images.extents[0]) + " images, but " +
                             std::to_string(labels.extents[0]) + " labels"};
  }
  if (std::ranges::any_of(labels.values, [](std::uint8_t label) { return label >= classes; })) {
    throw std::runtime_error{"a label is not one of the digits 0 to 9"};
  }
  digits joined;
  joined.width = images.extents[2];
  joined.pixels = images.extents[1] * images.extents[2];
  joined.labels = labels.values;
  joined.images.resize(images.values.size());
  std::ranges::transform(images.values, joined.images.begin(),
                         [](std::uint8_t pixel) { return static_cast<float>(pixel) / 255.0f; });
  return joined;
}

/// Splits: the last `test_size` digits test, all before them train. Throws std::runtime_error when none is left to train.
[[nodiscard]] inline data_set split(digits all, std::size_t test_size) {
  if (all.size() <= test_size) {
    throw std::runtime_error{"there are " + std::to_string(all.size()) + " digits, but more than " +
                             std::to_string(test_size) + " are needed"};
  }
  std::size_t const train_size = all.size() - test_size;
  auto const cut_images = all.images.begin() + static_cast<std::ptrdiff_t>(train_size * all.pixels);
  auto const cut_labels = all.labels.begin() + static_cast<std::ptrdiff_t>(train_size);
  digits test{all.width, all.pixels, {cut_images, all.images.end()}, {cut_labels, all.labels.end()}};
  all.images.erase(cut_images, all.images.end());
  all.labels.erase(cut_labels, all.labels.end());
  return {std::move(all), std::move(test)};
}

/// The subset under `examples/data`: 9000 digits to train, 1000 to test.
/// Throws std::runtime_error with what is wrong with which file.
[[nodiscard]] inline data_set read_data_set(std::filesystem::path const& folder) {
  auto const read = [&](char const* name) {
    auto const path = folder / name;
    return parse_idx(read_gzip(path), path.string());
  };
  auto const images = read("mnist10k-images-idx3-ubyte.gz");
  auto const labels = read("mnist10k-labels-idx1-ubyte.gz");
  return split(join(images, labels), 1000);
}

}  // namespace mnist

#endif  // MNIST_IDX_HPP
