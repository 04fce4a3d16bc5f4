// The failure board of ranks that are processes: what it says travels through the store they met
// at.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/comm/failure/failure_board.h"
#include "core/comm/meet/store.h"

namespace fsdp2 {

// The process that keeps the store: the store ends with it.
enum class StoreKeeper { kRankZero, kLauncher };

// A watcher thread waits for the bell of its rank, which others ring when there is news. Whoever
// wants to be heard writes, then rings; the watcher counts its bells, then reads. So a writer's
// news is read, whichever bell it rings.
//
// Keys: "failures/<n>" is the n-th failure of the job, from 1. "bells/<rank>" is how many bells the
// rank has answered; "bell/<rank>/<n>" rings that which comes after n of them. "present/<rank>" is
// the number of its last bell, then what the rank was waiting for at it. "left" counts the watchers
// that need the store no more.
//
// A store whose host is stopped does not answer. That costs kPatience once; then the board does
// without it, except that the first failure is told once the store goes on, if this process lives.
//
// Rank 0 ends last where it keeps the store: it waits for the others, up to 15 seconds.
class StoreBoard final : public FailureBoard {
 public:
  // timeout: of the watcher's own connection to the store, which a busy machine may take long to
  // make. Errors: kTimeout.
  StoreBoard(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
             std::chrono::milliseconds timeout, StoreKeeper keeper);
  ~StoreBoard() override;

  std::optional<std::string> first_among(const RankSet& ranks) const override;
  void publish(const Failure& failure) noexcept override;
  void set_waiting_for(int rank, const std::string& what) noexcept override;
  std::vector<Answer> call(const std::vector<int>& ranks) noexcept override;

 private:
  struct Watch;

  bool has_ended_within(std::chrono::milliseconds time) const;  // the watcher
  c10::intrusive_ptr<c10d::Store> view() const;
  void renew_view();
  bool try_once_more(const std::function<void(c10d::Store&)>& work) noexcept;
  void wait_for_the_others() noexcept;

  const c10::intrusive_ptr<c10d::Store> store_;
  mutable std::mutex mutex_;
  c10::intrusive_ptr<c10d::Store> view_;  // of the store, whose calls do not hang
  const int rank_;
  const int world_size_;
  const std::chrono::milliseconds leaving_;  // for the others to leave before rank 0
  std::atomic<int> absent_{0};               // ranks that did not answer the last roll call
  std::atomic<bool> tells_late_{false};      // or cannot: the store is lost
  const std::shared_ptr<Watch> watch_;       // the watcher may outlive the board
  std::future<void> watched_;
  std::thread watcher_;
};

}  // namespace fsdp2
