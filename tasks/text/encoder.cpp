#include "tasks/text/encoder.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <queue>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "tasks/text/byte_characters.hpp"
#include "tasks/text/normal_form.hpp"

namespace tally {
namespace {

constexpr std::size_t short_bytes = 32;          // pieces up to here: repeated search beats a heap
constexpr std::size_t longest_remembered = 128;  // bytes; longer pieces rarely recur
constexpr std::int32_t no_rank = std::numeric_limits<std::int32_t>::max();

}  // namespace

Encoder::Encoder(const Tokenizer& tokenizer, std::size_t remembered)
    : tokenizer_(tokenizer), splitter_(*tokenizer.pattern_), remembered_(remembered) {
  if (remembered > 0) slots_.resize(1 << 10);
  const TokenizerParts& parts = tokenizer.parts_;
  bytes_only_ = parts.merges.empty() && !parts.ignore_merges && !parts.has_byte_fallback();
}

void Encoder::encode(std::string_view text, std::vector<std::int32_t>& ids) { encode(text, tokenizer_.names_, ids); }

void Encoder::encode(std::string_view text, std::span<const std::string> allowed, std::vector<std::int32_t>& ids) {
  if (allowed.empty()) return encode(text, ids);
  for (const std::string& name : allowed) {
    check(tokenizer_.special(name).has_value() && !name.empty(), "tokenizer", "'{}' is no special token of it",
          escape_for_print(name));
  }
  if (!std::ranges::equal(allowed, allowed_)) {
    allowed_.assign(allowed.begin(), allowed.end());
    allowed_names_ = tokenizer_.names_of(allowed_);
  }
  encode(text, allowed_names_, ids);
}

void Encoder::encode(std::string_view text, const Tokenizer::Names& names, std::vector<std::int32_t>& ids) {
  const auto found = [&](std::int32_t id) { ids.push_back(id); };
  names.written.cut(
      text,
      [&](std::string_view written, std::size_t at) {
        const std::string normalized = tokenizer_.has_normalizer() ? tokenizer_.normalized(written) : std::string();
        names.normalized.cut(
            tokenizer_.has_normalizer() ? normalized : written,
            [&](std::string_view stretch, std::size_t behind) { encode_stretch(stretch, at + behind == 0, ids); },
            found);
      },
      found);
}

void Encoder::encode_stretch(std::string_view text, bool first, std::vector<std::int32_t>& ids) {
  const TokenizerParts& parts = tokenizer_.parts_;
  const auto take = [&](std::string_view piece) { look_up(piece, ids); };
  if (parts.has_byte_fallback() && parts.blanks >= Blanks::metaspace_never) {
    const std::string plain = blanks_read(text);
    const bool has_one = parts.blanks == Blanks::metaspace_always || (parts.blanks == Blanks::metaspace_first && first);
    return splitter_.split(has_one && !plain.starts_with(' ') ? " " + plain : plain, take);
  }
  if (bytes_only_) {
    for (const char byte : text) ids.push_back(tokenizer_.byte_ids_[static_cast<unsigned char>(byte)]);
    return;
  }
  splitter_.split(text, take);
}

std::vector<std::int32_t> Encoder::encode(std::string_view text) {
  std::vector<std::int32_t> ids;
  encode(text, ids);
  return ids;
}

void Encoder::look_up(std::string_view piece, std::vector<std::int32_t>& ids) {
  if (slots_.empty() || piece.size() > longest_remembered) return merge_piece(piece, ids);
  const bool is_short = piece.size() <= 15;
  std::uint64_t key[2] = {0, 0};
  if (is_short) {
    std::memcpy(key, piece.data(), piece.size());
    key[1] |= static_cast<std::uint64_t>(piece.size()) << 56;
  } else {
    key[0] = TextHash()(piece);
  }
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = static_cast<std::size_t>(hash_of(key[0], key[1])) & mask;
  for (; slots_[at].key[1] != 0; at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.key[0] != key[0]) continue;
    if (is_short ? slot.key[1] != key[1]
                 : slot.key[1] >> 32 != (std::uint64_t{0xff} << 24 | piece.size()) ||
                       std::memcmp(bytes_.data() + (slot.key[1] & 0xffffffff), piece.data(), piece.size()) != 0) {
      continue;
    }
    const std::int32_t* found = slot.count <= 3 ? slot.ids : ids_.data() + slot.ids[0];
    ids.insert(ids.end(), found, found + slot.count);
    return;
  }
  const std::size_t before = ids.size();
  merge_piece(piece, ids);
  if (!is_short) key[1] = std::uint64_t{0xff} << 56 | std::uint64_t{piece.size()} << 32 | bytes_.size();
  remember(slots_[at], piece, std::span(ids).subspan(before), key[0], key[1]);
}

