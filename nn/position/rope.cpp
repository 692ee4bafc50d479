// Rotary positions (RoPE, arXiv 2104.09864, equations 15 and 34): q and k at position t, from 0, are rotated in each of
// r/2 planes by t θ_i, so that their product depends only on the distance:
//   (a, b) -> (a cos(t θ_i) - b sin(t θ_i), a sin(t θ_i) + b cos(t θ_i)),  θ_i = base^(-2i/r),  i = 0 .. r/2-1
// Planes and layouts: nn/encoding/rotary.hpp. Stretched by a factor s beyond the trained length L0:
//   pi    t/s for t (arXiv 2306.15595)
//   ntk   base s^(r/(r-2)) for base: the fastest plane stays, the slowest turns s times more slowly (arXiv 2309.00071)
//   dynamic  ntk with a factor that grows with the text: s T/L0 - (s - 1) for a text of T > L0 tokens, 1 for a shorter
//         one. Every token of the text gets the same angles (arXiv 2309.00071, section 3.3, "Dynamic NTK"). The factor
//         comes from the released code of transformers, type dynamic.
//   yarn  by parts (arXiv 2309.00071, section 3.2, definition 2, with the released code's bounds): planes stay that
//         turn more than beta-fast times within L0. Planes that turn less often than beta-slow are interpolated. A ramp
//         over i joins them; truncate rounds its ends to whole planes. cos and sin are multiplied by attention-factor,
//         by default 0.1 ln s + 1 (equation 22: sqrt(1/t))
//   llama3  by parts (the released code of Llama 3.1): the ramp is over the turns within L0, from low- to
//         high-freq-factor.
//   longrope  θ_i / λ_i with given λ (LongRoPE, arXiv 2402.13753, and the released code around such models): a short
//         list up to L0 tokens, a long one for every token of a longer text. cos and sin are multiplied by
//         attention-factor in both, by default sqrt(1 + ln s / ln L0).
// Fewer frequencies, for any length: `fastest` p keeps the fastest floor(p r/2) planes and does not rotate the others
// (p-RoPE, arXiv 2410.06205). `clip` weakens the n slowest by a half cosine, `clip-hard` leaves them out (arXiv
// 2602.05258, published under the name of CoPE, which it is not).
// Learned frequencies, and steps that depend on the tokens: grape_m.cpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "nn/encoding/encoding.hpp"
#include "nn/encoding/rotary.hpp"

namespace tally {
namespace {

// How many of `count` planes are rotated. Throws Error if none is.
std::int64_t fastest_planes(double share, std::int64_t count) {
  const auto turned = static_cast<std::int64_t>(std::floor(share * static_cast<double>(count)));
  check(turned > 0, "rope", "fastest = {} turns none of {}{}; choose {} or more", share, count,
        count == 1 ? " plane" : " planes", 1 / static_cast<double>(count));
  return turned;
}

struct RopeOptions final : OptionsOf<RopeOptions> {
  static constexpr std::array<std::string_view, 11> after_training{
      "stretch",  "factor",          "trained-length",   "attention-factor", "beta-fast",   "beta-slow",
      "truncate", "low-freq-factor", "high-freq-factor", "short-factors",    "long-factors"};
  std::string layout = "half";
  double base = 10000;
  std::int64_t rotary_dims = 0;
  std::string stretch = "none";
  double factor = 4;
  std::int64_t trained_length = 512;
  double attention_factor = 0;
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;
  double low_freq_factor = 1, high_freq_factor = 4;
  std::string short_factors, long_factors;
  std::string frequencies = "all";
  double fastest = 0.75;
  std::int64_t clipped = 20;

