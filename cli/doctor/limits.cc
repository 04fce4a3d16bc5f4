#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "cli/doctor/machine.h"
#include "cli/machine/machine_memory.h"
#include "cli/machine/process_limit.h"
#include "cli/machine/size_text.h"

namespace fsdp2::cli {

namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string count_or_any(double count) {
  return count == kUnlimited ? "any number" : number_text(count, 9);
}

Finding memory() {
  const MachineMemory memory = machine_memory();
  Finding finding{"memory"};
  finding.found = size_text(memory.available) + " available of " + size_text(memory.total);
  if (memory.is_limited()) {
    finding.found += "; the control group has " + size_text(memory.used) + " of at most " +
                     size_text(memory.most);
  }
  if (memory.free() < kGiB) {
    finding.verdict = Verdict::kWarning;
    finding.remedy =
        "a rank takes 0.3 GB before its model: end other programs, or raise the limit "
        "of the container (docker run --memory)";
  }
  return finding;
}

// A limit counts what is mapped and not what is used.
Finding address_space() {
  const double most = soft_limit(RLIMIT_AS);
  Finding finding{"address space"};
  finding.found = most == kUnlimited ? "any amount" : "a process may map " + size_text(most);
  if (most < kLeastAddressSpace) {
    finding.verdict = Verdict::kFailed;
    finding.remedy = "ulimit -v unlimited: LibTorch maps " + size_text(kLeastAddressSpace) +
                     " before a program begins";
  } else if (most < machine_memory().total) {
    finding.verdict = Verdict::kWarning;
    finding.remedy =
        "ulimit -v unlimited: a rank maps its parameters, the files that it reads and the stacks "
        "of its threads, and CUDA far more than it uses";
  }
  return finding;
}

Finding file_size() {
  const double most = soft_limit(RLIMIT_FSIZE);
  Finding finding{"file size"};
  finding.found = most == kUnlimited ? "any size" : "a file may have " + size_text(most);
  if (most < machine_memory().total) {
    finding.verdict = Verdict::kWarning;
    finding.remedy = "ulimit -f unlimited: a rank's part of a checkpoint is one file";
  }
  return finding;
}

// How many cores' worth of time the control group gives; no limit if it does not say.
double core_quota() {
  std::istringstream newer(first_line("/sys/fs/cgroup/cpu.max"));
  double quota = 0, period = 0;
  if (newer >> quota >> period && period > 0) {
    return quota / period;
  }
  std::istringstream older(first_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"));
  std::istringstream older_period(first_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
  const bool has_older = older >> quota && older_period >> period && quota > 0 && period > 0;
  return has_older ? quota / period : kUnlimited;
}

Finding cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int usable = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
  const double quota = core_quota();
  Finding finding{"cores"};
  finding.found = std::to_string(usable) + " of " + std::to_string(sysconf(_SC_NPROCESSORS_ONLN)) +
                  " may be used";
  if (quota < usable - 0.01) {
    finding.verdict = Verdict::kWarning;
    finding.found += ", for the time of " + number_text(quota, 3);
    finding.remedy = "threads that wait for time hold up all others: set OMP_NUM_THREADS to " +
                     number_text(std::max(1.0, quota), 2) +
                     " divided by the ranks, or raise the limit (docker run --cpus)";
  }
  return finding;
}

Finding open_files() {
  const double soft = soft_limit(RLIMIT_NOFILE), hard = hard_limit(RLIMIT_NOFILE);
  constexpr double kEnough = 4096;
  Finding finding{"open files"};
  finding.found =
      "a process may have " + count_or_any(soft) + ", and ask for " + count_or_any(hard);
  if (soft < kEnough) {
    finding.verdict = soft < 256 ? Verdict::kFailed : Verdict::kWarning;
    finding.remedy = (hard < kEnough ? "raise the hard limit (docker run --ulimit nofile=65536)"
                                     : "ulimit -n " + number_text(std::min(hard, 65536.0), 9)) +
                     ": each rank has sockets to the others, and files of the model and the data";
  }
  return finding;
}

Finding processes() {
  const double soft = soft_limit(RLIMIT_NPROC);
  const double tasks = control_group_number("pids.max", "pids/pids.max");
  const double most = std::min(soft, tasks);
  constexpr double kEnough = 1024;
  Finding finding{"threads"};
  finding.found = "this user may have " + count_or_any(most);
  if (most < kEnough) {
    finding.verdict = Verdict::kWarning;
    finding.remedy =
        "a rank has some threads for each of its cores: ulimit -u, or docker run --pids-limit";
  }
  return finding;
}

Finding memory_lock() {
  const double soft = soft_limit(RLIMIT_MEMLOCK);
  Finding finding{"locked memory"};
  finding.found = soft == kUnlimited ? "any amount" : size_text(soft);
  if (soft < 0.0625 * kGiB) {
    finding.found += "; matters for InfiniBand alone";
  }
  return finding;
}

}  // namespace

Findings look_at_limits() {
  return {cores(),     memory(),      address_space(), open_files(),
          processes(), memory_lock(), file_size()};
}

}  // namespace fsdp2::cli
