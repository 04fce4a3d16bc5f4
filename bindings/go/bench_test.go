package fsdp2_test

import (
	"testing"

	"fsdp2"
)

// What a call costs, the work in C included.

func BenchmarkTensorCreateAndClose(b *testing.B) {
	data := []float32{1}
	for i := 0; i < b.N; i++ {
		tensor, err := fsdp2.FromSlice(data)
		if err != nil {
			b.Fatal(err)
		}
		tensor.Close()
	}
}

func BenchmarkOperator(b *testing.B) {
	x, err := fsdp2.FromSlice([]float32{1})
	if err != nil {
		b.Fatal(err)
	}
	defer x.Close()
	for i := 0; i < b.N; i++ {
		y := x.Add(x)
		if y.Err() != nil {
			b.Fatal(y.Err())
		}
		y.Close()
	}
}

func BenchmarkForwardCallback(b *testing.B) {
	module, err := fsdp2.NewCustomModule("Same", nil, func(call *fsdp2.ForwardCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
		return inputs, nil
	})
	if err != nil {
		b.Fatal(err)
	}
	defer module.Close()
	x, err := fsdp2.FromSlice([]float32{1})
	if err != nil {
		b.Fatal(err)
	}
	defer x.Close()
	for i := 0; i < b.N; i++ {
		y := module.Forward(x)
		if y.Err() != nil {
			b.Fatal(y.Err())
		}
		y.Close()
	}
}
