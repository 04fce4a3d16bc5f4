package capi

// #include "op.h"
import "C"

import (
	"fmt"
	"sync"
	"unsafe"
)

// MaxOpInputs is how many arguments an operator takes.
const MaxOpInputs = C.FSDP2_GO_MAX_OP_INPUTS

// OpValue is Value as C's functions take it from a longOp: Data is an offset.
type OpValue struct {
	Kind     int32
	reserved int32
	Integer  int64
	Number   float64
	Tensor   Tensor
	data     uintptr
	count    uint
}

var _ = [1]byte{}[unsafe.Sizeof(OpValue{})-unsafe.Sizeof(Value{})]

// longOp is a call of an operator with any arguments, in memory of a pool.
type longOp struct {
	block   []uint64 // the name, and what values point to
	inputs  []OpValue
	outputs []OpValue
	needed  uint
}

var longOps = sync.Pool{New: func() any { return &longOp{outputs: make([]OpValue, MaxOutputs)} }}

func newLongOp(name string) *longOp {
	op := longOps.Get().(*longOp)
	op.addText(name)
	return op
}

func (o *longOp) free() {
	o.block, o.inputs = o.block[:0], o.inputs[:0]
	longOps.Put(o)
}

func (o *longOp) addText(text string) {
	start := len(o.block)
	o.block = append(o.block, make([]uint64, len(text)/8+1)...)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&o.block[start])), len(text)), terminable(text))
}

func (o *longOp) add(value OpValue) { o.inputs = append(o.inputs, value) }

// offset is where the block goes on.
func (o *longOp) offset() uintptr { return uintptr(len(o.block)) * 8 }

// run makes the call. The outputs are the op's, until it is free.
func (o *longOp) run(flags uint32, scope Scope) ([]OpValue, error) {
	if len(o.inputs) > MaxOpInputs {
		return nil, &Error{Status: EInvalidArgument, Rank: -1, Function: "fsdp2_op_call",
			Message: fmt.Sprintf("n_inputs: expected at most %d, found %d", MaxOpInputs, len(o.inputs))}
	}
	for {
		err := o.try(flags, scope)
		if err == nil {
			return o.outputs[:o.needed], nil
		}
		if failure := err.(*Error); failure.Status != EBufferTooSmall || o.needed <= uint(len(o.outputs)) {
			return nil, err
		}
		o.outputs = make([]OpValue, o.needed)
	}
}

func (o *longOp) try(flags uint32, scope Scope) error {
	var inputs *C.fsdp2_go_value
	if len(o.inputs) > 0 {
		inputs = (*C.fsdp2_go_value)(unsafe.Pointer(&o.inputs[0]))
	}
	o.needed = 0
	return check(C.fsdp2_go_op((*C.uint64_t)(&o.block[0]), inputs, C.size_t(len(o.inputs)), C.uint32_t(flags),
		*(*C.fsdp2_scope)(unsafe.Pointer(&scope)), (*C.fsdp2_go_value)(unsafe.Pointer(&o.outputs[0])), C.size_t(len(o.outputs)),
		(*C.size_t)(unsafe.Pointer(&o.needed))))
}
