package fsdp2_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fsdp2"
)

func TestAProfileIsATableAndATrace(t *testing.T) {
	defer noHandles(t)
	x := filled(t, 4)
	defer x.Close()
	relu := func() error {
		y := x.Relu()
		defer y.Close()
		return y.Err()
	}
	must(t, fsdp2.Profile("", relu))
	table, err := fsdp2.DescribeProfile()
	must(t, err)
	if !strings.Contains(table, "\naten::relu ") {
		t.Error("table:", table)
	}
	file := filepath.Join(t.TempDir(), "trace.json")
	must(t, fsdp2.Profile(file, relu))
	trace, err := os.ReadFile(file)
	must(t, err)
	if !strings.Contains(string(trace), `"aten::relu"`) {
		t.Error("the trace has no aten::relu")
	}
	if err := fsdp2.Profile(filepath.Join(file, "no"), relu); !errors.Is(err, fsdp2.ErrIO) {
		t.Error("no such folder:", err)
	}
}

func TestAProfileEndsWithItsBody(t *testing.T) {
	broken := errors.New("broken")
	if err := fsdp2.Profile("", func() error { return broken }); err != broken {
		t.Error("an error:", err)
	}
	if err := fsdp2.Profile("a\x00b", func() error { return nil }); !errors.Is(err, fsdp2.ErrInvalidArgument) {
		t.Error("no path:", err)
	}
	func() {
		defer func() {
			if recover() != broken {
				t.Error("expected the panic of the body")
			}
		}()
		_ = fsdp2.Profile("", func() error { panic(broken) })
	}()
	must(t, fsdp2.Profile("", func() error {
		if err := fsdp2.Profile("", func() error { return nil }); !errors.Is(err, fsdp2.ErrWrongState) {
			t.Error("two at a time:", err)
		}
		return nil
	}))
}
