// Work on the counting device that is no part of a run.
#pragma once

namespace tally::meta {

// While it exists, tensors of this thread on the counting device are not counted. They must not outlive it.
class Uncounted {
 public:
  Uncounted();
  ~Uncounted();
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;

 private:
  bool before_;
};

}  // namespace tally::meta
