// Constants of positions and distances that encodings compute on the host, once for all layers and steps. A captured
// step (core/device/graph.hpp) finds them on the device.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/attention/mask.hpp"
#include "core/tensor.hpp"

namespace tally {

// value(t, column) in each row t: [rows, columns]. Nothing is computed on the counting device (core/device/meta.cpp).
Tensor table_of(std::int64_t rows, std::int64_t columns, DType dtype, Device device,
                const std::function<double(std::int64_t t, std::int64_t column)>& value);

class Constants {
 public:
  // The value at position or distance t, from 0. Plain functions instead of closures: the function identifies the
  // table.
  using Number = double (*)(std::int64_t t);
  // The value at t, in one of `columns` columns.
  using Element = double (*)(std::int64_t t, std::int64_t column, std::int64_t columns);
  // The same with numbers that the table depends on, such as values of options.
  using ElementOfValues = double (*)(std::int64_t t, std::int64_t column, std::int64_t columns,
                                     std::span<const double> values);

  // Tables are created for `length` rows at once, usually the longest sequence, and again if that is too few.
  explicit Constants(std::int64_t length = 0) : length_(length) {}

  // number(t) of first .. end - 1: [end - first]
  Tensor of(Number number, std::int64_t first, std::int64_t end, DType dtype, Device device);
  // number(n) for the n keys in the attention mask of each of the queries first .. end - 1: [end - first]
  Tensor of_keys_seen(Number number, const AttentionMask& mask, std::int64_t first, std::int64_t end, DType dtype,
                      Device device);
  // Rows first .. end - 1: [end - first, columns]
  Tensor of(Element element, std::int64_t first, std::int64_t end, std::int64_t columns, DType dtype, Device device);
  Tensor of(ElementOfValues element, std::int64_t first, std::int64_t end, std::int64_t columns,
            std::vector<double> values, DType dtype, Device device);

 private:
  // The table's index: positions, or numbers of unmasked keys.
  struct Key {
    void (*function)();
    std::optional<AttentionMask> mask = {};
    std::vector<double> values = {};
    bool operator==(const Key&) const = default;
  };
  Tensor table(const Key& key, std::int64_t end, std::int64_t columns, DType dtype, Device device,
               const std::function<double(std::int64_t t, std::int64_t column)>& value);

  struct Table {
    Key key;
    std::int64_t columns;
    Tensor values;  // [rows, columns]
  };
  std::int64_t length_;
  std::vector<Table> tables_;  // shorter tables stay, because captured steps still read them
};

}  // namespace tally
