// Which of the devices that a process sees is this rank's own.
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>

namespace fsdp2 {

// What a rank knows of the devices of a type before it uses one.
struct SeenDevices {
  int count = 0;                       // that the process sees
  std::optional<std::string> visible;  // CUDA_VISIBLE_DEVICES
};

// The one of the rank's number on its machine. A launcher that shows each process one device alone
// has chosen already, whatever that number is; should two ranks have been given the same, NCCL says
// so. may_share: ranks may be on one device, and go round. Error: kUnsupported if there is none.
at::Device own_device(at::DeviceType type, const SeenDevices& seen, int local_rank, bool may_share);

}  // namespace fsdp2
