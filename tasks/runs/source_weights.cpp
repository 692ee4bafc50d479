#include "tasks/runs/source_weights.hpp"

#include <algorithm>
#include <map>

#include "core/error.hpp"
#include "nn/model.hpp"
#include "nn/options.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/print/statistics.hpp"
#include "tasks/runs/checkpoint.hpp"
#include "tasks/runs/model_shapes.hpp"

namespace tally {
namespace {

StoredCheckpoint last_checkpoint(const RunFolder& folder) {
  check(folder.finished(), "from", "the run '{}' is not finished; 'tally resume {}' finishes it", folder.path(),
        folder.path());
  return folder.open_checkpoint(folder.config().run.steps);
}

}  // namespace

SourceWeights::SourceWeights(const std::string& run)
    : folder_(RunFolder::open(run)), checkpoint_(last_checkpoint(folder_)) {}

WeightsOrigin SourceWeights::origin() const {
  return {absolute_path(folder_.path()), checkpoint_.step, folder_.config().label()};
}

SourceWeights::Match SourceWeights::match(const RunConfig& config, const Task& task) const {
  ModelRecord kept = checkpoint_.record;
  std::erase_if(kept, [](const auto& setting) {
    return setting.first == "pe" || setting.first.starts_with("pe.") || setting.first == "model.qk-norm";
  });
  Match match;
  in_file(folder_.checkpoint_path(checkpoint_.step), [&] {
    check_same_model(kept, config, task);
    std::map<std::string, const Shape*> stored;
    const std::vector<StoredTensor> tensors = checkpoint_.tensors("model.");
    for (const StoredTensor& tensor : tensors) stored.emplace(tensor.name, &tensor.shape);
    for (const auto& [name, shape] : parameter_shapes(config, task)) {
      const auto found = stored.find(name);
      if (found == stored.end()) {
        match.fresh.push_back(name);
        continue;
      }
      check(*found->second == shape, "from",
            "{} is {} in the stored model and {} in the new one; options that change its shape must be those of the "
            "stored model",
            name, *found->second, shape);
      ++match.taken;
      stored.erase(found);
    }
    for (const auto& [name, shape] : stored) match.dropped.push_back(name);
  });
  return match;
}

void SourceWeights::write_start(const RunFolder& folder) const {
  const RunConfig& config = folder.config();
  const std::unique_ptr<Task> task = config.make_task();
  const std::vector<std::string> dropped = match(config, *task).dropped;
  const std::unique_ptr<SequenceModel> model = config.make_model(*task);
  std::vector<StoredTensor> values = checkpoint_.tensors("model.");
  std::erase_if(values, [&](const StoredTensor& value) { return std::ranges::count(dropped, value.name) > 0; });
  NamedTensors targets = model->parameters();
  std::erase_if(targets,
                [&](const auto& target) { return std::ranges::count(values, target.first, &StoredTensor::name) == 0; });
  load_tensors(targets, values);
  folder.check_can_write_checkpoints(0, 0);
  folder.write_checkpoint({0, 0, 0, model_record(config, *task)}, model->parameters(), {});
}

namespace {

// "position.cope.table (4 layers), position.alibi.slopes"; "none" for no names.
std::string by_layers(const std::vector<std::string>& names) {
  constexpr std::string_view layers = "blocks.";
  std::vector<std::string> order;
  std::map<std::string, int> count;
  for (const std::string& name : names) {
    const bool of_layer = name.starts_with(layers);
    const std::string own = of_layer ? name.substr(name.find('.', layers.size()) + 1) : name;
    if (count.emplace(own, 0).second) order.push_back(own);
    count[own] += of_layer;
  }
  for (std::string& name : order) {
    const int own = count[name];
    if (own > 0) name += formatted(" ({})", plural(own, "layer"));
  }
  return order.empty() ? "none" : joined(order);
}

}  // namespace

std::string match_text(const SourceWeights::Match& match, const WeightsOrigin& origin) {
  return formatted("{} parameters from {} at step {}; new: {}; dropped: {}", match.taken, printable(origin.run),
                   origin.step, by_layers(match.fresh), by_layers(match.dropped));
}

}  // namespace tally
