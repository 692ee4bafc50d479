// The JSON that the page of `tally inspect` reads. It holds sequences and, for each run, the model's answers, the
// attention of every head of every layer, and the mean gates for each symbol.
//
//   {"task", "symbols": {id: text}, "version", "marks": [name],
//    "sequences": [{"name", "tokens": [id], "targets": [id], "scored": [0 or 1], "gate_levels": 255,
//                   "marked": [the number of each token's mark, or -1]}],
//    "quantities": {"weights": "share", "gates": "gates", ...},
//    "runs": [{"name", "pe", "step", "layers", "heads", "seed",
//              "encodings": [{"name", "summary", "formula", "paper"}],
//              "counted": [id],
//              "sequences": [{"answers": [id], "sure": [p of the answer],
//                             "layers": [{"weights": [packed or null, one a head], "gates": ...}]}],
//              "means": [one a layer: {"weights": [one a head: rows], ...}],
//              "marked_means": [the same by marks: tokens without one, then each mark]}]}
//
// symbols: only if they occur. quantities: how each is packed (tasks/inspect/inspect.hpp). counted: the symbols with
// means. rows: one for each counted symbol of the query and one of all queries, with a mean for each counted symbol of
// the key.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/data/task.hpp"
#include "tasks/runs/config.hpp"

namespace tally {

// Attention as text for a page. The lower triangle, with the diagonal, of a matrix [T, T] of numbers from 0 to 1 is
// stored with one byte per number: row 0, row 1, ..., each row from the diagonal to the left. The text of a matrix is
// base64(zlib(bytes)); tasks/pages/packed.js reads it.
//
// The value of a byte n depends on how the page sums or multiplies the numbers from the diagonal to the left:
//   share   v = (n/255)², within sqrt(v)/255: precise for small numbers, the usual case in a row with the sum 1.
//   gates   g = n/L with L = gate_levels(T), rounded so that the SUMS of the n/L are right within 1/(2L): the sums
//           are contextual positions. A single gate is right within 1/L.
//   breaks  b = (n/255)², rounded up or down so that the PRODUCTS of the 1-b follow the exact ones within 1/100: the
//           products are the leftover of a stick. A single break is right within 3 sqrt(b)/255
// If a share is negative or above 1, which some rules allow, the text begins with "m:", where m is the largest |v|:
//           v = m c |c| with c = (n-128)/127, within sqrt(m |v|)/127

enum class Packing { share, gates, breaks };
std::string_view name_of(Packing packing);

// 255, or 100 for more than 256 tokens, to limit the size of the page.
int gate_levels(std::int64_t length);

// square: T² numbers row by row. Gates and breaks are clamped to 0..1.
std::string pack_square(std::span<const double> square, std::int64_t length, Packing packing);

// Marks of a text for a picture: lines at which a paragraph, a section or a function begins. Figures 4 and 6 of CoPE
// (arXiv 2405.18719) show that contextual positions count such lines.

// A kind of line, as a PCRE2 pattern that is searched in each line without its end.
struct Mark {
  std::string name, pattern;
};

// The default marks. A line that matches several gets the first: section (Wikitext's " = ", Markdown's "#"), function
// ("func", "def"), paragraph (an empty line, which ends one).
std::vector<Mark> text_marks();

// The number of the mark for each token that contains the first byte of a marked line, and -1 for all others. The text
// before the first line end is a line only at the beginning of a text: after a token without bytes (`Task::beginning`).
// Throws Error for a pattern that PCRE2 refuses.
std::vector<int> find_marks(const Task& task, std::span<const std::int32_t> tokens, std::span<const Mark> marks);

struct InspectedRun {
  std::string name;
  const RunConfig& config;
  SequenceModel& model;
  std::int64_t step = 0;  // of the checkpoint
};

class Inspection {
 public:
  // The runs' vocabulary must equal the task's. `tokens`: of all sequences that will be added; the means cover the most
  // frequent symbols. `marks`: the lines to mark (tasks/inspect/inspect.hpp). Keeps references to task and runs.
  Inspection(const Task& task, std::vector<InspectedRun> runs, const std::vector<std::int32_t>& tokens,
             std::vector<Mark> marks = {});
  ~Inspection();
  Inspection(const Inspection&) = delete;
  Inspection& operator=(const Inspection&) = delete;

  // Runs every model on the sequence. Throws Error if it is too long for a run.
  void add(const Example& example, const std::string& name);
  // The size in bytes of the added sequences on the page.
  std::int64_t packed_bytes() const;
  // The JSON of all added sequences. Call it once.
  JsonValue json();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tally
