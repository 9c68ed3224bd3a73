// SPDX-License-Identifier: BSL-1.0
/// \file
/// The command line of the demo.
#ifndef MNIST_OPTIONS_HPP
#define MNIST_OPTIONS_HPP

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "mnist/optimizer.hpp"

namespace mnist {

enum class network_kind { perceptron, convolutional };
enum class exchange_kind { dense, gather_all, interleaved_quota, ok_topk };
enum class policy_kind { global, layer_wise, all_dimension, adtopk };
enum class rule_kind { top_k, reused_threshold };

/// One training, as the command line asks for it.
struct options {
  network_kind network = network_kind::perceptron;
  exchange_kind exchange = exchange_kind::ok_topk;
  policy_kind policy = policy_kind::global;
  rule_kind rule = rule_kind::reused_threshold;
  double density = 0.01;
  double momentum = 0.9;
  std::optional<momentum_place> where;  ///< not set: what suits the exchange, see `momentum_of`
  double rate = 0.1;
  std::size_t epochs = 30;
  std::size_t batch = 32;  ///< examples per rank and step
  std::uint64_t seed = 1;
  std::filesystem::path data = "examples/data";
  bool compare = false;
  bool help = false;
};

/// A command line that cannot be followed; the exit code of the program is then `exit_code`.
struct option_error : std::runtime_error {
  using std::runtime_error::runtime_error;
  static constexpr int exit_code = 2;
};

/// Where the momentum of a training lies: dense gradients take it after aggregation, sparse ones before, unless told.
[[nodiscard]] inline momentum_place momentum_of(options const& chosen) {
  if (chosen.where) return *chosen.where;
  return chosen.exchange == exchange_kind::dense ? momentum_place::global : momentum_place::local;
}

namespace words {

template <class E, std::size_t Count>
using table = std::array<std::pair<std::string_view, E>, Count>;

inline constexpr table<network_kind, 2> network{
    {{"perceptron", network_kind::perceptron}, {"convolutional", network_kind::convolutional}}};
inline constexpr table<exchange_kind, 4> exchange{{{"dense", exchange_kind::dense},
                                                   {"gather_all", exchange_kind::gather_all},
                                                   {"interleaved_quota", exchange_kind::interleaved_quota},
                                                   {"ok_topk", exchange_kind::ok_topk}}};
inline constexpr table<policy_kind, 4> policy{{{"global", policy_kind::global},
                                               {"layer_wise", policy_kind::layer_wise},
                                               {"all_dimension", policy_kind::all_dimension},
                                               {"adtopk", policy_kind::adtopk}}};
inline constexpr table<rule_kind, 2> rule{
    {{"top_k", rule_kind::top_k}, {"reused_threshold", rule_kind::reused_threshold}}};
inline constexpr table<momentum_place, 3> where{
    {{"none", momentum_place::none}, {"local", momentum_place::local}, {"global", momentum_place::global}}};

/// The word for `value`.
template <class E, std::size_t Count>
[[nodiscard]] constexpr std::string_view name(table<E, Count> const& known, E value) {
  for (auto const& [word, meaning] : known) {
    if (meaning == value) return word;
  }
  return "?";
}

}  // namespace words

inline constexpr std::string_view usage =
    R"(Trains a small network on handwritten digits, data-parallel: one MPI rank is one worker.

usage: mpiexec -n RANKS 04_train_mnist [options]

  --compare               three trainings one after the other, then a table: dense,
                          ok_topk with a global policy, ok_topk layer-wise
  --network WORD          perceptron or convolutional                  (perceptron)
  --exchange WORD         dense, gather_all, interleaved_quota, ok_topk (ok_topk)
  --policy WORD           global or layer_wise; with gather_all also
                          all_dimension or adtopk                      (global)
  --rule WORD             top_k or reused_threshold, for ok_topk; the
                          others select exactly                        (reused_threshold)
  --density X             share of the gradient that travels, (0, 1]   (0.01)
  --momentum X            in [0, 1)                                    (0.9)
  --momentum-where WORD   global: after aggregation; local: before it, on every
                          rank; none                   (dense: global, else local)
  --rate X                peak of the learning rate                    (0.1)
  --epochs N              passes over the 9000 training digits         (30)
  --batch N               examples per rank and step                   (32)
  --seed N                of the network and of the order of examples  (1)
  --data DIR              folder of the IDX files                      (examples/data)
  --help                  this text

--option=VALUE works too. A wrong option or value ends the program with exit code 2.
)";

