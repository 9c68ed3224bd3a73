// SPDX-License-Identifier: BSL-1.0
/// \file
/// The bytes of `plan::save`, and what `plan::load` makes of them.
#ifndef TOPSUM_DETAIL_CHECKPOINT_HPP
#define TOPSUM_DETAIL_CHECKPOINT_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <topsum/detail/state_fields.hpp>
#include <topsum/error.hpp>

namespace topsum {

/// What `plan::load` takes over.
enum class restore : unsigned char {
  everything,  ///< residual, states of selection and exchange, and step: to go on as if nothing had happened
  residual     ///< residual and step: into a plan with another selection or exchange
};

namespace detail {

/// What was saved, and by whom.
struct checkpoint_head {
  std::uint64_t value_code = 0;
  std::uint64_t ranks = 0;
  std::uint64_t rank = 0;
  std::uint64_t step = 0;
  std::uint64_t n = 0;
  std::uint64_t layout = 0;
};

/// One stage's part: its description, and its fields.
struct checkpoint_part {
  std::string_view stage;
  saved_bytes fields;
};

/// One rank's saved bytes, taken apart. Views them.
struct checkpoint {
  checkpoint_head head;
  checkpoint_part residual, selection, exchange;
};

inline constexpr std::string_view checkpoint_magic = "topsum\r\n";
inline constexpr std::uint64_t checkpoint_version = 1;
inline constexpr std::uint64_t byte_order = 0x0102030405060708;

/// Changes with every change of a single word, and as good as surely with any other. Of whole words.
[[nodiscard]] inline std::uint64_t checksum(saved_bytes bytes) noexcept {
  std::uint64_t sum = 0xcbf29ce484222325ULL;
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    sum = (sum ^ word) * 0x9e3779b97f4a7c15ULL;
    sum ^= sum >> 32;
  }
  return sum;
}

/// Writes a checkpoint: the constructor its head, `part` each of the three parts, `seal` its end.
class checkpoint_writer {
 public:
  explicit checkpoint_writer(checkpoint_head const& head) {
    to_.raw(checkpoint_magic.data(), checkpoint_magic.size());
    for (std::uint64_t const number :
         {checkpoint_version, byte_order, head.value_code, head.ranks, head.rank, head.step, head.n, head.layout})
      to_.number(number);
  }
  checkpoint_writer(checkpoint_writer const&) = delete;
  checkpoint_writer& operator=(checkpoint_writer const&) = delete;

  template <class B, class State>
  void part(B& backend, std::string const& stage, State& state) {
    to_.text(stage);
    std::size_t const at = to_.size();
    to_.number(0);
    field_writer<B> writer{backend, to_};
    visit_state(state, writer);
    to_.number_at(at, to_.size() - at - sizeof(std::uint64_t));
  }
  [[nodiscard]] std::vector<std::byte> seal() && {
    to_.number(checksum(bytes_));
    return std::move(bytes_);
  }

 private:
  std::vector<std::byte> bytes_;
  saved_writer to_{bytes_};
};

/// Takes saved bytes apart. Throws errc::bad_argument for bytes that are no checkpoint, or a damaged one.
[[nodiscard]] inline checkpoint open_checkpoint(saved_bytes bytes) {
  auto const refuse = [](std::string const& why) { throw error{errc::bad_argument, sentence("load: ", why)}; };
  std::size_t const magic = checkpoint_magic.size();
  if (bytes.size() < magic + 2 * sizeof(std::uint64_t) ||
      std::memcmp(bytes.data(), checkpoint_magic.data(), magic) != 0)
    refuse("these are not bytes that plan.save() made");
  saved_reader from{bytes.first(bytes.size() - sizeof(std::uint64_t)).subspan(magic)};
  std::uint64_t const version = from.number();
  if (bytes.size() % 8 != 0) refuse("the saved bytes are damaged: they end too early");
  if (version != checkpoint_version)
    refuse(sentence("the bytes were saved in version ", version, " of the format, this library reads version ",
                    checkpoint_version));
  if (from.number() != byte_order) refuse("the bytes were saved on a machine with another order of bytes");
  if (saved_reader{bytes.last(sizeof(std::uint64_t))}.number() != checksum(bytes.first(bytes.size() - 8)))
    refuse("the saved bytes are damaged: their checksum differs");
  checkpoint found;
  checkpoint_head& head = found.head;
  for (std::uint64_t* number : {&head.value_code, &head.ranks, &head.rank, &head.step, &head.n, &head.layout})
    *number = from.number();
  for (checkpoint_part* part : {&found.residual, &found.selection, &found.exchange}) {
    part->stage = from.text();
    part->fields = from.block();
  }
  if (head.rank >= head.ranks || !from.done()) refuse("the saved bytes are damaged");
  return found;
}

/// Throws unless a checkpoint is of the gradient that `mine` tells of: same type, same layout.
inline void expect_same_gradient(checkpoint_head const& saved, checkpoint_head const& mine) {
  auto const refuse = [](std::string const& why) { throw error{errc::mismatch, sentence("load: ", why)}; };
  if (saved.value_code != mine.value_code) refuse("another value type was saved than this plan's");
  if (saved.n != mine.n) refuse(sentence("n = ", saved.n, " was saved where this plan has ", mine.n));
  if (saved.layout != mine.layout) refuse("another layout (names or extents of tensors) was saved than this plan's");
}

/// Throws unless a stage is the one that was saved, its parameters too unless only the `name` counts.
inline void expect_same_stage(std::string_view saved, std::string const& mine, std::string_view name, restore what) {
  bool const same = what == restore::everything ? saved == mine
                                                : saved == name || saved.starts_with(sentence(name, "{"));
  if (same) return;
  throw error{errc::mismatch, sentence("load: saved from a plan with ", saved, ", this one has ", mine,
                                       what == restore::everything
                                           ? "; pass topsum::restore::residual to take over residual and step alone"
                                           : "; a residual goes on in the same store")};
}

/// What a rank takes of what was saved: its old ranks in rising order, rank, rank + ranks, ...
struct checkpoint_share {
  std::optional<checkpoint_head> any;  ///< of any of the bytes given: which step, how many old ranks
  std::vector<checkpoint> taken;
};

/// Opens what was given to rank `mine.rank` of `mine.ranks`, and finds what it takes.
[[nodiscard]] inline checkpoint_share share_of_saved(std::span<saved_bytes const> given, checkpoint_head const& mine) {
  checkpoint_share share;
  std::vector<checkpoint> all;
  for (saved_bytes const bytes : given) {
    all.push_back(open_checkpoint(bytes));
    checkpoint_head const& head = all.back().head;
    expect_same_gradient(head, mine);
    if (!share.any) share.any = head;
    if (head.ranks != share.any->ranks || head.step != share.any->step)
      throw error{errc::mismatch, sentence("load: given bytes of step ", share.any->step, " of ", share.any->ranks,
                                           " ranks, and of step ", head.step, " of ", head.ranks, " ranks")};
  }
  if (!share.any) return share;
  for (std::uint64_t old = mine.rank; old < share.any->ranks; old += mine.ranks) {
    auto const found = std::ranges::find(all, old, [](checkpoint const& one) { return one.head.rank; });
    if (found == all.end())
      throw error{errc::bad_argument,
                  sentence("load: the bytes of old rank ", old, " of ", share.any->ranks, " are missing: rank ",
                           mine.rank, " of ", mine.ranks, " takes every ", mine.ranks, "-th from its own on")};
    share.taken.push_back(*found);
  }
  return share;
}

}  // namespace detail

}  // namespace topsum

#endif
