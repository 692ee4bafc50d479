// Which process does a piece of work, if any number of machines share a folder: claims in files. The claims of `path`
// are <path>.claim-1, <path>.claim-2, ...: the newest counts, and none is ever removed or replaced. So if several
// processes take over the same stale claim, only one of them creates the next file.
//
// A claim is a lease. Its holder renews it by writing to its file. The file contains a period in seconds: if it has not
// changed for that long, by the clock of the observer, it is stale and anyone may make the next claim. Two clocks are
// never compared: they may differ by any amount, and only have to run about as fast. A holder that could not renew for
// three quarters of the period has lost it. A holder on the same machine whose process has ended is not waited for.
//
// The file system must create a hard link or a file atomically. It must show an opened file as it was when it was last
// closed or synced: a local file system does, and NFS, which reads a file again when it is opened. If the file system
// caches missing names for a while, as NFS does, a claim is seen late, but never made twice.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/io/file_descriptor.hpp"

namespace tally {

// A process on any machine. `boot` and `space` identify the kernel and namespace in which its id is valid.
struct LeaseHolder {
  std::string host;
  std::int64_t process = 0, started = 0;  // its id, and its start in ticks since the boot
  std::string boot, space;                // boot id of its kernel, and its process id namespace

  static LeaseHolder here();
  // Whether it ran on this machine and has ended.
  bool gone() const;
};

struct Claim {
  std::int64_t number = 0;  // number of its file; 0: unclaimed
  LeaseHolder holder;
  std::string state;          // "working", or how it ended
  double seconds = 0;         // period without a change after which it is stale
  std::int64_t renewals = 0;  // so far
  std::string time;           // of the last one by its own machine's clock, for display

  bool open() const { return number > 0 && state == "working"; }
};

// The newest claim. If it cannot be parsed, it is assumed to be partly written: open, without a holder. Throws Error if
// a file exists but cannot be read.
Claim newest_claim(const std::string& path);

// The observations that one process has made of the claims of others.
class LeaseWatch {
 public:
  // Whether the newest claim, which is open, is stale now. To be polled.
  bool stale(const Claim& claim);

 private:
  std::int64_t number_ = 0, renewals_ = -1;
  double since_ = 0;
};

// A claim that this process holds.
class Lease {
 public:
  // Claims it after `newest`, the newest claim. Nothing if another process was quicker. Throws Error if the file cannot
  // be written.
  static std::optional<Lease> take(const std::string& path, const Claim& newest, double seconds);

  // Records that the holder is alive, if a renewal is due. False once the lease is lost: another process may have it by
  // now, so the work must stop at once.
  bool renew();
  // Records how the work ended, and gives the lease up.
  void end(const std::string& state);

  const std::string& path() const { return path_; }
  std::int64_t number() const { return claim_.number; }

 private:
  Lease(std::string path, Claim claim, FileDescriptor file, double renewed)
      : path_(std::move(path)), claim_(std::move(claim)), file_(std::move(file)), renewed_(renewed) {}

  std::string path_;
  Claim claim_;
  FileDescriptor file_;
  double renewed_ = 0;  // start of the last renewal, by a clock that includes suspension
};

// Whether another process has claimed it after the claim of this number.
bool overtaken(const std::string& path, std::int64_t number);

// Waits for the lock of a separate file, which is created. Works on NFS too, which locks only files open for writing.
FileDescriptor wait_for_lock_file(const std::string& path);

}  // namespace tally
