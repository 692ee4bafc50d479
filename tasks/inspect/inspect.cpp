#include "tasks/inspect/inspect.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "core/io/base64.hpp"
#include "core/utf8.hpp"
#include "core/version.hpp"
#include "tasks/data/batch.hpp"
#include "tasks/evaluation/evaluate.hpp"
#include "tasks/text/splitter.hpp"

namespace tally {
namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr double largest_byte = 255;

std::uint8_t rounded(double x, double most = largest_byte) {
  return static_cast<std::uint8_t>(std::clamp(std::round(x), 0.0, most));
}
std::uint8_t rounded_root(double share) { return rounded(largest_byte * std::sqrt(std::clamp(share, 0.0, 1.0))); }
double square_of(std::uint8_t n) { return (n / largest_byte) * (n / largest_byte); }

// One row, from the diagonal to the left. largest: 0 for shares from 0 to 1.
void append_shares(std::span<const double> row, double largest, Bytes& bytes) {
  for (std::size_t j = row.size(); j-- > 0;) {
    const double root = largest > 0 ? std::copysign(std::sqrt(std::abs(row[j]) / largest), row[j]) : 0;
    bytes.push_back(largest > 0 ? rounded(128 + 127 * root) : rounded_root(row[j]));
  }
}

void append_gates(std::span<const double> row, double levels, Bytes& bytes) {
  double sum = 0, kept = 0;  // of the gates, and of their bytes
  for (std::size_t j = row.size(); j-- > 0;) {
    sum += std::clamp(row[j], 0.0, 1.0);
    bytes.push_back(rounded(levels * sum - kept, levels));
    kept += bytes.back();
  }
}

void append_breaks(std::span<const double> row, Bytes& bytes) {
  double left = 1, kept = 1;  // of the stick, exactly and from the bytes
  for (std::size_t j = row.size(); j-- > 0;) {
    const int nearest = rounded_root(row[j]);
    left *= 1 - std::clamp(row[j], 0.0, 1.0);
    const int mending = kept > 0 ? rounded_root(1 - left / kept) : nearest;
    bytes.push_back(
        static_cast<std::uint8_t>(std::clamp(mending, std::max(nearest - 1, 0), std::min(nearest + 1, 255))));
    kept *= 1 - square_of(bytes.back());
  }
}

std::string compressed(const Bytes& bytes) {
  uLongf size = compressBound(static_cast<uLong>(bytes.size()));
  std::string result(size, '\0');
  const int status = compress2(reinterpret_cast<Bytef*>(result.data()), &size, bytes.data(),
                               static_cast<uLong>(bytes.size()), Z_BEST_COMPRESSION);
  check(status == Z_OK, "inspect", "zlib cannot compress {} bytes: error {}", bytes.size(), status);
  result.resize(size);
  return result;
}

}  // namespace

int gate_levels(std::int64_t length) { return length > 256 ? 100 : 255; }

std::string_view name_of(Packing packing) {
  return packing == Packing::share ? "share" : packing == Packing::gates ? "gates" : "breaks";
}

std::string pack_square(std::span<const double> square, std::int64_t length, Packing packing) {
  const auto size = static_cast<std::size_t>(length);
  double largest = 0;
  if (packing == Packing::share && std::ranges::any_of(square, [](double v) { return v < -1e-5 || v > 1 + 1e-5; })) {
    for (const double v : square) largest = std::max(largest, std::abs(v));
  }
  Bytes numbers;
  numbers.reserve(size * (size + 1) / 2);
  for (std::size_t i = 0; i < size; ++i) {
    const std::span<const double> row = square.subspan(i * size, i + 1);
    if (packing == Packing::share) append_shares(row, largest, numbers);
    if (packing == Packing::gates) append_gates(row, gate_levels(length), numbers);
    if (packing == Packing::breaks) append_breaks(row, numbers);
  }
  return (largest > 0 ? formatted("{}:", largest) : std::string()) + to_base64(compressed(numbers));
}

