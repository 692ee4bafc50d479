#include "tests/autograd/op_cases.hpp"

#include <cmath>

#include "core/math/random.hpp"

namespace tally::testing {

Array to_array(const Tensor& x) {
  Array array(x.shape());
  array.values = x.to(Device{}).to(DType::f64).to_vector<double>();
  return array;
}

Tensor make_operand(const OpCase& op, std::size_t operand, const Shape& shape, DType dtype, Device device) {
  const Operand& info = op.operands[operand];
  Rng rng({static_cast<std::uint64_t>(operand), stream_of(op.name), 0});
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (double& value : values) {
    value = info.low + (info.high - info.low) * rng.uniform();
    if (info.kind == Operand::Kind::off_integers) value = std::floor(value) + 0.1 + 0.8 * rng.uniform();
    if (info.kind == Operand::Kind::whole || info.kind == Operand::Kind::id) value = std::floor(value);
    if (info.kind == Operand::Kind::flag) value = rng.chance(0.6) ? 1 : 0;
  }
  const Tensor tensor = Tensor::from(values, shape);
  if (info.kind == Operand::Kind::id) return tensor.to(DType::i32).to(device);
  if (info.kind == Operand::Kind::flag) return tensor.to(DType::boolean).to(device);
  return tensor.to(dtype).to(device);
}

std::vector<Tensor> make_operands(const OpCase& op, const Shapes& shapes, DType dtype, Device device) {
  std::vector<Tensor> operands;
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    operands.push_back(make_operand(op, i, shapes[i], dtype, device));
  return operands;
}

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> all = [] {
    std::vector<OpCase> cases;
    for (const auto family : {elementwise_cases, row_cases, product_cases, index_cases, shape_cases, attention_cases,
                              recurrent_cases, direct_cases}) {
      for (OpCase& op : family()) cases.push_back(std::move(op));
    }
    return cases;
  }();
  return all;
}

}  // namespace tally::testing
