// What a task is whose sequences may hold several texts that do not see each other (Example::starts).
#pragma once

namespace tally {

class SeparateTexts {
 public:
  virtual ~SeparateTexts() = default;
  // Whether they do with the options that it has.
  virtual bool separates_texts() const = 0;
};

}  // namespace tally
