package capi

/*
#include "callback.h"
#include "calls.h"

static inline fsdp2_status fsdp2_go_fail(fsdp2_status status, const char* message) {
  return fsdp2_go_library.callback_fail(status, message);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime/cgo"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

// The functions that C can call, by the types of their user data. They run on the goroutine of the call around them, which the
// runtime keeps on its thread meanwhile. What they fail by, panics included, becomes the Cause of that call's error.
type (
	// LogFunc is what NewUserData holds for LogCallback.
	LogFunc func(record *LogRecord)
	// Forward is what NewUserData holds, by its address, for ForwardCallback. Run writes at most len(outputs) tensors and returns their number. Released
	// is called after the last run.
	Forward struct {
		Run      func(info *ForwardInfo, inputs, outputs []Tensor) (int, error)
		Released func()
	}
	// Function is what NewUserData holds for FunctionForwardCallback and FunctionBackwardCallback. Forward writes at most so many outputs
	// and saved tensors as there is room for, and returns their numbers.
	Function struct {
		Forward  func(needsGrad []int32, inputs, outputs, saved []Tensor) (nOutputs, nSaved int, err error)
		Backward func(needsGrad []int32, saved, outputGradients, gradients []Tensor) error
	}
	// ShardDimFunc is what NewUserData holds for ShardDimCallback.
	ShardDimFunc func(info *ShardDimInfo) (int32, error)
	// AllReduceHookFunc is what NewUserData holds for AllReduceHookCallback.
	AllReduceHookFunc func(info *AllReduceInfo, gradients Tensor) error
	// GradientReadyFunc is what NewUserData holds for GradientReadyCallback.
	GradientReadyFunc func(info *GradientInfo, gradient Tensor) error
	// AllGatherExtension is what NewUserData holds for PreAllGatherCallback and PostAllGatherCallback.
	AllGatherExtension struct {
		Pre  func(info *GatherInfo, chunk Tensor) (Tensor, error)
		Post func(info *GatherInfo, pieces, chunks Tensor) error
	}
)

// What the raw functions take as fn and release.
var (
	ReleaseCallback          = unsafe.Pointer(C.fsdp2_release_fn(C.fsdp2GoRelease))
	LogCallback              = unsafe.Pointer(C.fsdp2_log_fn(C.fsdp2GoLog))
	ForwardCallback          = unsafe.Pointer(C.fsdp2_forward_fn(C.fsdp2GoForward))
	ShardDimCallback         = unsafe.Pointer(C.fsdp2_shard_dim_fn(C.fsdp2GoShardDim))
	AllReduceHookCallback    = unsafe.Pointer(C.fsdp2_all_reduce_hook_fn(C.fsdp2GoAllReduceHook))
	GradientReadyCallback    = unsafe.Pointer(C.fsdp2_gradient_ready_fn(C.fsdp2GoGradientReady))
	FunctionForwardCallback  = unsafe.Pointer(C.fsdp2_function_forward_fn(C.fsdp2GoFunctionForward))
	FunctionBackwardCallback = unsafe.Pointer(C.fsdp2_function_backward_fn(C.fsdp2GoFunctionBackward))
	PreAllGatherCallback     = unsafe.Pointer(C.fsdp2_pre_all_gather_fn(C.fsdp2GoPreAllGather))
	PostAllGatherCallback    = unsafe.Pointer(C.fsdp2_post_all_gather_fn(C.fsdp2GoPostAllGather))
)

// kept are the functions that C has, each at its place in a table. Callbacks find theirs there without a lock and without the search that
// a cgo.Handle takes, because programs run forwards as often as operators.
var kept struct {
	table  atomic.Pointer[[]any] // another one once it is full
	lock   sync.Mutex            // of those who change it
	unused []int                 // places
}

func keep(function any) (place int) {
	kept.lock.Lock()
	defer kept.lock.Unlock()
	if len(kept.unused) == 0 {
		var before []any
		if table := kept.table.Load(); table != nil {
			before = *table
		}
		table := make([]any, 2*len(before)+16)
		copy(table, before)
		for i := len(table) - 1; i >= len(before); i-- {
			kept.unused = append(kept.unused, i)
		}
		kept.table.Store(&table)
	}
	last := len(kept.unused) - 1
	place, kept.unused = kept.unused[last], kept.unused[:last]
	(*kept.table.Load())[place] = function
	return place
}

func letGo(place int) {
	kept.lock.Lock()
	defer kept.lock.Unlock()
	(*kept.table.Load())[place] = nil
	kept.unused = append(kept.unused, place)
}

// NewUserData keeps a function for C, until ReleaseCallback or, if no call has taken it, DropUserData. C has the address of a cell of
// its own memory with the function's place in it, because a number is no address that Go's checks accept.
func NewUserData(function any) unsafe.Pointer {
	cell := C.malloc(C.size_t(unsafe.Sizeof(int(0))))
	*(*int)(cell) = keep(function)
	return cell
}

// DropUserData ends what NewUserData began.
func DropUserData(cell unsafe.Pointer) {
	letGo(*(*int)(cell))
	C.free(cell)
}

// functionOf sees the function in any table that is newer than its user data.
func functionOf[F any](userData unsafe.Pointer) F {
	return (*kept.table.Load())[*(*int)(userData)].(F)
}

// PanicError is what a callback failed by that panicked.
type PanicError struct {
	Value any // of the panic
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value of the panic if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// protect keeps panics from unwinding C's frames. It takes a panic(nil) for one, too; after runtime.Goexit, which nothing can stop,
// it at least leaves the text.
func protect(body func() error) (status C.fsdp2_status) {
	returned := false
	defer func() {
		if !returned {
			status = fail(&PanicError{recover(), debug.Stack()})
		}
	}()
	err := body()
	returned = true
	if err != nil {
		return fail(err)
	}
	return Ok
}

func fail(err error) C.fsdp2_status {
	before := C.fsdp2_go_set_cause(C.uintptr_t(cgo.NewHandle(err)))
	if before != 0 {
		cgo.Handle(before).Delete()
	}
	text := strings.ToValidUTF8(strings.ReplaceAll(messageOf(err), "\x00", " "), "?")
	if len(text) > MaxText {
		text = strings.ToValidUTF8(text[:MaxText], "")
	}
	message := C.CString(text)
	defer C.free(unsafe.Pointer(message))
	return C.fsdp2_go_fail(C.fsdp2_status(statusOf(err)), message)
}

// statusOf is that of the library's own error, if there is one in it. One that the caller has made up may have none that is known.
func statusOf(err error) (status Status) {
	defer func() {
		if recover() != nil { // in a method of the caller's
			status = ECallback
		}
	}()
	var own *Error
	if errors.As(err, &own) && isKnown(own.Status) {
		return own.Status
	}
	return ECallback
}

// isKnown tells a failure by its name: any other number has that of its class, such as FSDP2_E_4XX.
func isKnown(status Status) bool {
	return status > 0 && !strings.HasSuffix(StatusName(status), "XX")
}

// messageOf asks a value of the caller's for its text, which may panic once more.
func messageOf(err error) (message string) {
	defer func() {
		if recover() != nil {
			message = "an error whose Error method panics"
		}
	}()
	return err.Error()
}

var errOutput = errors.New("the callback returned no tensor")

//export fsdp2GoRelease
func fsdp2GoRelease(userData unsafe.Pointer) {
	forward, isForward := functionOf[any](userData).(*Forward)
	DropUserData(userData)
	if isForward {
		forward.Released()
	}
}

//export fsdp2GoLog
func fsdp2GoLog(record *C.fsdp2_log_record, userData unsafe.Pointer) {
	defer func() {
		if value := recover(); value != nil {
			fmt.Fprintln(os.Stderr, "fsdp2: panic in the log function:", value)
		}
	}()
	functionOf[LogFunc](userData)((*LogRecord)(unsafe.Pointer(record)))
}

//export fsdp2GoForward
func fsdp2GoForward(info *C.fsdp2_forward_info, inputs *C.fsdp2_tensor, nInputs C.size_t, outputs *C.fsdp2_tensor, capacity C.size_t,
	nOutputs *C.size_t, userData unsafe.Pointer) C.fsdp2_status {
	// Not functionOf, which looks its type up: programs run forwards as often as operators.
	forward := (*kept.table.Load())[*(*int)(userData)].(*Forward)
	return protect(func() error {
		n, err := forward.Run((*ForwardInfo)(unsafe.Pointer(info)), tensors(inputs, nInputs), tensors(outputs, capacity))
		*nOutputs = C.size_t(n)
		return err
	})
}

//export fsdp2GoFunctionForward
func fsdp2GoFunctionForward(info *C.fsdp2_function_info, inputs *C.fsdp2_tensor, nInputs C.size_t, outputs, saved *C.fsdp2_tensor,
	capacity C.size_t, nOutputs, nSaved *C.size_t, userData unsafe.Pointer) C.fsdp2_status {
	return protect(func() error {
		made, kept, err := functionOf[Function](userData).Forward(needsGrad(info), tensors(inputs, nInputs), tensors(outputs, capacity),
			tensors(saved, capacity))
		*nOutputs, *nSaved = C.size_t(made), C.size_t(kept)
		return err
	})
}

//export fsdp2GoFunctionBackward
func fsdp2GoFunctionBackward(info *C.fsdp2_function_info, saved *C.fsdp2_tensor, nSaved C.size_t, outputGradients *C.fsdp2_tensor,
	nOutputs C.size_t, gradients *C.fsdp2_tensor, userData unsafe.Pointer) C.fsdp2_status {
	return protect(func() error {
		return functionOf[Function](userData).Backward(needsGrad(info), tensors(saved, nSaved), tensors(outputGradients, nOutputs),
			tensors(gradients, info.n_inputs))
	})
}

func needsGrad(info *C.fsdp2_function_info) []int32 {
	return unsafe.Slice((*int32)(unsafe.Pointer(info.needs_grad)), int(info.n_inputs))
}

func tensors(handles *C.fsdp2_tensor, n C.size_t) []Tensor {
	return unsafe.Slice((*Tensor)(unsafe.Pointer(handles)), int(n))
}

//export fsdp2GoShardDim
func fsdp2GoShardDim(info *C.fsdp2_shard_dim_info, out *C.int32_t, userData unsafe.Pointer) C.fsdp2_status {
	return protect(func() error {
		dim, err := functionOf[ShardDimFunc](userData)((*ShardDimInfo)(unsafe.Pointer(info)))
		*out = C.int32_t(dim)
		return err
	})
}

//export fsdp2GoAllReduceHook
func fsdp2GoAllReduceHook(info *C.fsdp2_all_reduce_info, gradients C.fsdp2_tensor, userData unsafe.Pointer) C.fsdp2_status {
	return protect(func() error {
		return functionOf[AllReduceHookFunc](userData)((*AllReduceInfo)(unsafe.Pointer(info)), Tensor{uint64(gradients.id)})
	})
}

//export fsdp2GoGradientReady
func fsdp2GoGradientReady(info *C.fsdp2_gradient_info, gradient C.fsdp2_tensor, userData unsafe.Pointer) C.fsdp2_status {
	return protect(func() error {
		return functionOf[GradientReadyFunc](userData)((*GradientInfo)(unsafe.Pointer(info)), Tensor{uint64(gradient.id)})
	})
}

//export fsdp2GoPreAllGather
func fsdp2GoPreAllGather(info *C.fsdp2_gather_info, chunk C.fsdp2_tensor, out *C.fsdp2_tensor, userData unsafe.Pointer) C.fsdp2_status {
	return protect(func() error {
		made, err := functionOf[AllGatherExtension](userData).Pre((*GatherInfo)(unsafe.Pointer(info)), Tensor{uint64(chunk.id)})
		if err == nil && made.ID == 0 {
			return errOutput
		}
		out.id = C.uint64_t(made.ID)
		return err
	})
}

//export fsdp2GoPostAllGather
func fsdp2GoPostAllGather(info *C.fsdp2_gather_info, pieces, chunks C.fsdp2_tensor, userData unsafe.Pointer) C.fsdp2_status {
	return protect(func() error {
		return functionOf[AllGatherExtension](userData).Post((*GatherInfo)(unsafe.Pointer(info)), Tensor{uint64(pieces.id)},
			Tensor{uint64(chunks.id)})
	})
}