std::vector<Mark> text_marks() {
  return {{"section", R"(^( = .* =\s*$|#+ ))"}, {"function", R"(^\s*(func|def)\b)"}, {"paragraph", R"(^\s*$)"}};
}

std::vector<int> find_marks(const Task& task, std::span<const std::int32_t> tokens, std::span<const Mark> marks) {
  std::vector<std::unique_ptr<TextPattern>> patterns;
  for (const Mark& mark : marks) patterns.push_back(std::make_unique<TextPattern>(mark.pattern));
  std::vector<int> found(tokens.size(), -1);
  std::string line;
  bool whole = false, first = true;  // whether the line's first byte is in the text; whether the next byte is its first
  std::size_t begins = 0;            // the token that contains it
  const auto end_line = [&] {
    for (std::size_t n = 0; whole && !first && n < patterns.size(); ++n) {
      if (!patterns[n]->found_in(line)) continue;
      if (found[begins] < 0 || static_cast<std::size_t>(found[begins]) > n) found[begins] = static_cast<int>(n);
      break;
    }
    line.clear();
    whole = first = true;
  };
  const std::vector<std::int32_t> beginning = task.beginning();
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    if (beginning.size() == 1 && tokens[t] == beginning.front()) {
      end_line();
      continue;
    }
    for (const char byte : task.bytes_of(tokens[t])) {
      if (first) begins = t;
      first = false;
      if (byte == '\n') {
        end_line();
      } else {
        line += byte;
      }
    }
  }
  end_line();
  return found;
}

namespace {

constexpr std::size_t most_counted = 24;  // symbols with a row and a column in the tables of means

// A quantity of a trace that the page stores. The page computes sums and products of them itself.
struct Quantity {
  std::string_view name;
  Tensor AttentionTrace::*tensor;
  Packing packing;
};
constexpr std::array<Quantity, 5> quantities{{
    {"weights", &AttentionTrace::weights, Packing::share},
    {"gates", &AttentionTrace::gates, Packing::gates},
    {"position_weights", &AttentionTrace::position_weights, Packing::share},
    {"decay", &AttentionTrace::decay, Packing::share},
    {"breaks", &AttentionTrace::breaks, Packing::breaks},
}};

// Rounded for JSON: four decimals are enough for a reader.
JsonValue short_number(double x) { return std::round(x * 1e4) / 1e4; }

// The symbols of a table of means: the most frequent ones, at most `most_counted`. Sorted by id.
class CountedSymbols {
 public:
  explicit CountedSymbols(const std::vector<std::int32_t>& tokens) {
    std::map<std::int32_t, std::int64_t> counts;
    for (const std::int32_t token : tokens) ++counts[token];
    for (const auto& [id, count] : counts) ids_.push_back(id);
    if (ids_.size() <= most_counted) return;
    std::ranges::stable_sort(ids_, std::ranges::greater{}, [&](std::int32_t id) { return counts[id]; });
    ids_.resize(most_counted);
    std::ranges::sort(ids_);
  }
  const std::vector<std::int32_t>& ids() const { return ids_; }
  // The index in ids() of each token; -1 for one that is not counted.
  std::vector<int> indices(const std::vector<std::int32_t>& tokens) const {
    std::vector<int> result;
    for (const std::int32_t token : tokens) {
      const auto found = std::ranges::lower_bound(ids_, token);
      const bool is_counted = found != ids_.end() && *found == token;
      result.push_back(is_counted ? static_cast<int>(found - ids_.begin()) : -1);
    }
    return result;
  }

 private:
  std::vector<std::int32_t> ids_;
};

// Means of one head by the symbols, or marks, of query (row) and key (column). For a quantity that adds up to 1 over
// the keys, it is the mean sum over all keys of the symbol; for others, the mean of a pair. Decay has a single row: the
// factor that a symbol's forget gate keeps, which is the decay of its left neighbour.
class MeansBySymbol {
 public:
  MeansBySymbol(const Quantity& quantity, std::size_t symbols)
      : quantity_(quantity), size_(symbols), sums_(symbols * symbols), counts_(symbols * symbols) {}

