package fsdp2_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"

	"fsdp2"
)

// aloneEnv is set in the process that TestMissingLibraryIsAnError starts.
const aloneEnv = "FSDP2_TEST_WITHOUT_LIBRARY"

func TestMissingLibraryIsAnError(t *testing.T) {
	if os.Getenv(aloneEnv) != "" {
		callWithoutLibrary(t)
		return
	}
	command := exec.Command(os.Args[0], "-test.run=TestMissingLibraryIsAnError")
	command.Env = append(os.Environ(), aloneEnv+"=1", "FSDP2_LIBRARY=/no/such/libfsdp2.so")
	if output, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, output)
	}
}

func callWithoutLibrary(t *testing.T) {
	_, join := fsdp2.NewMesh(context.Background(), nil)
	_, make := fsdp2.FromSlice([]float32{1})
	for _, err := range []error{join, make, fsdp2.Call("aten::relu", nil).Err(), fsdp2.LoadLibrary("/none/either.so")} {
		if !errors.Is(err, fsdp2.ErrNotFound) {
			t.Errorf("found %v", err)
		}
		contains(t, err, "dlopen", ".so: cannot open", "FSDP2_LIBRARY", "(FSDP2_E_NOT_FOUND)")
	}
	if fsdp2.Version() != 0 || fsdp2.LiveHandles() != 0 || fsdp2.DefaultAdamWOptions().LR != 0 {
		t.Error("something answers without the library")
	}
	err := fsdp2.LoadLibrary("libm.so.6")
	if !errors.Is(err, fsdp2.ErrABIMismatch) {
		t.Errorf("another library: %v", err)
	}
	contains(t, err, "libm.so.6 has no fsdp2_", "FSDP2_LIBRARY", "(FSDP2_E_ABI_MISMATCH)")
}
