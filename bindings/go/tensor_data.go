package fsdp2

import (
	"unsafe"

	"fsdp2/internal/capi"
)

// Element is a type that tensors and slices share. The halves, F16 and BF16, have no type in Go: see FromBytes.
type Element interface {
	float32 | float64 | int64 | int32 | int16 | int8 | uint8 | bool
}

// DtypeOf returns the dtype of a Go type.
func DtypeOf[T Element]() Dtype {
	var zero T
	switch any(zero).(type) {
	case float32:
		return DtypeF32
	case float64:
		return DtypeF64
	case int64:
		return DtypeI64
	case int32:
		return DtypeI32
	case int16:
		return DtypeI16
	case int8:
		return DtypeI8
	case uint8:
		return DtypeU8
	}
	return DtypeBool
}

// FromSlice copies data into a new CPU tensor, row-major. Without a shape the tensor has one dim.
func FromSlice[T Element](data []T, shape ...int) (*Tensor, error) {
	if len(shape) == 0 {
		shape = []int{len(data)}
	}
	return fromMemory(pointerTo(data), sizeOf(data), DtypeOf[T](), shape)
}

// Scalar makes a CPU tensor without dims.
func Scalar[T Element](value T) (*Tensor, error) {
	return fromMemory(unsafe.Pointer(&value), unsafe.Sizeof(value), DtypeOf[T](), nil)
}

// FromBytes copies the bytes of elements of a dtype into a new CPU tensor, row-major, in the machine's byte order.
func FromBytes(data []byte, dtype Dtype, shape ...int) (*Tensor, error) {
	return fromMemory(pointerTo(data), sizeOf(data), dtype, shape)
}

func fromMemory(data unsafe.Pointer, size uintptr, dtype Dtype, shape []int) (*Tensor, error) {
	if len(shape) <= capi.MaxFewDims {
		raw, err := capi.TensorFromFew(data, uint(size), int32(dtype), shape)
		return made(&raw, err)
	}
	var raw capi.Tensor
	sizes := int64s(shape)
	return made(&raw, capi.TensorFromBuffer(data, uint(size), int32(dtype), first(sizes), uint(len(sizes)), &raw))
}

// ToSlice copies the elements, row-major. The tensor's dtype must be that of T.
func ToSlice[T Element](t *Tensor) ([]T, error) {
	info, err := t.infoOf("ToSlice", DtypeOf[T]())
	if err != nil {
		return nil, err
	}
	var zero T
	data := make([]T, uintptr(info.Bytes)/unsafe.Sizeof(zero))
	return data, t.read(pointerTo(data), sizeOf(data))
}

// Read copies the elements, row-major, to a slice of as many elements and the tensor's dtype.
func Read[T Element](t *Tensor, to []T) error {
	if _, err := t.infoOf("Read", DtypeOf[T]()); err != nil {
		return err
	}
	return t.read(pointerTo(to), sizeOf(to))
}

// Write overwrites the elements, row-major, from a slice of as many elements and the tensor's dtype. Autograd does not see it: if a
// graph has kept the tensor for its backward, that backward fails.
func Write[T Element](t *Tensor, from []T) error {
	if _, err := t.infoOf("Write", DtypeOf[T]()); err != nil {
		return err
	}
	return t.write(pointerTo(from), sizeOf(from))
}

// Bytes copies the bytes of the elements, row-major, in the machine's byte order.
func (t *Tensor) Bytes() ([]byte, error) {
	info, err := t.Info()
	if err != nil {
		return nil, err
	}
	data := make([]byte, info.Bytes)
	return data, t.read(pointerTo(data), sizeOf(data))
}

// WriteBytes overwrites the elements by their bytes, as Write does.
func (t *Tensor) WriteBytes(from []byte) error { return t.write(pointerTo(from), sizeOf(from)) }

// Value returns the value of a tensor of one element.
func (t *Tensor) Value() (float64, error) {
	var value float64
	err := t.call(func(raw capi.Tensor) error { return capi.TensorGetValue(raw, &value) })
	return value, err
}

func (t *Tensor) read(to unsafe.Pointer, size uintptr) error {
	return t.call(func(raw capi.Tensor) error { return capi.TensorRead(raw, to, uint(size)) })
}

func (t *Tensor) write(from unsafe.Pointer, size uintptr) error {
	return t.call(func(raw capi.Tensor) error { return capi.TensorWrite(raw, from, uint(size)) })
}

// infoOf is the tensor's info, if it is of the dtype that the function needs.
func (t *Tensor) infoOf(function string, dtype Dtype) (TensorInfo, error) {
	info, err := t.Info()
	if err == nil && info.Dtype != dtype {
		err = invalid(function, "dtype: expected %v as the tensor has it, found a slice of %v", info.Dtype, dtype)
	}
	return info, err
}

func sizeOf[T any](data []T) uintptr {
	var zero T
	return uintptr(len(data)) * unsafe.Sizeof(zero)
}

var nothing [8]byte

// pointerTo is never nil, also where there are no elements.
func pointerTo[T any](data []T) unsafe.Pointer {
	if len(data) == 0 {
		return unsafe.Pointer(&nothing)
	}
	return unsafe.Pointer(&data[0])
}
