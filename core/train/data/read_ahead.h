// Batches that a thread prepares before they are asked for.
//
//   ahead.add([=] { return source->windows(numbers, length); });   // returns at once
//   TokenBatch batch = ahead.take();                               // waits for the first of them
//
// An error of the work comes out of the `take` of its batch, and of no other. The thread starts
// with the first `add`, gets none of the process's signals, and ends with this object, which waits
// for the work at hand. In the child of a fork, which has no such thread, nothing is pending, and
// the next `add` starts another.
//
// One thread at a time.
#pragma once

#include <sys/types.h>

#include <deque>
#include <functional>
#include <future>
#include <memory>

#include "core/train/data/window_source.h"

namespace fsdp2::train {

class ReadAhead {
 public:
  ReadAhead();
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // How many have been added and not taken.
  size_t pending();
  void add(std::function<TokenBatch()> work);
  // REQUIRES: pending() > 0.
  TokenBatch take();
  // Forgets what is pending.
  void clear();

 private:
  struct Worker;

  // What the parent of a fork had is left alone: its locks may be held by a thread that is not
  // here.
  void forget_parent();

  std::unique_ptr<Worker> worker_;
  pid_t owner_;
  // Last, so that they go first: a batch that was not begun is dropped once both its future and the
  // worker let go of it.
  std::deque<std::future<TokenBatch>> batches_;
};

}  // namespace fsdp2::train
