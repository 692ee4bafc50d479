// Tensors as text, in the layout of NumPy.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "core/tensor.hpp"

namespace tally {
namespace {

constexpr std::size_t line_width = 75;
constexpr std::size_t precision = 8;    // digits after the point
constexpr std::int64_t most = 1000;     // a tensor with more elements is shortened
constexpr std::int64_t edge_items = 3;  // to the first and the last of each axis

template <class... Format>
std::string characters(Format... format) {
  std::array<char, 512> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), format...).ptr};
}

// All numbers in one notation with the same number of digits: enough to read each back, at most `precision`. They have
// an exponent if they are very large, very small or far apart.
template <class T>
std::vector<std::string> texts_of_floats(const std::vector<T>& values) {
  T largest = 0, least = std::numeric_limits<T>::infinity();
  for (const T x : values) {
    if (x == 0 || !std::isfinite(x)) continue;
    largest = std::max(largest, std::abs(x));
    least = std::min(least, std::abs(x));
  }
  const bool scientific =
      largest > 0 && (largest >= T(1e8) || static_cast<double>(least) < 1e-4 || largest / least > T(1000));
  const std::chars_format format = scientific ? std::chars_format::scientific : std::chars_format::fixed;
  std::size_t digits = 1;
  for (const T x : values) {
    const std::string text = characters(x, format);
    const std::size_t end = std::min(text.find('e'), text.size()), point = std::min(text.find('.'), end);
    if (std::isfinite(x) && point < end) digits = std::max(digits, std::min(end - point - 1, precision));
  }
  std::vector<std::string> texts;
  for (const T x : values) texts.push_back(characters(x, format, static_cast<int>(digits)));
  return texts;
}

// One text an element, all of one width unless there is a single element of rank 0.
std::vector<std::string> texts_of(const Tensor& x) {
  std::vector<std::string> texts;
  std::size_t width = 0;
  dispatch_all(x.dtype(), [&]<class T>(T) {
    if constexpr (std::is_same_v<T, Bfloat16>) {
      texts = texts_of(x.to(DType::f32));
    } else if constexpr (std::is_floating_point_v<T>) {
      texts = x.rank() > 0 ? texts_of_floats(x.to_vector<T>()) : std::vector{characters(x.to_vector<T>()[0])};
    } else {
      for (const T value : x.to_vector<T>()) {
        texts.push_back(std::is_same_v<T, bool> ? (value ? "True" : "False") : std::to_string(value));
      }
      if (std::is_same_v<T, bool> && x.rank() > 0) width = 5;
    }
  });
  for (const std::string& text : texts) width = std::max(width, text.size());
  for (std::string& text : texts) text.insert(0, width - text.size(), ' ');
  return texts;
}

bool is_shortened(const Shape& shape, int axis) { return shape.numel() > most && shape[axis] > 2 * edge_items; }

// The elements that are printed.
Tensor printed(const Tensor& x) {
  Tensor shown = x.detach();
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (!is_shortened(x.shape(), axis)) continue;
    const Tensor all = shown;
    Shape shape = all.shape();
    shape[axis] = 2 * edge_items;
    shown = Tensor::empty(shape, all.dtype(), all.device());
    shown.detached_slice(axis, 0, edge_items).copy_from(all.detached_slice(axis, 0, edge_items));
    shown.detached_slice(axis, edge_items, 2 * edge_items)
        .copy_from(all.detached_slice(axis, all.size(axis) - edge_items, all.size(axis)));
  }
  return shown;
}

// Elements of the innermost axis are separated by blanks, in lines of at most `width`; others by line breaks.
std::string text_of_axis(const Shape& shape, const Shape& shown, int axis, std::size_t width,
                         std::vector<std::string>::const_iterator& next) {
  if (axis == shape.rank) return *next++;
  const std::string indent(static_cast<std::size_t>(axis) + 1, ' ');
  std::vector<std::string> words;
  for (std::int64_t n = 0; n < shown[axis]; ++n) {
    if (is_shortened(shape, axis) && n == edge_items) words.emplace_back("...");
    words.push_back(text_of_axis(shape, shown, axis + 1, width - 1, next));
  }
  std::string text = words.front();
  const auto breaks = static_cast<std::size_t>(shape.rank - 1 - axis);
  std::size_t used = indent.size() + text.size() + 1;
  for (std::size_t n = 1; n < words.size(); ++n) {
    const bool fits = used + words[n].size() <= width - 1;
    if (breaks == 0 && fits) {
      text += " " + words[n];
    } else {
      text.erase(text.find_last_not_of(' ') + 1);
      text += std::string(std::max<std::size_t>(breaks, 1), '\n') + indent + words[n];
      used = indent.size();
    }
    used += words[n].size() + 1;
  }
  return "[" + text + "]";
}

}  // namespace

std::string to_text(const Tensor& x) {
  if (!x.defined()) return "undefined";
  if (x.numel() == 0) return "[]";
  const Tensor shown = printed(x);
  const std::vector<std::string> texts = texts_of(shown);
  auto next = texts.begin();
  return text_of_axis(x.shape(), shown.shape(), 0, line_width, next);
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) { return out << to_text(x); }

}  // namespace tally
