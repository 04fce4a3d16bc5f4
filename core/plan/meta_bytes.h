// The memory that tensors of meta would take if they had values, as they come and go.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace fsdp2::plan {

// Counts what the thread that made it allocates on meta, until it ends; one a thread. What was
// allocated before does not count when it goes.
class MetaBytes {
 public:
  MetaBytes();
  ~MetaBytes();
  MetaBytes(const MetaBytes&) = delete;
  MetaBytes& operator=(const MetaBytes&) = delete;

  int64_t live() const;
  int64_t peak() const;  // the most that was live at a time
  // Calls `look` once, when live() has first come to `bytes`, before it changes again.
  void look_at(int64_t bytes, std::function<void()> look);

  struct Count;

 private:
  std::shared_ptr<Count> count_;
};

}  // namespace fsdp2::plan
