#include "capi/dlpack.h"

#include <ATen/DLConvertor.h>

#include <algorithm>
#include <cstdint>
#include <memory>

#include "capi/device.h"
#include "capi/dtype.h"
#include "capi/nouns/module/tensor.h"
#include "core/base/error.h"
#include "include/fsdp2/base.h"

namespace fsdp2::capi {

namespace {

// A size or stride times an element size must stay far from overflowing.
constexpr int64_t kMaxElements = int64_t{1} << 48;

void check_version(const DLManagedTensorVersioned& source) {
  FSDP2_CHECK(source.version.major == DLPACK_MAJOR_VERSION, Code::kUnsupported,
              "source: expected DLPack {}.x, found {}.{}", DLPACK_MAJOR_VERSION,
              source.version.major, source.version.minor);
  FSDP2_CHECK((source.flags & DLPACK_FLAG_BITMASK_READ_ONLY) == 0, Code::kUnsupported,
              "source: expected a writable tensor, found a read-only one");
}

void check_place(const DLDevice& device) {
  FSDP2_CHECK(
      device.device_type == kDLCPU || device.device_type == kDLCUDA, Code::kUnsupported,
      "source: expected a tensor on the CPU (device type 1) or a GPU (2), found device type "
      "{}",
      static_cast<int>(device.device_type));
  if (device.device_type == kDLCUDA) {
    const bool fits = 0 <= device.device_id && device.device_id <= INT8_MAX;
    FSDP2_CHECK(fits, Code::kInvalidArgument, "source: device {}", device.device_id);
    check_device(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device.device_id)), "source");
  }
}

void check_dtype(const DLDataType& dtype) {
  const bool known =
      dtype.lanes == 1 &&
      ((dtype.code == kDLFloat && (dtype.bits == 16 || dtype.bits == 32 || dtype.bits == 64)) ||
       (dtype.code == kDLBfloat && dtype.bits == 16) ||
       (dtype.code == kDLInt &&
        (dtype.bits == 8 || dtype.bits == 16 || dtype.bits == 32 || dtype.bits == 64)) ||
       (dtype.code == kDLUInt && dtype.bits == 8) || (dtype.code == kDLBool && dtype.bits == 8));
  FSDP2_CHECK(known, Code::kUnsupported,
              "source: no dtype of this library has DLPack code {}, {} bits, {} lanes", dtype.code,
              dtype.bits, dtype.lanes);
}

// Every element's place fits; where the memory ends only the producer knows.
void check_layout(const DLTensor& tensor) {
  FSDP2_CHECK(tensor.ndim >= 0 && tensor.ndim <= FSDP2_MAX_DIMS, Code::kInvalidArgument,
              "source: expected at most {} dims, found {}", FSDP2_MAX_DIMS, tensor.ndim);
  FSDP2_CHECK(tensor.shape != nullptr || tensor.ndim == 0, Code::kInvalidArgument,
              "source: shape is NULL with {} dims", tensor.ndim);
  int64_t numel = 1;
  int64_t last = 0;
  for (int32_t dim = 0; dim < tensor.ndim; ++dim) {
    const int64_t size = tensor.shape[dim];
    const int64_t stride = tensor.strides == nullptr ? 0 : tensor.strides[dim];
    FSDP2_CHECK(size >= 0 && size <= kMaxElements && stride >= 0 && stride <= kMaxElements,
                Code::kInvalidArgument, "source: dim {} has size {} and stride {}", dim, size,
                stride);
    int64_t span = 0;
    const bool overflows = __builtin_mul_overflow(numel, size, &numel) ||
                           __builtin_mul_overflow(size > 0 ? size - 1 : 0, stride, &span) ||
                           __builtin_add_overflow(last, span, &last);
    FSDP2_CHECK(!overflows && numel <= kMaxElements && last <= kMaxElements, Code::kInvalidArgument,
                "source: too large: dim {} has size {} and stride {}", dim, size, stride);
  }
  FSDP2_CHECK(tensor.data != nullptr || numel == 0, Code::kInvalidArgument,
              "source: data is NULL with {} elements", numel);
  const uint64_t item = tensor.dtype.bits / 8;
  const uint64_t address = reinterpret_cast<uintptr_t>(tensor.data) + tensor.byte_offset;
  FSDP2_CHECK(address % item == 0, Code::kInvalidArgument,
              "source: expected data aligned to its {}-byte elements, found address 0x{:x}", item,
              address);
}

// A producer that takes the host's memory for a device's would end the process by a fault there.
void check_memory(const DLTensor& tensor) {
  const void* memory = static_cast<const char*>(tensor.data) + tensor.byte_offset;
  const bool has_elements =
      std::find(tensor.shape, tensor.shape + tensor.ndim, 0) == tensor.shape + tensor.ndim;
  if (tensor.device.device_type == kDLCUDA && has_elements) {
    check_memory_is_on(
        at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(tensor.device.device_id)), memory,
        "source");
  }
}

}  // namespace

void run_deleter(void* source) {
  auto* managed = static_cast<DLManagedTensorVersioned*>(source);
  if (managed->deleter != nullptr) {
    managed->deleter(managed);
  }
}

ImportedTensor import_dlpack(DLManagedTensorVersioned* source) {
  check_version(*source);
  const DLTensor& tensor = source->dl_tensor;
  check_place(tensor.device);
  check_dtype(tensor.dtype);
  check_layout(tensor);
  check_memory(tensor);
  const auto held = std::make_shared<UserData>(source);
  return {at::fromDLPackVersioned(source, [held](void*) {}), held};  // the last view lets go of it
}

DLManagedTensorVersioned* export_dlpack(const at::Tensor& tensor) {
  check_has_values(tensor);
  FSDP2_CHECK(!tensor.requires_grad(), Code::kWrongState,
              "tensor: expected one that does not require grad, found one that does (compute it "
              "with FSDP2_FORWARD_NO_GRAD)");
  wait_for_values(tensor);
  return at::toDLPackVersioned(tensor);
}

}  // namespace fsdp2::capi
