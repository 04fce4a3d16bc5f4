#include "core/train/step/out_of_memory.h"

#include <fmt/format.h>

#include <cstdint>

#include "core/base/error.h"
#include "core/device/device_memory.h"
#include "core/device/plugin.h"
#include "core/fsdp/held_bytes.h"
#include "core/plan/step_plan.h"

namespace fsdp2::train {

namespace {

std::string mebibytes(int64_t bytes) {
  constexpr double kMebibyte = 1 << 20;
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / kMebibyte);
}

int64_t planned_bytes(fsdp::Unit& root, int64_t optimizer_bytes) {
  plan::PlanOptions options;
  options.optimizer_bytes = optimizer_bytes;
  return plan::make_step_plan(root, options).total();
}

std::string device_text(at::Device device) {
  const DevicePlugin* plugin = find_device_plugin(device.type());
  if (plugin == nullptr) {
    return "";
  }
  const DeviceMemory memory = device_memory(device);
  return fmt::format(
      "; {} has {} allocated and {} reserved, with a largest free block of {}, and {} of {} free",
      device.str(), mebibytes(memory.allocated), mebibytes(memory.reserved),
      mebibytes(plugin->largest_free_block(device)), mebibytes(memory.free),
      mebibytes(memory.total));
}

std::string memory_text(Optimizer& optimizer, const std::string& where) {
  fsdp::Unit& root = optimizer.root();
  const auto held = static_cast<int64_t>(fsdp::held_bytes(*root.modules().front()));
  const auto states = static_cast<int64_t>(optimizer.state_bytes());
  const auto all_states = static_cast<int64_t>(optimizer.full_state_bytes());
  return fmt::format(
      "; it was in {}; this rank holds {} of parameters, gradients and buffers and {} of optimizer "
      "states, where "
      "{} are planned without activations{}; docs/troubleshooting.md, \"Out of memory\", has what "
      "helps",
      where, mebibytes(held), mebibytes(states), mebibytes(planned_bytes(root, all_states)),
      device_text(root.mesh().device()));
}

}  // namespace

void rethrow_with_memory(Optimizer& optimizer, const std::string& where) {
  const Error error = current_exception_as_error();
  if (error.code() != Code::kOutOfMemory && error.code() != Code::kDeviceMemory) {
    throw;
  }
  std::string text;
  try {
    text = memory_text(optimizer, where);
  } catch (...) {  // there may be no memory for that either
    text.clear();
  }
  throw Error(error.code(), error.message() + text, error.native_code());
}

}  // namespace fsdp2::train
