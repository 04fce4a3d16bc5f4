// Calls of the caller's functions.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "capi/error.h"
#include "capi/object.h"
#include "include/fsdp2/base.h"

namespace fsdp2::capi {

// Runs `function` and turns a status other than FSDP2_OK into kCallback with the text that the
// callback, or a call inside it, left in this thread's record; otherwise the record stays what it
// was. what: "all-reduce hook of unit 'a.b'". lets_in: calls of `function` that may share what
// the call around it holds; others are kBusy on that.
void call_back(const std::string& what, const std::function<fsdp2_status()>& function,
               Nested lets_in = Nested::kReads);

// A tensor as a handle for the time of a callback, which may have destroyed it.
class LentTensor {
 public:
  explicit LentTensor(at::Tensor tensor);
  ~LentTensor();
  LentTensor(const LentTensor&) = delete;
  LentTensor& operator=(const LentTensor&) = delete;

  fsdp2_tensor handle() const { return handle_; }

 private:
  fsdp2_tensor handle_;
};

}  // namespace fsdp2::capi
