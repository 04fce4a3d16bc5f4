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

// Runs `work` in a thread of its own and rethrows what it throws. False if it has not returned by
// the deadline. Its thread is then left behind, so `work` must own all that it touches.
bool run_until(Deadline deadline, std::function<void()> work);

// The same for work with a result; nullopt if it has not returned.
template <typename Work>
auto answer_until(Deadline deadline, Work work) -> std::optional<decltype(work())> {
  const auto answer = std::make_shared<std::optional<decltype(work())>>();
  const bool came =
      run_until(deadline, [answer, work = std::move(work)]() mutable { answer->emplace(work()); });
  return came ? std::move(*answer) : std::nullopt;
}

// A view of `store` for one stretch of work: a call that is not answered by the deadline (or, after
// it, within a second) throws kTimeout. The store's owner cannot use it after that.
c10::intrusive_ptr<c10d::Store> patient_until(Deadline deadline,
                                              c10::intrusive_ptr<c10d::Store> store);

}  // namespace fsdp2
