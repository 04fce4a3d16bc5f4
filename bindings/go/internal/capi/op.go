package capi

// #include "op.h"
import "C"

import (
	"fmt"
	"math"
	"sync"
	"unsafe"
)

// MaxOpInputs is how many arguments an Op takes.
const MaxOpInputs = C.FSDP2_GO_MAX_OP_INPUTS

// OpValue is Value as C's functions take it from an Op: Data is an offset.
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

// Op is one call of an operator: its arguments one after the other, then Run, then Free. It needs no memory of C, and gets its own
// from a pool.
type Op struct {
	block   []uint64 // the name, and what values point to
	inputs  []OpValue
	outputs []OpValue
	needed  uint
}

var ops = sync.Pool{New: func() any { return &Op{outputs: make([]OpValue, MaxOutputs)} }}

// NewOp begins a call of an operator.
func NewOp(name string) *Op {
	op := ops.Get().(*Op)
	op.addText(name)
	return op
}

// Free ends the use of the op and of what Run has returned.
func (o *Op) Free() {
	o.block, o.inputs = o.block[:0], o.inputs[:0]
	ops.Put(o)
}

func (o *Op) addText(text string) {
	start := len(o.block)
	o.block = append(o.block, make([]uint64, len(text)/8+1)...)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&o.block[start])), len(text)), terminable(text))
}

func (o *Op) add(value OpValue) { o.inputs = append(o.inputs, value) }

// offset is where the block goes on.
func (o *Op) offset() uintptr { return uintptr(len(o.block)) * 8 }

// Simple adds a value of a kind that points to nothing.
func (o *Op) Simple(kind int32, integer int64) { o.add(OpValue{Kind: kind, Integer: integer}) }

// Double adds a number.
func (o *Op) Double(number float64) { o.add(OpValue{Kind: ValueDouble, Number: number}) }

// Tensor adds a tensor.
func (o *Op) Tensor(tensor Tensor) { o.add(OpValue{Kind: ValueTensor, Tensor: tensor}) }

// String adds a text.
func (o *Op) String(text string) {
	o.add(OpValue{Kind: ValueString, data: o.offset()})
	o.addText(text)
}

// List begins a list of count elements, which Element adds.
func (o *Op) List(kind int32, count int) {
	o.add(OpValue{Kind: kind, data: o.offset(), count: uint(count)})
}

// Element adds an integer or the ID of a tensor to the list.
func (o *Op) Element(bits uint64) { o.block = append(o.block, bits) }

// DoubleElement adds a number to the list.
func (o *Op) DoubleElement(number float64) { o.Element(math.Float64bits(number)) }

// Run makes the call. The outputs are the op's, until Free.
func (o *Op) Run(flags uint32, scope Scope) ([]OpValue, error) {
	if len(o.inputs) > MaxOpInputs {
		return nil, &Error{Status: EInvalidArgument, Rank: -1, Function: "fsdp2_op_call",
			Message: fmt.Sprintf("n_inputs: expected at most %d, found %d", MaxOpInputs, len(o.inputs))}
	}
	for {
		err := o.run(flags, scope)
		if err == nil {
			return o.outputs[:o.needed], nil
		}
		if failure := err.(*Error); failure.Status != EBufferTooSmall || o.needed <= uint(len(o.outputs)) {
			return nil, err
		}
		o.outputs = make([]OpValue, o.needed)
	}
}

func (o *Op) run(flags uint32, scope Scope) error {
	var inputs *C.fsdp2_go_value
	if len(o.inputs) > 0 {
		inputs = (*C.fsdp2_go_value)(unsafe.Pointer(&o.inputs[0]))
	}
	o.needed = 0
	return check(C.fsdp2_go_op((*C.uint64_t)(&o.block[0]), inputs, C.size_t(len(o.inputs)), C.uint32_t(flags),
		*(*C.fsdp2_scope)(unsafe.Pointer(&scope)), (*C.fsdp2_go_value)(unsafe.Pointer(&o.outputs[0])), C.size_t(len(o.outputs)),
		(*C.size_t)(unsafe.Pointer(&o.needed))))
}
