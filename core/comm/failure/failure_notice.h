// How one rank's failure reaches others. A rank that fails publishes a text; every waiting rank
// looks at `failed()` between short waits, and leaves with that text.
//
// A notice is that of some ranks which work together. A failure among them also ends the work of
// all ranks who share one of them, since that one is in no state to go on; ranks that share none
// hear nothing of it. So a rank may hold several notices, of which some have failed. Once a notice
// has failed, it stays so: every later collective of its ranks fails with its text, which is that
// of the first failure that has one of them.
//
// The text travels through the store (processes) or a shared object (ranks as threads).
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/failure/failure_board.h"
#include "core/comm/failure/roll_call.h"
#include "core/comm/failure/store_board.h"
#include "core/comm/meet/store.h"

namespace fsdp2 {

// Any thread.
class FailureNotice {
 public:
  // These are of all ranks of a job.
  //
  // A watcher thread of this process blocks on the store; it costs nothing while all is well.
  // timeout: of the watcher's own connection to the store. Errors: kTimeout.
  static std::shared_ptr<FailureNotice> over_store(const c10::intrusive_ptr<c10d::Store>& store,
                                                   int rank, int world_size,
                                                   std::chrono::milliseconds timeout,
                                                   StoreKeeper keeper = StoreKeeper::kRankZero);
  // For ranks as threads, who share it, and for a world of one rank: there is nobody to tell, but
  // the first failure is remembered.
  static std::shared_ptr<FailureNotice> local();

  // The notice of some ranks of the job.
  std::shared_ptr<FailureNotice> of(std::vector<int> ranks) const;

  // True once a failure has been published that has one of the ranks. Cheap: every wait asks often.
  bool failed() const { return board_->first_among(ranks_).has_value(); }
  // The first such failure's text; empty while there is none.
  std::string text() const { return board_->first_among(ranks_).value_or(""); }
  // Tells all whom it concerns, this rank included. The first text stays. Never throws: it is
  // called while another error is handled.
  void publish(const std::string& text) noexcept { board_->publish({ranks_, text}); }
  // Publishes the first such failure, if there is one, as that of all the ranks: those hear of it,
  // too, who wait among others of them than failed.
  void spread() {
    if (failed()) {
      publish(text());
    }
  }

  RollCall& roll_call() { return *board_; }

 private:
  FailureNotice(std::shared_ptr<FailureBoard> board, RankSet ranks);

  std::shared_ptr<FailureBoard> board_;
  RankSet ranks_;
};

}  // namespace fsdp2
