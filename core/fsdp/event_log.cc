#include "core/fsdp/event_log.h"

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

void EventLog::clear() {
  ring_.clear();
  begin_ = 0;
}

}  // namespace fsdp2::fsdp
