// Interface of tasks whose sequences may hold several texts that are masked from each other (Example::starts).
#pragma once

namespace tally {

class SeparateTexts {
 public:
  virtual ~SeparateTexts() = default;
  // Whether they do with the task's options.
  virtual bool separates_texts() const = 0;
};

}  // namespace tally
