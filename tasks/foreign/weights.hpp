// The tensors of another library's checkpoint: a single model.safetensors, or the shards listed in
// model.safetensors.index.json. They are read tensor by tensor into one of our models, and written from one.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/io/safetensors.hpp"
#include "nn/module.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/foreign/family.hpp"

namespace tally {

class ForeignWeights {
 public:
  // Reads the headers. Throws Error naming the file if there is none, if a shard is missing or outside the folder, and
  // if index and shards contradict each other.
  static ForeignWeights open(const std::string& folder);

  struct Stored {
    const SafetensorsFile* file;
    const SafetensorsEntry* entry;
  };
  const std::map<std::string, Stored, std::less<>>& tensors() const { return tensors_; }
  // "folder/model.safetensors", or the index.
  const std::string& source() const { return source_; }

 private:
  void add(const SafetensorsFile& file);

  std::string source_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Stored, std::less<>> tensors_;
};

// Maps tensors of the file to a model's parameters. Before any memory is allocated, it checks that all exist in the
// shapes and types of the model and that none is left over; one Error lists every mismatch. All names may lack the
// family's prefix.
class ForeignMapping {
 public:
  // shapes: of the model's parameters. The file lacks parameters of additional encodings.
  ForeignMapping(const ForeignWeights& weights, const Family& family, const ModelOptions& options,
                 const NamedShapes& shapes);

  // Copies the values. Throws Error naming the first tensor with a value that is not finite, and if a tied output
  // projection differs from the embedding. Some parameters have changed in that case.
  void load(const NamedTensors& parameters) const;

  // Parameters that keep their initial values.
  const std::vector<std::string>& not_in_file() const { return not_in_file_; }

 private:
  struct Source {
    TensorRow row;
    ForeignWeights::Stored stored;
  };
  void take_names(const Family& family, const std::vector<TensorRow>& rows);
  void check_tied() const;

  const ForeignWeights& weights_;
  std::int64_t heads_;
  std::vector<Source> sources_;
  std::map<std::string, ForeignWeights::Stored, std::less<>> there_;  // by the family's names
  std::string tied_head_, embedding_;                                 // names in the file, if it has both
  std::vector<std::string> not_in_file_, zeros_;
};

// Splits a tensor of the file into ours, and joins ours.
std::vector<Tensor> taken_apart(const Tensor& theirs, Layout layout, std::size_t parts, std::int64_t heads);
Tensor put_together(const std::vector<Tensor>& ours, Layout layout, std::int64_t heads);

// A model's parameters under the family's names. Throws Error if a parameter that such a model lacks (Family::zeros) is
// not 0.
NamedTensors foreign_tensors(const Family& family, const ModelOptions& options, const NamedTensors& parameters);

}  // namespace tally
