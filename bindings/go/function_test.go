package fsdp2_test

import (
	"errors"
	"fmt"
	"testing"

	"fsdp2"
)

// product is a b, with the gradients of 3 a b, which nobody else can have made.
var product = fsdp2.Function{
	Name: "product",
	Forward: func(call *fsdp2.FunctionCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
		call.Save(inputs...)
		return []*fsdp2.Tensor{inputs[0].Mul(inputs[1])}, nil
	},
	Backward: func(call *fsdp2.FunctionCall, gradients []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
		slopes := make([]*fsdp2.Tensor, 2)
		for i := range slopes {
			if call.NeedsGrad[i] {
				slopes[i] = gradients[0].Mul(call.Saved()[1-i]).MulScalar(3)
			}
		}
		return slopes, nil
	},
}

func readFloats(tensor *fsdp2.Tensor) ([]float32, error) {
	if err := tensor.Err(); err != nil {
		return nil, err
	}
	return fsdp2.ToSlice[float32](tensor)
}

func TestAFunctionHasTheGradientOfItsBackward(t *testing.T) {
	defer noHandles(t)
	must(t, fsdp2.WithScope(func(scope *fsdp2.Scope) error {
		a, b := floats(t, []float32{1, -2}), floats(t, []float32{5, 0.5})
		if err := scope.Add(a, b); err != nil {
			return err
		}
		if err := a.SetRequiresGrad(true); err != nil {
			return err
		}
		made := product.Call(a, b)
		values, err := readFloats(made)
		if err != nil {
			return err
		}
		equal(t, "product", values, []float32{5, -1})
		if err := made.Sum().Backward(); err != nil {
			return err
		}
		gradient, err := a.Grad()
		if err != nil {
			return err
		}
		defer gradient.Close()
		slopes, err := readFloats(gradient)
		equal(t, "gradient", slopes, []float32{15, 1.5})
		silent := product
		silent.NoGrad = true
		if err := silent.Call(a, b).Sum().Backward(); !errors.Is(err, fsdp2.ErrWrongState) {
			t.Errorf("backward without gradients: %v", err)
		}
		return err
	}))
	mustOnRanks(t, 2, functionInSharded)
}

func functionInSharded(mesh *fsdp2.Mesh, rank int) error {
	module, err := fsdp2.NewCustomModule("Scale", nil,
		func(call *fsdp2.ForwardCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
			return []*fsdp2.Tensor{product.Call(inputs[0], call.Parameter("weight")).Sum()}, nil
		})
	if err != nil {
		return err
	}
	defer module.Close()
	if err := module.AddParameter("weight", []int{2}, nil); err != nil {
		return err
	}
	shard, err := fsdp2.NewShard(module, mesh, nil)
	if err != nil {
		return err
	}
	defer shard.Close()
	x, err := fsdp2.FromSlice([]float32{1, -2})
	if err != nil {
		return err
	}
	defer x.Close()
	if err := module.Forward(x).Backward(); err != nil {
		return err
	}
	gradient, err := shard.Parameter(0, fsdp2.ParameterFullGrad)
	if err != nil {
		return err
	}
	defer gradient.Close()
	slopes, err := readFloats(gradient)
	if err == nil && (slopes[0] != 3 || slopes[1] != -6) {
		err = fmt.Errorf("gradient %v", slopes)
	}
	return err
}

// failingBackward returns the error of a backward through a function that has this one.
func failingBackward(t *testing.T, fail func() ([]*fsdp2.Tensor, error)) error {
	t.Helper()
	defer noHandles(t)
	function := fsdp2.Function{
		Name: "fails",
		Forward: func(call *fsdp2.FunctionCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
			made := inputs[0].Exp()
			call.Save(made)
			return []*fsdp2.Tensor{made}, nil
		},
		Backward: func(*fsdp2.FunctionCall, []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) { return fail() },
	}
	x := floats(t, []float32{1, 2})
	defer x.Close()
	must(t, x.SetRequiresGrad(true))
	return function.Call(x).Sum().Backward()
}

func TestAnErrorInABackwardCallbackReachesTheCaller(t *testing.T) {
	err := failingBackward(t, func() ([]*fsdp2.Tensor, error) { return nil, fmt.Errorf("today: %w", errOwn) })
	if !errors.Is(err, fsdp2.ErrCallback) || !errors.Is(err, errOwn) {
		t.Errorf("found %v", err)
	}
	contains(t, err, "backward of fails")
	contains(t, failingBackward(t, func() ([]*fsdp2.Tensor, error) { panic(errOwn) }), "an error of the program's")
	contains(t, failingBackward(t, func() ([]*fsdp2.Tensor, error) { return nil, nil }), "expected 1, one for each input")
	contains(t, failingBackward(t, func() ([]*fsdp2.Tensor, error) {
		return []*fsdp2.Tensor{floats(t, []float32{1})}, nil
	}), "expected shape [2]")
	if err := (fsdp2.Function{}).Call().Err(); !errors.Is(err, fsdp2.ErrInvalidArgument) {
		t.Errorf("found %v", err)
	}
}
