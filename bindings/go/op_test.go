package fsdp2_test

import (
	"fmt"
	"reflect"
	"testing"

	"fsdp2"
)

func filled(t *testing.T, n int, shape ...int) *fsdp2.Tensor {
	t.Helper()
	data := make([]float32, n)
	for i := range data {
		data[i] = float32(i)
	}
	x, err := fsdp2.FromSlice(data, shape...)
	must(t, err)
	return x
}

func elements(t *testing.T, x *fsdp2.Tensor) []float32 {
	t.Helper()
	data, err := fsdp2.ToSlice[float32](x)
	must(t, err)
	return data
}

// Few arguments travel otherwise than many: the call goes over at any argument, with lists before it and behind it.
func TestOperatorsTakeAnyNumberOfArguments(t *testing.T) {
	defer noHandles(t)
	x, weight := filled(t, 4, 1, 1, 4), filled(t, 2, 1, 1, 2)
	defer x.Close()
	defer weight.Close()
	convolved := fsdp2.Call("aten::convolution", x, weight, nil, []int{2}, []int{1}, []int{1}, false, []int{0}, 1)
	defer convolved.Close()
	if found := elements(t, convolved); !reflect.DeepEqual(found, []float32{0, 2, 0}) {
		t.Errorf("convolution: %v", found)
	}
	deep := x.Reshape(1, 1, 1, 1, 2, 1, 1, 1, 2, 1) // more sizes than a short list has
	defer deep.Close()
	if shape, err := deep.Shape(); err != nil || len(shape) != 10 {
		t.Errorf("reshape: %v, %v", shape, err)
	}
	many := make([]*fsdp2.Tensor, 12)
	for i := range many {
		many[i] = weight
	}
	joined := fsdp2.Cat(many, 2)
	defer joined.Close()
	if found := elements(t, joined); len(found) != 24 || found[23] != 1 {
		t.Errorf("cat: %v", found)
	}
	mean := fsdp2.Call("aten::std.correction", x, []int{0, 1, 2}, 1.0, true)
	defer mean.Close()
	if value, err := mean.Value(); err != nil || value < 1.29 || value > 1.3 {
		t.Errorf("std: %v, %v", value, err)
	}
	text := fsdp2.Call("aten::div.Tensor_mode", x, 2.0, "floor")
	defer text.Close()
	if found := elements(t, text); !reflect.DeepEqual(found, []float32{0, 0, 1, 1}) {
		t.Errorf("div: %v", found)
	}
}

func TestOnlyTheFirstTensorOfAnOperatorStays(t *testing.T) {
	defer noHandles(t)
	x := filled(t, 100)
	defer x.Close()
	before := fsdp2.LiveHandles()
	for _, pieces := range []int{2, 100} { // as many as a call has room for, and more
		first := fsdp2.Call("aten::tensor_split.sections", x, pieces, 0)
		if found := elements(t, first); len(found) != 100/pieces {
			t.Errorf("%d pieces: %v", pieces, found)
		}
		if live := fsdp2.LiveHandles(); live != before+1 {
			t.Errorf("%d pieces: expected one more handle than %d, found %d", pieces, before, live)
		}
		must(t, first.Close())
	}
	contains(t, fsdp2.Call("aten::is_same_size", x, x).Err(), "expected a tensor as its result")
	contains(t, fsdp2.Call("aten::relu\x00", x).Err(), "FSDP2_E_INVALID_ARGUMENT")
}

func TestForwardGivesTheFirstOfAllOutputs(t *testing.T) {
	defer noHandles(t)
	for _, n := range []int{0, 1, 6, 7} {
		given := make([]*fsdp2.Tensor, n)
		for i := range given {
			given[i] = filled(t, i+1)
		}
		module, err := fsdp2.NewCustomModule("Doubles", nil, func(call *fsdp2.ForwardCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
			if len(inputs) != n {
				return nil, fmt.Errorf("expected %d inputs, found %d", n, len(inputs))
			}
			twos, err := fsdp2.Operator{Name: "aten::full", Scope: call.Scope}.Call([]int{n + 1}, 2.0)
			if err != nil {
				return nil, err
			}
			outputs := []*fsdp2.Tensor{twos[0].(*fsdp2.Tensor)}
			for _, input := range inputs {
				outputs = append(outputs, input.Add(input))
			}
			return outputs, nil
		})
		must(t, err)
		before := fsdp2.LiveHandles()
		output := module.Forward(given...)
		if found := elements(t, output); len(found) != n+1 {
			t.Errorf("%d inputs: %v", n, found)
		}
		if live := fsdp2.LiveHandles(); live != before+1 {
			t.Errorf("%d inputs: expected one more handle than %d, found %d", n, before, live)
		}
		must(t, output.Close())
		must(t, fsdp2.WithScope(func(scope *fsdp2.Scope) error {
			for i := range given {
				given[i] = scope.Use(given[i])
			}
			return module.Forward(given...).Err()
		}))
		if live := fsdp2.LiveHandles(); n > 0 && live != before {
			t.Errorf("%d inputs in a scope: expected %d handles, found %d", n, before, live)
		}
		must(t, module.Close())
	}
	closed := filled(t, 1)
	must(t, closed.Close())
	module, err := fsdp2.NewLayer("ReLU", nil, nil)
	must(t, err)
	defer module.Close()
	contains(t, module.Forward(closed).Err(), "FSDP2_E_STALE_HANDLE")
}
