// What a recording of a step's work asks of the scheduler, and what its replays count.
#include <algorithm>

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

}  // namespace

void Scheduler::in_recording(const std::function<void()>& work) {
  streams_->follow_current();
  work();
  streams_->make_current_wait();
}

bool Scheduler::is_at_rest() const {
  return std::all_of(members_.begin(), members_.end(), [](const Member& member) {
    return member.group->state() == GroupState::kSharded && !member.group->has_unreduced();
  });
}

Counted Scheduler::counted_in(const std::function<void()>& work) {
  const Stats before = stats_;
  const CommCounters calls_before = calls_of(members_);
  const int64_t events_before = log_.total();
  work();
  Counted counted;
  counted.stats.all_gathers = stats_.all_gathers - before.all_gathers;
  counted.stats.reduce_scatters = stats_.reduce_scatters - before.reduce_scatters;
  counted.stats.all_reduces = stats_.all_reduces - before.all_reduces;
  counted.calls = calls_of(members_);
  counted.calls -= calls_before;
  counted.events = log_.entries_since(events_before);
  return counted;
}

void Scheduler::count_again(const Counted& work) {
  stats_.all_gathers += work.stats.all_gathers;
  stats_.reduce_scatters += work.stats.reduce_scatters;
  stats_.all_reduces += work.stats.all_reduces;
  counted_again_ += work.calls;
  for (const EventLog::Entry& event : work.events) {
    log_.record(event.kind, event.group);
  }
}

}  // namespace fsdp2::fsdp
