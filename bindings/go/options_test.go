package fsdp2

import (
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
	same(t, adamw.raw(), capi.AdamwOptionsInit)
	same(t, sgd.raw(), capi.SgdOptionsInit)
	same(t, step.raw(), capi.StepOptionsInit)
	same(t, plan.raw(), capi.PlanOptionsInit)
	same(t, (&ModuleOptions{}).raw(), capi.ModuleOptionsInit)
	same(t, (&ShardOptions{}).raw(&memory), capi.ShardOptionsInit)
	same(t, (&SaveOptions{}).raw(), capi.SaveOptionsInit)
	same(t, (&LoadOptions{}).raw(), capi.LoadOptionsInit)
	joining := DefaultMeshOptions()
	mesh, err := joining.raw(&memory)
	if err != nil {
		t.Fatal(err)
	}
	same(t, mesh, capi.MeshOptionsInit)
	if adamw.LR != 1e-3 || adamw.Beta2 != 0.999 || DefaultGenerateOptions().MaxNewTokens != 64 || DefaultParameterOptions().Std != 0.02 {
		t.Error("not the header's numbers")
	}
}
