package fsdp2_test

import (
	"errors"
	"testing"

	"fsdp2"
)

func TestArraysAreSharedWithoutACopy(t *testing.T) {
	defer noHandles(t)
	tensor := floats(t, make([]float32, 6), 2, 3)
	defer tensor.Close()
	must(t, fsdp2.WithData(tensor, func(data []float32) error {
		for i := range data {
			data[i] = float32(i)
		}
		return nil
	}))
	row := tensor.Select(0, 1)
	defer row.Close()
	must(t, fsdp2.WithData(row, func(data []float32) error {
		equal(t, "row", data, []float32{3, 4, 5})
		return nil
	}))
	column := tensor.Select(1, 1)
	defer column.Close()
	if err := fsdp2.WithData(column, func([]float32) error { return nil }); !errors.Is(err, fsdp2.ErrInvalidArgument) {
		t.Errorf("a column: %v", err)
	}
	if err := fsdp2.WithData(tensor, func([]int64) error { return nil }); !errors.Is(err, fsdp2.ErrInvalidArgument) {
		t.Errorf("another dtype: %v", err)
	}
	if err := fsdp2.WithData(tensor, func([]float32) error { return errOwn }); err != errOwn {
		t.Errorf("the function's own error: %v", err)
	}
}

func TestTensorsTravelByDLPack(t *testing.T) {
	defer noHandles(t)
	tensor := floats(t, []float32{1, 2})
	shared, err := tensor.ToDLPack()
	must(t, err)
	must(t, tensor.Close())
	again, err := fsdp2.FromDLPack(shared)
	must(t, err)
	defer again.Close()
	values, err := fsdp2.ToSlice[float32](again)
	must(t, err)
	equal(t, "values", values, []float32{1, 2})
	if _, err := fsdp2.FromDLPack(nil); !errors.Is(err, fsdp2.ErrNullArgument) {
		t.Errorf("nil: %v", err)
	}
}
