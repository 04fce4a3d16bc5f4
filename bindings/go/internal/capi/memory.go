package capi

// #include <stdlib.h>
import "C"

import (
	"strings"
	"unsafe"
)

// Memory is C's, for what structs point to during a call.
type Memory struct {
	blocks []unsafe.Pointer
}

// Free frees everything.
func (m *Memory) Free() {
	for _, block := range m.blocks {
		C.free(block)
	}
	m.blocks = nil
}

func (m *Memory) allocate(bytes int) unsafe.Pointer {
	block := C.malloc(C.size_t(bytes))
	m.blocks = append(m.blocks, block)
	return block
}

// String copies a text.
func (m *Memory) String(text string) unsafe.Pointer {
	block := unsafe.Pointer(cString(text))
	m.blocks = append(m.blocks, block)
	return block
}

// OptionalString copies a text, or is nil for an empty one.
func (m *Memory) OptionalString(text string) unsafe.Pointer {
	if text == "" {
		return nil
	}
	return m.String(text)
}

// Strings copies texts to an array; nil for none.
func (m *Memory) Strings(texts []string) *unsafe.Pointer {
	if len(texts) == 0 {
		return nil
	}
	first := (*unsafe.Pointer)(m.allocate(len(texts) * int(unsafe.Sizeof(uintptr(0)))))
	array := unsafe.Slice(first, len(texts))
	for i, text := range texts {
		// Not through array[i] = pointer: a write barrier would read what lies there.
		*(*uintptr)(unsafe.Pointer(&array[i])) = uintptr(m.String(text))
	}
	return first
}

// Number is what arrays consist of, handles of tensors among them.
type Number interface {
	~int32 | ~int64 | ~uint64 | Tensor
}

// Numbers copies numbers to an array; nil for none.
func Numbers[N Number](m *Memory, values []N) *N {
	if len(values) == 0 {
		return nil
	}
	first := (*N)(m.allocate(len(values) * int(unsafe.Sizeof(values[0]))))
	copy(unsafe.Slice(first, len(values)), values)
	return first
}

// cString copies a text to C's memory, to be freed.
func cString(text string) *C.char { return C.CString(terminable(text)) }

// cOptional is cString, or NULL for an empty text: Go has no other way to leave a text out.
func cOptional(text string) *C.char {
	if text == "" {
		return nil
	}
	return cString(text)
}

// terminable returns the text as C can take it. A NUL would end it early; in its place comes a byte that is no UTF-8, so that the
// library refuses the text.
func terminable(text string) string {
	if strings.IndexByte(text, 0) < 0 {
		return text
	}
	return strings.ReplaceAll(text, "\x00", "\xff")
}

// Text returns a text of C.
func Text(text unsafe.Pointer) string { return C.GoString((*C.char)(text)) }
