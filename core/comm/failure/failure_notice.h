// How one rank's failure reaches all others. A rank that fails publishes a text; every waiting rank
// looks at `failed()` between short waits, and leaves with that text.
//
// The text travels through the store (processes) or a shared object (ranks as threads). The first
// text wins. After a failure the world is spent: every later collective on it fails with that text.
#pragma once

#include <memory>
#include <string>

#include "core/comm/meet/store.h"

namespace fsdp2 {

// The process that keeps the store: the store ends with it.
enum class StoreKeeper { kRankZero, kLauncher };

class FailureNotice {
 public:
  virtual ~FailureNotice() = default;

  // True once any rank of the world has published a failure. Cheap: every wait asks often.
  virtual bool failed() const = 0;
  // The published text; empty while nothing has failed.
  virtual std::string text() const = 0;
  // Tells all ranks, this one included. Never throws: it is called while another error is handled.
  virtual void publish(const std::string& text) noexcept = 0;

  // A watcher thread of this process blocks on the store; it costs nothing while all is well.
  static std::shared_ptr<FailureNotice> over_store(c10::intrusive_ptr<c10d::Store> store, int rank,
                                                   int world_size,
                                                   StoreKeeper keeper = StoreKeeper::kRankZero);
  // For a world of one rank: there is nobody to tell, but the first failure is remembered.
  static std::shared_ptr<FailureNotice> local();
};

}  // namespace fsdp2
