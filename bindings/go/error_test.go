package fsdp2_test

import (
	"errors"
	"testing"

	"fsdp2"
)

func TestVersionsAgree(t *testing.T) {
	if fsdp2.Version() != fsdp2.HeaderVersion {
		t.Errorf("library %#x, header %#x", fsdp2.Version(), fsdp2.HeaderVersion)
	}
	must(t, fsdp2.CheckVersion())
}

func TestAFailedCallGivesCodeClassAndMessage(t *testing.T) {
	_, err := fsdp2.ModuleFromPretrained("/no/such/model", nil)
	var failure *fsdp2.Error
	if !errors.As(err, &failure) {
		t.Fatalf("expected an *Error, found %v", err)
	}
	if failure.Code != fsdp2.ErrNotFound || failure.Class() != fsdp2.ClassUnavailable || failure.Rank != -1 {
		t.Errorf("code %d, class %v, rank %d", failure.Code, failure.Class(), failure.Rank)
	}
	if failure.Function != "fsdp2_module_from_pretrained" || failure.Code.Error() != "FSDP2_E_NOT_FOUND" {
		t.Errorf("function %q, name %q", failure.Function, failure.Code.Error())
	}
	contains(t, err, "/no/such/model")
	if !errors.Is(err, fsdp2.ErrNotFound) || !errors.Is(err, fsdp2.ClassUnavailable) {
		t.Error("errors.Is knows neither code nor class")
	}
	if errors.Is(err, fsdp2.ErrTimeout) || errors.Is(err, fsdp2.ClassCaller) {
		t.Error("errors.Is takes the error for another")
	}
}

func TestTextsWithNULAreRefused(t *testing.T) {
	_, err := fsdp2.ModuleFromPretrained("/tmp\x00/elsewhere", nil)
	if !errors.Is(err, fsdp2.ErrInvalidArgument) {
		t.Errorf("found %v", err)
	}
	if _, err := fsdp2.OpSchema("aten::relu\x00"); err == nil {
		t.Error("a name with NUL was taken")
	}
}

func TestAClosedObjectRefusesPolitely(t *testing.T) {
	defer noHandles(t)
	tensor := floats(t, []float32{1, 2})
	must(t, tensor.Close())
	must(t, tensor.Close())
	if _, err := tensor.Info(); !errors.Is(err, fsdp2.ErrStaleHandle) {
		t.Errorf("a closed tensor: %v", err)
	}
	if err := tensor.Relu().Err(); !errors.Is(err, fsdp2.ErrStaleHandle) {
		t.Errorf("an operator on a closed tensor: %v", err)
	}
	module, err := fsdp2.NewCustomModule("Empty", nil, nothing)
	must(t, err)
	must(t, module.Close())
	if _, err := module.Info(); !errors.Is(err, fsdp2.ErrStaleHandle) {
		t.Errorf("a closed module: %v", err)
	}
}

func TestNilObjectRefusesPolitely(t *testing.T) {
	var mesh *fsdp2.Mesh
	var module *fsdp2.Module
	var tensor *fsdp2.Tensor
	var shard *fsdp2.Shard
	for name, err := range map[string]error{
		"mesh":   mesh.Barrier(),
		"module": module.Forward(nil).Err(),
		"tensor": tensor.Add(nil).Backward(),
		"shard":  shard.Reset(),
		"zero":   (&fsdp2.Mesh{}).Barrier(),
	} {
		if !errors.Is(err, fsdp2.ErrInvalidHandle) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, mesh.Close())
	must(t, tensor.Close())
}

func nothing(*fsdp2.ForwardCall, []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) { return nil, nil }

func TestDroppingInAnyOrderLeavesNoLiveHandle(t *testing.T) {
	for order := 0; order < 3; order++ {
		mustOnRanks(t, 1, func(mesh *fsdp2.Mesh, rank int) error {
			model, err := newRegression(unchanged)
			if err != nil {
				return err
			}
			r, err := newRun(mesh, model)
			if err != nil {
				return err
			}
			if _, err := r.steps(1); err != nil {
				return err
			}
			switch order {
			case 0: // all to the collector
			case 1:
				model.Close()
				mesh.Close()
				r.Shard.Close()
			case 2:
				r.Close()
			}
			return nil
		})
		noHandles(t)
	}
}
