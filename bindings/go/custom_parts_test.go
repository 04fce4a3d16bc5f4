package fsdp2_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"fsdp2"
)

func TestAForwardChangesItsBuffers(t *testing.T) {
	defer noHandles(t)
	mustOnRanks(t, 2, func(mesh *fsdp2.Mesh, rank int) error {
		module, err := fsdp2.NewCustomModule("Counts", nil,
			func(call *fsdp2.ForwardCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
				if err := fsdp2.Call("aten::add_.Tensor", call.Buffer("count"), 1).Err(); err != nil {
					return nil, err
				}
				return []*fsdp2.Tensor{inputs[0].Mul(call.Parameter("weight")).Mul(call.Buffer("table")).Sum()}, nil
			})
		if err != nil {
			return err
		}
		defer module.Close()
		five, half := floats(t, []float32{5}), floats(t, []float32{0.5})
		defer five.Close()
		defer half.Close()
		for _, err := range []error{
			module.AddParameter("weight", []int{1}, nil),
			module.AddBuffer("count", five, fsdp2.BufferOptions{}),
			module.AddBuffer("table", half, fsdp2.BufferOptions{NotPersistent: true}),
		} {
			if err != nil {
				return err
			}
		}
		shard, err := fsdp2.NewShard(module, mesh, nil)
		if err != nil {
			return err
		}
		defer shard.Close()
		for i := 0; i < 2; i++ {
			module.Forward(half).Close()
		}
		count, err := module.Buffer("count")
		if err != nil {
			return err
		}
		defer count.Close()
		if value, err := count.Value(); err != nil || value != 7 {
			t.Errorf("count %v, %v", value, err)
		}
		if _, err := module.Buffer("weight"); !errors.Is(err, fsdp2.ErrNotFound) {
			t.Errorf("a buffer that is none: %v", err)
		}
		state, err := fsdp2.Checkpoint{Shard: shard}.State(false)
		if err != nil {
			return err
		}
		defer state.Close()
		names, err := state.Names()
		found := fmt.Sprint(names)
		if !strings.Contains(found, "model.count") || strings.Contains(found, "model.table") {
			t.Errorf("found %v", names)
		}
		return err
	})
}

func TestTiedParametersAreOne(t *testing.T) {
	defer noHandles(t)
	mustOnRanks(t, 2, func(mesh *fsdp2.Mesh, rank int) error {
		head, err := fsdp2.NewCustomModule("Head", nil,
			func(call *fsdp2.ForwardCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
				return []*fsdp2.Tensor{inputs[0].Mul(call.Parameter("weight")).Sum()}, nil
			})
		if err != nil {
			return err
		}
		tied, err := fsdp2.NewCustomModule("Tied", nil,
			func(call *fsdp2.ForwardCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
				return []*fsdp2.Tensor{head.Forward(call.Parameter("embed"))}, nil
			})
		if err != nil {
			return err
		}
		defer tied.Close()
		for _, err := range []error{
			head.AddParameter("weight", []int{4}, nil),
			tied.AddParameter("embed", []int{4}, nil),
			tied.AddChild("head", head),
			tied.TieParameter("head.weight", "embed"),
		} {
			if err != nil {
				return err
			}
		}
		info, err := tied.ParameterInfo(0)
		if err != nil {
			return err
		}
		equal(t, "names", info.Names, []string{"embed", "head.weight"})
		if err := tied.TieParameter("head.weight", "none"); !errors.Is(err, fsdp2.ErrNotFound) {
			t.Errorf("a tie with nothing: %v", err)
		}
		shard, err := fsdp2.NewShard(tied, mesh, nil)
		if err != nil {
			return err
		}
		defer shard.Close()
		if err := tied.Forward().Backward(); err != nil {
			return err
		}
		weight, err := shard.Parameter(0, fsdp2.ParameterFull)
		if err != nil {
			return err
		}
		defer weight.Close()
		gradient, err := shard.Parameter(0, fsdp2.ParameterFullGrad)
		if err != nil {
			return err
		}
		defer gradient.Close()
		return fsdp2.WithScope(func(scope *fsdp2.Scope) error { // of w^2: both places count
			used := scope.Use(weight)
			off, err := fsdp2.Call("aten::abs", used.Add(used).Sub(gradient)).Sum().Value()
			if err == nil && off != 0 {
				err = fmt.Errorf("the gradients are off by %v", off)
			}
			return err
		})
	})
}

// At once, and no sooner than the last object that runs them.
func TestChildrenEndWithTheirModule(t *testing.T) {
	noHandles(t)
	mustOnRanks(t, 1, func(mesh *fsdp2.Mesh, rank int) error {
		inner, err := newRegression(unchanged)
		if err != nil {
			return err
		}
		outer, err := fsdp2.NewCustomModule("Outer", nil,
			func(call *fsdp2.ForwardCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
				return []*fsdp2.Tensor{inner.Forward(inputs...)}, nil
			})
		if err != nil {
			return err
		}
		if err := outer.AddChild("inner", inner); err != nil {
			return err
		}
		r, err := newRun(mesh, outer)
		if err != nil {
			return err
		}
		defer r.Close()
		outer.Close()
		if _, err := r.steps(2); err != nil {
			return err
		}
		before := fsdp2.LiveHandles()
		r.Step.Close()
		r.Optimizer.Close()
		r.Shard.Close()
		if after := fsdp2.LiveHandles(); after != before-5 {
			t.Errorf("%d live handles, then %d: expected 3 and 2 children less", before, after)
		}
		return nil
	})
	noHandles(t)
}

// counting is a module that computes gelu(input * w), and counts how often it does.
func counting(t *testing.T) (*fsdp2.Module, *int) {
	t.Helper()
	runs := new(int)
	part, err := fsdp2.NewCustomModule("Part", nil,
		func(call *fsdp2.ForwardCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
			*runs++
			return []*fsdp2.Tensor{inputs[0].Mul(call.Parameter("w")).Gelu()}, nil
		})
	must(t, err)
	must(t, part.AddParameter("w", []int{1}, nil))
	return part, runs
}

func TestModulesChosenByPathRunAgainInBackward(t *testing.T) {
	first, firstRuns := counting(t)
	second, secondRuns := counting(t)
	whole, err := fsdp2.NewCustomModule("Whole", nil,
		func(call *fsdp2.ForwardCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
			return []*fsdp2.Tensor{second.Forward(first.Forward(inputs[0]))}, nil
		})
	must(t, err)
	defer whole.Close()
	must(t, all(whole.AddChild("first", first), whole.AddChild("second", second)))
	missing := whole.CheckpointActivations(fsdp2.ActivationOptions{Paths: []string{"first", "third"}})
	contains(t, missing, "'third'")
	if !errors.Is(missing, fsdp2.ErrNotFound) {
		t.Errorf("found %v", missing)
	}
	for _, wrong := range []fsdp2.ActivationOptions{{Paths: []string{}}, {Kinds: []string{"Part"}, Paths: []string{"first"}}} {
		if err := whole.CheckpointActivations(wrong); !errors.Is(err, fsdp2.ErrInvalidArgument) {
			t.Errorf("%+v: found %v", wrong, err)
		}
	}
	must(t, whole.CheckpointActivations(fsdp2.ActivationOptions{Paths: []string{"second"}}))
	x := floats(t, []float32{1}, 1)
	defer x.Close()
	must(t, whole.Forward(x).Sum().Backward())
	if *firstRuns != 1 || *secondRuns != 2 {
		t.Errorf("the first ran %d times, the second %d times", *firstRuns, *secondRuns)
	}
}
