#include "cli/train/metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "cli/library.h"
#include "cli/train/append.h"

namespace fsdp2::cli {

namespace {

// The length of the lines, from the start of a file on, that earlier steps have written. What
// follows them is redone, or said again at the end.
int64_t bytes_of_earlier_steps(const std::string& path, int64_t next_step) {
  if (next_step == 0) {
    return 0;
  }
  const auto check_readable = [&](bool works) {
    if (!works) {
      throw Failure("--metrics " + path + ": cannot be read, so that a resumed run cannot go on " +
                    "with it: make it readable, or name another file");
    }
  };
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  check_readable(status.type() != std::filesystem::file_type::none);
  if (!std::filesystem::is_regular_file(status)) {
    return 0;
  }
  std::ifstream file(path, std::ios::binary);
  check_readable(file.is_open());
  int64_t kept = 0;
  int64_t number = 1;
  for (std::string line; std::getline(file, line) && !file.eof(); ++number) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    const bool is_ours = json.is_object() && json.contains("event");
    if (!is_ours) {
      throw Failure("--metrics " + path + ": line " + std::to_string(number) +
                    " is not of a training run, so that the steps after the resumed one cannot be "
                    "found: name another file");
    }
    const bool is_of_step = json["event"] == "step" || json["event"] == "evaluation";
    if (!is_of_step || json.value("step", next_step) >= next_step) {
      break;
    }
    kept += static_cast<int64_t>(line.size()) + 1;
  }
  check_readable(!file.bad());
  return kept;
}

}  // namespace

Metrics::Metrics(const std::string& path, int64_t next_step)
    : path_(path), kept_bytes_(bytes_of_earlier_steps(path, next_step)) {}

Metrics::~Metrics() {
  if (file_ >= 0 && !goes_to_stdout()) {
    close(file_);
  }
}

void Metrics::open_file() {
  if (goes_to_stdout()) {
    file_ = STDOUT_FILENO;
    return;
  }
  file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  struct stat status{};
  const bool is_open = file_ >= 0 && fstat(file_, &status) == 0;
  // At once, so that a run that dies here leaves the file as it was or as it should be.
  if (!is_open || (S_ISREG(status.st_mode) && ftruncate(file_, kept_bytes_) != 0)) {
    throw Failure("--metrics " + path_ + ": " + std::strerror(errno));
  }
}

void Metrics::write(const nlohmann::ordered_json& line) {
  if (file_ < 0) {
    open_file();
  }
  // A sample may hold bytes that are not UTF-8.
  const std::string text =
      line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  append(file_, text,
         "metrics cannot be written to " + (path_.empty() ? "standard output" : path_));
}

double rounded(double value, int digits) {
  const double scale = std::pow(10.0, digits);
  return std::round(value * scale) / scale;
}

}  // namespace fsdp2::cli
