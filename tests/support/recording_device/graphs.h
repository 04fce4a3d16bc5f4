// Work of recording devices that is recorded, as a GPU has graphs.
//
// The host does recorded work when it is called, as ever, so that shapes are right. Then all memory
// is as it was before, and what the work has allocated is full of ones, so that values which a
// replay does not make are seen: a replay does the work again, piece by piece.
#pragma once

#include <functional>

#include "core/device/device_graphs.h"

namespace fsdp2::recording {

const DeviceGraphs& graphs();

// A piece of work: what to do in a replay. For whoever has just done it; nothing unless the device
// records.
void keep_work(c10::DeviceIndex device, std::function<void()> piece);

}  // namespace fsdp2::recording
