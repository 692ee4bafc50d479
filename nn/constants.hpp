// Numbers of positions and distances that encodings compute on the host: made once, for all layers and steps, and not
// in each of them. A captured step (core/graph.hpp) finds them on the device.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/attention/visible.hpp"
#include "core/tensor.hpp"

namespace tally {

// value(t, column) in each row t: [rows, columns]. Where memory is only counted (core/meta.cpp) nothing is computed.
Tensor table_of(std::int64_t rows, std::int64_t columns, DType dtype, Device device,
                const std::function<double(std::int64_t t, std::int64_t column)>& value);

class Constants {
 public:
  // Of position or distance t, from 0. Functions, and not closures, which capture nothing: a function and the values
  // that it is given name its table.
  using Number = double (*)(std::int64_t t);
  using NumberWith = double (*)(std::int64_t t, std::span<const double> values);
  // Of t, in one of `columns` columns.
  using Element = double (*)(std::int64_t t, std::int64_t column, std::int64_t columns);

  // Tables are made for `length` rows at once, which is the longest sequence as a rule, and anew where that is too few.
  explicit Constants(std::int64_t length = 0) : length_(length) {}

  // number(t) of first .. end - 1: [end - first]
  Tensor of(Number number, std::int64_t first, std::int64_t end, DType dtype, Device device);
  // number(t, values), likewise
  Tensor of(NumberWith number, const std::vector<double>& values, std::int64_t first, std::int64_t end, DType dtype,
            Device device);
  // number(n) of the n keys that each of the queries first .. end - 1 sees: [end - first]
  Tensor of_keys_seen(Number number, const Visible& visible, std::int64_t first, std::int64_t end, DType dtype,
                      Device device);
  // Rows first .. end - 1: [end - first, columns]
  Tensor of(Element element, std::int64_t first, std::int64_t end, std::int64_t columns, DType dtype, Device device);

 private:
  // What a table holds: of positions, or of the keys that they see.
  struct Key {
    void (*function)();
    std::optional<Visible> visible = {};
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
  std::vector<Table> tables_;  // those that became too short stay: captured steps go on reading them
};

}  // namespace tally
