#include "cli/run/room.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <system_error>

#include "cli/machine/machine_memory.h"
#include "cli/machine/process_limit.h"

namespace fsdp2::cli {

namespace {

namespace fs = std::filesystem;

// The launcher keeps one end of two pipes for each rank; while it starts one it has all four ends.
constexpr double kFilesOfARank = 2;
constexpr double kFilesOfAStart = 4;

double count_of_open_files() {
  std::error_code error;
  double count = 0;
  for (fs::directory_iterator at("/proc/self/fd", error), end; !error && at != end;
       at.increment(error)) {
    ++count;
  }
  return count;
}

// The number after a key such as "Threads:" in /proc/<pid>/status; -1 if there is none.
double number_after(const std::string& key, std::ifstream* status) {
  for (std::string word; *status >> word;) {
    double number = -1;
    if (word == key && *status >> number) {
      return number;
    }
  }
  return -1;
}

double count_of_users_threads() {
  const auto user = static_cast<double>(getuid());
  std::error_code error;
  double count = 0;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    if (std::isdigit(static_cast<unsigned char>(at->path().filename().string()[0])) != 0) {
      std::ifstream status(at->path() / "status");  // which names the user before the threads
      if (number_after("Uid:", &status) == user) {
        count += std::max(0.0, number_after("Threads:", &status));
      }
    }
  }
  return count;
}

double number_in(const std::string& path) {
  std::ifstream file(path);
  double number = 0;
  return file >> number ? number : std::numeric_limits<double>::infinity();
}

// "0.20 0.18 0.12 1/80 11206": 80 of them.
double count_of_machines_threads() {
  std::ifstream file("/proc/loadavg");
  std::string word;
  for (int i = 0; i < 4; ++i) {
    file >> word;
  }
  const size_t slash = word.find('/');
  return slash == std::string::npos ? 0 : std::strtod(word.c_str() + slash + 1, nullptr);
}

std::string text_of(double count) { return std::to_string(static_cast<long long>(count)); }

std::string processes(int ranks, const Allowance& allowance, const std::string& whose,
                      const std::string& remedy) {
  return std::to_string(ranks) + " ranks need as many processes, and " + whose + " may have " +
         text_of(allowance.most) + ", with " + text_of(allowance.now) + " there already: " + remedy;
}

}  // namespace

Room room_of_machine() {
  Room room;
  room.files = {soft_limit(RLIMIT_NOFILE), count_of_open_files()};
  room.hard_files = hard_limit(RLIMIT_NOFILE);
  room.user.most = geteuid() == 0 ? room.user.most : soft_limit(RLIMIT_NPROC);  // root has no limit
  if (room.user.left() < std::numeric_limits<double>::infinity()) {
    room.user.now = count_of_users_threads();
  }
  room.group = {control_group_number("pids.max", "pids/pids.max"),
                control_group_number("pids.current", "pids/pids.current")};
  if (room.group.now == std::numeric_limits<double>::infinity()) {
    room.group.now = 0;
  }
  const double numbers = number_in("/proc/sys/kernel/pid_max");
  const double threads = number_in("/proc/sys/kernel/threads-max");
  room.system = {std::min(numbers, threads), count_of_machines_threads()};
  room.system_key = numbers < threads ? "kernel.pid_max" : "kernel.threads-max";
  return room;
}

std::string shortage(int ranks, const Room& room) {
  const double files = room.files.now + kFilesOfARank * ranks + kFilesOfAStart;
  if (files > room.files.most) {
    const std::string remedy = files > room.hard_files
                                   ? "raise the hard limit (ulimit -Hn, docker run --ulimit nofile)"
                                   : "ulimit -n " + text_of(files);
    return std::to_string(ranks) + " ranks need " + text_of(files) +
           " open files of the launcher, which reads what each of them prints, and it may have " +
           text_of(room.files.most) + ": " + remedy;
  }
  if (ranks > room.user.left()) {
    return processes(ranks, room.user, "this user", "ulimit -u, or fewer ranks");
  }
  if (ranks > room.group.left()) {
    return processes(ranks, room.group, "the control group",
                     "raise its pids.max (docker run --pids-limit), or fewer ranks");
  }
  if (ranks > room.system.left()) {
    return processes(ranks, room.system, "this machine",
                     "raise " + room.system_key + " (sysctl), or fewer ranks");
  }
  return "";
}

}  // namespace fsdp2::cli
