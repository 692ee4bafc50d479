#include "core/version.hpp"

namespace tally {

constinit const std::string_view version = TALLY_VERSION;

}  // namespace tally
