package fsdp2_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"fsdp2"
)

func TestACustomModuleTrainsShardedOn2Ranks(t *testing.T) {
	losses := map[int][]float64{}
	for _, ranks := range []int{1, 2} {
		mustOnRanks(t, ranks, func(mesh *fsdp2.Mesh, rank int) error {
			model, err := newRegression(unchanged)
			if err != nil {
				return err
			}
			r, err := newRun(mesh, model)
			if err != nil {
				return err
			}
			defer r.Close()
			made, err := r.steps(5)
			if rank == 0 {
				losses[ranks] = made
			}
			return err
		})
		noHandles(t)
	}
	if len(losses[1]) != 5 || losses[1][4] > losses[1][0]-0.1 {
		t.Errorf("the loss does not fall: %v", losses[1])
	}
	for i := range losses[1] {
		if math.Abs(losses[1][i]-losses[2][i]) > 1e-6 {
			t.Errorf("step %d: %v on one rank, %v on two", i, losses[1][i], losses[2][i])
		}
	}
}

// failingForward trains with a layer that fails, and returns the error of the step.
func failingForward(t *testing.T, fail func(output *fsdp2.Tensor) (*fsdp2.Tensor, error)) error {
	t.Helper()
	defer noHandles(t)
	errs := onRanks(t, 1, func(mesh *fsdp2.Mesh, rank int) error {
		model, err := newRegression(fail)
		if err != nil {
			return err
		}
		r, err := newRun(mesh, model)
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = r.steps(1)
		return err
	})
	return errs[0]
}

var errOwn = errors.New("an error of the program's")

func TestAnErrorInAForwardCallbackReachesTheCaller(t *testing.T) {
	err := failingForward(t, func(*fsdp2.Tensor) (*fsdp2.Tensor, error) { return nil, fmt.Errorf("layer: %w", errOwn) })
	if !errors.Is(err, fsdp2.ErrCallback) || !errors.Is(err, errOwn) {
		t.Errorf("found %v", err)
	}
	contains(t, err, "forward of Whole", "forward of Layer", "layer: an error of the program's")
}

func TestPanicInForwardReachesTheCaller(t *testing.T) {
	err := failingForward(t, func(*fsdp2.Tensor) (*fsdp2.Tensor, error) { panic(errOwn) })
	var panicked *fsdp2.PanicError
	if !errors.Is(err, fsdp2.ErrCallback) || !errors.Is(err, errOwn) || !errors.As(err, &panicked) || len(panicked.Stack) == 0 {
		t.Errorf("found %v", err)
	}
	var list []int
	err = failingForward(t, func(*fsdp2.Tensor) (*fsdp2.Tensor, error) { return nil, fmt.Errorf("%d", list[3]) })
	contains(t, err, "index out of range")
}

func TestFailedOperatorInForwardReachesTheCaller(t *testing.T) {
	err := failingForward(t, func(output *fsdp2.Tensor) (*fsdp2.Tensor, error) { return output.View(-1, 7).Gelu(), nil })
	if !errors.Is(err, fsdp2.ErrCallback) || !errors.Is(err, fsdp2.ErrInvalidArgument) {
		t.Errorf("found %v", err)
	}
	contains(t, err, "fsdp2_op_call", "view")
	err = failingForward(t, func(*fsdp2.Tensor) (*fsdp2.Tensor, error) { return nil, nil })
	contains(t, err, "the tensor is nil")
}

func TestWantOfMemoryInForwardIsThatOfTheCall(t *testing.T) {
	err := failingForward(t, func(*fsdp2.Tensor) (*fsdp2.Tensor, error) {
		return fsdp2.Call("aten::empty.memory_format", []int64{1 << 50}), nil
	})
	var inner *fsdp2.Error
	if !errors.Is(err, fsdp2.ErrOutOfMemory) || !errors.As(errors.Unwrap(err), &inner) || inner.Code != fsdp2.ErrOutOfMemory {
		t.Errorf("found %v", err)
	}
}

