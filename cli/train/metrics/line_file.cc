#include "cli/train/metrics/line_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "cli/library.h"
#include "cli/train/metrics/append.h"
#include "cli/train/metrics/run_lock.h"

namespace fsdp2::cli {

LineFile::LineFile(std::string flag, std::string path)
    : flag_(std::move(flag)), path_(std::move(path)) {
  if (is_stdout()) {
    file_ = STDOUT_FILENO;
    return;
  }
  open_alone();
  while (is_regular() && has_gone()) {  // with the run that it was taken over from
    close(file_);
    open_alone();
  }
}

void LineFile::open_alone() {
  constexpr int kAppend = O_WRONLY | O_APPEND | O_CLOEXEC;
  file_ = open(path_.c_str(), kAppend | O_CREAT | O_EXCL, 0666);
  is_new_ = file_ >= 0;
  if (!is_new_) {
    file_ = open(path_.c_str(), kAppend | O_CREAT, 0666);
  }
  if (file_ < 0) {
    fail();
  }
  if (is_regular() && !lock_for_this_run(file_)) {
    throw Failure(flag_ + " " + path_ +
                  ": another run writes to it: wait for its end, or name another file");
  }
}

LineFile::LineFile(std::string flag, std::string path, int64_t next_step, const StepOfLine& step_of)
    : LineFile(std::move(flag), std::move(path)) {
  kept_bytes_ = bytes_of_earlier_steps(next_step, step_of);
}

LineFile::~LineFile() {
  if (is_stdout() || file_ < 0) {
    return;
  }
  if (is_new_ && !has_begun_) {
    static_cast<void>(unlink(path_.c_str()));  // with the lock held
  }
  close(file_);
}

// The length of the lines, from the start of the file on, that earlier steps have written. What
// follows them is redone, or said again at the end.
int64_t LineFile::bytes_of_earlier_steps(int64_t next_step, const StepOfLine& step_of) const {
  if (next_step == 0) {
    return 0;
  }
  const auto check_readable = [&](bool works) {
    if (!works) {
      throw Failure(flag_ + " " + path_ + ": cannot be read, so that a resumed run cannot go on " +
                    "with it: make it readable, or name another file");
    }
  };
  std::error_code error;
  const auto status = std::filesystem::status(path_, error);
  check_readable(status.type() != std::filesystem::file_type::none);
  if (!std::filesystem::is_regular_file(status)) {
    return 0;
  }
  std::ifstream file(path_, std::ios::binary);
  check_readable(file.is_open());
  int64_t kept = 0;
  int64_t number = 1;
  for (std::string line; std::getline(file, line) && !file.eof(); ++number) {
    const std::optional<int64_t> step = step_of(line);
    if (!step) {
      throw Failure(flag_ + " " + path_ + ": line " + std::to_string(number) +
                    " is not of a training run, so that the steps after the resumed one cannot be "
                    "found: name another file");
    }
    if (*step >= next_step) {
      break;
    }
    kept += static_cast<int64_t>(line.size()) + 1;
  }
  check_readable(!file.bad());
  return kept;
}

void LineFile::fail() const { throw Failure(flag_ + " " + path_ + ": " + std::strerror(errno)); }

bool LineFile::is_regular() const {
  struct stat status{};
  return fstat(file_, &status) == 0 && S_ISREG(status.st_mode);
}

bool LineFile::has_gone() const {
  struct stat status{};
  return fstat(file_, &status) == 0 && status.st_nlink == 0;
}

void LineFile::add(const std::string& line) {
  // At once, so that a run that dies here leaves the file as it was or as it should be.
  if (!has_begun_ && !is_stdout() && is_regular() && ftruncate(file_, kept_bytes_) != 0) {
    fail();
  }
  has_begun_ = true;
  append(file_, line + "\n",
         "metrics cannot be written to " + (is_stdout() ? "standard output" : path_));
}

}  // namespace fsdp2::cli