  void visit(OptionVisitor& visitor) override {
    visitor.choice("layout", layout, {"half", "interleaved"}, "dimensions of a plane: i and i + r/2, or 2i and 2i+1");
    visitor.real("base", base, "base of the geometric sequence of angles", 1);
    visitor.integer("rotary-dims", rotary_dims, "r, rotated dimensions of a head, even; 0: all", 0, 1 << 16);
    visitor.choice(
        "stretch", stretch, {"none", "pi", "ntk", "dynamic", "yarn", "llama3", "longrope"},
        "for longer texts: position interpolation, a larger base, a base that grows with the text, per plane (YaRN, "
        "Llama 3.1), or lists of factors");
    visitor.only_with("stretch", {"pi", "ntk", "dynamic", "yarn", "llama3", "longrope"});
    visitor.real("factor", factor, "stretch s: the factor by which texts get longer", 1, 1e6);
    visitor.only_with("stretch", {"dynamic", "yarn", "llama3", "longrope"});
    visitor.integer("trained-length", trained_length,
                    "for dynamic, yarn, llama3, longrope: L0, the length of the training texts in tokens", 1);
    visitor.only_with("stretch", {"yarn", "longrope"});
    visitor.real("attention-factor", attention_factor,
                 "for yarn, longrope: factor of cos and sin; 0: the method's default, 0.1 ln s + 1 or "
                 "sqrt(1 + ln s / ln L0)",
                 0, 100);
    visitor.only_with("stretch", {"yarn"});
    visitor.real("beta-fast", beta_fast, "for yarn: planes with more turns within L0 keep their angles", above(0));
    visitor.only_with("stretch", {"yarn"});
    visitor.real("beta-slow", beta_slow, "for yarn: planes with fewer turns within L0 are interpolated", above(0));
    visitor.only_with("stretch", {"yarn"});
    visitor.flag("truncate", truncate, "for yarn: round the ends of the ramp between them to whole planes");
    visitor.only_with("stretch", {"llama3"});
    visitor.real("low-freq-factor", low_freq_factor, "for llama3: planes with fewer turns within L0 are interpolated",
                 0);
    visitor.only_with("stretch", {"llama3"});
    visitor.real("high-freq-factor", high_freq_factor, "for llama3: planes with more turns within L0 keep their angles",
                 0);
    visitor.only_with("stretch", {"longrope"});
    visitor.text("short-factors", short_factors,
                 "for longrope: λ up to L0 tokens, r/2 numbers such as 1/1.5/2, fastest plane first; empty: all 1");
    visitor.only_with("stretch", {"longrope"});
    visitor.text("long-factors", long_factors, "for longrope: λ beyond L0 tokens, in the same form");
    visitor.choice("frequencies", frequencies, {"all", "fastest", "clip", "clip-hard"},
                   "planes that are rotated: all; only the fastest; or all, with the slowest faded (clip) or left out "
                   "(clip-hard)");
    visitor.only_with("frequencies", {"fastest"});
    visitor.real("fastest", fastest, "for fastest: p, the share of planes that are rotated", above(0), 1);
    visitor.only_with("frequencies", {"clip", "clip-hard"});
    visitor.integer("clipped", clipped, "for clip, clip-hard: n, the number of slow planes, at most r/2", 1, 1 << 15);
  }
  void validate() const override {
    if (frequencies == "fastest" && rotary_dims > 0) fastest_planes(fastest, rotary_dims / 2);
    check(frequencies != "fastest" || fastest < 1, "rope",
          "fastest = 1 leaves all planes as they are with frequencies = fastest");
    check(beta_slow < beta_fast, "rope", "beta-slow = {} must be less than beta-fast = {}", beta_slow, beta_fast);
    check(low_freq_factor < high_freq_factor, "rope", "low-freq-factor = {} must be less than high-freq-factor = {}",
          low_freq_factor, high_freq_factor);
    check(stretch != "longrope" || trained_length > 1, "rope",
          "trained-length = 1 is too short for stretch = longrope, which divides by its logarithm");
    plane_factors("rope", "short-factors", short_factors);
    plane_factors("rope", "long-factors", long_factors);
  }
};

// base s^(r/(r-2)) for base, written so that the first plane (the only one for r = 2) keeps its angle.
void enlarge_base(std::vector<RotaryPlane>& planes, double factor) {
  const double last = static_cast<double>(planes.size()) - 1;
  for (std::size_t i = 1; i < planes.size(); ++i) planes[i].angle *= std::pow(factor, -static_cast<double>(i) / last);
}

void interpolate_by_parts(std::vector<RotaryPlane>& planes, const RopeOptions& options) {
  check(options.base > 1, "rope", "yarn needs a base above 1");
  const double dims = 2 * static_cast<double>(planes.size());
  // The fractional plane index with this number of turns within the trained length.
  const auto plane_of = [&](double turns) {
    const double trained = static_cast<double>(options.trained_length);
    return dims * std::log(trained / (2 * std::numbers::pi * turns)) / (2 * std::log(options.base));
  };
  const double begin = plane_of(options.beta_fast), end = plane_of(options.beta_slow);
  const double low = std::max(options.truncate ? std::floor(begin) : begin, 0.0);
  double high = std::min(options.truncate ? std::ceil(end) : end, dims - 1);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < planes.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    planes[i].angle *= ramp / options.factor + (1 - ramp);
  }
}

// t θ_i + (1-t) θ_i/s with t = clamp((n - low) / (high - low), 0, 1) for a plane that turns n times within L0.
void interpolate_by_turns(std::vector<RotaryPlane>& planes, const RopeOptions& options) {
  for (RotaryPlane& plane : planes) {
    const double turns = static_cast<double>(options.trained_length) * plane.angle / (2 * std::numbers::pi);
    const double kept =
        std::clamp((turns - options.low_freq_factor) / (options.high_freq_factor - options.low_freq_factor), 0.0, 1.0);
    plane.angle *= kept + (1 - kept) / options.factor;
  }
}

// Planes are sorted from the fastest to the slowest.
void leave_out(std::vector<RotaryPlane>& planes, const RopeOptions& options) {
  const std::int64_t count = std::ssize(planes);
  if (options.frequencies == "fastest") {
    for (std::int64_t i = fastest_planes(options.fastest, count); i < count; ++i)
      planes[static_cast<std::size_t>(i)].angle = 0;
  } else if (options.frequencies != "all") {
    const std::int64_t clipped = std::min(options.clipped, count);
    for (std::int64_t m = 0; m < clipped; ++m) {
      const double way = clipped > 1 ? static_cast<double>(m) / static_cast<double>(clipped - 1) : 1;
      const double kept = options.frequencies == "clip" ? 0.5 * (1 + std::cos(std::numbers::pi * way)) : 0;
      planes[static_cast<std::size_t>(count - clipped + m)].angle *= kept;
    }
  }
}

void divide_by_list(std::vector<RotaryPlane>& planes, std::string_view name, const std::string& text) {
  const std::vector<double> factors = plane_factors("rope", name, text);
  if (factors.empty()) return;
  check(factors.size() == planes.size(), "rope", "{} has {}{}, but {} dims have {}{}; one is wanted for each", name,
        factors.size(), factors.size() == 1 ? " number" : " numbers", 2 * planes.size(), planes.size(),
        planes.size() == 1 ? " plane" : " planes");
  for (std::size_t i = 0; i < planes.size(); ++i) planes[i].angle /= factors[i];
}

// The factor of cos and sin for yarn and longrope.
double attention_factor(const RopeOptions& options) {
  if (options.attention_factor > 0) return options.attention_factor;
  if (options.stretch == "yarn") return 0.1 * std::log(options.factor) + 1;
  return std::sqrt(1 + std::log(options.factor) / std::log(static_cast<double>(options.trained_length)));
}

// The sizes that determine a rotation.
struct RopeSizes {
  std::int64_t head_width, max_length;
  DType dtype;
  Device device;
};

// The angles for a text of `length` tokens. Only dynamic and longrope depend on it, beyond L0.
Rotary make_rotary(const RopeSizes& sizes, const RopeOptions& options, std::int64_t length) {
  const std::int64_t dims = rotated_dims("rope", options.rotary_dims, sizes.head_width);
  std::vector<RotaryPlane> planes = rotary_planes("rope", dims, options.base);
  const double longer = static_cast<double>(length) / static_cast<double>(options.trained_length);
  double size = 1;
  if (options.stretch == "pi") {
    for (RotaryPlane& plane : planes) plane.angle /= options.factor;
  } else if (options.stretch == "ntk") {
    enlarge_base(planes, options.factor);
  } else if (options.stretch == "dynamic") {
    if (longer > 1) enlarge_base(planes, options.factor * longer - (options.factor - 1));
  } else if (options.stretch == "yarn") {
    interpolate_by_parts(planes, options);
    size = attention_factor(options);
  } else if (options.stretch == "llama3") {
    interpolate_by_turns(planes, options);
  } else if (options.stretch == "longrope") {
    if (longer > 1) divide_by_list(planes, "long-factors", options.long_factors);
    if (longer <= 1) divide_by_list(planes, "short-factors", options.short_factors);
    size = attention_factor(options);
  }
  leave_out(planes, options);
  return {std::move(planes), size, options.layout == "interleaved", sizes.max_length, sizes.dtype, sizes.device};
}

class Rope final : public Encoding {
 public:
  Rope(const EncodingSetup& setup, const RopeOptions& options)
      : sizes_{setup.head_width, setup.max_length, setup.dtype, setup.device},
        options_(options),
        grows_(options.stretch == "dynamic"),
        rotary_(make_rotary(sizes_, options, 1)) {
    const bool by_lists = options.stretch == "longrope";
    if (grows_ || (by_lists && options.short_factors != options.long_factors)) trained_length_ = options.trained_length;
    longer_length_ = std::max(sizes_.max_length, by_lists ? options.trained_length + 1 : 1);
    if (by_lists || longer_length_ > trained_length_) longer_ = make_rotary(sizes_, options, longer_length_);
  }

