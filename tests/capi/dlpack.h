/* DLPack 1.x, as any user of it declares it. */
#ifndef TESTS_CAPI_DLPACK_H_
#define TESTS_CAPI_DLPACK_H_

#include <fsdp2/fsdp2.h>
#include <stdint.h>
#include <string.h>

typedef struct {
  int32_t device_type;
  int32_t device_id;
} DLDevice;
typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;
typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensorVersioned {
  struct {
    uint32_t major;
    uint32_t minor;
  } version;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;

/* n floats of the caller's, as a source without a deleter. shape: {n}, which the source keeps. */
static inline DLManagedTensorVersioned floats_of(float* values, int64_t* shape) {
  DLManagedTensorVersioned source;
  memset(&source, 0, sizeof(source));
  source.version.major = 1;
  source.dl_tensor.data = values;
  source.dl_tensor.device.device_type = FSDP2_DEVICE_CPU;
  source.dl_tensor.ndim = 1;
  source.dl_tensor.dtype.code = 2; /* float */
  source.dl_tensor.dtype.bits = 32;
  source.dl_tensor.dtype.lanes = 1;
  source.dl_tensor.shape = shape;
  return source;
}

#endif /* TESTS_CAPI_DLPACK_H_ */
