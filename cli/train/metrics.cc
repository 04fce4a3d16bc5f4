#include "cli/train/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <string_view>

#include "cli/library.h"

namespace fsdp2::cli {

Metrics::Metrics(const std::string& path) : path_(path), file_(STDOUT_FILENO) {
  if (!path.empty()) {
    file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file_ < 0) {
      throw Failure("--metrics " + path + ": " + std::strerror(errno));
    }
  }
}

Metrics::~Metrics() {
  if (!goes_to_stdout()) {
    close(file_);
  }
}

bool Metrics::goes_to_stdout() const { return file_ == STDOUT_FILENO; }

void Metrics::write(const nlohmann::ordered_json& line) {
  // A sample may hold bytes that are not UTF-8.
  const std::string text =
      line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t n = ::write(file_, rest.data(), rest.size());
    if (n > 0) {
      rest.remove_prefix(static_cast<size_t>(n));
    } else if (errno != EINTR) {
      throw Failure("metrics cannot be written to " + (path_.empty() ? "standard output" : path_) +
                    ": " + std::strerror(errno));
    }
  }
}

double rounded(double value, int digits) {
  const double scale = std::pow(10.0, digits);
  return std::round(value * scale) / scale;
}

}  // namespace fsdp2::cli
