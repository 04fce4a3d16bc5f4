#include "core/train/step/out_of_memory.h"

#include <fmt/format.h>

#include <cstdint>
#include <exception>

#include "core/base/error.h"
#include "core/device/device_memory.h"
#include "core/device/plugin.h"
#include "core/fsdp/held_bytes.h"
#include "core/plan/step_plan.h"

namespace fsdp2::train {

namespace {

std::string megabytes(int64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

// Nothing for a step that cannot be planned.
std::string planned_text(Optimizer& optimizer) {
  plan::PlanOptions options;
  options.optimizer_bytes = static_cast<int64_t>(optimizer.full_state_bytes());
  try {
    return fmt::format(", where {} are planned without activations",
                       megabytes(plan::make_step_plan(optimizer.root(), options).total()));
  } catch (const Error&) {
    return "";
  }
}

// Nothing for the host, and for an allocator that does not answer.
std::string device_text(at::Device device) {
  const DevicePlugin* plugin = find_device_plugin(device.type());
  if (plugin == nullptr) {
    return "";
  }
  try {
    const DeviceMemory memory = device_memory(device);
    return fmt::format(
        "; {} has {} allocated and {} reserved, with a largest free block of {}, and {} of {} free",
        device.str(), megabytes(memory.allocated), megabytes(memory.reserved),
        megabytes(plugin->largest_free_block(device)), megabytes(memory.free),
        megabytes(memory.total));
  } catch (const std::exception&) {
    return "";
  }
}

bool is_out_of_memory(Code code) {
  return code == Code::kOutOfMemory || code == Code::kDeviceMemory;
}

std::string story_of(Optimizer& optimizer, const char* stage) {
  fsdp::Unit& root = optimizer.root();
  const auto held = static_cast<int64_t>(fsdp::held_bytes(*root.modules().front()));
  const auto states = static_cast<int64_t>(optimizer.state_bytes());
  return fmt::format(
      "; it was in {}; this rank holds {} of parameters, gradients and buffers and {} of optimizer "
      "states{}{}; docs/troubleshooting.md, \"Out of memory\", has what helps",
      stage != nullptr ? stage : root.scheduler().place(), megabytes(held), megabytes(states),
      planned_text(optimizer), device_text(root.mesh().device()));
}

}  // namespace

std::string memory_story(Optimizer& optimizer, const char* stage) noexcept {
  try {
    return is_out_of_memory(current_exception_as_error().code()) ? story_of(optimizer, stage) : "";
  } catch (...) {  // there may be no memory for that either
    return "";
  }
}

void rethrow_with(const std::string& story) {
  if (story.empty()) {
    throw;
  }
  const Error error = current_exception_as_error();
  throw Error(error.code(), error.message() + story, error.native_code());
}

}  // namespace fsdp2::train