  void add(const std::vector<int>& rows, const std::vector<double>& square) {
    const std::size_t length = rows.size();
    for (std::size_t i = 0; i < length; ++i) {
      if (rows[i] < 0) continue;
      const auto own = static_cast<std::size_t>(rows[i]);
      if (one_row()) {
        if (i > 0) add(0, own, square[i * length + i - 1], 1);
        continue;
      }
      for (std::size_t j = 0; j <= i; ++j) {
        if (rows[j] >= 0) add(own, static_cast<std::size_t>(rows[j]), square[i * length + j], summed() ? 0 : 1);
      }
      for (std::size_t key = 0; summed() && key < size_; ++key) add(own, key, 0, 1);
    }
  }
  // A row for each symbol of the query, and a last one for all queries together.
  JsonValue json() const {
    JsonValue rows = JsonValue::array();
    std::vector<double> all_sums(size_), all_counts(size_);
    const auto push_row = [&](const double* sums, const double* counts) {
      JsonValue columns = JsonValue::array();
      for (std::size_t column = 0; column < size_; ++column) {
        columns.push(counts[column] > 0 ? short_number(sums[column] / counts[column]) : JsonValue());
      }
      rows.push(std::move(columns));
    };
    for (std::size_t row = 0; row < (one_row() ? 1 : size_); ++row) {
      push_row(&sums_[row * size_], &counts_[row * size_]);
      for (std::size_t column = 0; column < size_; ++column) {
        all_sums[column] += sums_[row * size_ + column];
        all_counts[column] += counts_[row * size_ + column];
      }
    }
    if (!one_row()) push_row(all_sums.data(), all_counts.data());
    return rows;
  }

 private:
  bool one_row() const { return quantity_.tensor == &AttentionTrace::decay; }
  bool summed() const {
    return quantity_.tensor == &AttentionTrace::weights || quantity_.tensor == &AttentionTrace::position_weights;
  }
  void add(std::size_t row, std::size_t column, double value, double count) {
    sums_[row * size_ + column] += value;
    counts_[row * size_ + column] += count;
  }

  const Quantity& quantity_;
  std::size_t size_;
  std::vector<double> sums_, counts_;  // [queries, keys]
};

// The row of each token of a sequence in tables of `size` rows; -1 for no row.
struct Grouping {
  std::vector<int> rows;
  std::size_t size;
};

// Means of all heads, by layer and quantity.
class Means {
 public:
  void add(std::size_t layer, const Quantity& quantity, std::size_t head, const Grouping& tokens,
           const std::vector<double>& square) {
    std::vector<MeansBySymbol>& heads = heads_[{layer, &quantity}];
    while (heads.size() <= head) heads.emplace_back(quantity, tokens.size);
    heads[head].add(tokens.rows, square);
  }
  // An object for each layer: rows for each head, by the name of the quantity.
  JsonValue json(std::size_t layers) const {
    std::vector<JsonValue> result(layers, JsonValue::object());
    for (const auto& [layer_and_kind, heads] : heads_) {
      JsonValue all = JsonValue::array();
      for (const MeansBySymbol& head : heads) all.push(head.json());
      result[layer_and_kind.first].set(layer_and_kind.second->name, std::move(all));
    }
    return JsonValue(std::move(result));
  }

