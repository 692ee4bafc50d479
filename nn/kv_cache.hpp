// What a layer keeps of the tokens it has seen while a text is generated token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/tensor.hpp"

namespace tally {

// What is kept under one name. Rows that are appended are written behind those that are there, where memory has room
// for them, so that a token does not copy those of all before it. Copies share that memory; of several that go on from
// the same rows the first writes behind them, and the others take memory of their own.
class Kept {
 public:
  const Tensor& tensor() const { return tensor_; }  // undefined at first
  void set(Tensor tensor) {
    tensor_ = std::move(tensor);
    room_.reset();
  }
  // To be put in its place where what is kept is no row for each token.
  Tensor& state() {
    room_.reset();
    return tensor_;
  }
  // Shapes must agree but along `axis`. Without gradients.
  void append(const Tensor& rows, int axis);

 private:
  // Memory that tensor_ is the first rows of, and how many of it anybody has written.
  struct Room {
    Tensor memory;
    std::int64_t filled;
  };

  Tensor tensor_;
  std::shared_ptr<Room> room_;
};

// By name: keys and values, and what encodings need.
using KvCache = std::map<std::string, Kept, std::less<>>;

}  // namespace tally
