package fsdp2

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"unsafe"

	"fsdp2/internal/capi"
)

func same[T comparable](t *testing.T, found *T, init func(options *T, size uint) error) {
	t.Helper()
	var expected T
	if err := init(&expected, uint(unsafe.Sizeof(expected))); err != nil {
		t.Fatal(err)
	}
	if *found != expected {
		t.Errorf("%T: expected %+v, found %+v", expected, expected, *found)
	}
}

func TestOptionsDefaultAsTheLibrarys(t *testing.T) {
	var memory capi.Memory
	defer memory.Free()
	adamw, sgd, step, plan := DefaultAdamWOptions(), DefaultSGDOptions(), DefaultStepOptions(), DefaultPlanOptions()
	muon := DefaultMuonOptions()
	infer, generate := DefaultInferOptions(), DefaultGenerateOptions()
	same(t, adamw.raw(), capi.AdamwOptionsInit)
	same(t, sgd.raw(), capi.SgdOptionsInit)
	same(t, muon.raw(), capi.MuonOptionsInit)
	same(t, step.raw(), capi.StepOptionsInit)
	same(t, plan.raw(), capi.PlanOptionsInit)
	same(t, infer.raw(), capi.InferOptionsInit)
	same(t, generate.raw(&memory), capi.GenerateOptionsInit)
	same(t, (&ModuleOptions{}).raw(&memory), capi.ModuleOptionsInit)
	same(t, (&ShardOptions{}).raw(&memory), capi.ShardOptionsInit)
	same(t, (&SaveOptions{}).raw(), capi.SaveOptionsInit)
	same(t, (&LoadOptions{}).raw(), capi.LoadOptionsInit)
	joining := DefaultMeshOptions()
	mesh, err := joining.raw(&memory)
	if err != nil {
		t.Fatal(err)
	}
	same(t, mesh, capi.MeshOptionsInit)
	if adamw.LR != 1e-3 || adamw.Beta2 != 0.999 || generate.MaxNewTokens != 64 || DefaultParameterOptions().Std != 0.02 {
		t.Error("not the header's numbers")
	}
}

// A literal that leaves out what has a usual value either gets it or is refused: it does not train with zeros.
func TestOptionsThatAreLeftOutAreNoZeros(t *testing.T) {
	for name, err := range map[string]error{
		"NewAdamW": func() error {
			_, err := NewAdamW(nil, &AdamWOptions{LR: 3e-4, Beta1: 0.9, Beta2: 0.95, WeightDecay: 0.1})
			return err
		}(),
		"NewMuon":       func() error { _, err := NewMuon(nil, &MuonOptions{LR: 3e-3, NewtonSchulzSteps: 5}); return err }(),
		"AddAdamWGroup": (&Optimizer{}).AddAdamWGroup([]string{"a"}, &AdamWOptions{LR: 3e-3}),
	} {
		var found *Error
		if !errors.As(err, &found) || found.Code != ErrInvalidArgument || found.Function != "fsdp2."+name ||
			!strings.Contains(found.Message, "begin with Default") {
			t.Errorf("%s: found %v", name, err)
		}
	}
	plain := &AdamWOptions{LR: 3e-3, Eps: 1e-8} // a choice
	if err := plain.check("NewAdamW"); err != nil {
		t.Error(err)
	}
	expected, found := DefaultStepOptions(), &StepOptions{MaxSkipsInRow: 100}
	if *found.raw() != *expected.raw() {
		t.Errorf("expected %+v, found %+v", *expected.raw(), *found.raw())
	}
	module, err := NewLayer("ModuleList", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer module.Close()
	if err := module.AddParameter("weight", []int{64}, &ParameterOptions{Dtype: DtypeF64}); err != nil {
		t.Fatal(err)
	}
	mesh, err := NewMesh(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer mesh.Close()
	shard, err := NewShard(module, mesh, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer shard.Close()
	weight, err := shard.Parameter(0, ParameterLocal)
	if err != nil {
		t.Fatal(err)
	}
	defer weight.Close()
	values, err := ToSlice[float64](weight)
	if err != nil {
		t.Fatal(err)
	}
	if values[0] == 0 || math.Abs(values[0]) > 0.2 {
		t.Errorf("expected numbers of a deviation of 0.02, found %v", values)
	}
}

func TestOptionsReachTheLibrary(t *testing.T) {
	var memory capi.Memory
	defer memory.Free()
	adamw, step := (&AdamWOptions{CoupledDecay: true, StateDtype: DtypeBF16}).raw(), (&StepOptions{LossChunk: 7}).raw()
	if adamw.CoupledDecay != 1 || adamw.StateDtype != capi.DtypeBf16 || step.LossChunk != 7 {
		t.Errorf("found %+v, %+v", adamw, step)
	}
	if muon := (&MuonOptions{NewtonSchulzSteps: 1<<32 + 5}).raw(); muon.NewtonSchulzSteps != math.MaxInt32 {
		t.Errorf("expected steps that the library refuses, found %d", muon.NewtonSchulzSteps)
	}
	infer := (&InferOptions{ReshardAfterForward: ReshardNever, BatchSize: 1, ChunkSize: 2, Temperature: 3}).raw()
	if infer.ReshardAfterForward != capi.ReshardNever || infer.BatchSize != 1 || infer.ChunkSize != 2 || infer.Temperature != 3 {
		t.Errorf("found %+v", infer)
	}
	generate := (&GenerateOptions{TopK: 1, TopP: 0.5, FirstRow: 2, ReshardAfterForward: ReshardAlways, StopTokens: []int64{3, 4}}).raw(&memory)
	if generate.TopK != 1 || generate.TopP != 0.5 || generate.FirstRow != 2 || generate.ReshardAfterForward != capi.ReshardAlways ||
		generate.NStopTokens != 2 || *generate.StopTokens != 3 {
		t.Errorf("found %+v", generate)
	}
}
