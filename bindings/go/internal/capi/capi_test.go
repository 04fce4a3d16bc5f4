package capi

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"unsafe"
)

func TestVersionIsTheHeaders(t *testing.T) {
	if Version() != HeaderVersion {
		t.Errorf("library %#x, header %#x", Version(), HeaderVersion)
	}
	if err := CheckVersion(HeaderVersion); err != nil {
		t.Error(err)
	}
}

func TestMissingDirectoryFillsTheRecord(t *testing.T) {
	var module Module
	err := ModuleFromPretrained("/no/such/model", nil, &module)
	var failure *Error
	if !errors.As(err, &failure) {
		t.Fatalf("expected an *Error, got %v", err)
	}
	if failure.Status != ENotFound || StatusName(failure.Status) != "FSDP2_E_NOT_FOUND" {
		t.Errorf("status %d, %s", failure.Status, StatusName(failure.Status))
	}
	if failure.Function != "fsdp2_module_from_pretrained" {
		t.Errorf("function %q", failure.Function)
	}
	if !strings.Contains(failure.Message, "/no/such/model") {
		t.Errorf("message %q", failure.Message)
	}
	if module.ID != 0 {
		t.Errorf("a failed call gave the handle %#x", module.ID)
	}
}

func TestOptionsGetTheirDefaults(t *testing.T) {
	var options AdamwOptions
	if err := AdamwOptionsInit(&options, uint(unsafe.Sizeof(options))); err != nil {
		t.Fatal(err)
	}
	if options != (AdamwOptions{StructSize: uint32(unsafe.Sizeof(options)), Lr: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 1e-2}) {
		t.Errorf("%+v", options)
	}
}

func TestUserDataFindsItsFunctionWhileOthersComeAndGo(t *testing.T) {
	const functions = 100 // more than the first table has room for
	var all sync.WaitGroup
	for user := 0; user < 4; user++ {
		all.Add(1)
		go func(user int) {
			defer all.Done()
			held := make([]unsafe.Pointer, functions)
			for round := 0; round < 20; round++ {
				for i := range held {
					found := user*functions + i
					held[i] = NewUserData(func() int { return found })
				}
				for i, userData := range held {
					if found := functionOf[func() int](userData)(); found != user*functions+i {
						t.Errorf("expected the function %d, found %d", user*functions+i, found)
					}
					DropUserData(userData)
				}
			}
		}(user)
	}
	all.Wait()
	if places, most := len(*kept.table.Load()), 4*4*functions; places > most {
		t.Errorf("%d places for %d functions at once: expected at most %d", places, 4*functions, most)
	}
}
