// Names what touched memory it must not touch, before the program ends by the signal: host code in device memory that
// is protected, or a kernel's thread below its stack.
#pragma once

namespace tally::cuda_host {

// From now on, in this process, unless somebody else handles the signal (a sanitizer does, and tells the line itself).
// Prints "host code touches device memory" and the calls that led there, with their lines where the program has debug
// information and the machine has addr2line (binutils). This thread gets a stack for it, so that the stack that ran
// over is not needed.
void report_faults();

}  // namespace tally::cuda_host
