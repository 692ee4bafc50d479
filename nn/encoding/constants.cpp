#include "nn/encoding/constants.hpp"

#include <algorithm>
#include <utility>

namespace tally {

Tensor table_of(std::int64_t rows, std::int64_t columns, DType dtype, Device device,
                const std::function<double(std::int64_t, std::int64_t)>& value) {
  const Tensor numbers = Tensor::empty({rows, columns}, DType::f64, host_of(device));
  auto* number = numbers.view().as<double>();
  for (std::int64_t t = 0; t < rows && device.type != DeviceType::meta; ++t) {
    for (std::int64_t column = 0; column < columns; ++column) *number++ = value(t, column);
  }
  return numbers.to(device).to(dtype);
}

Tensor Constants::of(Number number, std::int64_t first, std::int64_t end, DType dtype, Device device) {
  const auto value = [&](std::int64_t t, std::int64_t) { return number(t); };
  const Key key{reinterpret_cast<void (*)()>(number)};
  return table(key, end, 1, dtype, device, value).detached_select(1, 0).detached_slice(0, first, end);
}

Tensor Constants::of_keys_seen(Number number, const AttentionMask& mask, std::int64_t first, std::int64_t end,
                               DType dtype, Device device) {
  const auto value = [&](std::int64_t t, std::int64_t) { return number(mask.count(t)); };
  const Key key{reinterpret_cast<void (*)()>(number), mask};
  return table(key, end, 1, dtype, device, value).detached_select(1, 0).detached_slice(0, first, end);
}

Tensor Constants::of(Element element, std::int64_t first, std::int64_t end, std::int64_t columns, DType dtype,
                     Device device) {
  const auto value = [&](std::int64_t t, std::int64_t column) { return element(t, column, columns); };
  return table({reinterpret_cast<void (*)()>(element)}, end, columns, dtype, device, value)
      .detached_slice(0, first, end);
}

Tensor Constants::of(ElementOfValues element, std::int64_t first, std::int64_t end, std::int64_t columns,
                     std::vector<double> values, DType dtype, Device device) {
  const Key key{reinterpret_cast<void (*)()>(element), {}, std::move(values)};
  const auto value = [&](std::int64_t t, std::int64_t column) { return element(t, column, columns, key.values); };
  return table(key, end, columns, dtype, device, value).detached_slice(0, first, end);
}

Tensor Constants::table(const Key& key, std::int64_t end, std::int64_t columns, DType dtype, Device device,
                        const std::function<double(std::int64_t, std::int64_t)>& value) {
  std::int64_t rows = std::max(length_, end);
  for (const Table& made : tables_) {
    if (!(made.key == key) || made.columns != columns || made.values.dtype() != dtype ||
        made.values.device() != device) {
      continue;
    }
    if (made.values.size(0) >= end) return made.values;
    rows = std::max(rows, 2 * made.values.size(0));  // a growing text would otherwise need a new row for each token
  }
  return tables_.emplace_back(Table{key, columns, table_of(rows, columns, dtype, device, value)}).values;
}

}  // namespace tally
