#include "core/fsdp/event_log.h"

#include <algorithm>

namespace fsdp2::fsdp {

void EventLog::record(EventKind kind, size_t group) {
  ++total_;
  if (ring_.size() < kMaxEvents) {
    ring_.push_back({kind, group});
    return;
  }
  ring_[begin_] = {kind, group};
  begin_ = (begin_ + 1) % kMaxEvents;
}

std::vector<EventLog::Entry> EventLog::entries() const {
  std::vector<Entry> ordered;
  ordered.reserve(ring_.size());
  for (size_t i = 0; i < ring_.size(); ++i) {
    ordered.push_back(ring_[(begin_ + i) % ring_.size()]);
  }
  return ordered;
}

std::vector<EventLog::Entry> EventLog::entries_since(int64_t total) const {
  std::vector<Entry> newest = entries();
  const auto wanted = static_cast<size_t>(std::max<int64_t>(0, total_ - total));
  if (newest.size() > wanted) {
    newest.erase(newest.begin(), newest.end() - static_cast<std::ptrdiff_t>(wanted));
  }
  return newest;
}

void EventLog::clear() {
  ring_.clear();
  begin_ = 0;
}

}  // namespace fsdp2::fsdp
