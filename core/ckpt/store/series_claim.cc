#include "core/ckpt/store/series_claim.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <system_error>

#include "core/base/directory.h"
#include "core/base/error.h"
#include "core/ckpt/store/checkpoint_directory.h"
#include "core/ckpt/store/directory_names.h"

namespace fsdp2::ckpt {

namespace {

// What this process has claimed.
struct HeldSeries {
  int file = -1;
  std::set<const SeriesClaim*> holders;
};

struct Registry {
  std::mutex mutex;
  std::map<std::string, HeldSeries> held;  // by directory
};

Registry& registry();

// A lock is the open file's, which a fork leaves to both. The child has no claim: it closes its
// copies, or the lock would outlive the run for as long as the child does.
void leave_claims_to_parent() {
  for (const auto& [directory, held] : registry().held) {
    ::close(held.file);
  }
  registry().held.clear();
  registry().mutex.unlock();
}

Registry* make_registry() {
  ::pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                   leave_claims_to_parent);
  return new Registry;
}

Registry& registry() {
  static Registry& instance = *make_registry();  // never destroyed: shards may outlive main
  return instance;
}

std::string claim_file_in(const std::string& directory) {
  return directory + "/" + kSeriesClaimFile;
}

// The directory of the series, "" if there is none.
std::string series_of(const std::string& given) {
  const std::string path = without_slashes(given);
  return step_of_directory_name(last_name_of(path)) ? parent_of(path) : "";
}

// One name for each directory, whatever links lead to it.
std::string canonical(const std::string& directory) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(directory, error);
  return error ? directory : path.string();
}

std::string own_name() {
  std::array<char, HOST_NAME_MAX + 1> host{};
  static_cast<void>(::gethostname(host.data(), host.size() - 1));
  return fmt::format("process {} on {}", ::getpid(), host.data());
}

[[noreturn]] void fail_on_other(const std::string& directory, int file) {
  std::array<char, 256> text{};
  const ssize_t count = ::pread(file, text.data(), text.size() - 1, 0);
  ::close(file);
  fail(Code::kIo,
       "{}: another run ({}) is saving its checkpoints in this directory, and the two would be "
       "mixed: name another directory, or end that run",
       directory, count > 0 ? text.data() : "it does not say which");
}

// Locks the open file of a directory. False where there are no locks. Closes it if another has it.
bool lock_or_fail(const std::string& directory, int file) {
  if (::flock(file, LOCK_EX | LOCK_NB) == 0) {
    return true;
  }
  if (errno == EWOULDBLOCK) {
    fail_on_other(directory, file);
  }
  return false;
}

bool is_file_of_path(int file, const std::string& path) {
  struct stat open_one;
  struct stat named;
  return ::fstat(file, &open_one) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

// Another user's file may not be written, but outside of NFS a lock does not need that.
int open_claim(const std::string& path, int flags) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | flags, 0666);
  return file < 0 && errno == EACCES ? ::open(path.c_str(), O_RDONLY | O_CLOEXEC) : file;
}

// The locked file, or -1 where nothing can be claimed: what keeps a file from being made will keep
// the checkpoint from being written, and says so better.
int lock_series(const std::string& directory) {
  const std::string path = claim_file_in(directory);
  while (true) {
    const int file = open_claim(path, O_CREAT);
    if (file < 0) {
      return -1;
    }
    if (!lock_or_fail(directory, file)) {
      ::close(file);
      return -1;
    }
    // Whoever had it may have removed it between the two calls.
    if (is_file_of_path(file, path)) {
      const std::string name = own_name();
      if (::ftruncate(file, 0) == 0) {
        static_cast<void>(::pwrite(file, name.data(), name.size(), 0) < 0);
      }
      return file;
    }
    ::close(file);
  }
}

bool is_held_by(const std::string& directory, const SeriesClaim* claim) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.held.find(directory);
  return found != all.held.end() && found->second.holders.count(claim) > 0;
}

}  // namespace

SeriesClaim::~SeriesClaim() { give_back(); }

void SeriesClaim::take(const std::string& path) {
  const std::string series = series_of(path);
  if (!series.empty()) {
    make_directories(series);
  }
  const std::string directory = series.empty() ? "" : canonical(series);
  if (directory == directory_ && is_held_by(directory, this)) {
    return;
  }
  give_back();
  if (directory.empty()) {
    return;
  }
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.held.find(directory);
  if (found != all.held.end()) {
    found->second.holders.insert(this);
    directory_ = directory;
  } else if (const int file = lock_series(directory); file >= 0) {
    all.held[directory] = {file, {this}};
    directory_ = directory;
  }
}

void SeriesClaim::give_back() noexcept {
  if (directory_.empty()) {
    return;
  }
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.held.find(directory_);
  // Not there: this process has been forked since.
  if (found != all.held.end() && found->second.holders.erase(this) > 0 &&
      found->second.holders.empty()) {
    ::unlink(claim_file_in(directory_).c_str());  // before others can lock it
    ::close(found->second.file);
    all.held.erase(found);
  }
  directory_.clear();
}

void check_series_is_free(const std::string& path) {
  const std::string series = series_of(path);
  if (series.empty()) {
    return;
  }
  const std::string directory = canonical(series);
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.held.count(directory) != 0) {
    return;
  }
  const int file = open_claim(claim_file_in(directory), 0);
  if (file >= 0) {
    lock_or_fail(directory, file);
    ::close(file);
  }
}

}  // namespace fsdp2::ckpt
