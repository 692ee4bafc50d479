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

void check_axes(const Bias& bias) {
  const auto need = [](std::string_view name, const Tensor& x, std::string_view axes) {
    check(!x.defined() || x.rank() == std::ranges::count(axes, ',') + 1, "score", "{} must be {}, got {}", name, axes,
          x.defined() ? x.shape() : Shape());
  };
  if (const auto* own = std::get_if<Toeplitz>(&bias)) {
    need("the bias of a Toeplitz", own->bias, "[H, distances]");
  }
  if (const auto* own = std::get_if<RowColumn>(&bias)) {
    need("the row of a RowColumn", own->row, "[B, H, T]");
    need("the column of a RowColumn", own->column, "[B, H, keys]");
  }
  if (const auto* own = std::get_if<RowToeplitz>(&bias)) {
    need("z of a RowToeplitz", own->z, "[B, H, T, W]");
  }
  if (const auto* own = std::get_if<ToeplitzProduct>(&bias)) {
    need("the query of a ToeplitzProduct", own->query, "[B, H, T, w]");
    need("the key of a ToeplitzProduct", own->key, "[1 or B, 1 or G, W, w]");
  }
  if (const auto* own = std::get_if<Product>(&bias)) {
    need("the query of a Product", own->query, "[B, H, T, w]");
    need("the key of a Product", own->key, "[B, G, keys, w]");
  }
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
