// Settings of rotary positions in config.json. Both existing forms are read: one object `rope_parameters`, or
// rope_theta (rotary_emb_base), rope_scaling, rotary_pct. The second, which all versions read, is written, with the
// type under both of its names and all lengths. Settings that contradict each other are refused; if readers differ, or
// if a length is missing, ForeignSettings::notes has a line.
#pragma once

#include "tasks/foreign/family.hpp"

namespace tally {

struct RopeDefaults {
  std::int64_t head_width = 0, positions = 0;
  double fraction = 1;  // of a head's width that is rotated, where the file says nothing
};

// Sets the options of rope. Throws Error for what tally has not, and where the two forms contradict each other.
void read_rope(ForeignSettings& settings, const RopeDefaults& defaults, ForeignModel& model);

// Width of a head that is rotated.
std::int64_t rotary_dims_of(OwnSettings& settings, std::int64_t head_width);
// rope_scaling, null for none, and the lengths that go with it, max_position_embeddings among them; demands the layout
// that all these formats have. dims: number of rotated dims of a head.
void write_rope_scaling(OwnSettings& settings, std::int64_t dims, JsonValue& json);

}  // namespace tally
