// Package capi is libfsdp2's C ABI, one to one: every function of the headers under its name without fsdp2_.
//
// Handles and structs have the layout of C's. A call that can fail gives an error that is an *Error. Strings go in as Go strings, an
// empty one as NULL where the header allows that; pointers kept in a struct (MeshOptions.Rendezvous) must point to C memory. Everything
// else is as the headers say, ownership included: nothing here is freed by the garbage collector.
package capi

// #cgo LDFLAGS: -ldl -lpthread
// #include "calls.h"
import "C"

import (
	"fmt"
	"runtime/cgo"
	"unsafe"

	_ "fsdp2/internal/capi/fsdp2" // the headers
)

// Load opens the library at a path, unless it is open. Without it, the first call opens the library where FSDP2_LIBRARY says or where
// the system's loader finds it.
func Load(path string) error {
	name := cString(path)
	defer C.free(unsafe.Pointer(name))
	if C.fsdp2_go_load(name) != 0 {
		return nil
	}
	return check(C.fsdp2_go_load_error())
}

// Status is fsdp2_status. The hundreds digit is its class.
type Status int32

// Error is the record of a failed call.
type Error struct {
	Status     Status
	Rank       int32 // of the mesh that the call was about; -1: none
	NativeCode int32 // errno or the transport's own number; 0: none
	Message    string
	Function   string // the C function that failed
	Detail     string
	Cause      error // with ECallback: what the callback failed by, if it was one of this package
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s (%s)", e.Function, e.Message, StatusName(e.Status))
}

func check(record *C.fsdp2_go_error) error {
	if record == nil {
		return nil
	}
	defer C.fsdp2_go_error_free(record)
	return &Error{
		Cause:      takeCause(record),
		Status:     Status(record.info.status),
		Rank:       int32(record.info.rank),
		NativeCode: int32(record.info.native_code),
		Message:    C.GoString(record.info.message),
		Function:   C.GoString(record.info.function),
		Detail:     C.GoString(record.info.detail),
	}
}

func takeCause(record *C.fsdp2_go_error) error {
	if record.cause == 0 {
		return nil
	}
	handle := cgo.Handle(record.cause)
	cause := handle.Value().(error)
	handle.Delete()
	const ofMemory = 3 // the class
	if status := Status(record.info.status); status != ECallback && status/100 != ofMemory {
		return nil // another rank failed first
	}
	return cause
}
