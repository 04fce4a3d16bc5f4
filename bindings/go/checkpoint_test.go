package fsdp2_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fsdp2"
)

func withRun(mesh *fsdp2.Mesh, use func(r *run) error) error {
	model, err := newRegression(unchanged)
	if err != nil {
		return err
	}
	r, err := newRun(mesh, model)
	if err != nil {
		model.Close()
		return err
	}
	defer r.Close()
	return use(r)
}

func TestCheckpointSavedOn2RanksResumesWithTheSameLossOn1(t *testing.T) {
	defer noHandles(t)
	path := filepath.Join(t.TempDir(), "step-00000003")
	var expected, found []float64
	mustOnRanks(t, 2, func(mesh *fsdp2.Mesh, rank int) error {
		return withRun(mesh, func(r *run) error {
			if _, err := r.steps(3); err != nil {
				return err
			}
			if err := r.Prepare(); err != nil {
				return err
			}
			if err := r.Save(path, &fsdp2.SaveOptions{Background: true}); err != nil {
				return err
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if err := r.Wait(ctx); err != nil {
				return err
			}
			losses, err := r.steps(2)
			if rank == 0 {
				expected = losses
			}
			return err
		})
	})
	must(t, fsdp2.VerifyCheckpoint(path))
	mustOnRanks(t, 1, func(mesh *fsdp2.Mesh, rank int) error {
		return withRun(mesh, func(r *run) error {
			if err := r.Load(filepath.Dir(path), nil); err != nil {
				return err
			}
			report, err := r.Report()
			if err != nil || !strings.Contains(report, `"step":3`) {
				return fmt.Errorf("report %s, %v", report, err)
			}
			position, err := r.Step.Position()
			if err != nil || position != 3 {
				return fmt.Errorf("position %d, %v", position, err)
			}
			found, err = r.steps(2)
			return err
		})
	})
	if len(expected) != 2 || len(found) != 2 {
		t.Fatalf("two ranks went on with %v, one with %v", expected, found)
	}
	for i := range expected {
		if math.Abs(expected[i]-found[i]) > 1e-6 {
			t.Errorf("two ranks went on with %v, one with %v", expected, found)
		}
	}
}

func TestCheckpointFiles(t *testing.T) {
	defer noHandles(t)
	directory := t.TempDir()
	sharded, single := filepath.Join(directory, "dcp"), filepath.Join(directory, "model.safetensors")
	mustOnRanks(t, 1, func(mesh *fsdp2.Mesh, rank int) error {
		return withRun(mesh, func(r *run) error {
			if _, err := r.steps(1); err != nil {
				return err
			}
			return r.Save(sharded, nil)
		})
	})
	must(t, fsdp2.ConvertCheckpoint(sharded, single, fsdp2.ConvertOptions{Format: fsdp2.CheckpointSafetensors}))
	text, err := fsdp2.InspectCheckpoint(single)
	must(t, err)
	if !strings.Contains(text, "layer.weight") {
		t.Errorf("contents: %s", text)
	}
	found, err := fsdp2.FindCheckpoint(directory)
	must(t, err)
	if found != sharded {
		t.Errorf("found %s", found)
	}
	if err := fsdp2.CheckSavePath(single, nil); !errors.Is(err, fsdp2.ErrIO) {
		t.Errorf("a file in the way: %v", err)
	}
	must(t, os.WriteFile(single, []byte("no safetensors"), 0o666))
	if err := fsdp2.VerifyCheckpoint(single); !errors.Is(err, fsdp2.ClassUnavailable) {
		t.Errorf("no checkpoint: %v", err)
	}
}

func TestAStateIsCutAndGathered(t *testing.T) {
	defer noHandles(t)
	path := filepath.Join(t.TempDir(), "state")
	mustOnRanks(t, 2, func(mesh *fsdp2.Mesh, rank int) error {
		chunk, err := fsdp2.FromSlice([]float32{float32(rank), float32(rank) + 0.5})
		if err != nil {
			return err
		}
		defer chunk.Close()
		state, err := fsdp2.NewState(mesh)
		if err != nil {
			return err
		}
		defer state.Close()
		if err := state.AddChunk("both", []int{4}, []int{2 * rank}, chunk); err != nil {
			return err
		}
		if err := state.AddValue("epoch", "7"); err != nil {
			return err
		}
		if err := state.Save(path, nil); err != nil {
			return err
		}
		if err := fsdp2.Write(chunk, []float32{9, 9}); err != nil {
			return err
		}
		if err := state.Load(path); err != nil {
			return err
		}
		whole, err := state.Gather(false)
		if err != nil {
			return err
		}
		defer whole.Close()
		names, err := whole.Names()
		if err != nil || strings.Join(names, " ") != "both epoch" {
			return fmt.Errorf("names %v, %v", names, err)
		}
		tensor, err := whole.Tensor("both")
		if err != nil {
			return err
		}
		defer tensor.Close()
		values, err := fsdp2.ToSlice[float32](tensor)
		if err != nil || fmt.Sprint(values) != "[0 0.5 1 1.5]" {
			return fmt.Errorf("values %v, %v", values, err)
		}
		epoch, err := whole.Value("epoch")
		if err == nil && epoch != "7" {
			err = fmt.Errorf("epoch %s", epoch)
		}
		return err
	})
}

func TestTheModelGoesIntoOneFileAndComesBack(t *testing.T) {
	defer noHandles(t)
	directory := t.TempDir()
	single, sharded := filepath.Join(directory, "model.pth"), filepath.Join(directory, "dcp")
	mustOnRanks(t, 2, func(mesh *fsdp2.Mesh, rank int) error {
		return withRun(mesh, func(r *run) error {
			if err := all(r.SaveFull(single), r.Save(sharded, nil)); err != nil {
				return err
			}
			before, err := r.steps(2)
			if err != nil {
				return err
			}
			if done, err := r.Poll(); err != nil || !done {
				return fmt.Errorf("a save is under way: %v, %v", !done, err)
			}
			if err := r.LoadFull(single); err != nil {
				return err
			}
			after, err := r.steps(1)
			if err == nil && math.Abs(before[0]-after[0]) > 1e-6 {
				err = fmt.Errorf("loss %v before the load, %v after it", before[0], after[0])
			}
			return err
		})
	})
	must(t, fsdp2.RebuildManifest(sharded))
	must(t, fsdp2.VerifyCheckpoint(sharded))
}
