package capi

/*
#include "fsdp2/fsdp2.h"

// DLPack 1.x, as any user of it declares it.
typedef struct {
  int32_t device_type, device_id;
} fsdp2_go_dl_device;
typedef struct {
  uint8_t code, bits;
  uint16_t lanes;
} fsdp2_go_dl_type;
typedef struct DLManagedTensorVersioned {
  uint32_t major, minor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned* self);
  uint64_t flags;
  void* data;
  fsdp2_go_dl_device device;
  int32_t n_dims;
  fsdp2_go_dl_type type;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} DLManagedTensorVersioned;

static void fsdp2_go_dl_delete(void* tensor) {
  DLManagedTensorVersioned* self = tensor;
  if (self->deleter != NULL) self->deleter(self);
}
*/
import "C"

import "unsafe"

// DLPackData returns the address of the first element of what TensorToDlpack has returned.
func DLPackData(tensor unsafe.Pointer) unsafe.Pointer {
	shared := (*C.DLManagedTensorVersioned)(tensor)
	return unsafe.Add(shared.data, int(shared.byte_offset))
}

// DLPackDelete ends the use of what TensorToDlpack has returned.
func DLPackDelete(tensor unsafe.Pointer) { C.fsdp2_go_dl_delete(tensor) }
