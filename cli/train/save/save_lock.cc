#include "cli/train/save/save_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <system_error>

#include "cli/library.h"
#include "cli/train/metrics/run_lock.h"

namespace fsdp2::cli {

namespace {

namespace fs = std::filesystem;

constexpr char kName[] = ".fsdp2-run";
constexpr int kAttempts = 100;  // against others that remove what this run has made

// Empty if the path cannot be followed.
fs::path lock_file(const TrainOptions& options) {
  std::error_code error;
  const fs::path directory = fs::weakly_canonical(options.save_dir, error);
  if (error || options.save_every > 0) {
    return error ? fs::path() : directory / kName;
  }
  const fs::path plain = directory.has_filename() ? directory : directory.parent_path();
  return plain.parent_path() / ("." + plain.filename().string() + kName);
}

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

// "process 7 on host"
std::string own_name() { return "process " + std::to_string(getpid()) + " on " + host_name(); }

std::string holder_of(int file) {
  std::array<char, 512> text{};
  const ssize_t count = pread(file, text.data(), text.size(), 0);
  const std::string name(text.data(), static_cast<size_t>(std::max<ssize_t>(count, 0)));
  const bool is_line =
      std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isprint(c) != 0; });
  return name.empty() || !is_line ? "it does not say which" : name;
}

bool is_of_other_machine(const std::string& holder) {
  const size_t host = holder.rfind(" on ");
  return host != std::string::npos && holder.substr(host + 4) != host_name();
}

// Waits for the run that has the file, as long as there is reason to.
void lock_or_fail(int file, const std::string& save_dir, const SaveLock::Tell& tell,
                  std::chrono::seconds patience) {
  if (lock_for_this_run(file, std::chrono::seconds{0})) {
    return;
  }
  const std::string holder = holder_of(file);
  const std::string other = "--save-dir " + save_dir + ": another run (" + holder;
  const bool is_far = is_of_other_machine(holder);
  if (is_far) {
    tell(other + ") has it: waiting up to " + std::to_string(patience.count()) +
         " s, since the lock of a machine that has gone down lasts a while");
  }
  if (is_far ? lock_for_this_run(file, patience) : lock_for_this_run(file)) {
    return;
  }
  throw Failure(other + ") writes to it: wait for its end, or name another directory");
}

}  // namespace

SaveLock::SaveLock(const TrainOptions& options, const Tell& tell, std::chrono::seconds patience) {
  if (!options.save_dir.empty()) {
    path_ = lock_file(options);
  }
  // The others wait for this rank meanwhile.
  patience = std::min(patience, std::chrono::seconds{static_cast<int64_t>(options.timeout_s / 2)});
  for (int attempt = 1; !path_.empty() && open_file(); ++attempt) {
    try {
      lock_or_fail(file_, options.save_dir, tell, patience);
    } catch (const Failure&) {
      close(file_);
      throw;
    }
    if (!has_gone() || attempt == kAttempts) {  // some file systems tell nothing of it
      const std::string name = own_name();  // the lock holds, whether a full disk takes it or not
      if (ftruncate(file_, 0) == 0) {
        static_cast<void>(pwrite(file_, name.data(), name.size(), 0) < 0);
      }
      return;
    }
    close(file_);
  }
}

SaveLock::~SaveLock() {
  if (file_ >= 0) {
    if (!has_gone()) {
      unlink(path_.c_str());  // before others can lock it
    }
    close(file_);
  }
  for (auto directory = made_.rbegin(); directory != made_.rend(); ++directory) {
    rmdir(directory->c_str());
  }
}

// False if there is no way to. Whoever made a directory may remove it before this is in it.
bool SaveLock::open_file() {
  file_ = -1;
  for (int i = 0; i < kAttempts && file_ < 0; ++i) {
    make_directories();
    file_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file_ < 0 && errno == EACCES) {  // another user's, which a lock needs not to write to
      file_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    }
    if (file_ < 0 && errno != ENOENT) {
      return false;
    }
  }
  return file_ >= 0;
}

void SaveLock::make_directories() {
  fs::path part;
  for (const fs::path& name : path_.parent_path()) {
    part /= name;
    std::error_code shows_when_the_file_is_made;
    if (fs::create_directory(part, shows_when_the_file_is_made)) {
      made_.push_back(part);
    }
  }
}

// The run that had the file has removed it.
bool SaveLock::has_gone() const {
  struct stat own{}, named{};
  return fstat(file_, &own) != 0 || stat(path_.c_str(), &named) != 0 ||
         own.st_dev != named.st_dev || own.st_ino != named.st_ino;
}

}  // namespace fsdp2::cli
