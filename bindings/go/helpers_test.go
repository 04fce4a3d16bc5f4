package fsdp2_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fsdp2"
)

var meshes int32

// onRanks runs a rank in each of n goroutines, and returns their errors. When all are done, no handle is left.
func onRanks(t *testing.T, n int, rank func(mesh *fsdp2.Mesh, rank int) error) []error {
	t.Helper()
	name := fmt.Sprintf("thread://test-%d", atomic.AddInt32(&meshes, 1))
	errs := make([]error, n)
	done := make(chan int)
	for i := 0; i < n; i++ {
		go func(i int) {
			defer func() { done <- i }()
			options := fsdp2.DefaultMeshOptions()
			options.Rendezvous, options.Rank, options.WorldSize = name, i, n
			options.Timeout = time.Minute
			mesh, err := fsdp2.NewMesh(context.Background(), &options)
			if err != nil {
				errs[i] = err
				return
			}
			defer mesh.Close()
			errs[i] = rank(mesh, i)
		}(i)
	}
	for range errs {
		<-done
	}
	return errs
}

func mustOnRanks(t *testing.T, n int, rank func(mesh *fsdp2.Mesh, rank int) error) {
	t.Helper()
	for i, err := range onRanks(t, n, rank) {
		if err != nil {
			t.Errorf("rank %d: %v", i, err)
		}
	}
}

// noHandles fails unless the collector brings the number of handles back to 0.
func noHandles(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		runtime.GC()
		if fsdp2.LiveHandles() == 0 {
			return
		}
	}
	t.Errorf("live handles: %d", fsdp2.LiveHandles())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func contains(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("expected %q in the error, found %v", part, err)
		}
	}
}

func floats(t *testing.T, values []float32, shape ...int) *fsdp2.Tensor {
	t.Helper()
	tensor, err := fsdp2.FromSlice(values, shape...)
	must(t, err)
	return tensor
}

func equal[T comparable](t *testing.T, what string, found, expected []T) {
	t.Helper()
	if len(found) != len(expected) {
		t.Fatalf("%s: expected %v, found %v", what, expected, found)
	}
	for i := range found {
		if found[i] != expected[i] {
			t.Fatalf("%s: expected %v, found %v", what, expected, found)
		}
	}
}

// newRegression makes a model [N, 4] -> mean((x weight^T)^2 - target)^2 with one layer inside that is a unit. layer is called with what
// the forward of the layer returns.
func newRegression(layer func(output *fsdp2.Tensor) (*fsdp2.Tensor, error)) (*fsdp2.Module, error) {
	inner, err := fsdp2.NewCustomModule("Layer", nil,
		func(call *fsdp2.ForwardCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
			output, err := layer(inputs[0].Linear(call.Parameter("weight"), nil))
			return []*fsdp2.Tensor{output}, err
		})
	if err != nil {
		return nil, err
	}
	whole, err := fsdp2.NewCustomModule("Whole", &fsdp2.ModuleOptions{Seed: 3},
		func(call *fsdp2.ForwardCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
			off := inner.Forward(inputs[0]).Mul(call.Parameter("scale")).Sub(inputs[1])
			return []*fsdp2.Tensor{off.Mul(off).Mean()}, nil
		})
	if err != nil {
		return nil, err
	}
	if err := inner.AddParameter("weight", []int{6, 4}, nil); err != nil {
		return nil, err
	}
	if err := whole.AddParameter("scale", []int{6}, &fsdp2.ParameterOptions{Init: fsdp2.InitOnes}); err != nil {
		return nil, err
	}
	return whole, whole.AddChild("layer", inner)
}

func unchanged(output *fsdp2.Tensor) (*fsdp2.Tensor, error) { return output, nil }

// regressionBatch is the same on every rank.
func regressionBatch() (x, target *fsdp2.Tensor, err error) {
	values, targets := make([]float32, 8*4), make([]float32, 8*6)
	for i := range values {
		values[i] = float32(i%7) - 3
	}
	for i := range targets {
		targets[i] = float32(i%5) / 2
	}
	if x, err = fsdp2.FromSlice(values, 8, 4); err != nil {
		return nil, nil, err
	}
	target, err = fsdp2.FromSlice(targets, 8, 6)
	return x, target, err
}

// run is a sharded model with what trains it.
type run struct {
	fsdp2.Checkpoint
	model     *fsdp2.Module
	x, target *fsdp2.Tensor
}

func newRun(mesh *fsdp2.Mesh, model *fsdp2.Module) (*run, error) {
	return newRunOf(mesh, model, "Layer")
}

// newRunOf makes modules of a class the units.
func newRunOf(mesh *fsdp2.Mesh, model *fsdp2.Module, kind string) (*run, error) {
	r := &run{model: model}
	var err error
	if r.x, r.target, err = regressionBatch(); err != nil {
		return nil, err
	}
	if r.Shard, err = fsdp2.NewShard(model, mesh,
		&fsdp2.ShardOptions{Wrap: fsdp2.WrapKinds, WrapKinds: []string{kind}}); err != nil {
		return nil, err
	}
	adamw := fsdp2.DefaultAdamWOptions()
	adamw.LR = 0.05
	if r.Optimizer, err = fsdp2.NewAdamW(r.Shard, &adamw); err != nil {
		return nil, err
	}
	r.Step, err = fsdp2.NewStep(r.Shard, r.Optimizer, nil)
	return r, err
}

func (r *run) steps(n int) (losses []float64, err error) {
	for i := 0; i < n; i++ {
		result, err := r.Step.Run(r.x, r.target)
		if err != nil {
			return nil, err
		}
		losses = append(losses, result.Loss)
	}
	return losses, nil
}

func (r *run) Close() {
	for _, closer := range []interface{ Close() error }{r.Step, r.Optimizer, r.Shard, r.model, r.x, r.target} {
		closer.Close()
	}
}
