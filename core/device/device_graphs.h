// Work of a device that is recorded once and then given to it as a whole, as often as one likes:
// the host pays for one call instead of thousands.
//
//   const DeviceGraphs* graphs = find_device_graphs(at::kCUDA);
//   const auto graph = graphs->record(device, nullptr, [&] { y.copy_(x * 2); });
//   x.copy_(...);       // the recorded work reads what is there when it runs
//   graph->replay();    // y is x * 2 now
//
// Recorded work has the addresses and the numbers of the host that it was recorded with. What it
// allocates and frees comes from memory that is the graph's own for as long as it lives; of what
// was there before, whoever records keeps all that the work touches.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace fsdp2 {

class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Gives all of the work to the current stream of the device. The collectives in it are watched as
  // those that are not recorded are.
  virtual void replay() = 0;
};

// Any thread; one at a time records.
class DeviceGraphs {
 public:
  // Calls `work`. What it gives to the device's current stream, and to streams that it lets follow
  // that one and that this one follows again before it returns, is recorded and does not run. It
  // may not wait for the device, nor read or write memory of the host there, nor let a stream wait
  // for what was given to one before. Where it does, and where it throws, this throws, and the
  // device's streams are as before. shares: null, or a graph that never runs at the same time, of
  // whose memory this one takes what that leaves free.
  virtual std::unique_ptr<DeviceGraph> record(at::Device device, const DeviceGraph* shares,
                                              const std::function<void()>& work) const = 0;

 protected:
  ~DeviceGraphs() = default;
};

// Those of a type of device: of its plug-in, if that is open; null if it has none.
const DeviceGraphs* find_device_graphs(at::DeviceType type);
// For types of devices that have no plug-in. It is there until the process ends.
void add_device_graphs(at::DeviceType type, const DeviceGraphs* graphs);

}  // namespace fsdp2
