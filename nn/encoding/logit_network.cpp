#include "nn/encoding/logit_network.hpp"

#include <cmath>
#include <variant>
#include <vector>

#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "nn/attention/composed.hpp"
#include "nn/encoding/shared_parts.hpp"

namespace tally {
namespace {

Fill uniform_of(std::int64_t inputs) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(inputs));
  return Fill::uniform(-bound, bound);
}

// weight [N, C, K] over x [B, C, T, keys + K-1]: y_j = sum_k W_k x_{j+k}, [B, N, T, keys]. For few input channels: the
// operand of the matmul is stored K times.
Tensor gathered(const Tensor& weight, const Tensor& x) {
  const std::int64_t taps = weight.size(2), keys = x.size(3) - taps + 1;
  std::vector<Tensor> shifted;
  for (std::int64_t k = 0; k < taps; ++k) shifted.push_back(slice(x, 3, k, k + keys));
  const Tensor columns = taps == 1 ? x : concat(shifted, 1);  // [B, K C, T, keys]
  const Tensor by_tap = reshape(transpose(weight, 1, 2), {weight.size(0), taps * weight.size(1)});
  const Tensor y = matmul(by_tap, reshape(columns, {x.size(0), taps * x.size(1), x.size(2) * keys}));
  return reshape(y, {x.size(0), weight.size(0), x.size(2), keys});
}

// The same for few output channels: the result of the matmul is stored K times. x [B, C, T, keys + behind], with zeros
// before its keys: y_j = sum_k W_k x_{j+k-before}, [B, N, T, keys]
Tensor scattered(const Tensor& weight, const Tensor& x, std::int64_t before, std::int64_t keys) {
  const std::int64_t taps = weight.size(2), outputs = weight.size(0), batch = x.size(0), length = x.size(2);
  const Tensor by_tap = reshape(transpose(transpose(weight, 1, 2), 0, 1), {taps * outputs, weight.size(1)});
  const Tensor flat = matmul(by_tap, reshape(x, {batch, x.size(1), length * x.size(3)}));
  const Tensor all = padded(reshape(flat, {batch, taps * outputs, length, x.size(3)}), 3, before, 0);
  Tensor y;
  for (std::int64_t k = 0; k < taps; ++k) {
    const Tensor term = slice(slice(all, 1, k * outputs, (k + 1) * outputs), 3, k, k + keys);
    y = y.defined() ? y + term : term;
  }
  return y;
}

// A matrix as a convolution over one key.
Tensor with_taps(const Tensor& weight) { return weight.rank() == 2 ? unsqueeze(weight, 2) : weight; }

}  // namespace

void LogitNetworkOptions::visit(OptionVisitor& visitor) {
  visitor.integer("hidden", hidden, "N, width of the hidden layer", 1, 1 << 16);
  visitor.real("slope", slope, "slope of the hidden layer's rectifier below 0", 0, 1);
}

LogitNetwork::LogitNetwork(const EncodingSetup& setup, const LogitNetworkOptions& options, const std::string& bias,
                           std::optional<std::int64_t> kernel, bool ends_with_text)
    : slope_(options.slope), kernel_(kernel.value_or(1)), ends_with_text_(ends_with_text) {
  const std::int64_t inputs = bias == "none" ? setup.heads : 2 * setup.heads, hidden = options.hidden;
  const auto weight = [&](std::int64_t out, std::int64_t in) {
    return kernel ? Shape{out, in, *kernel} : Shape{out, in};
  };
  const auto make = [&](std::string_view name, const Shape& shape, std::int64_t channels) {
    return setup.parameter(name, shape, uniform_of(channels * kernel_));
  };
  hidden_weight_ = make("hidden.weight", weight(hidden, inputs), inputs);
  hidden_bias_ = make("hidden.bias", {hidden}, inputs);
  output_weight_ = make("output.weight", weight(setup.heads, hidden), hidden);
  output_bias_ = make("output.bias", {setup.heads}, hidden);
  if (bias == "none") return;
  EncodingSetup own = setup;
  own.make_parameter = [&setup](std::string_view name, const Shape& shape, const Fill& fill, Scope scope) {
    return setup.parameter(formatted("bias.{}", name), shape, fill, scope);
  };
  const EncodingEntry& entry = find_encoding(bias);
  bias_ = entry.make(own, *entry.make_options());
}

Tensor LogitNetwork::bias_of(const Tensor& mask, const AttentionInput& in) const {
  if (bias_ == nullptr) return {};
  Score score;
  bias_->score(in, score);
  const Tensor& by_distance = std::get<Toeplitz>(score.biases.at(0)).bias;
  return masked_fill_zero(unsqueeze(read_distance(unsqueeze(by_distance, 1), in.keys(), false), 0), mask);
}

Tensor LogitNetwork::weights(const Tensor& logits, const Tensor& mask, const AttentionInput& in) const {
  return Encoding::weights(changed(logits, mask, in), mask, in);
}

Tensor LogitNetwork::changed(const Tensor& logits, const Tensor& mask, const AttentionInput& in) const {
  const std::int64_t heads = logits.size(1), keys = logits.size(3), half = kernel_ / 2;
  const Tensor s = masked_fill_zero(logits, mask), b = bias_of(mask, in);
  const Tensor weight = with_taps(hidden_weight_);
  const Tensor of_heads = b.defined() ? slice(weight, 1, 0, heads) : weight;
  // The bias term is the same for all sequences. The hidden layer extends `half` keys beyond the last one.
  Tensor shift = unsqueeze(unsqueeze(hidden_bias_, 1), 2);
  if (b.defined()) shift = gathered(slice(weight, 1, heads, 2 * heads), padded(b, 3, half, 2 * half)) + shift;
  const Tensor hidden = gathered(of_heads, padded(s, 3, half, 2 * half)) + shift;
  Tensor active = leaky_relu(hidden, slope_);
  if (ends_with_text_) active = padded(slice(active, 3, 0, keys), 3, 0, half);
  const Tensor change = scattered(with_taps(output_weight_), active, half, keys);
  const Tensor moved = b.defined() ? s + b : s;
  return moved + (change + unsqueeze(unsqueeze(output_bias_, 1), 2));
}

void LogitNetwork::project() const {
  if (bias_ != nullptr) bias_->project();
}

}  // namespace tally
