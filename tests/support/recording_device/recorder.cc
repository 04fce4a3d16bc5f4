#include "tests/support/recording_device/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace fsdp2::recording {

namespace {

void raise(Clock& clock, const Clock& to) {
  clock.resize(std::max(clock.size(), to.size()));
  for (size_t i = 0; i < to.size(); ++i) {
    clock[i] = std::max(clock[i], to[i]);
  }
}

int64_t tick_of(const Clock& clock, int stream) {
  const auto index = static_cast<size_t>(stream);
  return index < clock.size() ? clock[index] : 0;
}

bool covers(const Clock& clock, const Clock& other) {
  for (size_t i = 0; i < other.size(); ++i) {
    if (tick_of(clock, static_cast<int>(i)) < other[i]) {
      return false;
    }
  }
  return true;
}

}  // namespace

void Recorder::start(std::optional<size_t> ignored_wait) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Stream& stream : streams_) {
    raise(host_, stream.clock);
  }
  for (Stream& stream : streams_) {
    stream.freed.clear();
    stream.open_waits.clear();
  }
  peak_bytes_ = live_bytes_;
  ignored_wait_ = ignored_wait;
  waits_.clear();
  problems_.clear();
  host_waits_.clear();
}

int Recorder::take_stream() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!spare_streams_.empty()) {
    const int stream = spare_streams_.back();
    spare_streams_.pop_back();
    return stream;
  }
  streams_.emplace_back();
  return static_cast<int>(streams_.size()) - 1;
}

void Recorder::give_back_stream(int stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  spare_streams_.push_back(stream);
}

// ---- order

// The host gives a stream its work, so that comes after what the host has waited for.
int64_t Recorder::tick(int stream) {
  Clock& clock = streams_.at(static_cast<size_t>(stream)).clock;
  raise(clock, host_);
  clock.resize(std::max(clock.size(), static_cast<size_t>(stream) + 1));
  rely_on_waits(stream);
  return ++clock[static_cast<size_t>(stream)];
}

void Recorder::rely_on_waits(int stream) {
  for (const size_t wait : streams_.at(static_cast<size_t>(stream)).open_waits) {
    waits_[wait].relied_on = true;
  }
  streams_.at(static_cast<size_t>(stream)).open_waits.clear();
}

Clock Recorder::mark(int stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  rely_on_waits(stream);
  return streams_.at(static_cast<size_t>(stream)).clock;
}

void Recorder::join(int stream, const Clock& mark) {
  raise(streams_.at(static_cast<size_t>(stream)).clock, mark);
}

void Recorder::wait(int stream, const Clock& mark, const std::string& what, int64_t recording) {
  const std::lock_guard<std::mutex> lock(mutex_);
  see_wait_in_recording(stream, what, recording);
  Stream& waiting = streams_.at(static_cast<size_t>(stream));
  std::vector<size_t>& open = waiting.open_waits;
  open.erase(std::remove_if(open.begin(), open.end(),
                            [&](size_t wait) { return covers(mark, waits_[wait].seen); }),
             open.end());
  const size_t number = waits_.size();
  waits_.push_back({fmt::format("wait {}: stream {}, {}", number, stream, what), mark,
                    !covers(waiting.clock, mark), false});
  open.push_back(number);
  if (number != ignored_wait_) {
    join(stream, mark);
  }
}

void Recorder::follow(int stream, const Clock& mark) {
  const std::lock_guard<std::mutex> lock(mutex_);
  join(stream, mark);
}

void Recorder::wait_on_host(const Clock& mark, const std::string& what) {
  refuse_in_recording("the host waits for " + what);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    host_waits_.push_back(what);
    raise(host_, mark);
  }
  deliver_ended();
}

void Recorder::deliver(int stream, std::function<void()> values) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int64_t tick = tick_of(streams_.at(static_cast<size_t>(stream)).clock, stream);
  deliveries_.push_back({stream, tick, std::move(values)});
}

void Recorder::deliver_ended() {
  std::vector<Delivery> ended;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto later = std::stable_partition(
        deliveries_.begin(), deliveries_.end(),
        [this](const Delivery& each) { return tick_of(host_, each.stream) < each.tick; });
    std::move(later, deliveries_.end(), std::back_inserter(ended));
    deliveries_.erase(later, deliveries_.end());
  }
  for (const Delivery& delivery : ended) {
    delivery.values();
  }
}

