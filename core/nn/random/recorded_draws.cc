#include "core/nn/random/recorded_draws.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <atomic>
#include <mutex>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/nn/random/generator_state.h"
#include "core/nn/random/row_keys.h"

namespace fsdp2::nn {

namespace {

struct Recordings {
  std::mutex mutex;
  std::atomic<int> count{0};  // so that nobody takes the lock while there is none
  std::map<const c10::GeneratorImpl*, RecordedDraws*> by_generator;
  std::set<std::pair<at::DeviceType, c10::DeviceIndex>> devices;
};

Recordings& recordings() {
  static Recordings instance;
  return instance;
}

std::atomic<bool> drawn_on_device{false};

// For a catch block.
void tell_of_lost_state() noexcept {
  try {
    log(LogLevel::kError, "step",
        "a recording has failed, and its model's generator could not be put back: {}",
        current_exception_text());
  } catch (...) {  // no memory for that either; what has failed the recording is told
  }
}

std::string bytes_of(const at::Tensor& state) {
  return {static_cast<const char*>(state.const_data_ptr()), state.nbytes()};
}

}  // namespace

RecordedDraws::RecordedDraws(std::optional<at::Generator> generator, at::Device device)
    : generator_(std::move(generator)), device_(device) {
  if (generator_) {
    numbers_ = at::zeros({kMostNumbers}, at::device(device).dtype(at::kInt));
  }
}

RecordedDraws::Scope::Scope(RecordedDraws& draws) : draws_(draws) {
  if (draws_.generator_) {
    state_before_ = state_of(*draws_.generator_);
  }
  Recordings& all = recordings();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const at::Device device = draws_.device_;
  const std::pair<at::DeviceType, c10::DeviceIndex> key{device.type(), device.index()};
  FSDP2_CHECK(all.devices.count(key) == 0, Code::kWrongState, "{}: work is recorded already",
              device.str());
  draws_.by_state_.clear();
  if (draws_.generator_) {
    all.by_generator[draws_.generator_->unsafeGetGeneratorImpl()] = &draws_;
  }
  try {
    all.devices.insert(key);
  } catch (...) {
    if (draws_.generator_) {
      all.by_generator.erase(draws_.generator_->unsafeGetGeneratorImpl());
    }
    throw;
  }
  ++all.count;
}

RecordedDraws::Scope::~Scope() {
  if (has_ended_) {
    return;
  }
  try {
    end();
  } catch (...) {
    tell_of_lost_state();
  }
}

void RecordedDraws::Scope::end() {
  has_ended_ = true;
  forget();
  if (draws_.generator_) {
    set_state(*draws_.generator_, state_before_);
  }
}

void RecordedDraws::Scope::forget() noexcept {
  Recordings& all = recordings();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.devices.erase({draws_.device_.type(), draws_.device_.index()});
  if (draws_.generator_) {
    all.by_generator.erase(draws_.generator_->unsafeGetGeneratorImpl());
  }
  --all.count;
}

void RecordedDraws::refill() {
  const auto count = static_cast<int64_t>(by_state_.size());
  if (count == 0) {
    return;
  }
  const at::Tensor drawn = at::empty({count}, at::device(at::kCPU).dtype(at::kInt));
  for (int64_t i = 0; i < count; ++i) {
    drawn.mutable_data_ptr<int32_t>()[i] = draw_number(*generator_);
  }
  numbers_.narrow(0, 0, count).copy_(drawn, /*non_blocking=*/true);
}

RecordedDraws* RecordedDraws::of(const at::Generator& generator) {
  Recordings& all = recordings();
  if (all.count.load(std::memory_order_acquire) == 0) {
    return nullptr;
  }
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.by_generator.find(generator.unsafeGetGeneratorImpl());
  return found == all.by_generator.end() ? nullptr : found->second;
}

at::Tensor RecordedDraws::next() {
  const auto place =
      by_state_.emplace(bytes_of(state_of(*generator_)), static_cast<int64_t>(by_state_.size()))
          .first;
  FSDP2_CHECK(place->second < kMostNumbers, Code::kUnsupported,
              "a recorded step draws more than {} random numbers on the host", kMostNumbers);
  draw_number(*generator_);
  return numbers_.select(0, place->second);
}

bool is_recording(at::Device device) {
  Recordings& all = recordings();
  if (all.count.load(std::memory_order_acquire) == 0) {
    return false;
  }
  const std::lock_guard<std::mutex> lock(all.mutex);
  return all.devices.count({device.type(), device.index()}) > 0;
}

void note_device_draw() { drawn_on_device.store(true, std::memory_order_relaxed); }
bool has_drawn_on_device() { return drawn_on_device.load(std::memory_order_relaxed); }

}  // namespace fsdp2::nn