func TestAnErrorOnOneRankReachesTheOthers(t *testing.T) {
	defer noHandles(t)
	errs := onRanks(t, 2, func(mesh *fsdp2.Mesh, rank int) error {
		model, err := newRegression(func(output *fsdp2.Tensor) (*fsdp2.Tensor, error) {
			if rank == 1 {
				return nil, errOwn
			}
			return output, nil
		})
		if err != nil {
			return err
		}
		r, err := newRun(mesh, model)
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = r.steps(1)
		return err
	})
	if !errors.Is(errs[1], errOwn) || !errors.Is(errs[0], fsdp2.ErrPeerFailed) || errors.Is(errs[0], errOwn) {
		t.Errorf("found %v", errs)
	}
	contains(t, errs[0], "an error of the program's")
}

// Rank 0 fails where the layer is gathered, for which rank 1 waits inside the forward of the whole.
func TestAForwardThatWaitsForAFailedRankHasNotFailed(t *testing.T) {
	defer noHandles(t)
	errs := onRanks(t, 2, func(mesh *fsdp2.Mesh, rank int) error {
		model, err := newRegression(unchanged)
		if err != nil {
			return err
		}
		r, err := newRun(mesh, model)
		if err != nil {
			return err
		}
		defer r.Close()
		if err := r.Shard.SetAllGatherExtension("layer", &fsdp2.AllGatherExtension{
			Pre: func(info fsdp2.GatherInfo, chunk *fsdp2.Tensor) (*fsdp2.Tensor, error) {
				if rank == 0 {
					return nil, errOwn
				}
				return chunk, nil
			},
			Post: func(info fsdp2.GatherInfo, pieces, chunks *fsdp2.Tensor) error { return nil },
		}); err != nil {
			return err
		}
		_, err = r.steps(1)
		return err
	})
	for rank, expected := range []fsdp2.Code{fsdp2.ErrCallback, fsdp2.ErrPeerFailed} {
		var err *fsdp2.Error
		if !errors.As(errs[rank], &err) || err.Code != expected {
			t.Errorf("rank %d: expected %v, found %v", rank, expected, errs[rank])
		}
		contains(t, errs[rank], "an error of the program's")
	}
}

func TestForwardWithoutGradientsAndOfASubmodule(t *testing.T) {
	defer noHandles(t)
	model, err := newRegression(unchanged)
	must(t, err)
	defer model.Close()
	x, target, err := regressionBatch()
	must(t, err)
	defer x.Close()
	defer target.Close()
	must(t, model.CheckInputs(x, target))
	losses, err := model.ForwardAll(fsdp2.ForwardOptions{NoGrad: true}, x, target)
	must(t, err)
	defer losses[0].Close()
	if err := losses[0].Backward(); !errors.Is(err, fsdp2.ErrWrongState) {
		t.Errorf("backward without gradients: %v", err)
	}
	hidden, err := model.ForwardAll(fsdp2.ForwardOptions{Submodule: "layer"}, x)
	must(t, err)
	defer hidden[0].Close()
	shape, err := hidden[0].Shape()
	must(t, err)
	equal(t, "shape", shape, []int{8, 6})
	index, err := model.ParameterIndex("layer.weight")
	must(t, err)
	info, err := model.ParameterInfo(index)
	must(t, err)
	equal(t, "names", info.Names, []string{"layer.weight"})
	equal(t, "shape", info.Shape, []int{6, 4})
}

