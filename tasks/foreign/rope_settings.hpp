// Settings of rotary positions in config.json. Both existing forms are read: a single object `rope_parameters`, or
// rope_theta (rotary_emb_base), rope_scaling, rotary_pct. The second form is written, because all versions read it,
// with the type under both of its names and all lengths. Contradictory settings are refused. If readers differ, or if a
// length is missing, ForeignSettings::notes has a line.
#pragma once

#include "tasks/foreign/family.hpp"

namespace tally {

struct RopeDefaults {
  std::int64_t head_width = 0, positions = 0;
  double fraction = 1;  // default fraction of a head's width that is rotated
};

// Sets the options of rope. Throws Error for unsupported settings, and if the two forms contradict each other.
void read_rope(ForeignSettings& settings, const RopeDefaults& defaults, ForeignModel& model);

// Width of a head that is rotated.
std::int64_t rotary_dims_of(OwnSettings& settings, std::int64_t head_width);
// rope_scaling, null for none, and the related lengths, including max_position_embeddings. Requires the layout that all
// these formats have. dims: number of rotated dims of a head.
void write_rope_scaling(OwnSettings& settings, std::int64_t dims, JsonValue& json);

}  // namespace tally
