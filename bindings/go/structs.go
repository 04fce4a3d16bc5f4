package fsdp2

import "unsafe"

// sized is a struct of the C ABI with its struct_size, with which each of them begins.
func sized[T any]() (value T) {
	*(*uint32)(unsafe.Pointer(&value)) = uint32(unsafe.Sizeof(value))
	return value
}

// defaults are the library's own. If it cannot be asked, they are zeros, and the call that takes the options says why.
func defaults[T any](init func(options *T, size uint) error) T {
	value := sized[T]()
	_ = init(&value, uint(unsafe.Sizeof(value)))
	return value
}
