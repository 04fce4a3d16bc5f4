// Puts a deadline on calls into the store, which wait forever if the store's host is stopped or is
// not a store at all.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "core/comm/meet/store.h"

namespace fsdp2 {

using Deadline = std::chrono::steady_clock::time_point;

// Runs `work` in a thread of its own, which gets none of the process's signals, and rethrows what
// it throws; what `work` holds is gone then. False if it has not returned by the deadline. `look`
// is called between short waits, and may throw. In both cases the thread is left behind, so `work`
// must own all that it touches.
bool run_until(Deadline deadline, std::function<void()> work,
               const std::function<void()>& look = {});

// The same for work with a result; nullopt if it has not returned.
template <typename Work>
auto answer_until(Deadline deadline, Work work, const std::function<void()>& look = {})
    -> std::optional<decltype(work())> {
  const auto answer = std::make_shared<std::optional<decltype(work())>>();
  const bool came = run_until(
      deadline, [answer, work = std::move(work)]() mutable { answer->emplace(work()); }, look);
  return came ? std::move(*answer) : std::nullopt;
}

// Another connection to the same store. Errors: kTimeout.
c10::intrusive_ptr<c10d::Store> clone_until(Deadline deadline,
                                            const c10::intrusive_ptr<c10d::Store>& store);

// Views of a store. One thread makes all calls of a view; it is there from the beginning, so that
// no call fails for want of a thread. A call that is not answered in time throws kTimeout, and so
// does every later call of that view, at once: the store's host is stopped or out of reach. A view
// waits for a key by looking for it again and again, and so keeps no other call waiting. Any thread
// may call a view.
//
// For as long as it is needed: every call has `patience`.
c10::intrusive_ptr<c10d::Store> patient(std::chrono::milliseconds patience,
                                        c10::intrusive_ptr<c10d::Store> store);
// For one stretch of work: every call has until the deadline or, after it, a second. The store's
// owner cannot use it once a call has not been answered.
c10::intrusive_ptr<c10d::Store> patient_until(Deadline deadline,
                                              c10::intrusive_ptr<c10d::Store> store);

}  // namespace fsdp2
