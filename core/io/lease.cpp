#include "core/io/lease.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.hpp"
#include "core/io/json.hpp"

namespace tally {
namespace {

constexpr std::size_t file_bytes = 1024;  // of every claim, so that a renewal is one write over the same bytes

std::string claim_path(const std::string& path, std::int64_t number) { return formatted("{}.claim-{}", path, number); }

// Seconds that also pass while the machine is suspended: a lease expires then too.
double now() {
  timespec time{};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::string time_text() {
  const time_t time = ::time(nullptr);
  tm utc{};
  gmtime_r(&time, &utc);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// When a process of this machine was started, in ticks since the boot; 0 if it does not exist or /proc does not report
// it.
std::int64_t start_of(std::int64_t process) {
  const std::string stat = first_line(formatted("/proc/{}/stat", process));
  const std::size_t name_end = stat.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return 0;
  std::istringstream words(stat.substr(name_end + 1));
  constexpr int words_before = 19;  // state is the 3rd field, the start the 22nd
  std::string word;
  for (int i = 0; i < words_before; ++i) words >> word;
  std::int64_t started = 0;
  words >> started;
  return started;
}

std::string text_of(const Claim& claim) {
  const LeaseHolder& holder = claim.holder;
  std::string text = write_json(JsonValue::object({{"format", 1},
                                                   {"state", claim.state},
                                                   {"host", holder.host},
                                                   {"process", holder.process},
                                                   {"renewals", claim.renewals},
                                                   {"time", claim.time},
                                                   {"seconds", claim.seconds},
                                                   {"started", holder.started},
                                                   {"boot", holder.boot},
                                                   {"space", holder.space}}));
  check_internal(text.size() < file_bytes, "lease", "a claim is too long");
  text.resize(file_bytes - 1, ' ');
  return text + "\n";
}

void read_claim(const std::string& text, const std::string& name, Claim& claim) {
  const JsonValue json = parse_json(text, {.max_depth = 2, .max_values = 64}, name);
  claim.holder.host = json.string("host");
  claim.holder.process = json.integer("process");
  claim.holder.started = json.integer("started");
  claim.holder.boot = json.string("boot");
  claim.holder.space = json.string("space");
  claim.renewals = json.integer("renewals");
  claim.time = json.string("time");
  claim.seconds = json.real("seconds");
  claim.state = json.string("state");
}

// The text of a claim's file; nothing if there is no such file.
std::optional<std::string> read_file(const std::string& name) {
  const FileDescriptor file(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open() && errno == ENOENT) return std::nullopt;
  check(file.open(), "lease", "{}: cannot open: {}", name, std::strerror(errno));
  std::array<char, 2 * file_bytes> bytes{};
  const ssize_t count = ::pread(file.number(), bytes.data(), bytes.size(), 0);
  check(count >= 0, "lease", "{}: cannot read: {}", name, std::strerror(errno));
  return std::string(bytes.data(), static_cast<std::size_t>(count));
}

// Writes the whole claim through to the disk or the server. False with errno set.
bool write_claim(const FileDescriptor& file, const std::string& text) {
  const ssize_t count = ::pwrite(file.number(), text.data(), text.size(), 0);
  return count == static_cast<ssize_t>(text.size()) && ::fsync(file.number()) == 0;
}

// Creates a complete file, or none, and never replaces one. Returns nothing if the file exists.
std::optional<FileDescriptor> create_whole(const std::string& name, const std::string& own, const std::string& text) {
  FileDescriptor file(::open(own.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666));
  check(file.open(), "lease", "{}: cannot create: {}", own, std::strerror(errno));
  const bool written = write_claim(file, text);
  const int write_error = errno;
  const bool linked = written && ::link(own.c_str(), name.c_str()) == 0;
  const int link_error = errno;
  ::unlink(own.c_str());
  check(written, "lease", "{}: cannot write: {}", own, std::strerror(write_error));
  // A reply lost by a file server looks like a failure: the content of the file decides.
  if (linked || read_file(name) == text) return file;
  if (link_error == EEXIST) return std::nullopt;
  const bool no_links = link_error == EPERM || link_error == EOPNOTSUPP || link_error == ENOSYS || link_error == EMLINK;
  check(no_links, "lease", "{}: cannot create: {}", name, std::strerror(link_error));
  file = FileDescriptor(::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file.open() && errno == EEXIST) return std::nullopt;
  check(file.open() && write_claim(file, text), "lease", "{}: cannot create: {}", name, std::strerror(errno));
  return file;
}

}  // namespace

LeaseHolder LeaseHolder::here() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) std::strcpy(name.data(), "unknown");
  std::error_code error;
  LeaseHolder holder;
  holder.host = name.data();
  holder.process = getpid();
  holder.started = start_of(holder.process);
  holder.boot = first_line("/proc/sys/kernel/random/boot_id");
  holder.space = std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
  return holder;
}

bool LeaseHolder::gone() const {
  static const LeaseHolder self = here();
  if (started == 0 || boot.empty() || space.empty() || boot != self.boot || space != self.space) return false;
  return (kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH) || start_of(process) != started;
}

Claim newest_claim(const std::string& path) {
  Claim claim;
  std::optional<std::string> text;
  std::string name = claim_path(path, 1);
  for (std::optional<std::string> next = read_file(name); next; next = read_file(claim_path(path, claim.number + 1))) {
    text = std::move(next);
    ++claim.number;
  }
  if (!text) return claim;
  try {
    read_claim(*text, claim_path(path, claim.number), claim);
  } catch (const Error&) {
    constexpr double patience_s = 120;
    const std::int64_t number = claim.number;
    claim = Claim{};
    claim.number = number;
    claim.state = "working";
    claim.seconds = patience_s;
  }
  return claim;
}

bool overtaken(const std::string& path, std::int64_t number) {
  std::error_code error;
  return std::filesystem::exists(claim_path(path, number + 1), error);
}

bool LeaseWatch::stale(const Claim& claim) {
  if (claim.number != number_ || claim.renewals != renewals_) {
    number_ = claim.number;
    renewals_ = claim.renewals;
    since_ = now();
  }
  return claim.holder.gone() || now() - since_ > claim.seconds;
}

std::optional<Lease> Lease::take(const std::string& path, const Claim& newest, double seconds) {
  Claim claim{newest.number + 1, LeaseHolder::here(), "working", seconds, 0, time_text()};
  const std::string name = claim_path(path, claim.number);
  const double begin = now();
  const std::string own = formatted("{}.{}.{}", name, claim.holder.host, claim.holder.process);
  std::optional<FileDescriptor> file = create_whole(name, own, text_of(claim));
  if (!file) return std::nullopt;
  return Lease(path, std::move(claim), std::move(*file), begin);
}

bool Lease::renew() {
  const double begin = now();
  if (begin - renewed_ > 0.75 * claim_.seconds) return false;
  if (begin - renewed_ < 0.25 * claim_.seconds) return true;
  if (overtaken(path_, claim_.number)) return false;
  Claim next = claim_;
  ++next.renewals;
  next.time = time_text();
  if (write_claim(file_, text_of(next))) {
    claim_ = std::move(next);
    renewed_ = begin;
  }
  return now() - renewed_ <= 0.75 * claim_.seconds;
}

void Lease::end(const std::string& state) {
  claim_.state = state;
  claim_.time = time_text();
  // If it cannot be written, the lease becomes stale.
  write_claim(file_, text_of(claim_));
  file_.close();
}

FileDescriptor wait_for_lock_file(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  check(file.open(), "file", "{}: cannot create: {}", path, std::strerror(errno));
  ::flock(file.number(), LOCK_EX);
  return file;
}

}  // namespace tally
