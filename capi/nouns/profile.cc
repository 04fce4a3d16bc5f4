#include "include/fsdp2/profile.h"

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "capi/argument.h"
#include "capi/fork.h"
#include "capi/guard.h"
#include "core/base/error.h"
#include "core/nn/recompute/foreign_frame.h"
#include "core/profile/profiler.h"

namespace fsdp2::capi {

namespace {

// The table of the last profile.
struct LastTable {
  std::mutex mutex;
  std::optional<std::string> text;
};

LastTable& last_table() {
  static LastTable* const the_table = new LastTable;
  return *the_table;
}

// When a callback returns, LibTorch restores what the thread had around it, the profiler too: one
// that was stopped inside would run on, with nobody left to stop it.
void check_outside_callbacks() {
  FSDP2_CHECK(nn::ForeignFrame::depth() == 0, Code::kWrongState,
              "a callback neither starts nor stops a profile: expected the call before or after "
              "the one that calls back");
}

void stop_profile(const char* trace_file) {
  check_outside_callbacks();
  const std::string path = trace_file == nullptr ? "" : read_path(trace_file, "trace_file");
  const std::unique_ptr<profile::Profile> profile = profile::stop();
  {
    const std::lock_guard<std::mutex> lock(last_table().mutex);
    last_table().text = profile->table();
  }
  if (!path.empty()) {
    profile->save_trace(path);
  }
}

std::string describe_profile() {
  const std::lock_guard<std::mutex> lock(last_table().mutex);
  FSDP2_CHECK(last_table().text.has_value(), Code::kNotFound,
              "no profile was stopped in this process yet: expected fsdp2_profile_start and "
              "fsdp2_profile_stop before");
  return *last_table().text;
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;

fsdp2_status fsdp2_profile_start(void) {
  return guard(__func__, [&](Call&) {
    fsdp2::capi::check_outside_callbacks();
    fsdp2::capi::note_use();
    fsdp2::profile::start();
  });
}

fsdp2_status fsdp2_profile_stop(const char* trace_file) {
  return guard(__func__, [&](Call&) { fsdp2::capi::stop_profile(trace_file); });
}

fsdp2_status fsdp2_profile_describe(char* buf, size_t cap, size_t* needed) {
  return guard(__func__, [&](Call&) {
    fsdp2::capi::check_not_null(needed, "needed");
    fsdp2::capi::write_text(fsdp2::capi::describe_profile(), buf, cap, needed);
  });
}