 private:
  std::map<std::pair<std::size_t, const Quantity*>, std::vector<MeansBySymbol>> heads_;  // one per head
};

std::vector<double> numbers_of(const Tensor& x) { return x.to(Device{}).to(DType::f64).to_vector<double>(); }

JsonValue encodings_json(const EncodingChoice& choice) {
  JsonValue all = JsonValue::array();
  for (const EncodingChoice::Part& part : choice.parts) {
    const EncodingEntry& entry = *part.entry;
    all.push(JsonValue::object(
        {{"name", entry.name}, {"summary", entry.summary}, {"formula", entry.formula}, {"paper", entry.paper}}));
  }
  return all;
}

// {"answers", "sure"}: the largest logit of every position and its probability. Adds the answers to the `shown`
// symbols.
void add_answers(const Tensor& logits, JsonValue& sequence, std::set<std::int32_t>& shown) {
  const Tensor probabilities = softmax(logits.detached_select(0, 0).to(Device{}).to(DType::f64));
  const auto symbols = static_cast<std::size_t>(probabilities.size(1));
  const std::vector<double> all = probabilities.to_vector<double>();
  JsonValue answers = JsonValue::array(), sure = JsonValue::array();
  for (auto row = all.begin(); row != all.end(); row += static_cast<std::ptrdiff_t>(symbols)) {
    check(std::isfinite(*row), "inspect", "the model's logits are not finite: a page of it would show nothing");
    const auto best = std::max_element(row, row + static_cast<std::ptrdiff_t>(symbols));
    answers.push(best - row);
    shown.insert(static_cast<std::int32_t>(best - row));
    sure.push(short_number(*best));
  }
  sequence.set("answers", std::move(answers)).set("sure", std::move(sure));
}

JsonValue integers_json(const auto& values) {
  JsonValue array = JsonValue::array();
  for (const auto value : values) array.push(static_cast<std::int64_t>(value));
  return array;
}

}  // namespace

struct Inspection::Parts {
  // A run and its collected results.
  struct Run {
    InspectedRun run;
    JsonValue sequences = JsonValue::array();
    Means by_symbol = {}, by_mark = {};

    void add(const Example& example, const Grouping& by_id, const Grouping& by_line, Parts& parts);
    JsonValue json(const Parts& parts);
  };

  const Task& task;
  CountedSymbols counted_symbols;
  std::vector<Mark> marks;
  std::vector<Run> runs = {};
  std::set<std::int32_t> shown = {};  // symbols on the page
  JsonValue sequences = JsonValue::array();
  std::int64_t packed_bytes = 0;
};

void Inspection::Parts::Run::add(const Example& example, const Grouping& by_id, const Grouping& by_line, Parts& parts) {
  const TracedPass pass = trace_pass(run.model, collate(std::vector<Example>{example}), false);
  const auto length = static_cast<std::int64_t>(example.tokens.size());
  // The packed matrices of one quantity, one per head; null for heads without it.
  const auto pack = [&](const Tensor& squares, std::size_t layer, const Quantity& quantity) {
    JsonValue heads = JsonValue::array();
    for (std::int64_t head = 0; head < squares.size(1); ++head) {
      const std::vector<double> square = numbers_of(squares.detached_select(0, 0).detached_select(0, head));
      if (std::ranges::all_of(square, [](double v) { return v == 0; })) {
        heads.push({});
        continue;
      }
      by_symbol.add(layer, quantity, static_cast<std::size_t>(head), by_id, square);
      if (by_line.size > 1) by_mark.add(layer, quantity, static_cast<std::size_t>(head), by_line, square);
      std::string text = pack_square(square, length, quantity.packing);
      parts.packed_bytes += static_cast<std::int64_t>(text.size());
      heads.push(std::move(text));
    }
    return heads;
  };
  JsonValue layers = JsonValue::array(), sequence = JsonValue::object();
  for (std::size_t layer = 0; layer < pass.layers.size(); ++layer) {
    JsonValue found = JsonValue::object();
    for (const Quantity& quantity : quantities) {
      const Tensor& squares = pass.layers[layer].*quantity.tensor;
      if (!squares.defined()) continue;
      // Gates above 1 are terms of a penalty (grape-ap), which the page has no picture for.
      if (quantity.packing == Packing::gates && max(reshape(squares, {squares.numel()}), 0).item() > 1) continue;
      found.set(quantity.name, pack(squares, layer, quantity));
    }
    layers.push(std::move(found));
  }
  add_answers(pass.logits, sequence, parts.shown);
  sequence.set("layers", std::move(layers));
  sequences.push(std::move(sequence));
}

