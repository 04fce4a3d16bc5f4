#include "tests/fuzz/abi/outcomes.h"

#include <map>
#include <mutex>
#include <ostream>
#include <string>

namespace fsdp2::fuzz {

namespace {

std::mutex mutex;
std::map<std::string, std::map<fsdp2_status, int>> outcomes;

}  // namespace

void count_outcome(const abi_function& function, fsdp2_status status) {
  const std::lock_guard lock(mutex);
  ++outcomes[function.name][status];
}

void print_outcomes(std::ostream& out) {
  const std::lock_guard lock(mutex);
  for (const auto& [function, counts] : outcomes) {
    out << function;
    for (const auto& [status, count] : counts) {
      out << " " << fsdp2_status_name(status) << "=" << count;
    }
    out << "\n";
  }
}

void print_never_succeeded(std::ostream& out) {
  const std::lock_guard lock(mutex);
  out << "never succeeded:";
  for (size_t i = 0; i < abi_n_functions; ++i) {
    if (outcomes[abi_functions[i].name].count(FSDP2_OK) == 0) {
      out << " " << abi_functions[i].name;
    }
  }
  out << "\n";
}

}  // namespace fsdp2::fuzz
