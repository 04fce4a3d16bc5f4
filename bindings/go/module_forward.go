package fsdp2

import (
	"runtime"
	"sync"

	"fsdp2/internal/capi"
)

// Forward runs the module and returns its first output, or a tensor with the error. Collective if the module is sharded.
//
// Causal language models have one output: (tokens [B,S] i64) gives logits [B,S,V]; (tokens, labels [B,S] i64) gives the mean
// cross-entropy, which leaves out labels of -100. Two more inputs may follow, positions and mask, and nil stands for one that is left
// out; module.h says what they are. Errors: ErrInvalidArgument (inputs that do not fit each other or the model), ErrInvalidHandle (nil
// for an input that the module needs).
func (m *Module) Forward(inputs ...*Tensor) *Tensor {
	if len(inputs) > capi.MaxForwardInputs {
		return m.forwardMany(inputs)
	}
	var given [capi.MaxForwardInputs]capi.Tensor
	var scope *Scope
	for i, input := range inputs {
		if input == nil {
			continue
		}
		if input.aside != nil && input.aside.err != nil {
			return failed(input.aside.err)
		}
		if scope == nil {
			scope = input.scope
		}
		given[i] = input.raw()
	}
	into, err := scope.open()
	if err != nil {
		return failed(err)
	}
	output, err := capi.ModuleForwardFirst(m.raw(), into, len(inputs), &given)
	runtime.KeepAlive(m)
	runtime.KeepAlive(inputs)
	runtime.KeepAlive(scope)
	switch {
	case err == nil && output.ID != 0:
		return newTensorIn(output, scope)
	case err == nil:
		return failed(errNoOutputs)
	case err.(*capi.Error).Status == capi.EBufferTooSmall:
		return m.forwardMany(inputs)
	}
	return failed(failure(err))
}

func (m *Module) forwardMany(inputs []*Tensor) *Tensor {
	outputs, err := m.ForwardAll(ForwardOptions{}, inputs...)
	if err != nil {
		return failed(err)
	}
	for _, output := range outputs[1:] {
		output.Close()
	}
	return outputs[0]
}

var errNoOutputs = invalid("Forward", "the module has no outputs")

// ForwardOptions say how to run a module. The zero value runs the module itself, with gradients.
type ForwardOptions struct {
	NoGrad bool
	// Submodule is the dotted path of a module inside, which runs in its place with the inputs that it takes. If the module is
	// sharded, all ranks pass the same path.
	Submodule string
}

// ForwardAll is Forward with options and all outputs. Tensors of nested outputs come one after the other.
func (m *Module) ForwardAll(options ForwardOptions, inputs ...*Tensor) ([]*Tensor, error) {
	defer runtime.KeepAlive(m)
	defer runtime.KeepAlive(inputs)
	given, err := rawTensors(inputs)
	if err != nil {
		return nil, err
	}
	room := rooms.Get().(*[capi.MaxOutputs]capi.Tensor)
	defer rooms.Put(room)
	raw, err := m.forward(options, given, room[:])
	if err != nil {
		return nil, failure(err)
	}
	if len(raw) == 0 {
		return nil, errNoOutputs
	}
	return take(raw, scopeOf(inputs))
}

// rooms are for outputs, since how many there are is only known once a module has run.
var rooms = sync.Pool{New: func() any { return new([capi.MaxOutputs]capi.Tensor) }}

func (m *Module) forward(options ForwardOptions, inputs, outputs []capi.Tensor) ([]capi.Tensor, error) {
	var flags uint32
	if options.NoGrad {
		flags = capi.ForwardNoGrad
	}
	for {
		var needed uint
		var err error
		if options.Submodule == "" {
			err = capi.ModuleForward(m.raw(), first(inputs), uint(len(inputs)), flags, &outputs[0], uint(len(outputs)), &needed)
		} else {
			err = capi.ModuleForwardSubmodule(m.raw(), options.Submodule, first(inputs), uint(len(inputs)), flags,
				&outputs[0], uint(len(outputs)), &needed)
		}
		if err == nil {
			return outputs[:needed], nil
		}
		if failed := err.(*capi.Error); failed.Status != capi.EBufferTooSmall || needed <= uint(len(outputs)) {
			return nil, err
		}
		outputs = make([]capi.Tensor, needed)
	}
}

func scopeOf(tensors []*Tensor) *Scope {
	for _, tensor := range tensors {
		if tensor != nil && tensor.scope != nil {
			return tensor.scope
		}
	}
	return nil
}

// CheckInputs says what Forward would say of these inputs, with nothing computed and on this rank alone.
func (m *Module) CheckInputs(inputs ...*Tensor) error {
	defer runtime.KeepAlive(m)
	defer runtime.KeepAlive(inputs)
	raw, err := rawTensors(inputs)
	if err != nil {
		return err
	}
	return failure(capi.ModuleCheckInputs(m.raw(), first(raw), uint(len(raw))))
}
