#include "tasks/foreign/weights.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>

#include "autograd/finite.hpp"
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "core/io/json.hpp"
#include "core/utf8.hpp"

namespace tally {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view single_file = "model.safetensors", index_file = "model.safetensors.index.json";

std::string in_quotes(std::string_view name) { return formatted("'{}'", escape_for_print(name, 200)); }

// Name of a tensor -> name of its shard.
std::map<std::string, std::string> read_index(const std::string& path) {
  const JsonValue index = read_json(path, {.max_depth = 4, .max_values = 200'000});
  std::map<std::string, std::string> shards;
  try {
    for (const JsonMember& member : index.members("weight_map")) {
      const std::string& file = member.value.string();
      const bool beside = !file.empty() && file.find('/') == std::string::npos && file != "." && file != "..";
      check(beside, "import", "{} is to be in {}, which is no file beside it", in_quotes(member.name), in_quotes(file));
      shards.emplace(member.name, file);
    }
  } catch (const Error& error) {
    fail("import", "{}: {}", escape_for_print(path, 1000), error.what());
  }
  return shards;
}

// The first ten of a list of mismatches.
void refuse(const std::string& source, std::vector<std::string> faults) {
  const std::size_t count = faults.size();
  faults.resize(std::min<std::size_t>(count, 10));
  check(count == 0, "import", "{}: {}{}", source, joined(faults, "; "),
        count > 10 ? formatted("; {} more", count - 10) : "");
}

bool is_transposed(Layout layout) { return layout == Layout::transposed || layout == Layout::side_by_side; }

bool ends_with_one_of(std::string_view name, const std::vector<std::string_view>& ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
}

// The required shape of a tensor in the file.
Shape shape_together(const std::vector<Shape>& ours, Layout layout) {
  Shape shape = ours.front();
  for (std::size_t n = 1; n < ours.size(); ++n) shape[0] += ours[n][0];
  if (is_transposed(layout) && shape.rank == 2) std::swap(shape[0], shape[1]);
  return shape;
}

}  // namespace

ForeignWeights ForeignWeights::open(const std::string& folder) {
  ForeignWeights weights;
  const fs::path base(folder);
  std::error_code error;
  if (fs::exists(base / single_file, error)) {
    weights.files_.push_back(std::make_unique<SafetensorsFile>(SafetensorsFile::open((base / single_file).string())));
    weights.source_ = weights.files_.back()->path();
    weights.add(*weights.files_.back());
    return weights;
  }
  const std::string index_path = (base / index_file).string();
  const bool pickled = fs::exists(base / "pytorch_model.bin", error);
  check(fs::exists(index_path, error), "import", "{}: holds neither {} nor {}{}", escape_for_print(folder, 1000),
        single_file, index_file, pickled ? "; pytorch_model.bin is not read: save the model as safetensors" : "");
  weights.source_ = escape_for_print(index_path, 1000);
  const std::map<std::string, std::string> shards = read_index(index_path);
  std::set<std::string> names;
  for (const auto& [tensor, shard] : shards) names.insert(shard);
  for (const std::string& shard : names) {
    check(fs::exists(base / shard, error), "import", "{}: the shard {} is missing", weights.source_, in_quotes(shard));
    weights.files_.push_back(std::make_unique<SafetensorsFile>(SafetensorsFile::open((base / shard).string())));
    weights.add(*weights.files_.back());
    for (const SafetensorsEntry& entry : weights.files_.back()->entries()) {
      const auto said = shards.find(entry.name);
      check(said == shards.end() || said->second == shard, "import", "{}: {} is to be in {} and is in {}",
            weights.source_, in_quotes(entry.name), said == shards.end() ? "" : in_quotes(said->second),
            in_quotes(shard));
    }
  }
  for (const auto& [tensor, shard] : shards) {
    check(weights.tensors_.contains(tensor), "import", "{}: {} is to be in {}, which does not hold it", weights.source_,
          in_quotes(tensor), in_quotes(shard));
  }
  return weights;
}

void ForeignWeights::add(const SafetensorsFile& file) {
  for (const SafetensorsEntry& entry : file.entries()) {
    const auto [stored, is_new] = tensors_.emplace(entry.name, Stored{&file, &entry});
    check(is_new, "import", "{}: {} is in two shards, {} and {}", source_, in_quotes(entry.name),
          stored->second.file->path(), file.path());
  }
}

ForeignMapping::ForeignMapping(const ForeignWeights& weights, const Family& family, const ModelOptions& options,
                               const NamedShapes& shapes)
    : weights_(weights), heads_(options.heads) {
  take_names(family, tensor_rows(family, options));
  const std::map<std::string_view, Shape> own(shapes.begin(), shapes.end());
  std::set<std::string, std::less<>> known;
  std::set<std::string_view> filled;
  std::vector<std::string> faults;
  for (TensorRow& row : tensor_rows(family, options)) {
    std::vector<Shape> parts;
    for (const std::string& name : row.ours) {
      const auto found = own.find(name);
      check_internal(found != own.end(), "import", "the model has no {}", name);
      parts.push_back(found->second);
      filled.insert(found->first);
    }
    if (row.ours.front() == "embedding.weight") embedding_ = row.theirs;
    known.insert(row.theirs);
    const auto found = there_.find(row.theirs);
    if (found == there_.end()) {
      faults.push_back(formatted("{} is missing", in_quotes(row.theirs)));
      continue;
    }
    const SafetensorsEntry& entry = *found->second.entry;
    const Shape wanted = shape_together(parts, row.layout);
    const bool type_fits = entry.type == "F32" || entry.type == "F16" || entry.type == "BF16";
    if (entry.shape != wanted) {
      faults.push_back(formatted("{} is {}, and by config.json {}", in_quotes(row.theirs), entry.shape, wanted));
    } else if (!type_fits) {
      faults.push_back(formatted("{} is {}; F32, F16 and BF16 are read", in_quotes(row.theirs), entry.type));
    }
    sources_.push_back({std::move(row), found->second});
  }
  for (const auto& [name, stored] : there_) {
    if (known.contains(name) || ends_with_one_of(name, family.buffers)) continue;
    if (options.tied && name == family.head) {
      tied_head_ = name;
    } else {
      faults.push_back(formatted("{} is none of a {} model's tensors", in_quotes(stored.entry->name), family.name));
    }
  }
  refuse(weights.source(), std::move(faults));
  for (const auto& [name, shape] : shapes) {
    if (filled.contains(name)) continue;
    (ends_with_one_of(name, family.zeros) ? zeros_ : not_in_file_).push_back(name);
  }
}

void ForeignMapping::take_names(const Family& family, const std::vector<TensorRow>& rows) {
  const auto& tensors = weights_.tensors();
  const auto embedding =
      std::ranges::find_if(rows, [](const TensorRow& row) { return row.ours.front() == "embedding.weight"; });
  const bool has_prefix = tensors.contains(embedding->theirs);
  const std::string tail = embedding->theirs.substr(family.prefix.size());
  if (!has_prefix && !tensors.contains(tail)) {
    const auto longer = std::ranges::find_if(tensors, [&](const auto& one) { return one.first.ends_with("." + tail); });
    fail("import", "{}: has no tensor {}, which a {} model has{}", weights_.source(), in_quotes(embedding->theirs),
         family.name,
         longer == tensors.end()
             ? ""
             : formatted(", but {}; remove what is in front of its name from all names", in_quotes(longer->first)));
  }
  for (const auto& [name, stored] : tensors) {
    there_.emplace(has_prefix || name == family.head ? name : formatted("{}{}", family.prefix, name), stored);
  }
}

namespace {

Tensor read_finite(const ForeignWeights::Stored& stored) {
  Tensor tensor = stored.file->read_widened(stored.entry->name);
  check(all_finite(tensor), "import", "{}: tensor {} holds a number that is not finite", stored.file->path(),
        in_quotes(stored.entry->name));
  return tensor;
}

}  // namespace

void ForeignMapping::load(const NamedTensors& parameters) const {
  const NoGrad only_values;
  if (!tied_head_.empty()) check_tied();
  const std::map<std::string_view, Tensor> targets(parameters.begin(), parameters.end());
  for (const Source& source : sources_) {
    const auto& names = source.row.ours;
    const std::vector<Tensor> parts = taken_apart(read_finite(source.stored), source.row.layout, names.size(), heads_);
    for (std::size_t n = 0; n < names.size(); ++n) Tensor(targets.at(names[n])).copy_from(parts[n].to_dense());
  }
  for (const std::string& name : zeros_) {
    Tensor target = targets.at(name);
    target.copy_from(Tensor::zeros(target.shape()));
  }
}

void ForeignMapping::check_tied() const {
  const Tensor head = read_finite(there_.find(tied_head_)->second);
  const Tensor embedding = read_finite(there_.find(embedding_)->second);
  const auto a = bytes_of(head), b = bytes_of(embedding);
  check(head.shape() == embedding.shape() && std::memcmp(a.data(), b.data(), a.size()) == 0, "import",
        "{}: {} differs from {}, and by config.json (tie_word_embeddings) they are one", weights_.source(),
        in_quotes(tied_head_), in_quotes(embedding_));
}

// With rows as [groups, parts, rows of a part]: one group, or one for each head.
std::vector<Tensor> taken_apart(const Tensor& theirs, Layout layout, std::size_t parts, std::int64_t heads) {
  const Tensor rows = is_transposed(layout) && theirs.rank() == 2 ? transpose(theirs, 0, 1).to_dense() : theirs;
  if (parts == 1) return {rows};
  const auto count = static_cast<std::int64_t>(parts);
  const std::int64_t groups = layout == Layout::by_head ? heads : 1;
  const Tensor grouped = reshape(rows, {groups, count, rows.numel() / (groups * count)});
  Shape shape = rows.shape();
  shape[0] /= count;
  std::vector<Tensor> ours;
  for (std::int64_t n = 0; n < count; ++n) ours.push_back(reshape(grouped.detached_select(1, n).clone(), shape));
  return ours;
}

Tensor put_together(const std::vector<Tensor>& ours, Layout layout, std::int64_t heads) {
  const std::int64_t groups = layout == Layout::by_head ? heads : 1;
  std::vector<Tensor> parts;
  for (const Tensor& own : ours) parts.push_back(reshape(own, {groups, 1, own.numel() / groups}));
  Shape shape = ours.front().shape();
  shape[0] *= std::ssize(ours);
  const Tensor rows = ours.size() == 1 ? ours.front() : reshape(concat(parts, 1), shape);
  return is_transposed(layout) && rows.rank() == 2 ? transpose(rows, 0, 1).to_dense() : rows;
}

NamedTensors foreign_tensors(const Family& family, const ModelOptions& options, const NamedTensors& parameters) {
  const NoGrad only_values;
  const std::map<std::string_view, Tensor> own(parameters.begin(), parameters.end());
  for (const auto& [name, tensor] : parameters) {
    if (!ends_with_one_of(name, family.zeros)) continue;
    const std::vector<double> values = cast(tensor.detach(), DType::f64).to_vector<double>();
    check(std::ranges::all_of(values, [](double value) { return value == 0; }), "export",
          "{} models have no {}, which is not 0 here; train with these parameters left as they are (--train)",
          family.name, name);
  }
  NamedTensors tensors;
  for (const TensorRow& row : tensor_rows(family, options)) {
    std::vector<Tensor> parts;
    for (const std::string& name : row.ours) parts.push_back(own.at(name).detach());
    tensors.emplace_back(row.theirs, put_together(parts, row.layout, options.heads));
  }
  return tensors;
}

}  // namespace tally
