package capi

// #include "few.h"
import "C"

import (
	"math"
	"strings"
	"unsafe"
)

// Op is one call of an operator: its arguments one after the other, then Run or RunFirst, then Free. It lives on the caller's stack: most
// calls have few arguments, which go to C by value. All others need memory of a pool.
type Op struct {
	name     string
	few      C.fsdp2_go_few
	elements int     // of lists, in few
	long     *longOp // in place of few; nil: the arguments are few
}

// Begin begins a call.
func (o *Op) Begin(name string) {
	o.name = name
	if len(name) > C.FSDP2_GO_FEW_NAME || strings.IndexByte(name, 0) >= 0 {
		o.lengthen()
	}
}

// Free ends the use of the op and of what Run has returned.
func (o *Op) Free() {
	if o.long != nil {
		o.long.free()
	}
}

// lengthen goes over to a call that has room for everything.
func (o *Op) lengthen() {
	if o.long != nil {
		return
	}
	o.long = newLongOp(o.name)
	start := o.long.offset()
	for _, bits := range o.few.elements[:o.elements] {
		o.long.block = append(o.long.block, uint64(bits))
	}
	for _, input := range o.few.inputs[:o.few.n_inputs] {
		kind, bits := int32(input.kind), uint64(input.bits)
		switch kind {
		case ValueInts, ValueDoubles, ValueTensors:
			o.long.add(OpValue{Kind: kind, data: start + uintptr(bits)*8, count: uint(input.count)})
		case ValueDouble:
			o.long.add(OpValue{Kind: kind, Number: math.Float64frombits(bits)})
		case ValueTensor:
			o.long.add(OpValue{Kind: kind, Tensor: Tensor{bits}})
		default:
			o.long.add(OpValue{Kind: kind, Integer: int64(bits)})
		}
	}
}

// add adds an argument to few if there is room.
func (o *Op) add(kind, count int32, bits uint64) bool {
	if o.long != nil {
		return false
	}
	n := o.few.n_inputs
	if n == C.FSDP2_GO_FEW_INPUTS {
		o.lengthen()
		return false
	}
	o.few.inputs[n] = C.fsdp2_go_few_value{kind: C.int32_t(kind), count: C.int32_t(count), bits: C.uint64_t(bits)}
	o.few.n_inputs++
	return true
}

// Simple adds a value of a kind that points to nothing.
func (o *Op) Simple(kind int32, integer int64) {
	if !o.add(kind, 0, uint64(integer)) {
		o.long.add(OpValue{Kind: kind, Integer: integer})
	}
}

// Double adds a number.
func (o *Op) Double(number float64) {
	if !o.add(ValueDouble, 0, math.Float64bits(number)) {
		o.long.add(OpValue{Kind: ValueDouble, Number: number})
	}
}

// Tensor adds a tensor.
func (o *Op) Tensor(tensor Tensor) {
	if !o.add(ValueTensor, 0, tensor.ID) {
		o.long.add(OpValue{Kind: ValueTensor, Tensor: tensor})
	}
}

// String adds a text.
func (o *Op) String(text string) {
	o.lengthen()
	o.long.add(OpValue{Kind: ValueString, data: o.long.offset()})
	o.long.addText(text)
}

// List begins a list of count elements, which Element adds.
func (o *Op) List(kind int32, count int) {
	if count > C.FSDP2_GO_FEW_ELEMENTS-o.elements {
		o.lengthen()
	}
	if !o.add(kind, int32(count), uint64(o.elements)) {
		o.long.add(OpValue{Kind: kind, data: o.long.offset(), count: uint(count)})
	}
}

// Element adds an integer or the ID of a tensor to the list.
func (o *Op) Element(bits uint64) {
	if o.long != nil {
		o.long.block = append(o.long.block, bits)
		return
	}
	o.few.elements[o.elements] = C.uint64_t(bits)
	o.elements++
}

// DoubleElement adds a number to the list.
func (o *Op) DoubleElement(number float64) { o.Element(math.Float64bits(number)) }

// Run makes the call. The outputs are the op's, until Free.
func (o *Op) Run(flags uint32, scope Scope) ([]OpValue, error) {
	o.lengthen()
	return o.long.run(flags, scope)
}

// RunFirst makes the call and returns the first output that is a tensor, or a zero one; the others are destroyed.
func (o *Op) RunFirst(flags uint32, scope Scope) (Tensor, error) {
	if o.long == nil {
		o.few.flags, o.few.scope.id = C.uint32_t(flags), C.uint64_t(scope.ID)
		first := C.fsdp2_go_op_few(*(**C.char)(unsafe.Pointer(&o.name)), C.size_t(len(o.name)), o.few)
		if first.error == nil {
			return Tensor{uint64(first.tensor.id)}, nil
		}
		if err := check(first.error); err.(*Error).Status != EBufferTooSmall {
			return Tensor{}, err
		}
	}
	values, err := o.Run(flags, scope)
	if err != nil {
		return Tensor{}, err
	}
	var first Tensor
	for _, value := range values {
		switch {
		case value.Kind != ValueTensor:
		case first.ID == 0:
			first = value.Tensor
		default:
			_ = TensorDestroy(value.Tensor)
		}
	}
	return first, nil
}

// MaxForwardInputs is how many inputs ModuleForwardFirst takes.
const MaxForwardInputs = C.FSDP2_GO_FEW_FORWARD_INPUTS

// ModuleForwardFirst calls fsdp2_module_forward with the first n of the inputs, of which a zero one is left out, and returns the first
// output, which goes into the scope unless that is a zero one; the others are destroyed.
func ModuleForwardFirst(module Module, scope Scope, n int, inputs *[MaxForwardInputs]Tensor) (Tensor, error) {
	first := C.fsdp2_go_forward_few(C.uint64_t(module.ID), C.uint64_t(scope.ID), C.size_t(n), C.uint64_t(inputs[0].ID),
		C.uint64_t(inputs[1].ID), C.uint64_t(inputs[2].ID), C.uint64_t(inputs[3].ID))
	if first.error == nil {
		return Tensor{uint64(first.tensor.id)}, nil
	}
	return Tensor{}, check(first.error)
}

// MaxFewDims is how many dims TensorFromFew takes.
const MaxFewDims = C.FSDP2_GO_FEW_DIMS

// TensorFromFew calls fsdp2_tensor_from_buffer for a tensor of few dims.
func TensorFromFew(data unsafe.Pointer, nBytes uint, dtype int32, shape []int) (Tensor, error) {
	var sizes C.fsdp2_go_few_sizes
	for i, size := range shape {
		sizes.sizes[i] = C.int64_t(size)
	}
	first := C.fsdp2_go_tensor_few((*C.char)(data), C.size_t(nBytes), C.int32_t(dtype), sizes, C.size_t(len(shape)))
	return Tensor{uint64(first.tensor.id)}, check(first.error)
}