  std::int64_t same_up_to(std::int64_t length) const override {
    if (length <= trained_length_) return trained_length_;
    return grows_ ? length : never;
  }
  void rotate(Tensor& q, Tensor& k, Tensor&, const AttentionInput& in) const override {
    if (in.keys() <= trained_length_) return turn(rotary_, q, k, in);
    if (!grows_ || in.keys() == longer_length_) return turn(*longer_, q, k, in);
    RopeSizes sizes = sizes_;
    sizes.max_length = in.keys();
    turn(make_rotary(sizes, options_, in.keys()), q, k, in);
  }

 private:
  static void turn(const Rotary& rotary, Tensor& q, Tensor& k, const AttentionInput& in) {
    q = rotary.rotate(q, in);
    k = rotary.rotate(k, in);
  }

  RopeSizes sizes_;
  RopeOptions options_;
  bool grows_;                           // with the text: dynamic
  std::int64_t trained_length_ = never;  // L0 of dynamic and longrope
  Rotary rotary_;                        // for texts up to that length
  std::optional<Rotary> longer_;         // for longer texts; with dynamic, for longer_length_ tokens
  std::int64_t longer_length_ = 0;
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(
    rope, RopeOptions, Rope, "rotary: q and k are rotated by angles that grow with the position",
    "(a, b) -> (a cos(t θ_i) - b sin(t θ_i), a sin(t θ_i) + b cos(t θ_i));  θ_i = base^(-2i/r)\n"
    "i = 0 .. r/2-1, r = rotary-dims or d.  Stretched by s = factor:  pi  t/s for t\n"
    "ntk  base s^(r/(r-2)) for base;  dynamic  the same with s T/L0 - (s-1) for s in a text of T > L0 tokens\n"
    "yarn  θ_i (ρ_i/s + 1 - ρ_i) for θ_i, cos and sin times attention-factor or 0.1 ln s + 1\n"
    "yarn: ρ_i = clamp((i - low) / (high - low), 0, 1), plane n(u) = r ln(L0 / (2π u)) / (2 ln base)\n"
    "low = max(floor(n(beta-fast)), 0), high = min(ceil(n(beta-slow)), r-1), 0.001 more where they are equal;\n"
    "neither is rounded without truncate\n"
    "llama3  the same angles with 1 - ρ_i = clamp((L0 θ_i / (2π) - low) / (high - low), 0, 1), low- and "
    "high-freq-factor\n"
    "longrope  θ_i / λ_i, λ the short factors, or the long ones in a text of more than L0 tokens,\n"
    "cos and sin times attention-factor or sqrt(1 + ln s / ln L0)\n"
    "frequencies = fastest: θ_i = 0 for i >= floor(p r/2);  clip: the n slowest times ½(1 + cos(π m/(n-1)))",
    "RoPE: Su et al. 2021, arXiv 2104.09864; pi: Chen et al. 2023, arXiv 2306.15595; ntk, dynamic, yarn: Peng et al. "
    "2023, arXiv 2309.00071; llama3: Grattafiori et al. 2024, arXiv 2407.21783; longrope: Ding et al. 2024, "
    "arXiv 2402.13753; fastest: Barbero et al. 2025, arXiv 2410.06205; clip: arXiv 2602.05258",
    .reads_heads = false, .companion = true);
