package fsdp2_test

import (
	"strings"
	"testing"

	"fsdp2"
)

func TestMatmulPrecisionCanBeChosen(t *testing.T) {
	for _, chosen := range []struct {
		precision fsdp2.MatmulPrecision
		name      string
	}{{fsdp2.MatmulHighAlways, "high-always"}, {fsdp2.MatmulHighest, "highest"}} {
		if err := fsdp2.SetMatmulPrecision(chosen.precision); err != nil {
			t.Fatal(err)
		}
		description, err := fsdp2.DescribeRuntime()
		if err != nil || !strings.Contains(description, "matmul_precision: "+chosen.name+"\n") {
			t.Errorf("found %q, %v", description, err)
		}
	}
}

func TestMemoryIsKeptOnRequest(t *testing.T) {
	for _, expected := range []struct {
		on   bool
		line string
	}{{true, "kept_memory: 0 bytes"}, {false, "kept_memory: off\n"}} {
		if err := fsdp2.KeepMemory(expected.on); err != nil {
			t.Fatal(err)
		}
		description, err := fsdp2.DescribeRuntime()
		if err != nil || !strings.Contains(description, expected.line) {
			t.Errorf("found %q, %v", description, err)
		}
	}
}

func TestTheEngineOfProductsIsChosen(t *testing.T) {
	must(t, fsdp2.SetThreads(1))
	must(t, fsdp2.SetProductEngine(fsdp2.ProductEngineOneDNN))
	must(t, fsdp2.SetDeterministic(true))
	must(t, fsdp2.SetDeterministic(false))
	description, err := fsdp2.DescribeRuntime()
	if err != nil || !strings.Contains(description, "threads: 1\n") || !strings.Contains(description, "oneDNN (set)") {
		t.Errorf("found %q, %v", description, err)
	}
	must(t, fsdp2.SetProductEngine(fsdp2.ProductEngineAuto))
}
