// The softmax of a row tile, key tile by key tile, in the layout of core/cpu/attention_tile.hpp, and dropout of its
// weights.
#pragma once

#include "core/cpu/attention_tile.hpp"

namespace tally::cpu {

// Lanes above the diagonal.
template <class T>
void hide(T* score, T value, const RowTile rows, const KeyTile keys);

// score: logits, become e^(l - m'). m and n advance; factor = e^(m - m') is what the output so far must be scaled by.
// Returns whether any factor is not 1.
template <class T>
bool advance_softmax(T* score, T* m, T* n, T* factor, std::int64_t keys, std::int64_t lanes);

template <class T>
void scale_lanes(T* x, const T* factor, std::int64_t rows, std::int64_t lanes);

// score: logits, become weights e^(l - m) / n.
template <class T>
void softmax_weights(T* score, const T* m, const T* inverse, std::int64_t keys, std::int64_t lanes);

// d: gradient of the weights, becomes that of the logits: a (da - delta).
template <class T>
void softmax_gradient(T* d, const T* weight, const T* delta, std::int64_t keys, std::int64_t lanes);

// mask = 1 / (1 - rate) where a weight is kept, else 0. `element` is that of lane 0 and the tile's first key; rows are
// `row_step` elements apart.
template <class T>
void draw_dropout(T* mask, RandomStream stream, double rate, std::uint64_t element, std::uint64_t row_step,
                  std::int64_t keys, std::int64_t lanes);

// y = x mask
template <class T>
void apply_dropout(T* y, const T* x, const T* mask, std::int64_t keys, std::int64_t lanes);

}  // namespace tally::cpu