func TestHooksSeeGradients(t *testing.T) {
	defer noHandles(t)
	mustOnRanks(t, 2, func(mesh *fsdp2.Mesh, rank int) error {
		model, err := newRegression(unchanged)
		if err != nil {
			return err
		}
		r, err := newRun(mesh, model)
		if err != nil {
			return err
		}
		defer r.Close()
		reduced, ready := 0, map[string]bool{}
		if err := r.Shard.SetAllReduceHook("layer", func(info fsdp2.AllReduceInfo, gradients *fsdp2.Tensor) error {
			reduced++
			_, err := gradients.Mul(gradients).Sum().Value()
			return err
		}); err != nil {
			return err
		}
		if err := r.Shard.SetGradientReady("", true, func(info fsdp2.GradientInfo, gradient *fsdp2.Tensor) error {
			ready[info.Parameter] = true
			return gradient.Err()
		}); err != nil {
			return err
		}
		extended := 0
		if err := r.Shard.SetAllGatherExtension("layer", &fsdp2.AllGatherExtension{
			Pre: func(info fsdp2.GatherInfo, chunk *fsdp2.Tensor) (*fsdp2.Tensor, error) {
				extended++
				return chunk.To(fsdp2.DtypeF64), nil
			},
			Post: func(info fsdp2.GatherInfo, pieces, chunks *fsdp2.Tensor) error {
				return fsdp2.Call("aten::copy_", chunks, pieces).Err()
			},
		}); err != nil {
			return err
		}
		if _, err := r.steps(2); err != nil {
			return err
		}
		if reduced != 2 || len(ready) != 2 || extended == 0 {
			return fmt.Errorf("reduced %d, ready %v, extended %d", reduced, ready, extended)
		}
		return r.Shard.SetAllReduceHook("layer", nil)
	})
}

func TestShardDimIsAsked(t *testing.T) {
	defer noHandles(t)
	mustOnRanks(t, 2, func(mesh *fsdp2.Mesh, rank int) error {
		model, err := newRegression(unchanged)
		if err != nil {
			return err
		}
		defer model.Close()
		options := fsdp2.ShardOptions{ShardDim: func(info fsdp2.ShardDimInfo) (int, error) { return len(info.Shape) - 1, nil }}
		shard, err := fsdp2.NewShard(model, mesh, &options)
		if err != nil {
			return err
		}
		defer shard.Close()
		index, err := shard.ParameterIndex("layer.weight")
		if err != nil {
			return err
		}
		info, err := shard.ParameterInfo(index)
		if err == nil && (info.ShardDim != 1 || info.LocalShape[1] != 2) {
			err = fmt.Errorf("%+v", info)
		}
		return err
	})
}

func TestOutputsMayBeInputsAndOthersTensors(t *testing.T) {
	defer noHandles(t)
	own := floats(t, []float32{5})
	defer own.Close()
	var late *fsdp2.Scope
	module, err := fsdp2.NewCustomModule("Three", nil,
		func(call *fsdp2.ForwardCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
			late = call.Scope
			return []*fsdp2.Tensor{inputs[0], call.Parameter("one"), own}, nil
		})
	must(t, err)
	defer module.Close()
	must(t, module.AddParameter("one", []int{1}, &fsdp2.ParameterOptions{Init: fsdp2.InitOnes}))
	x := floats(t, []float32{2})
	defer x.Close()
	for i := 0; i < 2; i++ {
		outputs, err := module.ForwardAll(fsdp2.ForwardOptions{}, x)
		must(t, err)
		for j, expected := range []float64{2, 1, 5} {
			if value, err := outputs[j].Value(); err != nil || value != expected {
				t.Errorf("output %d: %v, %v", j, value, err)
			}
			outputs[j].Close()
		}
	}
	if err := late.Use(x).Relu().Err(); !errors.Is(err, fsdp2.ErrStaleHandle) {
		t.Errorf("a scope after its callback: %v", err)
	}
	if err := own.Err(); err != nil {
		t.Error(err)
	}
}

// The slice of inputs is the callback's own to change.
func TestAForwardMayReplaceItsInputs(t *testing.T) {
	defer noHandles(t)
	module, err := fsdp2.NewCustomModule("Twice", nil, func(call *fsdp2.ForwardCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
		inputs[0] = inputs[0].Add(inputs[0])
		return inputs, nil
	})
	must(t, err)
	defer module.Close()
	x := floats(t, []float32{2})
	defer x.Close()
	y := module.Forward(x)
	defer y.Close()
	if value, err := y.Value(); err != nil || value != 4 {
		t.Errorf("%v, %v", value, err)
	}
}
