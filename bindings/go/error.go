package fsdp2

import (
	"errors"
	"fmt"

	"fsdp2/internal/capi"
)

// Code says why a call failed. Codes are errors themselves, for errors.Is:
//
//	if errors.Is(err, fsdp2.ErrPeerFailed) { ... }
//
// A later library may give codes that have no name here.
type Code int32

// The codes of the library.
const (
	ErrNullArgument    Code = capi.ENullArgument
	ErrInvalidHandle   Code = capi.EInvalidHandle // nil, or a zero value
	ErrStaleHandle     Code = capi.EStaleHandle   // closed
	ErrHandleKind      Code = capi.EHandleKind
	ErrStructSize      Code = capi.EStructSize
	ErrInvalidArgument Code = capi.EInvalidArgument
	ErrBufferTooSmall  Code = capi.EBufferTooSmall
	ErrBusy            Code = capi.EBusy // another goroutine is inside this object
	ErrWrongState      Code = capi.EWrongState
	ErrNotFound        Code = capi.ENotFound
	ErrUnsupported     Code = capi.EUnsupported
	ErrABIMismatch     Code = capi.EAbiMismatch
	ErrIO              Code = capi.EIo
	ErrOutOfMemory     Code = capi.EOutOfMemory // or out of threads
	ErrDeviceMemory    Code = capi.EDeviceMemory
	ErrComm            Code = capi.EComm
	ErrTimeout         Code = capi.ETimeout
	ErrPeerFailed      Code = capi.EPeerFailed // another rank failed first; the message is that rank's
	ErrDeviceLost      Code = capi.EDeviceLost
	ErrCallback        Code = capi.ECallback // a function of the program failed; Unwrap gives its own error
	ErrCancelled       Code = capi.ECancelled
	ErrCorruptData     Code = capi.ECorruptData
	ErrNotFinite       Code = capi.ENotFinite // a loss or gradients with infinities or NaN
	ErrInternal        Code = capi.EInternal  // a defect of the library
)

// Error returns the library's name of the code, such as "FSDP2_E_TIMEOUT".
func (c Code) Error() string {
	if name := capi.StatusName(capi.Status(c)); name != "" {
		return name
	}
	switch c { // no library to ask
	case ErrNotFound:
		return "FSDP2_E_NOT_FOUND"
	case ErrABIMismatch:
		return "FSDP2_E_ABI_MISMATCH"
	}
	return fmt.Sprintf("status %d", int32(c))
}

// Class returns the class of the code.
func (c Code) Class() Class { return Class(c / 100) }

// Class is the kind of thing that went wrong. Classes are errors themselves, for errors.Is.
type Class int32

// The classes of the library.
const (
	ClassCaller        Class = 1 // the caller's mistake
	ClassUnavailable   Class = 2 // not found, not supported, not readable
	ClassMemory        Class = 3
	ClassCommunication Class = 4 // other ranks, and devices
	ClassCallback      Class = 5 // functions of the program
	ClassData          Class = 6
	ClassInternal      Class = 9 // a defect of the library
)

// Error returns what the class is.
func (c Class) Error() string {
	switch c {
	case ClassCaller:
		return "caller"
	case ClassUnavailable:
		return "unavailable"
	case ClassMemory:
		return "memory"
	case ClassCommunication:
		return "communication"
	case ClassCallback:
		return "callback"
	case ClassData:
		return "data"
	case ClassInternal:
		return "internal"
	}
	return fmt.Sprintf("class %d", int32(c))
}

// Error is why a call failed. errors.Is compares it with a Code or a Class, and looks through it at what a callback failed by.
type Error struct {
	Code       Code
	Rank       int    // this one's in the job; -1: the call was about no mesh
	NativeCode int    // errno, or the transport's own code; 0: none
	Function   string // the function that failed: of the C library, or of this package
	Message    string // one line
	Detail     string // more lines, possibly none

	cause error
}

// Error returns "function: message (code)".
func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s (%s)", e.Function, e.Message, e.Code.Error())
}

// Class returns the class of the code.
func (e *Error) Class() Class { return e.Code.Class() }

// Is reports whether target is the error's Code or Class.
func (e *Error) Is(target error) bool {
	switch target := target.(type) {
	case Code:
		return e.Code == target
	case Class:
		return e.Class() == target
	}
	return false
}

// As gives the raw layer its own form of the error, for a callback that fails by it.
func (e *Error) As(target any) bool {
	raw, ok := target.(**capi.Error)
	if ok {
		*raw = &capi.Error{Status: capi.Status(e.Code)}
	}
	return ok
}

// Unwrap returns what a callback of this process failed by: the error that it returned, or a *PanicError. It is nil if the call
// failed for another reason.
func (e *Error) Unwrap() error { return e.cause }

// PanicError is what a callback failed by that panicked. If the value of the panic is an error, errors.Is and errors.As see it.
type PanicError struct {
	Value any    // of the panic
	Stack []byte // of the goroutine, as runtime/debug.Stack returns it
}

// Error returns the text of the panic.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value of the panic if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// failure turns an error of the raw layer into one of this package.
func failure(err error) error {
	if err == nil {
		return nil
	}
	var raw *capi.Error
	if !errors.As(err, &raw) {
		return err
	}
	return &Error{
		Code:       Code(raw.Status),
		Rank:       int(raw.Rank),
		NativeCode: int(raw.NativeCode),
		Function:   raw.Function,
		Message:    raw.Message,
		Detail:     raw.Detail,
		cause:      causeOf(raw),
	}
}

func causeOf(raw *capi.Error) error {
	if panicked, ok := raw.Cause.(*capi.PanicError); ok {
		return &PanicError{Value: panicked.Value, Stack: panicked.Stack}
	}
	return raw.Cause
}

// invalid is an error that this package itself finds.
func invalid(function, format string, arguments ...any) error {
	return &Error{Code: ErrInvalidArgument, Rank: -1, Function: "fsdp2." + function, Message: fmt.Sprintf(format, arguments...)}
}
