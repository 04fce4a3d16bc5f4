#include "capi/device.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include "core/base/error.h"
#include "core/device/plugin.h"

namespace fsdp2::capi {

namespace {

c10::Device parse(const std::string& text, const std::string& name) {
  try {
    const c10::Device device(text);
    if (device.str() == text) {  // LibTorch takes 256 for 0
      return device;
    }
  } catch (const c10::Error&) {  // told below
  }
  fail(Code::kInvalidArgument, "{}: expected \"cpu\", \"cuda\" or \"cuda:INDEX\", found \"{}\"",
       name, text);
}

}  // namespace

void check_device(at::Device device, const std::string& name) {
  if (device.is_cpu()) {
    return;
  }
  FSDP2_CHECK(device.is_cuda(), Code::kUnsupported, "{}: expected cpu or cuda, found {}", name,
              device.str());
  const int count = in_context(name, [] { return open_device_plugin(at::kCUDA).device_count(); });
  FSDP2_CHECK(device.index() < count, Code::kUnsupported,
              "{}: expected one of {} devices of this machine, found {}", name, count,
              device.str());
}

at::Device read_device(const std::string& text, const std::string& name) {
  const c10::Device device = parse(text, name);
  check_device(device, name);
  return device;
}

void check_memory_is_on(at::Device device, const void* memory, const std::string& name) {
  if (device.is_cpu()) {
    return;
  }
  const at::Device found = open_device_plugin(device.type()).device_of(memory);
  FSDP2_CHECK(found == device, Code::kInvalidArgument,
              "{}: expected memory of {}, as its device says, found memory of {} at {}: name the "
              "device that the memory is on",
              name, device.str(), found.str(), fmt::ptr(memory));
}

void wait_for_values(const at::Tensor& tensor) {
  if (!tensor.is_cpu()) {
    const c10::impl::VirtualGuardImpl device(tensor.device().type());
    device.synchronizeStream(device.getStream(tensor.device()));
  }
}

}  // namespace fsdp2::capi
