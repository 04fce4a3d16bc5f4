#include "core/device/device_graphs.h"

#include <array>
#include <atomic>

#include "core/device/plugin.h"

namespace fsdp2 {

namespace {

std::array<std::atomic<const DeviceGraphs*>, at::COMPILE_TIME_MAX_DEVICE_TYPES> added_graphs{};

}  // namespace

const DeviceGraphs* find_device_graphs(at::DeviceType type) {
  if (const DevicePlugin* plugin = find_device_plugin(type)) {
    return plugin->graphs();
  }
  return added_graphs.at(static_cast<size_t>(type)).load(std::memory_order_acquire);
}

void add_device_graphs(at::DeviceType type, const DeviceGraphs* graphs) {
  added_graphs.at(static_cast<size_t>(type)).store(graphs, std::memory_order_release);
}

}  // namespace fsdp2
