package fsdp2

import (
	"runtime"

	"fsdp2/internal/capi"
)

// Function is a function whose gradient the program computes: PyTorch's torch.autograd.Function.
//
//	cube := fsdp2.Function{
//		Name: "cube",
//		Forward: func(call *fsdp2.FunctionCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
//			call.Save(inputs[0])
//			return []*fsdp2.Tensor{inputs[0].Pow(3)}, nil
//		},
//		Backward: func(call *fsdp2.FunctionCall, gradients []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
//			slope := call.Saved()[0].Pow(2).MulScalar(3)
//			return []*fsdp2.Tensor{gradients[0].Mul(slope)}, nil
//		},
//	}
//	y := cube.Call(x)
//
// Forward computes the outputs, 1 to 64, and saves what Backward needs; under activation checkpointing it runs a second time, in
// backward. Backward gets the gradients of the outputs (zeros for one that the loss does not depend on), and returns one for each input,
// of its shape and dtype; nil for one that has none or needs none. Both follow the rules of ForwardFunc, and record no gradients.
// Goroutines may run Backward through one graph at the same time.
type Function struct {
	Name     string // for messages
	NoGrad   bool   // record no gradients: Backward is never called
	Forward  func(call *FunctionCall, inputs []*Tensor) ([]*Tensor, error)
	Backward func(call *FunctionCall, gradients []*Tensor) ([]*Tensor, error)
}

// FunctionCall is one run of a Function's Forward or Backward.
type FunctionCall struct {
	NeedsGrad []bool // of each input: whether its gradient is wanted
	Scope     *Scope // that ends with the run

	saved []*Tensor
}

// Save, in Forward, keeps tensors for Backward: inputs, outputs or others, whose values must not change until then.
func (c *FunctionCall) Save(tensors ...*Tensor) { c.saved = append(c.saved, tensors...) }

// Saved returns, in Backward, what Forward has saved, in the same order.
func (c *FunctionCall) Saved() []*Tensor { return c.saved }

// Call calls Forward and returns its first output, or a tensor with the error.
func (f Function) Call(inputs ...*Tensor) *Tensor {
	outputs, err := f.CallAll(inputs...)
	if err != nil {
		return failed(err)
	}
	for _, output := range outputs[1:] {
		output.Close()
	}
	return outputs[0]
}

// CallAll is Call with all outputs. They are in the scope of the first input that is in one.
func (f Function) CallAll(inputs ...*Tensor) ([]*Tensor, error) {
	if f.Forward == nil || f.Backward == nil {
		return nil, invalid("Function.Call", "Forward and Backward: expected both, found nil")
	}
	defer runtime.KeepAlive(inputs)
	given, err := rawTensors(inputs)
	if err != nil {
		return nil, err
	}
	var flags uint32
	if f.NoGrad {
		flags = capi.OpNoGrad
	}
	outputs := make([]capi.Tensor, capi.MaxOutputs)
	var n uint
	err = keep(capi.Function{Forward: f.forward, Backward: f.backward}, func(userData userData) error {
		return capi.FunctionCall(f.Name, first(given), uint(len(given)), flags, capi.Scope{}, capi.FunctionForwardCallback,
			capi.FunctionBackwardCallback, userData, capi.ReleaseCallback, &outputs[0], uint(len(outputs)), &n)
	})
	if err != nil {
		return nil, err
	}
	return take(outputs[:n], scopeOf(inputs))
}

func newFunctionCall(needsGrad []int32, scope *Scope) *FunctionCall {
	call := &FunctionCall{NeedsGrad: make([]bool, len(needsGrad)), Scope: scope}
	for i, needed := range needsGrad {
		call.NeedsGrad[i] = needed != 0
	}
	return call
}

// forward is Forward as the library calls it.
func (f Function) forward(needsGrad []int32, inputs, outputs, saved []capi.Tensor) (nOutputs, nSaved int, err error) {
	err = scoped(func(scope *Scope) error {
		call, given := newFunctionCall(needsGrad, scope), lendAll(scope, inputs)
		results, err := f.Forward(call, given)
		if err != nil {
			return err
		}
		nOutputs, nSaved = len(results), len(call.saved)
		if nOutputs > len(outputs) || nSaved > len(saved) {
			return invalid("Function.Forward", "expected at most %d outputs and as many saved tensors, found %d and %d", len(outputs),
				nOutputs, nSaved)
		}
		results = append(results[:nOutputs:nOutputs], call.saved...)
		if err := allMade(results); err != nil {
			return err
		}
		handles := make([]capi.Tensor, len(results))
		if err := give(results, handles, inputs); err != nil {
			return err
		}
		copy(outputs, handles[:nOutputs])
		copy(saved, handles[nOutputs:])
		return nil
	})
	return nOutputs, nSaved, err
}

// backward is Backward as the library calls it.
func (f Function) backward(needsGrad []int32, saved, outputGradients, gradients []capi.Tensor) error {
	return scoped(func(scope *Scope) error {
		call, given := newFunctionCall(needsGrad, scope), lendAll(scope, outputGradients)
		call.saved = lendAll(scope, saved)
		results, err := f.Backward(call, given)
		if err != nil {
			return err
		}
		if len(results) != len(gradients) {
			return invalid("Function.Backward", "gradients: expected %d, one for each input, found %d", len(gradients), len(results))
		}
		return give(results, gradients, outputGradients, saved)
	})
}
