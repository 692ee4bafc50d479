// Tensors as text, by the rules of numpy.array2string with its default options.
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
constexpr int precision = 8;            // digits after the point
constexpr std::int64_t most = 1000;     // a tensor with more elements is shortened
constexpr std::int64_t edge_items = 3;  // to the first and the last of each axis

template <class... Format>
std::string characters(Format... format) {
  std::array<char, 512> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), format...).ptr};
}

struct FloatText {
  std::string whole, fraction, exponent;  // "-1", "25", "e-05"

  // Digits after the point are at most `precision`, without zeros at the end.
  template <class T>
  FloatText(T x, bool scientific) {
    if (!std::isfinite(x)) {
      whole = std::isnan(x) ? "nan" : x < 0 ? "-inf" : "inf";
      return;
    }
    const std::chars_format format = scientific ? std::chars_format::scientific : std::chars_format::fixed;
    split(characters(x, format));
    if (fraction.size() <= precision) return;
    split(characters(x, format, precision));
    fraction.erase(fraction.find_last_not_of('0') + 1);
  }

  void split(const std::string& text) {
    const std::size_t e = std::min(text.find('e'), text.size()), point = std::min(text.find('.'), e);
    whole = text.substr(0, point);
    fraction = text.substr(std::min(point + 1, e), e - std::min(point + 1, e));
    exponent = text.substr(e);
  }
};

// All numbers in one format.
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
  std::vector<FloatText> parts;
  std::size_t whole = 0, fraction = 0, exponent = 0, other = 0;
  for (const T x : values) {
    const FloatText& text = parts.emplace_back(x, scientific);
    if (std::isfinite(x)) whole = std::max(whole, text.whole.size());
    if (!std::isfinite(x)) other = std::max(other, text.whole.size());
    fraction = std::max(fraction, text.fraction.size());
    exponent = std::max(exponent, text.exponent.size());
  }
  const std::size_t width = std::max(whole + 1 + fraction + exponent, other);
  std::vector<std::string> texts;
  for (std::size_t n = 0; n < values.size(); ++n) {
    FloatText& part = parts[n];
    std::string text = part.whole;
    if (std::isfinite(values[n])) {
      // All numbers with an exponent have the same number of digits.
      if (scientific) {
        part.split(characters(values[n], std::chars_format::scientific, static_cast<int>(fraction)));
        part.exponent.insert(2, exponent - part.exponent.size(), '0');
      }
      part.fraction.resize(fraction, ' ');
      text = part.whole + "." + part.fraction + part.exponent;
    }
    texts.push_back(std::string(width - text.size(), ' ') + text);
  }
  return texts;
}

// A tensor of rank 0, as Python prints a number.
template <class T>
std::string text_of_float(T x) {
  if (!std::isfinite(x)) return FloatText(x, false).whole;
  const std::string scientific = characters(x, std::chars_format::scientific);
  if (x != 0 && (std::abs(x) < T(1e-4) || std::abs(x) >= T(1e16))) return scientific;
  std::string text = characters(x, std::chars_format::fixed);
  if (text.find('.') != std::string::npos) return text;
  // Zeros replace the digits that are not needed to read the number back.
  const std::size_t e = scientific.find('e'), digits = e - (scientific.find('.') < e ? 1 : 0);
  for (std::size_t n = digits; n < text.size(); ++n) text[n] = '0';
  return text + ".0";
}

// One text an element, all of one width unless there is a single element of rank 0.
std::vector<std::string> texts_of(const Tensor& x) {
  std::vector<std::string> texts;
  std::size_t width = 0;
  dispatch_all(x.dtype(), [&]<class T>(T) {
    if constexpr (std::is_same_v<T, Bfloat16>) {
      texts = texts_of(x.to(DType::f32));
    } else if constexpr (std::is_floating_point_v<T>) {
      texts = x.rank() > 0 ? texts_of_floats(x.to_vector<T>()) : std::vector{text_of_float(x.to_vector<T>()[0])};
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
