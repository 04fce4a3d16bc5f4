// What a recording of a step's work asks of the scheduler, and what its replays count.
#include <algorithm>
#include <utility>

#include "core/fsdp/scheduler.h"

namespace fsdp2::fsdp {

namespace {

CommCounters calls_of(const std::vector<Scheduler::Member>& members) {
  CommCounters total;
  for (const Scheduler::Member& member : members) {
    total += member.group->comm_counters();
  }
  return total;
}

class Silence {
 public:
  explicit Silence(const std::vector<Scheduler::Member>& members) : members_(members) { set(true); }
  ~Silence() { set(false); }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  void set(bool flag) const {
    for (const Scheduler::Member& member : members_) {
      member.group->set_silent(flag);
    }
  }

  const std::vector<Scheduler::Member>& members_;
};

}  // namespace

void Scheduler::in_recording(const std::function<void()>& work) {
  streams_->follow_current();
  work();
  streams_->make_current_wait();
}

void Scheduler::in_rehearsal(const std::function<void()>& work) {
  const Silence silence(members_);
  in_recording(work);
}

bool Scheduler::is_at_rest() const {
  return std::all_of(members_.begin(), members_.end(), [](const Member& member) {
    return member.group->state() == GroupState::kSharded && !member.group->has_unreduced();
  });
}

Counted Scheduler::counted_apart(const std::function<void()>& work) {
  const Stats before = stats_;
  const CommCounters calls_before = calls_of(members_);
  EventLog log;
  std::swap(log_, log);
  stats_ = {};
  track_bytes(before.unsharded_bytes);
  Counted counted;
  const auto put_back = [&] {
    counted.stats = stats_;
    counted.stats.unsharded_bytes = 0;
    counted.stats.peak_unsharded_bytes -= before.unsharded_bytes;
    counted.calls = calls_of(members_);
    counted.calls -= calls_before;
    calls_apart_ -= counted.calls;
    std::swap(log_, log);
    const int64_t left_gathered = stats_.unsharded_bytes;
    stats_ = before;
    stats_.unsharded_bytes = left_gathered;
  };
  try {
    work();
  } catch (...) {
    put_back();
    throw;
  }
  put_back();
  counted.events = log.entries();
  return counted;
}

void Scheduler::count(const Counted& work) {
  stats_.all_gathers += work.stats.all_gathers;
  stats_.reduce_scatters += work.stats.reduce_scatters;
  stats_.all_reduces += work.stats.all_reduces;
  stats_.peak_unsharded_bytes = std::max(stats_.peak_unsharded_bytes,
                                         stats_.unsharded_bytes + work.stats.peak_unsharded_bytes);
  calls_apart_ += work.calls;
  for (const EventLog::Entry& event : work.events) {
    log_.record(event.kind, event.group);
  }
}

}  // namespace fsdp2::fsdp
