#include "capi/guard.h"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "capi/error.h"
#include "capi/fork.h"
#include "client/library.h"
#include "core/base/error.h"
#include "core/comm/world.h"
#include "core/config/config_error.h"

namespace fsdp2::capi {

static_assert(static_cast<fsdp2_status>(Code::kNullArgument) == FSDP2_E_NULL_ARGUMENT &&
              static_cast<fsdp2_status>(Code::kWrongState) == FSDP2_E_WRONG_STATE &&
              static_cast<fsdp2_status>(Code::kIo) == FSDP2_E_IO &&
              static_cast<fsdp2_status>(Code::kDeviceLost) == FSDP2_E_DEVICE_LOST &&
              static_cast<fsdp2_status>(Code::kInternal) == FSDP2_E_INTERNAL);

namespace {

thread_local Call* innermost_call = nullptr;

// Lines below the first, for whoever looks for the cause inside LibTorch.
std::string detail_of_current_exception() {
  try {
    throw;
  } catch (const c10::Error& error) {
    return error.what();
  } catch (...) {
    return {};
  }
}

// A mistake in a plan is the caller's. A call that other calls of the C ABI make up fails as the
// one of them that fails, which has left its record: what LibTorch says below the message, and
// numbers.
Error current_error() {
  try {
    throw;
  } catch (const config::ConfigError& error) {
    return {Code::kInvalidArgument, error.what()};
  } catch (const client::Failure& failure) {
    const bool has_status = failure.status() != FSDP2_OK;
    const ErrorRecord& inner = error_record();
    const std::string message = failure.what();
    const bool is_of_inner = has_status && inner.status == failure.status() &&
                             message.size() >= inner.message.size() &&
                             message.compare(message.size() - inner.message.size(),
                                             inner.message.size(), inner.message) == 0;
    return {has_status ? static_cast<Code>(failure.status()) : Code::kInternal,
            is_of_inner && !inner.detail.empty() ? message + "\n" + inner.detail : message,
            is_of_inner ? inner.native_code : 0};
  } catch (...) {
    return current_exception_as_error();
  }
}

}  // namespace

Code code_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (...) {
    return current_exception_as_error().code();
  }
}

std::string libtorch_text(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (...) {
    return {};
  }
}

Call::Call(const char* function)
    : function_(function), outer_(std::exchange(innermost_call, this)) {}

Call::~Call() {
  for (const auto& busy : occupied_) {
    busy->leave();
  }
  innermost_call = outer_;
}

void Call::begin() {
  FSDP2_CHECK(!in_fork(), Code::kWrongState,
              "this process is a fork of one that had used libfsdp2: expected a process of its own "
              "(spawn, or fork and exec)");
  FSDP2_CHECK(!inside_log_sink(), Code::kBusy, "a log callback must not call the library");
  log_scope_.emplace();
  modes_.emplace();
}

bool Call::holds(const std::shared_ptr<Busy>& busy) const {
  return std::find(occupied_.begin(), occupied_.end(), busy) != occupied_.end();
}

void Call::occupy(const std::shared_ptr<Busy>& busy) {
  if (holds(busy)) {
    return;
  }
  occupied_.reserve(occupied_.size() + 1);  // what has been entered must be left
  busy->enter(function_);
  occupied_.push_back(busy);
}

void Call::join(const std::shared_ptr<Busy>& busy, Nested kind) {
  bool records_gradients = true;  // in all callbacks from the holder's on
  for (const Call* outer = outer_; outer != nullptr && outer->lets_in_ >= kind;
       outer = outer->outer_) {
    records_gradients = records_gradients && outer->callback_records_gradients_;
    if (outer->holds(busy)) {
      may_record_gradients_ = may_record_gradients_ && records_gradients;
      return;
    }
  }
  occupy(busy);
}

void Call::about(const std::shared_ptr<Mesh>& mesh) {
  mesh_ = mesh;
  log_scope_->set_rank(mesh->world().rank());
}

void Call::about_model_on(const std::shared_ptr<Mesh>& mesh) {
  about(mesh);
  is_about_model_ = true;
}

// Another rank's failure ends the waits of all whose group has one of the ranks that failed. On one
// mesh these are all; but some ranks of a model may be waiting in a unit's mesh, where none has.
void Call::tell_other_ranks(Code code, const std::string& message) const {
  Team& team = mesh_->team();
  if (team.size() == 1 || code == Code::kNotFinite) {  // which all ranks have found together
    return;
  }
  if (code != Code::kPeerFailed) {
    team.publish_failure(message);
  } else if (is_about_model_) {
    team.failure().spread();
  }
}

void Call::record_current_exception() {
  ErrorRecord& record = error_record();
  const Error error = current_error();
  record.status = static_cast<fsdp2_status>(error.code());
  record.rank = mesh_ ? mesh_->world().rank() : -1;
  record.native_code = error.native_code();
  record.function = function_;
  const std::string& text = error.message();
  const size_t end_of_line = text.find('\n');
  record.message = text.substr(0, end_of_line);
  record.detail = end_of_line == std::string::npos ? "" : text.substr(end_of_line + 1);
  if (record.detail.empty()) {
    record.detail = detail_of_current_exception();
  }
  if (shares_failure_) {
    tell_other_ranks(error.code(), record.message);
  }
}

InCallback::InCallback(Nested lets_in) : call_(innermost_call) {
  if (call_ != nullptr) {
    call_->lets_in_ = lets_in;
    call_->callback_records_gradients_ = at::GradMode::is_enabled();
  }
}

InCallback::~InCallback() {
  if (call_ != nullptr) {
    call_->lets_in_ = Nested::kNothing;
  }
}

bool Call::knows_of_failure() const {
  const bool knows = mesh_ != nullptr && mesh_->team().failure().failed();
  return knows || (outer_ != nullptr && outer_->knows_of_failure());
}

// A kPeerFailed is told to nobody, so that it must be true: a callback may have made it up.
Code code_of_callback(fsdp2_status returned) {
  const auto code = static_cast<Code>(returned);
  switch (code) {
    case Code::kOutOfMemory:
    case Code::kDeviceMemory:
    case Code::kComm:
    case Code::kTimeout:
    case Code::kDeviceLost:
      return code;
    case Code::kPeerFailed:
      return innermost_call != nullptr && innermost_call->knows_of_failure() ? code
                                                                             : Code::kCallback;
    default:
      return Code::kCallback;
  }
}

fsdp2_status Call::fail() noexcept {
  try {
    record_current_exception();
    return error_record().status;
  } catch (...) {
    ErrorRecord& record = error_record();
    record.status = FSDP2_E_OUT_OF_MEMORY;
    record.rank = -1;
    record.native_code = 0;
    record.function = function_;
    record.message.clear();
    record.message.append("out of memory");  // fits without an allocation
    record.detail.clear();
    return FSDP2_E_OUT_OF_MEMORY;
  }
}

}  // namespace fsdp2::capi
