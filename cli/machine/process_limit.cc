#include "cli/machine/process_limit.h"

#include <sys/resource.h>

#include <limits>

namespace fsdp2::cli {

namespace {

rlimit limits_of(int resource) {
  rlimit limit{RLIM_INFINITY, RLIM_INFINITY};
  static_cast<void>(getrlimit(static_cast<__rlimit_resource>(resource), &limit));
  return limit;
}

double number_of(rlim_t limit) {
  return limit == RLIM_INFINITY ? std::numeric_limits<double>::infinity()
                                : static_cast<double>(limit);
}

}  // namespace

double soft_limit(int resource) { return number_of(limits_of(resource).rlim_cur); }

double hard_limit(int resource) { return number_of(limits_of(resource).rlim_max); }

}  // namespace fsdp2::cli
