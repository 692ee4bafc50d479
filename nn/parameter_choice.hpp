// Parameters chosen by name, as in --train "pe.*" and --optimiser.lr-scale "pe.*=10": patterns of fnmatch, separated by
// commas, in which * matches any text. A parameter of an encoding, blocks.2.position.cope.table or
// position.absolute.table, is also called pe.cope.table or pe.absolute.table.
#pragma once

#include <string_view>
#include <vector>

#include "core/tensor.hpp"

namespace tally {

// Whether the pattern matches the parameter.
bool names_parameter(std::string_view pattern, std::string_view path);

// Whether a parameter is the weight of a linear layer: of rank 2 or more and called "weight", but not a token embedding
// (tied or not) or a norm. Tables of encodings have other names; their linear layers count, and so do convolutions.
bool is_linear_weight(std::string_view path, std::int64_t rank);

// The parameters that match "all" or a list of patterns; the others take no gradients from here on. Throws Error for a
// pattern without a match.
NamedTensors train_only(const NamedTensors& parameters, std::string_view patterns);

// The factor of each parameter by "pattern=factor,...": the factor of the first matching pattern, else 1. Throws Error
// for text that is not such a list and, unless `parameters` is empty, for a pattern without a match.
std::vector<double> factors_of(const NamedTensors& parameters, std::string_view list);

}  // namespace tally
