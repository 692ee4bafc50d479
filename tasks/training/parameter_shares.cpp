#include "tasks/training/parameter_shares.hpp"

#include <algorithm>
#include <utility>

#include "autograd/node.hpp"
#include "core/error.hpp"

namespace tally {
namespace {

// A scalar is one row.
Tensor in_rows(const Tensor& tensor) { return tensor.rank() == 0 ? tensor.detached_reshape({1}) : tensor.detach(); }

}  // namespace

ParameterShares::ParameterShares(NamedTensors parameters, const ProcessGroup& ranks)
    : parameters_(std::move(parameters)), ranks_(ranks) {
  std::int64_t all = 0;
  for (const auto& [path, parameter] : parameters_) all += parameter.numel();
  const std::vector<std::int64_t> cuts = parts_of(all, ranks.size());
  std::int64_t before = 0;  // elements of earlier parameters
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [path, parameter] = parameters_[i];
    const std::int64_t rows = in_rows(parameter).size(0);
    const std::int64_t row = std::max<std::int64_t>(1, rows > 0 ? parameter.numel() / rows : 1);
    std::vector<std::int64_t>& bounds = bounds_.emplace_back();
    for (const std::int64_t cut : cuts) bounds.push_back(std::clamp<std::int64_t>((cut - before) / row, 0, rows));
    before += parameter.numel();
    bounds.back() = rows;
    own_.emplace_back(path, rows_of(parameter, i, ranks.rank()));
    set_requires_grad(own_.back().second);
  }
}

Tensor ParameterShares::rows_of(const Tensor& whole, std::size_t i, std::int64_t rank) const {
  const auto r = static_cast<std::size_t>(rank);
  return in_rows(whole).detached_slice(0, bounds_[i][r], bounds_[i][r + 1]);
}

void ParameterShares::take_gradients() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& parameter = parameters_[i].second;
    const Tensor whole = gradient(parameter);
    clear_gradient(parameter);
    if (whole.defined() && own_[i].second.numel() > 0) {
      set_gradient(own_[i].second, rows_of(whole.to_dense(), i, ranks_.rank()));
    }
  }
}

void ParameterShares::share_parameters(GradientReducer* exchange) const {
  for (const auto& [path, rows] : own_) clear_gradient(rows);
  if (ranks_.alone()) return;
  std::vector<std::int64_t> begins{0};  // of each rank's rows, concatenated over all parameters
  for (std::int64_t r = 0; r < ranks_.size(); ++r) {
    begins.push_back(begins.back());
    for (std::size_t i = 0; i < parameters_.size(); ++i) begins.back() += rows_of(parameters_[i].second, i, r).numel();
  }
  const Tensor& like = parameters_.front().second;
  const Tensor all = Tensor::empty({begins.back()}, like.dtype(), like.device());
  const auto for_rows_of = [&](std::int64_t rank, auto&& copy) {
    std::int64_t at = begins[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const Tensor rows = rows_of(parameters_[i].second, i, rank);
      if (rows.numel() == 0) continue;
      copy(rows, all.detached_slice(0, at, at + rows.numel()).detached_reshape(rows.shape()));
      at += rows.numel();
    }
  };
  for_rows_of(ranks_.rank(), [](const Tensor& rows, Tensor sent) { sent.copy_from(rows); });
  exchange->all_gather(all, begins);
  for (std::int64_t r = 0; r < ranks_.size(); ++r) {
    if (r != ranks_.rank()) for_rows_of(r, [](Tensor rows, const Tensor& sent) { rows.copy_from(sent); });
  }
}

std::size_t ParameterShares::index_of(std::string_view state) const {
  const std::string_view path = state.substr(0, state.rfind('.'));
  const auto found = std::ranges::find(parameters_, path, [](const auto& parameter) { return parameter.first; });
  return static_cast<std::size_t>(found - parameters_.begin());
}

NamedTensors ParameterShares::whole(const NamedTensors& state) const {
  constexpr int tag = 1 << 15;
  NamedTensors all;
  for (const auto& [name, own] : state) {
    const std::size_t i = index_of(name);
    Messages messages(ranks_);
    if (!ranks_.first()) {
      const Tensor rows = own.to(host_of(own.device())).to_dense();
      messages.send(bytes_of(rows), 0, tag);
      messages.wait();
      continue;
    }
    const Tensor tensor = Tensor::empty(parameters_[i].second.shape(), own.dtype(), host_of(own.device()));
    Tensor own_rows = rows_of(tensor, i, 0);
    own_rows.copy_from(own);
    for (std::int64_t r = 1; r < ranks_.size(); ++r) messages.receive(bytes_of(rows_of(tensor, i, r)), r, tag);
    messages.wait();
    all.emplace_back(name, tensor);
  }
  return all;
}

std::vector<StoredTensor> ParameterShares::own_rows(std::vector<StoredTensor> whole) const {
  for (StoredTensor& stored : whole) {
    const std::size_t i = index_of(stored.name);
    // The code that loads a tensor rejects a wrong shape or name.
    if (i == parameters_.size() || stored.shape != parameters_[i].second.shape()) continue;
    stored.shape = own_[i].second.shape();
    stored.read = [this, i, read = std::move(stored.read)] { return rows_of(read(), i, ranks_.rank()); };
  }
  return whole;
}

}  // namespace tally
