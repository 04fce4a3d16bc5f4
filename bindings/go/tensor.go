package fsdp2

import (
	"fmt"
	"runtime"

	"fsdp2/internal/capi"
)

// Tensor is an array of numbers that operators and modules compute with, recording gradients as PyTorch does.
//
// Operators are methods that return one tensor. One that fails returns a tensor that carries the error, whatever is computed from it
// carries it on, and the first call that returns an error returns this one (Backward, Value, Err, a forward's end). So a chain is
// checked once, at its end:
//
//	y := x.Linear(weight, nil).Gelu().Mean()
//	if err := y.Err(); err != nil { ... }
//
// One goroutine at a time uses a tensor.
type Tensor struct {
	handle
	scope *Scope // of what is computed from it; nil: none
	aside *aside // nil: nothing
}

// aside is what few tensors have. Every operator makes a tensor, so that one is small.
type aside struct {
	origin *Tensor // whose handle the tensor has
	err    error
}

func newTensor(raw capi.Tensor) *Tensor {
	tensor := &Tensor{}
	tensor.own(tensorKind, raw.ID)
	return tensor
}

// newTensorIn is a tensor that the scope owns or, without one, the caller.
func newTensorIn(raw capi.Tensor, scope *Scope) *Tensor {
	if scope == nil {
		return newTensor(raw)
	}
	return lend(raw, scope)
}

// take puts new tensors into the scope, or leaves them to the caller.
func take(raw []capi.Tensor, scope *Scope) ([]*Tensor, error) {
	if err := scope.take(raw); err != nil {
		return nil, err
	}
	return newTensorsIn(raw, scope), nil
}

func newTensorsIn(raw []capi.Tensor, scope *Scope) []*Tensor {
	tensors := make([]*Tensor, len(raw))
	for i := range raw {
		tensors[i] = newTensorIn(raw[i], scope)
	}
	return tensors
}

func failed(err error) *Tensor { return &Tensor{aside: &aside{err: err}} }

// made returns a new tensor of the caller's, or the error of the call that should have made it.
func made(raw *capi.Tensor, err error) (*Tensor, error) {
	if err != nil {
		return nil, failure(err)
	}
	return newTensor(*raw), nil
}

func (t *Tensor) raw() capi.Tensor {
	if t == nil {
		return capi.Tensor{}
	}
	return capi.Tensor{ID: t.id}
}

// rawTensors are the tensors as the library takes them, nil as the one that is left out.
func rawTensors(tensors []*Tensor) ([]capi.Tensor, error) {
	raw := make([]capi.Tensor, len(tensors))
	for i, tensor := range tensors {
		if err := tensor.optional(); err != nil {
			return nil, err
		}
		raw[i] = tensor.raw()
	}
	return raw, nil
}

// Err returns the error that kept the tensor, or one that it was computed from, from being made.
func (t *Tensor) Err() error {
	if t == nil {
		return &Error{Code: ErrInvalidHandle, Rank: -1, Function: "fsdp2.Tensor", Message: "the tensor is nil"}
	}
	return t.optional()
}

// optional is Err where nil stands for a tensor that is left out.
func (t *Tensor) optional() error {
	if t == nil || t.aside == nil {
		return nil
	}
	return t.aside.err
}

// call makes a call about the tensor, unless it failed before.
func (t *Tensor) call(function func(raw capi.Tensor) error) error {
	if err := t.Err(); err != nil {
		return err
	}
	defer runtime.KeepAlive(t)
	return failure(function(t.raw()))
}

// Close destroys the tensor; what was computed from it stays. Tensors that are in a scope need no Close, and those that the library
// lends to a callback ignore it.
func (t *Tensor) Close() error {
	if t == nil {
		return nil
	}
	return t.close()
}

// Duplicate returns another owner of the same tensor.
func (t *Tensor) Duplicate() (*Tensor, error) {
	var raw capi.Tensor
	err := t.call(func(tensor capi.Tensor) error { return capi.TensorDuplicate(tensor, &raw) })
	return made(&raw, err)
}

// TensorInfo describes a tensor.
type TensorInfo struct {
	Dtype        Dtype
	DeviceType   int // DLPack's number: 1 is the CPU, 2 is CUDA
	DeviceIndex  int
	RequiresGrad bool
	Shape        []int
	Strides      []int // in elements
	Bytes        int   // elements x their size
}

// String returns the dtype and the shape, such as "Tensor(f32 [2 3])", or why there are none.
func (t *Tensor) String() string {
	info, err := t.Info()
	if err != nil {
		return fmt.Sprintf("Tensor(%v)", err)
	}
	return fmt.Sprintf("Tensor(%v %v)", info.Dtype, info.Shape)
}

// Info describes the tensor.
func (t *Tensor) Info() (TensorInfo, error) {
	info := sized[capi.TensorInfo]()
	err := t.call(func(raw capi.Tensor) error { return capi.TensorGetInfo(raw, &info) })
	if err != nil {
		return TensorInfo{}, err
	}
	return TensorInfo{
		Dtype:        Dtype(info.Dtype),
		DeviceType:   int(info.DeviceType),
		DeviceIndex:  int(info.DeviceIndex),
		RequiresGrad: info.RequiresGrad != 0,
		Shape:        ints(info.Shape[:info.NDims]),
		Strides:      ints(info.Strides[:info.NDims]),
		Bytes:        int(info.NBytes),
	}, nil
}

// Shape returns the sizes along the dims.
func (t *Tensor) Shape() ([]int, error) {
	info, err := t.Info()
	return info.Shape, err
}

// SetRequiresGrad says whether forwards and operators from now on record a gradient for this tensor, which must be floating-point and
// not the result of one that recorded gradients.
func (t *Tensor) SetRequiresGrad(required bool) error {
	return t.call(func(raw capi.Tensor) error { return capi.TensorSetRequiresGrad(raw, flag(required)) })
}

// Grad returns the sum of the gradients that backwards have left on a tensor that requires grad, sharing its memory. ErrNotFound if
// there is none.
func (t *Tensor) Grad() (*Tensor, error) {
	var raw capi.Tensor
	err := t.call(func(tensor capi.Tensor) error { return capi.TensorGetGrad(tensor, &raw) })
	return made(&raw, err)
}

// Backward runs backward from a scalar through everything that made it. Gradients of sharded modules arrive reduced, on the shards.
// Collective if there are any. ErrWrongState if nothing has made the tensor with gradients, or if a backward has used up its graph.
func (t *Tensor) Backward() error { return t.call(capi.TensorBackward) }

// Backward runs backward from several tensors at once, starting with the given gradients, each of its output's shape and dtype. No
// gradients, or nil for an output that is a scalar, stand for 1. With keepGraph another backward may follow through the same graph.
// Collective as Tensor.Backward.
func Backward(outputs, gradients []*Tensor, keepGraph bool) error {
	if len(gradients) != 0 && len(gradients) != len(outputs) {
		return invalid("Backward", "gradients: expected none or %d, found %d", len(outputs), len(gradients))
	}
	defer runtime.KeepAlive(outputs)
	defer runtime.KeepAlive(gradients)
	from, err := rawTensors(outputs)
	if err != nil {
		return err
	}
	by, err := rawTensors(gradients)
	if err != nil {
		return err
	}
	return failure(capi.TensorRunBackward(first(from), uint(len(from)), first(by), flag(keepGraph)))
}
