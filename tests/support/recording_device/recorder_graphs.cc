// What the recorder makes of work that is recorded as a graph.
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <utility>

#include "tests/support/recording_device/recorder.h"

namespace fsdp2::recording {

void Recorder::begin_recording(int stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(!recording_, "two recordings at a time");
  recording_.emplace();
  recording_->number = ++recordings_;
  recording_->origin = stream;
  recording_->streams = {stream};
  recording_->first_memory = memories_;
  for (const auto& [key, memory] : alive_) {
    recording_->memory_before.emplace(memory->number, *memory);
  }
}

Recorder::Ended Recorder::end_recording() {
  const std::lock_guard<std::mutex> lock(mutex_);
  Recording recording = std::move(*recording_);
  recording_.reset();
  const Clock& end = streams_.at(static_cast<size_t>(recording.origin)).clock;
  for (const int stream : recording.streams) {
    const Clock& own = streams_.at(static_cast<size_t>(stream)).clock;
    const auto index = static_cast<size_t>(stream);
    const int64_t seen = index < end.size() ? end[index] : 0;
    if (index < own.size() && own[index] > seen) {
      recording.ended.problems.push_back(fmt::format(
          "stream {} has work at the end of a recording that nobody has waited for", stream));
    }
  }
  // It has not run, so nobody has used anything.
  for (const auto& [key, memory] : alive_) {
    const auto before = recording.memory_before.find(memory->number);
    if (before != recording.memory_before.end()) {
      memory->written = before->second.written;
      memory->read = before->second.read;
    } else {
      memory->written.reset();
      memory->read.clear();
    }
  }
  return std::move(recording.ended);
}

int64_t Recorder::recording_of(int stream) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return recording_ && recording_->streams.count(stream) > 0 ? recording_->number : 0;
}

int64_t Recorder::recording() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return recording_ ? recording_->number : 0;
}

void Recorder::refuse_in_recording(const std::string& what) const {
  TORCH_CHECK(recording() == 0, "in a recording: ", what);
}

void Recorder::see_in_recording(int stream, const std::string& name,
                                const std::vector<Memory*>& reads,
                                const std::vector<Memory*>& writes) {
  if (!recording_) {
    return;
  }
  if (recording_->streams.count(stream) == 0) {
    recording_->ended.problems.push_back(
        fmt::format("{} on stream {} is not part of the recording", name, stream));
  }
  for (const Memory* memory : reads) {
    recording_->ended.uses.reads.insert(memory->number);
  }
  for (const Memory* memory : writes) {
    recording_->ended.uses.writes.insert(memory->number);
  }
}

void Recorder::see_wait_in_recording(int stream, const std::string& what, int64_t recording) {
  const int64_t now = recording_ ? recording_->number : 0;
  const bool is_part = recording_ && recording_->streams.count(stream) > 0;
  if (recording != 0 && recording != now) {
    problems_.push_back(
        fmt::format("stream {} waits {} for a place in a recording that has ended", stream, what));
  } else if (is_part && recording == 0) {
    recording_->ended.problems.push_back(fmt::format(
        "stream {} waits {} for what was given before the recording, or outside", stream, what));
  } else if (recording_ && recording == now && recording != 0) {
    recording_->streams.insert(stream);
  }
}

std::vector<Memory*> Recorder::alive(const std::set<int64_t>& numbers) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Memory*> found;
  for (const auto& [key, memory] : alive_) {
    if (numbers.count(memory->number) > 0) {
      found.push_back(memory.get());
    }
  }
  return found;
}

void Recorder::replay(int stream, const RecordedUses& uses) {
  work(stream, "a replay", alive(uses.reads), alive(uses.writes));
}

}  // namespace fsdp2::recording
