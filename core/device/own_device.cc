#include "core/device/own_device.h"

#include "core/base/error.h"

namespace fsdp2 {

namespace {

// Whether somebody has named one device for this process.
bool was_given_one(at::DeviceType type, const SeenDevices& seen) {
  return type == at::kCUDA && seen.count == 1 && seen.visible && !seen.visible->empty() &&
         seen.visible->find(',') == std::string::npos;
}

}  // namespace

at::Device own_device(at::DeviceType type, const SeenDevices& seen, int local_rank,
                      bool may_share) {
  const std::string name = c10::DeviceTypeName(type, /*lower_case=*/true);
  FSDP2_CHECK(seen.count > 0, Code::kUnsupported,
              "{}: found no such device (a driver that is missing, or CUDA_VISIBLE_DEVICES)", name);
  FSDP2_CHECK(local_rank < seen.count || may_share || was_given_one(type, seen), Code::kUnsupported,
              "{}: local rank {} has no device of its own, there are {}: expected at most as many "
              "ranks a machine, or backend gloo, with which ranks share devices",
              name, local_rank, seen.count);
  return {type, static_cast<c10::DeviceIndex>(local_rank % seen.count)};
}

}  // namespace fsdp2
