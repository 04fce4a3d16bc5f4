package fsdp2

import (
	"math"
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
