// Which training steps could be graphs of a device at all.
#pragma once

#include "core/device/device_graphs.h"
#include "core/fsdp/fully_shard.h"
#include "core/nn/module.h"

namespace fsdp2::train {

// Throws what StepGraphs does. graphs: null if the device has none.
void check_graphs_are_supported(const nn::Module& module, fsdp::Unit& root,
                                const DeviceGraphs* graphs);

}  // namespace fsdp2::train
