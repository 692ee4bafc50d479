#include "autograd/score.hpp"

#include <algorithm>
#include <utility>

#include "autograd/ops.hpp"
#include "autograd/ops/check.hpp"
#include "core/error.hpp"

namespace tally {

bool is_compiled(const ScoreMod& mod, Device device) {
  switch (type_of_kernels(device)) {
    case DeviceType::cuda: return mod.cuda != nullptr;
    case DeviceType::cuda_host: return mod.cuda_host != nullptr;
    default: return mod.loops != nullptr;
  }
}

void Score::add_score_mod(AppliedScoreMod value) {
  if (score_mod) {
    more_score_mods.push_back(std::move(value));
  } else {
    score_mod = std::move(value);
  }
}

std::vector<const AppliedScoreMod*> Score::score_mods() const {
  std::vector<const AppliedScoreMod*> all;
  if (score_mod) all.push_back(&*score_mod);
  for (const AppliedScoreMod& pair : more_score_mods) all.push_back(&pair);
  const auto order = [](const AppliedScoreMod* pair) {
    return pair->mod->traits.after_biases ? 2 : pair->mod->traits.adds ? 1 : 0;
  };
  std::ranges::stable_sort(all, {}, order);
  return all;
}

void Score::set_softmax_rule(SoftmaxRule value) {
  check(softmax_rule.is_softmax(), "encoding",
        "two parts of the sum each take the place of the softmax: keep one of them (biases and rotations may join it)");
  softmax_rule = std::move(value);
}

Tensor repeat_kv(const Tensor& x, std::int64_t heads) {
  const std::int64_t before = x.size(1);
  if (heads == before || before == 0) return x;
  const Shape repeated{x.size(0), before, heads / before, x.size(2), x.size(3)};
  return reshape(broadcast_to(unsqueeze(x, 2), repeated), {x.size(0), heads, x.size(2), x.size(3)});
}

Tensor products_of_rows(const Tensor& query, const Tensor& key, double scale) {
  check_products_of_rows("attention", query, key);
  const std::int64_t heads = key.size(1);
  Tensor by_head = key;
  if (key.size(0) == 1 && heads == 1) {
    by_head = reshape(key, {key.size(2), key.size(3)});  // one product
  } else if (heads > 1) {
    by_head = repeat_kv(key, query.size(1));
  }
  return matmul(query, transpose(by_head, -1, -2), scale);
}

RowToeplitz ToeplitzProduct::materialised(double scale) const { return {products_of_rows(query, key, scale), cap}; }

bool Score::multiplies_pairs() const { return row_factor.defined() && (score_mod.has_value() || !biases.empty()); }

namespace {

void need_axes(const char* name, const Tensor& x, int rank, const char* axes) {
  check(!x.defined() || x.rank() == rank, "score", "{} must be {}, got {}", name, axes,
        x.defined() ? x.shape() : Shape());
}

void check_axes_of(const Toeplitz& bias) { need_axes("the bias of a Toeplitz", bias.bias, 2, "[H, distances]"); }
void check_axes_of(const RowColumn& bias) {
  need_axes("the row of a RowColumn", bias.row, 3, "[B, H, T]");
  need_axes("the column of a RowColumn", bias.column, 3, "[B, H, keys]");
}
void check_axes_of(const RowToeplitz& bias) { need_axes("z of a RowToeplitz", bias.z, 4, "[B, H, T, W]"); }
void check_axes_of(const ToeplitzProduct& bias) {
  need_axes("the query of a ToeplitzProduct", bias.query, 4, "[B, H, T, w]");
  need_axes("the key of a ToeplitzProduct", bias.key, 4, "[1 or B, 1 or G, W, w]");
}
void check_axes_of(const Product& bias) {
  need_axes("the query of a Product", bias.query, 4, "[B, H, T, w]");
  need_axes("the key of a Product", bias.key, 4, "[B, G, keys, w]");
}
void check_axes_of(const Dense&) {}  // may broadcast

}  // namespace

void check_axes(const Bias& bias) {
  std::visit([](const auto& own) { check_axes_of(own); }, bias);
}

bool Score::reads_distances() const {
  return std::ranges::any_of(biases, [](const Bias& bias) {
    return std::holds_alternative<Toeplitz>(bias) || std::holds_alternative<RowToeplitz>(bias) ||
           std::holds_alternative<ToeplitzProduct>(bias);
  });
}

bool Score::tiled_on(Device device) const {
  // Products are added to the scores, which a score modification must not use other than by adding to them.
  const bool has_product =
      std::ranges::any_of(biases, [](const Bias& bias) { return std::holds_alternative<Product>(bias); });
  const auto fits = [&](const AppliedScoreMod& applied) {
    const ScoreModTraits& traits = applied.mod->traits;
    return is_compiled(*applied.mod, device) && (!has_product || traits.after_biases || traits.adds);
  };
  return more_score_mods.empty() && !multiplies_pairs() && (!score_mod || fits(*score_mod));
}

}  // namespace tally
