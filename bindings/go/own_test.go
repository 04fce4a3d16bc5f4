package fsdp2_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"testing"

	"fsdp2"
)

const (
	ownSteps    = 6
	ownPeak     = 0.1
	ownMomentum = 0.9
)

// newLine is a model x weight^T or, with a target, the mean square of how far that is off.
func newLine() (*fsdp2.Module, error) {
	module, err := fsdp2.NewCustomModule("Line", &fsdp2.ModuleOptions{Seed: 7},
		func(call *fsdp2.ForwardCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
			made := inputs[0].Linear(call.Parameter("weight"), nil)
			if len(inputs) == 2 {
				off := made.Sub(inputs[1])
				made = off.Mul(off).Mean()
			}
			return []*fsdp2.Tensor{made}, nil
		})
	if err != nil {
		return nil, err
	}
	return module, module.AddParameter("weight", []int{6, 4}, nil)
}

// line is a sharded newLine with a rank's data.
type line struct {
	model     *fsdp2.Module
	shard     *fsdp2.Shard
	x, target *fsdp2.Tensor
}

func newLineOn(mesh *fsdp2.Mesh, rank int) (*line, error) {
	l := &line{}
	var err error
	if l.model, err = newLine(); err != nil {
		return nil, err
	}
	if l.shard, err = fsdp2.NewShard(l.model, mesh, nil); err != nil {
		return nil, err
	}
	x, target, err := regressionBatch()
	if err != nil {
		return nil, err
	}
	defer x.Close()
	l.x, l.target = x.MulScalar(1-0.5*float64(rank)), target
	return l, l.x.Err()
}

func (l *line) Close() {
	for _, closer := range []interface{ Close() error }{l.shard, l.model, l.x, l.target} {
		closer.Close()
	}
}

// trainByTheLibrary returns the losses of the library's step, optimizer and schedule.
func trainByTheLibrary(l *line) ([]float64, error) {
	sgd := fsdp2.DefaultSGDOptions()
	sgd.LR, sgd.Momentum = ownPeak, ownMomentum
	optimizer, err := fsdp2.NewSGD(l.shard, &sgd)
	if err != nil {
		return nil, err
	}
	defer optimizer.Close()
	options := fsdp2.DefaultStepOptions()
	options.Schedule, options.TotalSteps = fsdp2.ScheduleLinear, ownSteps
	step, err := fsdp2.NewStep(l.shard, optimizer, &options)
	if err != nil {
		return nil, err
	}
	defer step.Close()
	losses := make([]float64, ownSteps)
	for i := range losses {
		result, err := step.Run(l.x, l.target)
		if err != nil {
			return nil, err
		}
		losses[i] = result.Loss
	}
	return losses, nil
}

// trainByHand returns the same losses, of the program's own making.
func trainByHand(l *line, mesh *fsdp2.Mesh) ([]float64, error) {
	losses := make([]float64, ownSteps)
	weight, err := l.shard.Parameter(0, fsdp2.ParameterLocal)
	if err != nil {
		return nil, err
	}
	defer weight.Close()
	velocity := fsdp2.Call("aten::zeros_like", weight)
	defer velocity.Close()
	for i := range losses {
		err := fsdp2.WithScope(func(scope *fsdp2.Scope) (err error) {
			off := l.model.Forward(scope.Use(l.x)).Sub(l.target)
			loss := off.Mul(off).Mean()
			if err := loss.Backward(); err != nil {
				return err
			}
			if losses[i], err = loss.Value(); err != nil {
				return err
			}
			gradient, err := l.shard.Parameter(0, fsdp2.ParameterLocalGrad)
			if err != nil {
				return err
			}
			defer gradient.Close()
			inPlace := func(name string, arguments ...any) error {
				_, err := fsdp2.Operator{Name: name, NoGrad: true, Scope: scope}.Call(arguments...)
				return err
			}
			lr := ownPeak * (1 - float64(i)/ownSteps)
			return all(
				inPlace("aten::mul_.Scalar", velocity, ownMomentum),
				inPlace("aten::add_.Tensor", velocity, gradient),
				inPlace("aten::add_.Tensor", weight, velocity, -lr),
				l.shard.ZeroGrad())
		})
		if err != nil {
			return nil, err
		}
	}
	return losses, mesh.AllReduce(losses, fsdp2.ReduceAverage)
}

