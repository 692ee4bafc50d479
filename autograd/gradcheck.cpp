#include "autograd/gradcheck.hpp"

#include <cmath>

#include "autograd/node.hpp"
#include "core/error.hpp"
#include "core/math/random.hpp"

namespace tally {
namespace {

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

// "[1, 2]": the index of element n of a row-major shape.
std::string index_text(const Shape& shape, std::int64_t n) {
  Shape index = shape;
  for (int axis = shape.rank - 1; axis >= 0; --axis) {
    index[axis] = n % shape[axis];
    n /= shape[axis];
  }
  return to_text(index);
}

std::vector<double> random_values(Rng& rng, std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = 2 * rng.uniform() - 1;
  return values;
}

// In place, on the device of x.
void set_values(Tensor x, const std::vector<double>& values) { x.copy_from(Tensor::from(values, x.shape())); }

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}

class Gradcheck {
 public:
  Gradcheck(const Function& f, const std::vector<Tensor>& inputs, const GradcheckOptions& options)
      : f_(f), options_(options) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      check(inputs[i].defined(), "gradcheck", "input {} is undefined", i);
      Tensor own = inputs[i].clone();
      if (is_floating(own.dtype())) {
        check(own.dtype() == DType::f64, "gradcheck", "input {} is {} {}; differences need f64", i, own.dtype(),
              own.shape());
        set_requires_grad(own);
        elements_ += own.numel();
      }
      inputs_.push_back(own);
    }
    const NoGrad only_the_value;
    const Tensor y = f_(inputs_);
    check(y.dtype() == DType::f64, "gradcheck", "the function gives {} {}; differences need f64", y.dtype(), y.shape());
    output_shape_ = y.shape();
  }

  GradcheckResult run() {
    result_.full = elements_ + output_shape_.numel() <= options_.full_limit;
    if (result_.full) {
      compare_jacobian();
    } else {
      compare_directions();
    }
    return result_;
  }

 private:
  // Gradients of all inputs of sum(weights * y); zeros where y does not depend on the input.
  std::vector<std::vector<double>> analytic(const std::vector<double>& weights) {
    for (const Tensor& x : inputs_) clear_gradient(x);
    const Tensor y = f_(inputs_);
    if (requires_grad(y)) backward(y, Tensor::from(weights, output_shape_, y.device()));
    std::vector<std::vector<double>> gradients;
    for (const Tensor& x : inputs_) {
      const Tensor d_x = requires_grad(x) ? gradient(x) : Tensor();
      gradients.push_back(d_x.defined() ? d_x.to_vector<double>()
                                        : std::vector<double>(static_cast<std::size_t>(x.numel()), 0.0));
    }
    return gradients;
  }

  // (y(x + eps v) - y(x - eps v)) / (2 eps), x being one of the inputs.
  std::vector<double> numeric(const Tensor& x, const std::vector<double>& direction) const {
    const NoGrad only_values;
    const std::vector<double> before = x.to_vector<double>();
    const auto y_at = [&](double distance) {
      std::vector<double> elements = before;
      for (std::size_t e = 0; e < before.size(); ++e) elements[e] += distance * direction[e];
      set_values(x, elements);
      return f_(inputs_).to_vector<double>();
    };
    std::vector<double> difference = y_at(options_.eps);
    const std::vector<double> lower = y_at(-options_.eps);
    set_values(x, before);
    for (std::size_t o = 0; o < lower.size(); ++o) difference[o] = (difference[o] - lower[o]) / (2 * options_.eps);
    return difference;
  }

  void compare(double by_backward, double by_difference, const std::string& where) {
    ++result_.compared;
    const double error =
        std::abs(by_backward - by_difference) / (options_.atol + options_.rtol * std::abs(by_difference));
    if (!(error <= 1)) result_.ok = false;  // NaN is wrong as well
    if (!result_.text.empty() && !(error > result_.worst) && !std::isnan(error)) return;
    result_.worst = error;
    result_.text = formatted("{}: backward gives {}, central differences {} (tolerance {} + {} of it)", where,
                             by_backward, by_difference, options_.atol, options_.rtol);
  }

  void compare_jacobian() {
    std::vector<std::vector<std::vector<double>>> rows;  // [output element][input][input element]
    std::vector<double> one_hot(static_cast<std::size_t>(output_shape_.numel()), 0.0);
    for (double& weight : one_hot) {
      weight = 1;
      rows.push_back(analytic(one_hot));
      weight = 0;
    }
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (!requires_grad(inputs_[i])) continue;
      std::vector<double> unit(static_cast<std::size_t>(inputs_[i].numel()), 0.0);
      for (std::size_t e = 0; e < unit.size(); ++e) {
        unit[e] = 1;
        const std::vector<double> column = numeric(inputs_[i], unit);
        unit[e] = 0;
        for (std::size_t o = 0; o < column.size(); ++o) {
          compare(rows[o][i][e], column[o],
                  formatted("input {} {} at {}, output at {}", i, inputs_[i].shape(),
                            index_text(inputs_[i].shape(), static_cast<std::int64_t>(e)),
                            index_text(output_shape_, static_cast<std::int64_t>(o))));
        }
      }
    }
  }

  void compare_directions() {
    Rng rng({options_.seed, stream_of("gradcheck"), 0});
    const std::vector<double> weights = random_values(rng, output_shape_.numel());
    const std::vector<std::vector<double>> gradients = analytic(weights);
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (!requires_grad(inputs_[i])) continue;
      for (int n = 0; n < options_.directions; ++n) {
        const std::vector<double> direction = random_values(rng, inputs_[i].numel());
        compare(dot(gradients[i], direction), dot(numeric(inputs_[i], direction), weights),
                formatted("input {} {} along random direction {}", i, inputs_[i].shape(), n));
      }
    }
  }

  const Function& f_;
  const GradcheckOptions& options_;
  std::vector<Tensor> inputs_;  // dense copies; the floating ones take gradients
  std::int64_t elements_ = 0;   // of the floating inputs
  Shape output_shape_;
  GradcheckResult result_;
};

}  // namespace

GradcheckResult gradcheck(const Function& f, const std::vector<Tensor>& inputs, const GradcheckOptions& options) {
  return Gradcheck(f, inputs, options).run();
}

}  // namespace tally
