#include "tasks/foreign/family.hpp"

#include <array>

#include "core/error.hpp"
#include "core/utf8.hpp"

namespace tally {

std::span<const Family* const> families() {
  static const std::array all{&gpt2_family, &llama_family, &neox_family, &qwen2_family};
  return all;
}

const Family& find_family(std::string_view name) {
  std::vector<std::string> known;
  for (const Family* family : families()) {
    if (family->name == name) return *family;
    known.emplace_back(family->name);
  }
  fail("export", "there is no format '{}'{}", escape_for_print(name, 60), did_you_mean_or_known(name, known));
}

void add_rows(std::vector<TensorRow>& rows, const std::string& theirs, const std::vector<std::string>& ours, bool bias,
              Layout layout) {
  for (const char* part : {".weight", ".bias"}) {
    if (!bias && std::string_view(part) == ".bias") continue;
    TensorRow row{theirs + part, {}, layout};
    for (const std::string& name : ours) row.ours.push_back(name + part);
    rows.push_back(std::move(row));
  }
}

std::string activation_from_foreign(ForeignSettings& settings, std::string_view key, std::string_view usual) {
  const std::string name = settings.text(key, usual);
  if (name == "gelu" || name == "relu") return name;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return "gelu-tanh";
  settings.refuse(key, "= '{}' is an activation that tally does not have; it has gelu, gelu_new and relu",
                  escape_for_print(name, 60));
}

std::string foreign_activation(OwnSettings& settings) {
  const std::string name = settings.one_of("model.activation", {"gelu", "gelu-tanh", "relu"});
  return name == "gelu-tanh" ? "gelu_new" : name;
}

std::int64_t hidden_of(OwnSettings& settings) {
  const std::int64_t hidden = settings.integer("model.hidden");
  return hidden > 0 ? hidden : 4 * settings.integer("model.width");
}

double norm_eps_of(OwnSettings& settings, double usual) {
  const double eps = settings.real("model.norm-eps");
  return eps > 0 ? eps : usual;
}

}  // namespace tally
