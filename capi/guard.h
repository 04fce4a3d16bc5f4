// The boundary that every exported function crosses: here, and nowhere else, exceptions end.
//
//   fsdp2_status fsdp2_mesh_barrier(fsdp2_mesh mesh) {
//     return guard(__func__, [&](Call& call) {
//       auto object = pin(mesh);
//       enter(call, *object);
//       call.share_failure();
//       barrier(*object->mesh);
//     });
//   }
//
// Each exception becomes a status and this thread's error record; outputs are written last, so a
// failure leaves them untouched. Whether it fails or not, a call ends with what is owed to callers
// (release.h). A thread that is cancelled ends after the call, at its next cancellation point.
#pragma once

#include <pthread.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "capi/busy.h"
#include "capi/modes.h"
#include "capi/release.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/comm/mesh.h"
#include "include/fsdp2/base.h"

namespace fsdp2::capi {

// What a call that a callback makes may do with an object that the call around it holds. Each lets
// in what stands before it.
enum class Nested {
  kNothing,
  kReads,        // changes nothing
  kCollectives,  // moves tensors of the caller over a mesh
  kForwards,     // runs a module inside the forward that is under way
};

// One call into the library, from any thread and with any state that the thread's other users of
// LibTorch have left there.
class Call {
 public:
  explicit Call(const char* function);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  const char* function() const { return function_; }

  // This call's alone until it ends. kBusy if another call is inside; this one may be.
  void occupy(const std::shared_ptr<Busy>& busy);
  // As occupy; but inside a callback that lets in such calls, of a call of this thread that holds
  // the object, this call shares it.
  void join(const std::shared_ptr<Busy>& busy, Nested kind);
  // False if this call shares an object inside a callback that runs without recording gradients.
  bool may_record_gradients() const { return may_record_gradients_; }
  // False if this call is made inside a callback that runs without recording gradients.
  bool caller_records_gradients() const {
    return outer_ == nullptr || outer_->callback_records_gradients_;
  }

  // The call is about this rank of the mesh: the error record and log records say so.
  void about(const std::shared_ptr<Mesh>& mesh);
  // As about, for a model on the mesh, whose units may be over meshes of fewer ranks.
  void about_model_on(const std::shared_ptr<Mesh>& mesh);
  // From here on other ranks may wait for this one: a failure is told to them, and spends the mesh.
  // What is wrong with the arguments alone is found before, and what the outcome means after: such
  // failures are this rank's own, and the mesh stays usable. Nothing is shared if there is no mesh.
  void share_failure() { shares_failure_ = mesh_ != nullptr; }
  void stop_sharing() { shares_failure_ = false; }

  // Whether the ranks that this call is about, or one around it, know that one of them has failed.
  bool knows_of_failure() const;

  // For guard: begins the call, and turns the exception that is being handled into a status.
  void begin();
  fsdp2_status fail() noexcept;

 private:
  bool holds(const std::shared_ptr<Busy>& busy) const;
  void record_current_exception();
  void tell_other_ranks(Code code, const std::string& message) const;

  friend class InCallback;

  const char* function_;
  Call* const outer_;  // of this thread, whose callback makes this call; null outside of any
  Nested lets_in_ = Nested::kNothing;
  bool callback_records_gradients_ = true;
  bool may_record_gradients_ = true;
  std::optional<LogScope> log_scope_;
  std::optional<LibraryModes> modes_;
  std::shared_ptr<Mesh> mesh_;
  bool is_about_model_ = false;
  bool shares_failure_ = false;
  std::vector<std::shared_ptr<Busy>> occupied_;
};

// What `body` throws, for a call that has to go on all the same; null if it throws nothing.
template <typename Body>
std::exception_ptr caught_in(const Body& body) {
  try {
    body();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

// The code of the error that caught_in returned.
Code code_of(const std::exception_ptr& thrown);
// The text of what caught_in returned if it is an error of LibTorch's own; otherwise empty.
std::string libtorch_text(const std::exception_ptr& thrown);

// While it lives, this thread's innermost call is inside a callback that may make such calls.
class InCallback {
 public:
  explicit InCallback(Nested lets_in);
  ~InCallback();
  InCallback(const InCallback&) = delete;
  InCallback& operator=(const InCallback&) = delete;

 private:
  Call* call_;
};

// The code of this thread's innermost call, whose callback has returned this status. What other
// ranks or a device have done to a call inside the callback is no failure of the callback's. Nor is
// want of memory: a caller that knows of it may go on with less.
Code code_of_callback(fsdp2_status returned);

// While it lives, this thread cannot be cancelled, the callbacks that it makes included: what
// unwinds a cancelled thread must not end anywhere, and `catch (...)`, here and in LibTorch, ends
// it.
class Uncancellable {
 public:
  Uncancellable() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~Uncancellable() { pthread_setcancelstate(before_, nullptr); }
  Uncancellable(const Uncancellable&) = delete;
  Uncancellable& operator=(const Uncancellable&) = delete;

 private:
  int before_ = 0;
};

// The call by itself, at whose end the thread is the caller's again.
template <typename Body>
fsdp2_status run_call(const char* function, const Body& body) {
  Call call(function);
  try {
    call.begin();
    body(call);
    return FSDP2_OK;
  } catch (...) {
    return call.fail();
  }
}

template <typename Body>
fsdp2_status guard(const char* function, const Body& body) {
  const Uncancellable uncancellable;
  const ReleaseScope releases;
  const fsdp2_status status = run_call(function, body);
  run_releases();
  return status;
}

}  // namespace fsdp2::capi
