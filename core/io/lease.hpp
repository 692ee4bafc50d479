// Who does a piece of work, where any number of machines that share a folder could: claims in files. The claims of
// `path` are <path>.claim-1, <path>.claim-2, ...: the newest counts, and none is ever removed or replaced, so that of
// several that take over the same stale claim one alone makes the next file.
//
// A claim is a lease. Its holder renews it by writing into the file it made; it is stale, and anyone may make the next
// one, when it has not changed for the seconds that stand in it, by the clock of whoever looks. Two clocks are never
// compared: they may differ by any amount, and only have to run about as fast. A holder that could not renew for three
// quarters of that time has lost it. On the same machine a holder whose process is gone is not waited for.
//
// The file system must make a hard link or a file atomically, and show a file that is opened as it was when it was last
// closed or written through: a local one, or NFS, which reads anew when a file is opened. Where it keeps what is not
// there for a while, as NFS does for names, a claim is seen late, and never made twice.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/io/file_descriptor.hpp"

namespace tally {

// A process, on whichever machine. `boot` and `space` tell whether its number means anything here.
struct LeaseHolder {
  std::string host;
  std::int64_t process = 0, started = 0;  // its id, and its start in ticks since the boot
  std::string boot, space;                // of the kernel that it runs on, and its space of process ids

  static LeaseHolder here();
  // It ran on this machine, and is there no more.
  bool gone() const;
};

struct Claim {
  std::int64_t number = 0;  // of its file; 0: nobody has claimed it
  LeaseHolder holder;
  std::string state;          // "working", or how it ended
  double seconds = 0;         // without a change after which it is stale
  std::int64_t renewals = 0;  // so far
  std::string time;           // of the last one by its own machine's clock, for people

  bool open() const { return number > 0 && state == "working"; }
};

// The newest claim. One that cannot be understood is taken for being written in this moment: open, without a holder.
// Throws Error when a file is there and cannot be read.
Claim newest_claim(const std::string& path);

// What one process has seen of the claims of others.
class LeaseWatch {
 public:
  // Whether the newest claim, which is open, is stale by now. To be asked again and again.
  bool stale(const Claim& claim);

 private:
  std::int64_t number_ = 0, renewals_ = -1;
  double since_ = 0;
};

// One that is held.
class Lease {
 public:
  // Claims it after `newest`, the newest claim. Nothing when another one was quicker. Throws Error when the file cannot
  // be written.
  static std::optional<Lease> take(const std::string& path, const Claim& newest, double seconds);

  // Writes that the holder is alive, where it is time to. False once the lease is lost: it may be another's by now, and
  // the work is to be left at once.
  bool renew();
  // Says how the work ended; the holder has it no longer.
  void end(const std::string& state);

  const std::string& path() const { return path_; }
  std::int64_t number() const { return claim_.number; }

 private:
  Lease(std::string path, Claim claim, FileDescriptor file, double renewed)
      : path_(std::move(path)), claim_(std::move(claim)), file_(std::move(file)), renewed_(renewed) {}

  std::string path_;
  Claim claim_;
  FileDescriptor file_;
  double renewed_ = 0;  // when the last renewal began, in seconds of a clock that goes on while the machine sleeps
};

// Whether another one has claimed it after the claim of this number.
bool overtaken(const std::string& path, std::int64_t number);

// Waits for the lock of a file of its own, which is made; on NFS too, whose locks are of files open for writing.
FileDescriptor wait_for_lock_file(const std::string& path);

}  // namespace tally