namespace detail {

[[noreturn]] inline void refuse(std::string_view option, std::string_view value, std::string_view expected) {
  throw option_error{std::string{option} + " must be " + std::string{expected} + ", not '" + std::string{value} + "'"};
}

template <class E, std::size_t Count>
[[nodiscard]] E read_word(std::string_view option, std::string_view value, words::table<E, Count> const& known) {
  std::string expected = "one of";
  for (auto const& [word, meaning] : known) {
    if (word == value) return meaning;
    expected += (expected.ends_with("of") ? " " : ", ") + std::string{word};
  }
  refuse(option, value, expected);
}

/// What a number must be.
template <class N>
struct requirement {
  std::string_view text;
  bool (*holds)(N);
};

inline constexpr requirement<double> share{"a number above 0 and at most 1", [](double x) { return x > 0 && x <= 1; }};
inline constexpr requirement<double> decay{"a number from 0 to below 1", [](double x) { return x >= 0 && x < 1; }};
inline constexpr requirement<double> positive{"a positive number", [](double x) { return x > 0 && std::isfinite(x); }};
inline constexpr requirement<std::size_t> count{"a count from 1 to 9000",
                                                [](std::size_t x) { return x >= 1 && x <= 9000; }};
inline constexpr requirement<std::uint64_t> seed{"a whole number from 0 to 2^64 - 1",
                                                 [](std::uint64_t) { return true; }};

/// All of `value` as a number that meets its requirement.
template <class N>
[[nodiscard]] N read_number(std::string_view option, std::string_view value, requirement<N> const& required) {
  N number{};
  char const* const end = value.data() + value.size();
  auto const [stop, fault] = std::from_chars(value.data(), end, number);
  if (fault != std::errc{} || stop != end || !required.holds(number)) refuse(option, value, required.text);
  return number;
}

template <auto Member, auto const& Known>
void set_word(options& chosen, std::string_view name, std::string_view value) {
  chosen.*Member = read_word(name, value, Known);
}

template <auto Member, auto const& Required>
void set_number(options& chosen, std::string_view name, std::string_view value) {
  chosen.*Member = read_number(name, value, Required);
}

inline void set_data(options& chosen, std::string_view name, std::string_view value) {
  if (value.empty()) refuse(name, value, "a folder");
  chosen.data = value;
}

/// An option that takes a value, and what to do with it; `name` is for messages.
struct valued_option {
  std::string_view name;
  void (*set)(options& chosen, std::string_view name, std::string_view value);
};

inline constexpr std::array valued_options{
    valued_option{"--network", set_word<&options::network, words::network>},
    valued_option{"--exchange", set_word<&options::exchange, words::exchange>},
    valued_option{"--policy", set_word<&options::policy, words::policy>},
    valued_option{"--rule", set_word<&options::rule, words::rule>},
    valued_option{"--density", set_number<&options::density, share>},
    valued_option{"--momentum", set_number<&options::momentum, decay>},
    valued_option{"--momentum-where", set_word<&options::where, words::where>},
    valued_option{"--rate", set_number<&options::rate, positive>},
    valued_option{"--epochs", set_number<&options::epochs, count>},
    valued_option{"--batch", set_number<&options::batch, count>},
    valued_option{"--seed", set_number<&options::seed, seed>},
    valued_option{"--data", set_data},
};

}  // namespace detail

/// Throws `option_error` for policies that no exchange was asked for that suits them.
inline void expect_fitting(options const& chosen) {
  bool const by_rows = chosen.policy == policy_kind::all_dimension || chosen.policy == policy_kind::adtopk;
  if (by_rows && chosen.exchange != exchange_kind::gather_all && chosen.exchange != exchange_kind::dense)
    throw option_error{"--policy " + std::string{words::name(words::policy, chosen.policy)} +
                       " keeps its promise under --exchange gather_all only"};
  if (chosen.policy == policy_kind::layer_wise && chosen.exchange == exchange_kind::interleaved_quota)
    throw option_error{"--exchange interleaved_quota goes with --policy global"};
}

/// Reads the arguments, without the program's name, on top of `chosen`.
/// Throws `option_error` with a sentence for whoever typed them.
[[nodiscard]] inline options parse_options(std::span<char const* const> arguments, options chosen = {}) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string_view const argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      chosen.help = true;
    } else if (argument == "--compare") {
      chosen.compare = true;
    } else {
      auto const equals = argument.find('=');
      auto const name = argument.substr(0, equals);
      auto const known = std::ranges::find(detail::valued_options, name, &detail::valued_option::name);
      if (known == detail::valued_options.end()) {
        throw option_error{"there is no option '" + std::string{argument} + "'; --help lists all"};
      }
      if (equals != std::string_view::npos) {
        known->set(chosen, name, argument.substr(equals + 1));
      } else if (++i < arguments.size()) {
        known->set(chosen, name, arguments[i]);
      } else {
        throw option_error{std::string{name} + " needs a value; --help says which"};
      }
    }
  }
  expect_fitting(chosen);
  return chosen;
}

/// A training and the name it has in the table.
struct named_run {
  std::string name;
  options chosen;
};

/// What `--compare` asks for: the three trainings. Without it, the one that the options describe.
[[nodiscard]] inline std::vector<named_run> runs_of(options const& chosen) {
  auto const run = [&chosen](exchange_kind exchange, policy_kind policy) {
    named_run made{std::string{words::name(words::exchange, exchange)}, chosen};
    made.chosen.exchange = exchange;
    made.chosen.policy = policy;
    if (exchange != exchange_kind::dense) made.name += ", " + std::string{words::name(words::policy, policy)};
    return made;
  };
  if (!chosen.compare) return {run(chosen.exchange, chosen.policy)};
  return {run(exchange_kind::dense, policy_kind::global), run(exchange_kind::ok_topk, policy_kind::global),
          run(exchange_kind::ok_topk, policy_kind::layer_wise)};
}

}  // namespace mnist

#endif  // MNIST_OPTIONS_HPP
