#include "include/fsdp2/log.h"

#include <memory>

#include "capi/error.h"
#include "capi/guard.h"
#include "capi/release.h"
#include "core/base/error.h"
#include "core/base/log.h"

namespace fsdp2::capi {

namespace {

LogLevel read_level(int32_t level) {
  switch (level) {
    case FSDP2_LOG_DEBUG:
    case FSDP2_LOG_INFO:
    case FSDP2_LOG_WARNING:
    case FSDP2_LOG_ERROR:
    case FSDP2_LOG_OFF:
      return static_cast<LogLevel>(level);
    default:
      fail(Code::kInvalidArgument,
           "min_level: expected one of FSDP2_LOG_DEBUG (10), _INFO (20), _WARNING (30), _ERROR "
           "(40), _OFF (100), found {}",
           level);
  }
}

void pass_on(fsdp2_log_fn fn, const LogRecord& record, void* user_data) {
  const fsdp2_log_record out{sizeof(fsdp2_log_record),
                             static_cast<int32_t>(record.level),
                             record.rank,
                             0,
                             record.time_ns,
                             record.category,
                             record.message.c_str()};
  const KeepErrorRecord keep;
  fn(&out, user_data);
}

void set_log(int32_t min_level, fsdp2_log_fn fn, void* user_data, fsdp2_release_fn release) {
  const LogLevel level = read_level(min_level);
  FSDP2_CHECK(fn != nullptr || (user_data == nullptr && release == nullptr), Code::kNullArgument,
              "fn is NULL, but user_data or release is not");
  if (fn == nullptr) {
    set_log_sink(level, {});
    return;
  }
  const auto held = std::make_shared<UserData>(user_data);
  set_log_sink(level, [fn, held](const LogRecord& record) { pass_on(fn, record, held->data()); });
  held->release_by(release);
}

}  // namespace

}  // namespace fsdp2::capi

fsdp2_status fsdp2_log_set(int32_t min_level, fsdp2_log_fn fn, void* user_data,
                           fsdp2_release_fn release) {
  return fsdp2::capi::guard(__func__, [&](fsdp2::capi::Call&) {
    fsdp2::capi::set_log(min_level, fn, user_data, release);
  });
}
