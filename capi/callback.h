// Calls of the caller's functions.
#pragma once

#include <c10/util/FunctionRef.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capi/error.h"
#include "capi/object.h"
#include "include/fsdp2/base.h"

namespace fsdp2::capi {

// Runs `function` and turns a status other than FSDP2_OK into an error (code_of_callback) with the
// text that the callback, or a call inside it, left in this thread's record; otherwise the record
// stays what it was. what: "all-reduce hook of unit 'a.b'". lets_in: calls of `function` that may
// share what the call around it holds; others are kBusy on that.
void call_back(const std::string& what, c10::function_ref<fsdp2_status()> function,
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

// Several of them; an undefined one is {0}.
class LentTensors {
 public:
  LentTensors() = default;
  ~LentTensors();
  LentTensors(const LentTensors&) = delete;
  LentTensors& operator=(const LentTensors&) = delete;

  void lend(const at::Tensor& tensor);
  bool has(fsdp2_tensor handle) const;
  const std::vector<fsdp2_tensor>& handles() const { return handles_; }

 private:
  std::vector<fsdp2_tensor> handles_;
};

// Destroys, at its end, what a callback has handed over, but for what it was lent; also if that is
// in no order.
class HandedOver {
 public:
  HandedOver(std::vector<const LentTensors*> lent, const fsdp2_tensor* handles, size_t count)
      : lent_(std::move(lent)), handles_(handles), count_(count) {}
  ~HandedOver();
  HandedOver(const HandedOver&) = delete;
  HandedOver& operator=(const HandedOver&) = delete;

 private:
  const std::vector<const LentTensors*> lent_;
  const fsdp2_tensor* const handles_;
  const size_t count_;
};

}  // namespace fsdp2::capi
