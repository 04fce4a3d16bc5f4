package fsdp2_test

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"fsdp2"
)

// Objects that are dropped anywhere, while ranks train and the collector runs all the time.
func TestCollectorRunsAmidSteps(t *testing.T) {
	defer noHandles(t)
	done := make(chan struct{})
	var others sync.WaitGroup
	for i := 0; i < 2; i++ {
		others.Add(1)
		go func() {
			defer others.Done()
			for {
				select {
				case <-done:
					return
				default:
					dropTensors(t)
					runtime.GC()
				}
			}
		}()
	}
	mustOnRanks(t, 2, func(mesh *fsdp2.Mesh, rank int) error {
		for i := 0; i < 5; i++ {
			model, err := newRegression(func(output *fsdp2.Tensor) (*fsdp2.Tensor, error) {
				runtime.GC()
				return output, nil
			})
			if err != nil {
				return err
			}
			r, err := newRun(mesh, model)
			if err != nil {
				return err
			}
			if _, err := r.steps(3); err != nil { // what is r's is dropped
				return err
			}
		}
		return nil
	})
	close(done)
	others.Wait()
}

func dropTensors(t *testing.T) {
	for i := 0; i < 20; i++ {
		x, err := fsdp2.FromSlice([]float32{1, 2})
		if err != nil {
			t.Error(err)
			return
		}
		if value, err := x.Mul(x).Sum().Value(); err != nil || value != 5 {
			t.Errorf("%v, %v", value, err)
		}
		scope, err := fsdp2.NewScope()
		if err != nil {
			t.Error(err)
			return
		}
		if i%2 == 0 {
			go scope.Use(x).Add(x).Close()
		}
	}
}

// The library's memory is what counts, not Go's: a tensor of 4 MiB is a few bytes here.
func TestForgottenTensorsDoNotPileUp(t *testing.T) {
	data := make([]float32, 1<<20)
	before, peak := residentBytes(t), int64(0)
	for i := 0; i < 1536; i++ {
		if _, err := fsdp2.FromSlice(data); err != nil {
			t.Fatal(err)
		}
		if now := residentBytes(t) - before; now > peak {
			peak = now
		}
	}
	if peak > 4<<30 {
		t.Errorf("6 GiB of tensors that nothing refers to: expected the process to grow by 1 GiB or little more, found %d MiB", peak>>20)
	}
	noHandles(t)
}

func residentBytes(t *testing.T) int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip(err)
	}
	var all, resident int64
	if _, err := fmt.Sscan(string(text), &all, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * int64(os.Getpagesize())
}
