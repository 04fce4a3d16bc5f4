#include "cli/train/metrics/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "cli/library.h"
#include "cli/train/metrics/append.h"
#include "cli/train/metrics/event_records.h"

namespace fsdp2::cli {

namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "events.out.tfevents.";
constexpr size_t kDigits = 10;  // of the second that follows the prefix

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// TensorBoard reads the files of a directory in the order of their names, so that each has to have
// a later second than those there, whatever clock gave them theirs.
int64_t second_of_new_file(const std::string& directory) {
  auto second = static_cast<int64_t>(now());
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const std::string digits =
        name.rfind(kPrefix, 0) == 0 ? name.substr(std::strlen(kPrefix), kDigits) : "";
    if (digits.size() == kDigits && digits.find_first_not_of("0123456789") == std::string::npos) {
      second = std::max<int64_t>(second, std::stoll(digits) + 1);
    }
  }
  return second;
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace

EventFile::~EventFile() {
  if (file_ >= 0) {
    close(file_);
  }
}

void EventFile::open_file() {
  std::error_code error;
  fs::create_directories(directory_, error);
  path_ = directory_ + "/" + kPrefix + std::to_string(second_of_new_file(directory_)) + "." +
          host_name() + "." + std::to_string(getpid()) + ".0";
  file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0) {
    throw Failure("--tensorboard " + path_ + ": " + std::strerror(errno));
  }
  add(version_event(now()));
  add(restart_event(now(), next_step_));
}

void EventFile::add(const std::string& event) {
  append(file_, record_of(event), "--tensorboard " + path_);
}

void EventFile::write(const nlohmann::ordered_json& line) {
  const std::string kind = line.at("event");
  if (kind != "step" && kind != "evaluation") {
    return;
  }
  Scalars scalars;
  for (const auto& [key, value] : line.items()) {
    if (key != "step" && (value.is_number() || value.is_boolean())) {
      const double number = value.is_boolean() ? (value.get<bool>() ? 1 : 0) : value.get<double>();
      scalars.emplace_back((kind == "step" ? "train/" : "eval/") + key, number);
    }
  }
  if (file_ < 0) {
    open_file();
  }
  // A run that goes on evaluates before its first step, again perhaps: at the number of that step,
  // what the run before it has shown there goes.
  const int64_t step = line.at("step").get<int64_t>() + (kind == "step" ? 0 : 1);
  add(scalars_event(now(), step, scalars));
}

}  // namespace fsdp2::cli