JsonValue Inspection::Parts::Run::json(const Parts& parts) {
  const auto layers = static_cast<std::size_t>(run.config.model.layers);
  return JsonValue::object({{"name", run.name},
                            {"pe", run.config.encoding.text()},
                            {"step", run.step},
                            {"seed", run.config.run.seed},
                            {"layers", run.config.model.layers},
                            {"heads", run.config.model.heads},
                            {"width", run.config.model.width},
                            {"encodings", encodings_json(run.config.encoding)},
                            {"counted", integers_json(parts.counted_symbols.ids())},
                            {"sequences", std::move(sequences)},
                            {"means", by_symbol.json(layers)},
                            {"marked_means", by_mark.json(layers)}});
}

Inspection::Inspection(const Task& task, std::vector<InspectedRun> runs, const std::vector<std::int32_t>& tokens,
                       std::vector<Mark> marks)
    : parts_(new Parts{.task = task, .counted_symbols = CountedSymbols(tokens), .marks = std::move(marks)}) {
  for (InspectedRun& run : runs) parts_->runs.push_back({std::move(run)});
  parts_->shown.insert(parts_->counted_symbols.ids().begin(), parts_->counted_symbols.ids().end());
}

Inspection::~Inspection() = default;

void Inspection::add(const Example& example, const std::string& name) {
  Parts& parts = *parts_;
  const std::vector<int> marked = find_marks(parts.task, example.tokens, parts.marks);
  const Grouping symbols{parts.counted_symbols.indices(example.tokens), parts.counted_symbols.ids().size()};
  Grouping marks{marked, parts.marks.size() + 1};
  for (int& row : marks.rows) ++row;  // tokens without a mark come first
  for (Parts::Run& run : parts.runs) run.add(example, symbols, marks, parts);
  parts.shown.insert(example.tokens.begin(), example.tokens.end());
  parts.shown.insert(example.targets.begin(), example.targets.end());
  JsonValue sequence = JsonValue::object({{"name", name},
                                          {"tokens", integers_json(example.tokens)},
                                          {"targets", integers_json(example.targets)},
                                          {"scored", integers_json(example.score_mask)},
                                          {"gate_levels", gate_levels(static_cast<std::int64_t>(marked.size()))}});
  if (!parts.marks.empty()) sequence.set("marked", integers_json(marked));
  parts.sequences.push(std::move(sequence));
}

std::int64_t Inspection::packed_bytes() const { return parts_->packed_bytes; }

JsonValue Inspection::json() {
  Parts& parts = *parts_;
  JsonValue symbols = JsonValue::object(), packings = JsonValue::object(), runs = JsonValue::array();
  JsonValue marks = JsonValue::array();
  for (const std::int32_t id : parts.shown) {  // a partial character as it is printed, special tokens by their names
    const std::string_view bytes = parts.task.bytes_of(id);
    const bool whole = !bytes.empty() && find_invalid_utf8(bytes) == std::string_view::npos;
    symbols.set(std::to_string(id), whole ? bytes : parts.task.vocabulary()[static_cast<std::size_t>(id)]);
  }
  for (const Quantity& quantity : quantities) packings.set(quantity.name, name_of(quantity.packing));
  for (const Mark& mark : parts.marks) marks.push(mark.name);
  for (Parts::Run& run : parts.runs) runs.push(run.json(parts));
  return JsonValue::object({{"task", parts.runs.front().run.config.task->name},
                            {"symbols", std::move(symbols)},
                            {"version", version},
                            {"marks", std::move(marks)},
                            {"sequences", std::move(parts.sequences)},
                            {"quantities", std::move(packings)},
                            {"runs", std::move(runs)}});
}

}  // namespace tally
