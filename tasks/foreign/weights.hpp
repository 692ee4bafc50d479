// The tensors of a checkpoint of another library: one file model.safetensors, or shards that
// model.safetensors.index.json tells of. Read tensor by tensor into a model of ours, and written from one.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/safetensors.hpp"
#include "nn/module.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/foreign/family.hpp"

namespace tally {

class ForeignWeights {
 public:
  // Reads the headers. Throws Error naming the file when there is none, when a shard is missing or lies outside the
  // folder, and when index and shards contradict each other.
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
// shapes and types of the model and that none is left over; one Error lists every mismatch. Names may have parts that
// a wrapper added (_orig_mod, module) and a prefix that all names of a model share, or may lack the family's prefix.
class ForeignMapping {
 public:
  // shapes: of the model's parameters. What its encodings have beyond the family's own is not in the file.
  ForeignMapping(const ForeignWeights& weights, const Family& family, const ModelOptions& options,
                 const NamedShapes& shapes);

  // Copies the values. Throws Error naming the first tensor that holds what is not finite, and where a tied output
  // projection differs from the embedding; some parameters are changed then.
  void load(const NamedTensors& parameters) const;

  // Parameters that keep their start values.
  const std::vector<std::string>& not_in_file() const { return not_in_file_; }
  // Parts that were left out of names: those of wrappers, then a prefix of all names.
  const std::vector<std::string>& left_out() const { return left_out_; }

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
  std::vector<std::string> left_out_;
  std::string tied_head_, embedding_;  // theirs, where the file has both
  std::vector<std::string> not_in_file_, zeros_;
};

// All rows of a model: the family's and the output projection where it has one of its own.
std::vector<TensorRow> tensor_rows(const Family& family, const ModelOptions& options);

// Ours from one of theirs, and back.
std::vector<Tensor> taken_apart(const Tensor& theirs, Layout layout, std::size_t parts, std::int64_t heads);
Tensor put_together(const std::vector<Tensor>& ours, Layout layout, std::int64_t heads);

// A model's parameters under their names. Throws Error where one that such a model does not have (Family::zeros) is not
// 0.
NamedTensors foreign_tensors(const Family& family, const ModelOptions& options, const NamedTensors& parameters);

}  // namespace tally