func TestAProgramsOwnLossScheduleAndOptimizerTrainAsTheLibrarys(t *testing.T) {
	defer noHandles(t)
	mustOnRanks(t, 2, func(mesh *fsdp2.Mesh, rank int) error {
		var losses [2][]float64
		for i := range losses {
			l, err := newLineOn(mesh, rank)
			if err != nil {
				return err
			}
			defer l.Close()
			if i == 0 {
				losses[i], err = trainByTheLibrary(l)
			} else {
				losses[i], err = trainByHand(l, mesh)
			}
			if err != nil {
				return err
			}
		}
		for i, expected := range losses[0] {
			if math.Abs(expected-losses[1][i]) > 1e-6 {
				return fmt.Errorf("expected %v, found %v", losses[0], losses[1])
			}
		}
		if losses[0][ownSteps-1] > losses[0][0]-0.1 {
			return fmt.Errorf("the loss does not fall: %v", losses[0])
		}
		return nil
	})
}

func TestAnInputGetsItsGradientThroughAShardedModule(t *testing.T) {
	defer noHandles(t)
	mustOnRanks(t, 2, func(mesh *fsdp2.Mesh, rank int) error {
		l, err := newLineOn(mesh, rank)
		if err != nil {
			return err
		}
		defer l.Close()
		return fsdp2.WithScope(func(scope *fsdp2.Scope) error {
			if err := l.x.SetRequiresGrad(true); err != nil {
				return err
			}
			if err := l.model.Forward(scope.Use(l.x)).Sum().Backward(); err != nil {
				return err
			}
			weight, err := l.shard.Parameter(0, fsdp2.ParameterFull)
			if err != nil {
				return err
			}
			defer weight.Close()
			gradient, err := l.x.Grad()
			if err != nil {
				return err
			}
			defer gradient.Close()
			off := scope.Use(gradient).Sub(scope.Use(weight).Sum(0)) // of each row
			largest, err := fsdp2.Call("aten::abs", off).Sum().Value()
			if err == nil && largest > 1e-6 {
				err = fmt.Errorf("the gradients are off by %v", largest)
			}
			return err
		})
	})
}

// newWhole is a module of the class Whole that returns what then makes of the output of its child "part". That is of the class Part, and
// has a parameter "weight" of its own.
func newWhole(part func(x, weight *fsdp2.Tensor) *fsdp2.Tensor, then func(hidden *fsdp2.Tensor) *fsdp2.Tensor) (*fsdp2.Module, error) {
	inner, err := fsdp2.NewCustomModule("Part", nil,
		func(call *fsdp2.ForwardCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
			return []*fsdp2.Tensor{part(inputs[0], call.Parameter("weight"))}, nil
		})
	if err != nil {
		return nil, err
	}
	whole, err := fsdp2.NewCustomModule("Whole", nil,
		func(call *fsdp2.ForwardCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
			return []*fsdp2.Tensor{then(inner.Forward(inputs[0]))}, nil
		})
	if err != nil {
		return nil, err
	}
	return whole, all(inner.AddParameter("weight", []int{4}, nil), whole.AddChild("part", inner))
}

var partsAsUnits = fsdp2.ShardOptions{Wrap: fsdp2.WrapKinds, WrapKinds: []string{"Part"}}

