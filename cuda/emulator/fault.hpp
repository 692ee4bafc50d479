// Reports forbidden memory accesses before the signal ends the program: host code in protected device memory, or a
// kernel's thread below its stack.
#pragma once

namespace tally::cuda_host {

// From now on, in this process, unless the signal has another handler (a sanitizer has one, and prints the line too).
// Prints "host code touches device memory" and the call stack, with source lines if the program has debug information
// and the machine has addr2line (binutils). This thread gets a separate signal stack, because a stack that overflowed
// cannot be used.
void report_faults();

}  // namespace tally::cuda_host
