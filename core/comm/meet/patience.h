// Calls into the store, which wait without end if its host is stopped or is no store at all.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "core/comm/meet/store.h"

namespace fsdp2 {

using Deadline = std::chrono::steady_clock::time_point;

// Runs `work` in a thread of its own and rethrows what it throws. False if it has not come back by
// the deadline: it is left behind then, so it must own all that it touches.
bool run_until(Deadline deadline, std::function<void()> work);

// The same for work with a result, nothing if it has not come back.
template <typename Work>
auto answer_until(Deadline deadline, Work work) -> std::optional<decltype(work())> {
  const auto answer = std::make_shared<std::optional<decltype(work())>>();
  const bool came =
      run_until(deadline, [answer, work = std::move(work)]() mutable { answer->emplace(work()); });
  return came ? std::move(*answer) : std::nullopt;
}

// A view of `store` for one stretch of work: a call that is not answered by the deadline (or, after
// it, within a second) throws kTimeout. Whoever the store belongs to then cannot use it any more.
c10::intrusive_ptr<c10d::Store> patient_until(Deadline deadline,
                                              c10::intrusive_ptr<c10d::Store> store);

}  // namespace fsdp2