void Recorder::see_end(const Clock& mark) {
  const std::lock_guard<std::mutex> lock(mutex_);
  raise(host_, mark);
}

bool Recorder::comes_after(int stream, const Use& use) const {
  return tick_of(streams_.at(static_cast<size_t>(stream)).clock, use.stream) >= use.tick;
}

// ---- memory

Memory* Recorder::allocate(int stream, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int64_t now = tick(stream);
  check_freed(stream);
  auto memory = std::make_unique<Memory>();
  memory->number = memories_++;
  memory->bytes = bytes;
  memory->stream = stream;
  memory->written = Use{stream, now, "its allocation"};
  memory->is_of_graph = recording_.has_value();
  Memory* const key = memory.get();
  alive_[key] = std::move(memory);
  live_bytes_ += static_cast<int64_t>(bytes);
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
  return key;
}

void Recorder::check_freed(int stream) {
  for (const Memory& memory : std::exchange(streams_.at(static_cast<size_t>(stream)).freed, {})) {
    if (memory.written) {
      check(stream, "an allocation", "gets", memory, *memory.written, "written");
    }
    for (const auto& entry : memory.read) {
      check(stream, "an allocation", "gets", memory, entry.second, "read");
    }
  }
}

void Recorder::free(Memory* memory) {
  const std::lock_guard<std::mutex> lock(mutex_);
  live_bytes_ -= static_cast<int64_t>(memory->bytes);
  memory->unfinished.clear();
  if (!memory->is_of_graph) {
    streams_.at(static_cast<size_t>(memory->stream)).freed.push_back(std::move(*memory));
  }
  alive_.erase(memory);
}

void Recorder::work(int stream, const std::string& name, const std::vector<Memory*>& reads,
                    const std::vector<Memory*>& writes) {
  std::vector<Unfinished> unfinished;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    see_in_recording(stream, name, reads, writes);
    const int64_t now = tick(stream);
    for (Memory* memory : reads) {
      if (memory->written) {
        check(stream, name, "reads", *memory, *memory->written, "written");
      }
      memory->read[stream] = {stream, now, name};
    }
    for (Memory* memory : writes) {
      if (memory->written) {
        check(stream, name, "writes", *memory, *memory->written, "written");
      }
      for (const auto& entry : std::exchange(memory->read, {})) {
        check(stream, name, "writes", *memory, entry.second, "read");
      }
      memory->written = Use{stream, now, name};
    }
    for (const auto* touched : {&reads, &writes}) {
      for (Memory* memory : *touched) {
        std::move(memory->unfinished.begin(), memory->unfinished.end(),
                  std::back_inserter(unfinished));
        memory->unfinished.clear();
      }
    }
  }
  for (const Unfinished& finish : unfinished) {
    finish();
  }
}

void Recorder::check(int stream, const std::string& work, const char* does, const Memory& memory,
                     const Use& use, const char* did) {
  if (!comes_after(stream, use)) {
    problems_.push_back(fmt::format(
        "{} on stream {} {} memory {} ({} bytes, of stream {}), {} by {} on "
        "stream {}, which it does not come after",
        work, stream, does, memory.number, memory.bytes, memory.stream, did, use.work, use.stream));
  }
}

// ---- memory of groups

void Recorder::give(Memory* memory, const void* group) {
  const std::lock_guard<std::mutex> lock(mutex_);
  memory->group = group;
}

int64_t Recorder::given_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  int64_t bytes = 0;
  for (const auto& entry : alive_) {
    bytes += entry.second->group != nullptr ? static_cast<int64_t>(entry.second->bytes) : 0;
  }
  return bytes;
}

void Recorder::check_given(const std::string& work, const std::vector<Memory*>& memories,
                           const void* group) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Memory* memory : memories) {
    if (memory->group != group) {
      problems_.push_back(
          fmt::format("{} touches memory {} ({} bytes), which its group has not given", work,
                      memory->number, memory->bytes));
    }
  }
}

// ---- results

std::vector<std::string> Recorder::problems() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return problems_;
}

std::vector<std::string> Recorder::host_waits() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return host_waits_;
}

std::vector<StreamWait> Recorder::waits() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return waits_;
}

int64_t Recorder::live_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return live_bytes_;
}

int64_t Recorder::peak_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return peak_bytes_;
}

void Recorder::restart_peak() {
  const std::lock_guard<std::mutex> lock(mutex_);
  peak_bytes_ = live_bytes_;
}

}  // namespace fsdp2::recording
