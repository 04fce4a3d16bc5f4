#include "include/fsdp2/config.h"

#include <limits>
#include <string>

#include "capi/argument.h"
#include "capi/guard.h"
#include "core/train/run_config.h"

namespace fsdp2::capi {

namespace {

constexpr char kUnnamed[] = "config";

std::string read_text_or(const char* text, const std::string& otherwise, const char* name) {
  return text == nullptr ? otherwise : read_text(text, kMaxPath, name);
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_config_lower(const char* config, const char* config_name, const char* role,
                                const char* const* sets, size_t n_sets, int32_t world_size,
                                char* buf, size_t cap, size_t* needed) {
  return guard(__func__, [&](Call&) {
    constexpr int64_t kMostRanks = std::numeric_limits<int32_t>::max();
    fsdp2::train::RunConfigRequest request;
    request.text = capi::read_text(config, capi::kMaxText, "config");
    request.name = capi::read_text_or(config_name, capi::kUnnamed, "config_name");
    request.role = capi::read_text_or(role, "", "role");
    request.sets = capi::read_texts(sets, n_sets, capi::kMaxText, "sets");
    request.world_size = capi::check_integer(world_size, 0, kMostRanks, "world_size");
    capi::write_text(fsdp2::train::lower_run_config(request), buf, cap, needed);
  });
}

fsdp2_status fsdp2_config_get_value(const char* plan, const char* key, char* buf, size_t cap,
                                    size_t* needed) {
  return guard(__func__, [&](Call&) {
    const std::string text = capi::read_text(plan, capi::kMaxText, "plan");
    const std::string name = capi::read_text(key, capi::kMaxName, "key");
    capi::write_text(fsdp2::train::value_in_plan(text, name), buf, cap, needed);
  });
}

fsdp2_status fsdp2_config_get_shared(const char* plan, char* buf, size_t cap, size_t* needed) {
  return guard(__func__, [&](Call&) {
    const std::string text = capi::read_text(plan, capi::kMaxText, "plan");
    capi::write_text(fsdp2::train::shared_in_plan(text), buf, cap, needed);
  });
}
