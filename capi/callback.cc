#include "capi/callback.h"

#include <algorithm>
#include <utility>

#include "capi/argument.h"
#include "capi/error.h"
#include "capi/nouns/module/tensor.h"
#include "core/nn/recompute/foreign_frame.h"
#include "include/fsdp2/error.h"
#include "include/fsdp2/hook.h"

namespace fsdp2::capi {

namespace {

// `record`: what the callback, or a call inside it, has left.
[[noreturn]] void fail_as_callback(const std::string& what, fsdp2_status status,
                                   const ErrorRecord& record) {
  const std::string& text = record.message;
  fail(code_of_callback(status), "{}: the callback returned {} ({}){}{}", what,
       fsdp2_status_name(status), status, text.empty() ? "" : ": ", text);
}

}  // namespace

void call_back(const std::string& what, c10::function_ref<fsdp2_status()> function,
               Nested lets_in) {
  const KeepErrorRecord keep;
  const fsdp2_status status = [&] {
    const InCallback inside(lets_in);
    const nn::ForeignFrame frame;
    const fsdp2_status returned = function();
    run_releases();
    return returned;
  }();
  if (status != FSDP2_OK) {
    fail_as_callback(what, status, error_record());
  }
}

LentTensor::LentTensor(at::Tensor tensor) : handle_(give_tensor(std::move(tensor))) {}

LentTensor::~LentTensor() { HandleTable::global().remove_if_there(handle_.id, Kind::kTensor); }

LentTensors::~LentTensors() {
  for (const fsdp2_tensor handle : handles_) {
    HandleTable::global().remove_if_there(handle.id, Kind::kTensor);
  }
}

void LentTensors::lend(const at::Tensor& tensor) {
  fsdp2_tensor& handle = handles_.emplace_back();  // before there is a handle that could be lost
  if (tensor.defined()) {
    handle = give_tensor(tensor);
  }
}

bool LentTensors::has(fsdp2_tensor handle) const {
  return std::any_of(handles_.begin(), handles_.end(),
                     [&](fsdp2_tensor lent) { return lent.id == handle.id; });
}

HandedOver::~HandedOver() {
  for (size_t i = 0; i < count_; ++i) {
    const bool is_lent = std::any_of(lent_.begin(), lent_.end(), [&](const LentTensors* tensors) {
      return tensors->has(handles_[i]);
    });
    if (!is_lent) {
      HandleTable::global().remove_if_there(handles_[i].id, Kind::kTensor);
    }
  }
}

}  // namespace fsdp2::capi

fsdp2_status fsdp2_callback_fail(fsdp2_status status, const char* message) {
  namespace capi = fsdp2::capi;
  return capi::guard(__func__, [&](capi::Call&) {
    FSDP2_CHECK(capi::is_failing_status(status), fsdp2::Code::kInvalidArgument,
                "status: expected one of the FSDP2_E_... of base.h, found {}", status);
    fsdp2::fail(static_cast<fsdp2::Code>(status), "{}",
                capi::read_text(message, capi::kMaxText, "message"));
  });
}
