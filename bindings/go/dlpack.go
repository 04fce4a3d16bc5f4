package fsdp2

import (
	"unsafe"

	"fsdp2/internal/capi"
)

// WithData calls use with the tensor's own memory, row-major: reading copies nothing, and what is written is in the tensor. The slice is
// valid until use returns. The tensor must be contiguous, on the CPU, of T's dtype, and without requires-grad. Autograd does not see
// what is written, as with Write.
func WithData[T Element](t *Tensor, use func(data []T) error) error {
	info, err := t.infoOf("WithData", DtypeOf[T]())
	if err != nil {
		return err
	}
	if !info.isContiguous() || info.DeviceType != capi.DeviceCpu {
		return invalid("WithData", "tensor: expected a contiguous one on the CPU, found strides %v for shape %v", info.Strides, info.Shape)
	}
	if info.Bytes == 0 {
		return use(nil)
	}
	shared, err := t.ToDLPack()
	if err != nil {
		return err
	}
	defer capi.DLPackDelete(shared)
	var zero T
	return use(unsafe.Slice((*T)(capi.DLPackData(shared)), info.Bytes/int(unsafe.Sizeof(zero))))
}

func (i TensorInfo) isContiguous() bool {
	expected := 1
	for dim := len(i.Shape) - 1; dim >= 0; dim-- {
		if i.Shape[dim] != 1 && i.Strides[dim] != expected {
			return false
		}
		expected *= i.Shape[dim]
	}
	return true
}

// FromDLPack shares the memory of a DLManagedTensorVersioned*, as another library in this process gives it out. It is taken over only if
// there is no error; its deleter is called once the last view is gone. Refused: another DLPack major, a read-only tensor, null or
// misaligned data, negative strides, a device that is not there, and memory that is on another device than the source says.
func FromDLPack(source unsafe.Pointer) (*Tensor, error) {
	var raw capi.Tensor
	return made(&raw, capi.TensorFromDlpack(source, &raw))
}

// ToDLPack shares the tensor's memory as a DLManagedTensorVersioned*, for another library in this process, which calls its deleter when
// done. Refused: a tensor that requires grad, or whose memory FSDP has freed.
func (t *Tensor) ToDLPack() (unsafe.Pointer, error) {
	var shared unsafe.Pointer
	err := t.call(func(raw capi.Tensor) error { return capi.TensorToDlpack(raw, 0, &shared) })
	return shared, err
}
