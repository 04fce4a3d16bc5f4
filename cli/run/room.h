// Whether this machine has room for the ranks of a job, as far as it can be told before the first
// is started: processes, and files of the launcher, which reads what each rank prints.
#pragma once

#include <limits>
#include <string>

namespace fsdp2::cli {

// What there may be of something, and what there is. No limit by default.
struct Allowance {
  double most = std::numeric_limits<double>::infinity();
  double now = 0;
  double left() const { return most - now; }
};

struct Room {
  Allowance files;                                              // that this process has open
  double hard_files = std::numeric_limits<double>::infinity();  // what `files` may be raised to
  Allowance user;          // processes and threads of this user
  Allowance group;         // of the control group
  Allowance system;        // of the machine, by the numbers that it has for them
  std::string system_key;  // of sysctl, that says so
};

Room room_of_machine();

// What is missing for so many ranks, and what helps; "" if nothing is.
std::string shortage(int ranks, const Room& room);

}  // namespace fsdp2::cli
