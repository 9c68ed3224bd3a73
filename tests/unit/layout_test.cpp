// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <topsum/layout.hpp>
#include <vector>

using topsum::layout;
using topsum::tensor;

namespace {

std::string defect(layout const& shapes) {
  try {
    shapes.validate();
    return "";
  } catch (topsum::error const& e) {
    CHECK(e.code() == topsum::errc::bad_argument);
    CHECK(shapes.size() == 0);
    return e.what();
  }
}

}  // namespace

TEST_CASE("a layout places its tensors one behind the other") {
  layout const shapes{{"w", {512, 784}}, {"b", {512}}, {"none", {3, 0, 5}}, {"scalar", {}}, {"last", {1, 1, 2}}};
  CHECK(shapes.size() == 512 * 784 + 512 + 0 + 1 + 2);
  CHECK(shapes.offset(0) == 0);
  CHECK(shapes.offset(1) == 512 * 784);
  CHECK(shapes.offset(2) == shapes.offset(3));
  CHECK(shapes.offset(5) == shapes.size());
  CHECK(shapes.tensors().size() == 5);
  CHECK(shapes.tensors()[0].shape.values() == std::vector<std::int64_t>{512, 784});
  CHECK_THROWS_AS(static_cast<void>(shapes.offset(6)), std::out_of_range);
  CHECK(defect(shapes).empty());
}

TEST_CASE("a layout is made from a number of values, of any integer type") {
  CHECK(layout(0).size() == 0);
  CHECK(layout(7).size() == 7);
  CHECK(layout(std::uint64_t{1} << 40).size() == std::size_t{1} << 40);
  CHECK(layout(static_cast<short>(3)).size() == 3);
  CHECK(layout{}.size() == 0);
  CHECK(layout{std::vector<tensor>{}}.size() == 0);
  CHECK(layout(7).where(3) == "gradient[3]");
}

TEST_CASE("extents come from integers of any type and from ranges") {
  int const rows = 3;
  std::int64_t const columns = 4;
  unsigned char const depth = 2;
  CHECK(layout{{"t", {rows, columns, depth}}}.size() == 24);
  std::vector<std::int64_t> const torch{2, 3};
  CHECK(layout{{"t", torch}}.size() == 6);
  CHECK(layout{{"t", std::vector<int>{}}}.size() == 1);
}

TEST_CASE("a position is told as tensor and place") {
  layout const shapes{{"a", {2, 3}}, {"none", {0}}, {"b", {4}}};
  CHECK(shapes.where(0) == "a[0]");
  CHECK(shapes.where(5) == "a[5]");
  CHECK(shapes.where(6) == "b[0]");
  CHECK(shapes.where(9) == "b[3]");
  CHECK(shapes.where(10) == "[10]");
  CHECK(layout{std::vector<tensor>{}}.where(0) == "[0]");
}

TEST_CASE("what is wrong with a layout is said when it is asked, and its size is 0 until then") {
  auto const most = std::numeric_limits<std::int64_t>::max();
  CHECK(defect(layout(-1)) ==
        "topsum: layout: tensor \"gradient\" has an extent that is negative or beyond 63 bits; an extent counts "
        "elements, 0 or more");
  CHECK(defect(layout{{"w", {2, -3}}}).find("tensor \"w\" has an extent that is negative") != std::string::npos);
  CHECK(defect(layout{{"w", {~std::uint64_t{0}}}}).find("beyond 63 bits") != std::string::npos);
  CHECK(defect(layout{{"w", {most, 2}}}).find("extents of tensor \"w\" overflow") != std::string::npos);
  CHECK(defect(layout{{"a", {most}}, {"b", {1}}}).find("add up to more than 63 bits, at tensor \"b\"") !=
        std::string::npos);
  CHECK(defect(layout{{"a", {-1}}, {"b", {5}}}).find("\"a\"") != std::string::npos);
  CHECK(layout{{"a", {5}}, {"b", {-1}}}.where(2) == "[2]");
}

TEST_CASE("the largest layout is one") {
  auto const most = std::numeric_limits<std::int64_t>::max();
  CHECK(layout(most).size() == static_cast<std::size_t>(most));
  CHECK(layout{{"a", {most - 1}}, {"b", {1}}}.size() == static_cast<std::size_t>(most));
  CHECK(defect(layout{{"a", {0, most, most}}}).empty());
  CHECK(defect(layout(most)).empty());
}

TEST_CASE("layouts that differ in a name, an extent or where tensors end have another hash") {
  auto const hash = layout{{"a", {2, 3}}, {"b", {4}}}.hash();
  CHECK(hash == layout{{"a", {2, 3}}, {"b", {4}}}.hash());
  CHECK(hash != layout{{"a", {3, 2}}, {"b", {4}}}.hash());
  CHECK(hash != layout{{"a", {6}}, {"b", {4}}}.hash());
  CHECK(hash != layout{{"a", {2, 3}}, {"c", {4}}}.hash());
  CHECK(hash != layout{{"b", {4}}, {"a", {2, 3}}}.hash());
  CHECK(layout{{"a", {2}}, {"b", {}}}.hash() != layout{{"a", {}}, {"b", {2}}}.hash());
  CHECK(layout(5).hash() != layout(6).hash());
}