void Encoder::remember(Slot& slot, std::string_view piece, std::span<const std::int32_t> ids, std::uint64_t key0,
                       std::uint64_t key1) {
  slot = {{key0, key1}, static_cast<std::uint32_t>(ids.size()), {}};
  if (ids.size() <= 3) {
    std::copy(ids.begin(), ids.end(), slot.ids);
  } else {
    slot.ids[0] = static_cast<std::int32_t>(ids_.size());
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  }
  if (piece.size() > 15) bytes_.insert(bytes_.end(), piece.begin(), piece.end());
  if (++count_ >= remembered_) {
    std::fill(slots_.begin(), slots_.end(), Slot{});
    bytes_.clear();
    ids_.clear();
    count_ = 0;
  } else if (2 * count_ > slots_.size()) {
    grow();
  }
}

void Encoder::grow() {
  std::vector<Slot> old(2 * slots_.size());
  old.swap(slots_);
  const std::size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.key[1] == 0) continue;
    const bool is_short = slot.key[1] >> 56 != 0xff;
    std::size_t at = static_cast<std::size_t>(hash_of(slot.key[0], is_short ? slot.key[1] : 0)) & mask;
    while (slots_[at].key[1] != 0) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

template <class Take>
void Encoder::begin_piece(std::string_view piece, Take&& take) const {
  const auto take_bytes = [&](std::string_view bytes) {
    for (const char byte : bytes) take(tokenizer_.byte_ids_[static_cast<unsigned char>(byte)]);
  };
  if (!tokenizer_.parts_.has_byte_fallback()) return take_bytes(piece);
  while (!piece.empty()) {
    const std::string_view character = piece.substr(0, bytes_of_character(piece));
    const std::int32_t token = tokenizer_.find(character);
    token >= 0 ? take(token) : take_bytes(character);
    piece.remove_prefix(character.size());
  }
}

void Encoder::merge_piece(std::string_view piece, std::vector<std::int32_t>& ids) const {
  if (tokenizer_.parts_.ignore_merges) {
    const std::int32_t whole = tokenizer_.find(piece);
    if (whole >= 0) return ids.push_back(whole);
  }
  piece.size() <= short_bytes ? merge_short(piece, ids) : merge_long(piece, ids);
}

void Encoder::merge_short(std::string_view piece, std::vector<std::int32_t>& ids) const {
  std::array<std::int32_t, short_bytes> tokens;        // NOLINT: filled up to `count`
  std::array<std::int32_t, short_bytes> rank, result;  // NOLINT: of the pair that begins here
  std::size_t count = 0;
  const auto look = [&](std::size_t at) {
    const PairTable::Entry* entry = tokenizer_.pairs_.find(tokens[at], tokens[at + 1]);
    rank[at] = entry != nullptr ? entry->rank : no_rank;
    if (entry != nullptr) result[at] = entry->result;
  };
  begin_piece(piece, [&](std::int32_t token) {
    tokens[count++] = token;
    if (count > 1) look(count - 2);
  });
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t at = 1; at + 1 < count; ++at) {
      if (rank[at] < rank[best]) best = at;
    }
    if (rank[best] == no_rank) break;
    tokens[best] = result[best];
    for (std::size_t at = best + 1; at + 1 < count; ++at) {
      tokens[at] = tokens[at + 1];
      rank[at] = rank[at + 1];
      result[at] = result[at + 1];
    }
    --count;
    if (best > 0) look(best - 1);
    if (best + 1 < count) look(best);
  }
  ids.insert(ids.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
}

// A list of the remaining tokens, and a heap of (rank, index) whose entries may be out of date.
void Encoder::merge_long(std::string_view piece, std::vector<std::int32_t>& ids) const {
  check(piece.size() < no_rank, "tokenizer", "a piece of {} bytes; at most 2^31", piece.size());
  struct Node {
    std::int32_t token;
    std::int32_t before, next;  // indices; -1 at the ends
  };
  struct Candidate {
    std::int32_t rank, index, left, right;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : index > other.index;
    }
  };
  std::vector<Node> nodes;
  nodes.reserve(piece.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap;
  const auto node = [&](std::int32_t index) -> Node& { return nodes[static_cast<std::size_t>(index)]; };
  const auto look = [&](std::int32_t index) {
    if (index < 0 || node(index).next < 0) return;
    const std::int32_t left = node(index).token, right = node(node(index).next).token;
    const PairTable::Entry* entry = tokenizer_.pairs_.find(left, right);
    if (entry != nullptr) heap.push({entry->rank, index, left, right});
  };
  begin_piece(piece, [&](std::int32_t token) {
    const auto index = static_cast<std::int32_t>(nodes.size());
    nodes.push_back({token, index - 1, index + 1});
  });
  nodes.back().next = -1;
  for (std::int32_t index = 0; std::cmp_less(index, nodes.size()); ++index) look(index);
  while (!heap.empty()) {
    const Candidate best = heap.top();
    heap.pop();
    Node& left = node(best.index);
    // A merged token has the id -1, which no pair has.
    if (left.token != best.left || left.next < 0 || node(left.next).token != best.right) continue;
    Node& right = node(left.next);
    left.token = tokenizer_.pairs_.find(best.left, best.right)->result;
    right.token = -1;
    left.next = right.next;
    if (left.next >= 0) node(left.next).before = best.index;
    look(left.before);
    look(best.index);
  }
  for (std::int32_t index = 0; index >= 0; index = node(index).next) ids.push_back(node(index).token);
}

}  // namespace tally