func TestAnErrorDeepInsideAStepReachesItsCallerOnEveryRank(t *testing.T) {
	defer noHandles(t)
	errs := onRanks(t, 2, func(mesh *fsdp2.Mesh, rank int) error {
		doubles := fsdp2.Function{
			Name: "doubles",
			Forward: func(call *fsdp2.FunctionCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
				return []*fsdp2.Tensor{inputs[0].MulScalar(2)}, nil
			},
			Backward: func(call *fsdp2.FunctionCall, gradients []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
				if rank == 1 {
					return nil, errOwn
				}
				return []*fsdp2.Tensor{gradients[0].MulScalar(2)}, nil
			},
		}
		whole, err := newWhole(
			func(x, weight *fsdp2.Tensor) *fsdp2.Tensor { return doubles.Call(x.Mul(weight)) },
			func(hidden *fsdp2.Tensor) *fsdp2.Tensor { return hidden.Sum() })
		if err != nil {
			return err
		}
		r, err := newRunOf(mesh, whole, "Part")
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = r.Step.Run(r.x)
		return err
	})
	if !errors.Is(errs[1], fsdp2.ErrCallback) || !errors.Is(errs[1], errOwn) || !errors.Is(errs[0], fsdp2.ErrPeerFailed) {
		t.Errorf("found %v", errs)
	}
	for _, err := range errs {
		contains(t, err, "backward of doubles", "an error of the program's")
	}
}

func TestAParameterThatAForwardKeepsIsRefusedOnceItIsFreed(t *testing.T) {
	defer noHandles(t)
	mustOnRanks(t, 2, func(mesh *fsdp2.Mesh, rank int) error {
		var kept *fsdp2.Tensor
		whole, err := newWhole(
			func(x, weight *fsdp2.Tensor) *fsdp2.Tensor {
				kept, _ = weight.Duplicate()
				return x.Mul(weight)
			},
			func(hidden *fsdp2.Tensor) *fsdp2.Tensor { return hidden.Mul(kept).Sum() })
		if err != nil {
			return err
		}
		defer whole.Close()
		shard, err := fsdp2.NewShard(whole, mesh, &partsAsUnits)
		if err != nil {
			return err
		}
		defer shard.Close()
		x, err := fsdp2.FromSlice([]float32{1, 2, 3, 4})
		if err != nil {
			return err
		}
		defer x.Close()
		inside := whole.Forward(x).Err()
		defer kept.Close()
		_, outside := fsdp2.ToSlice[float32](kept)
		if !errors.Is(inside, fsdp2.ErrCallback) || !errors.Is(outside, fsdp2.ErrWrongState) {
			t.Errorf("inside: %v; outside: %v", inside, outside)
		}
		contains(t, inside, "parameter 'part.weight' of unit 'part'")
		contains(t, outside, "parameter 'part.weight' of unit 'part'")
		return nil
	})
}

// resident is how many bytes of this process are in memory.
func resident(t *testing.T) int {
	pages := 0
	text, err := os.ReadFile("/proc/self/statm")
	must(t, err)
	_, err = fmt.Fscan(bytes.NewReader(text), new(int), &pages)
	must(t, err)
	return pages * os.Getpagesize()
}

// forget trains with a lot of memory, and closes nothing.
func forget(numbers []float32) error {
	options := fsdp2.DefaultMeshOptions()
	options.Rendezvous, options.Rank, options.WorldSize = "thread://forgotten", 0, 1
	mesh, err := fsdp2.NewMesh(context.Background(), &options)
	if err != nil {
		return err
	}
	whole, err := newWhole(
		func(x, weight *fsdp2.Tensor) *fsdp2.Tensor { return x.Exp() },
		func(hidden *fsdp2.Tensor) *fsdp2.Tensor { return hidden.Sum() })
	if err != nil {
		return err
	}
	if _, err := fsdp2.NewShard(whole, mesh, nil); err != nil {
		return err
	}
	x, err := fsdp2.FromSlice(numbers)
	if err != nil {
		return err
	}
	if err := all(x.SetRequiresGrad(true), whole.Forward(x).Backward()); err != nil {
		return err
	}
	if _, err := x.Grad(); err != nil {
		return err
	}
	return whole.Forward(x).Err() // its graph is dropped, and never used
}

func TestWhatIsForgottenTakesNoMemory(t *testing.T) {
	numbers := make([]float32, 9<<20) // so large that C's allocator gives its memory back at once
	rounds := func(n int) {
		for i := 0; i < n; i++ {
			must(t, forget(numbers))
			noHandles(t)
		}
	}
	rounds(3)
	before := resident(t)
	rounds(5)
	if grown := resident(t) - before; grown > 5*4*len(numbers)/2 { // half of what one tensor a round would take
		t.Errorf("%d bytes more after 5 rounds", grown)
	}
}
