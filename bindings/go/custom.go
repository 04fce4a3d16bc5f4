package fsdp2

import (
	"runtime"
	"unsafe"

	"fsdp2/internal/capi"
)

// ForwardFunc computes a module's outputs from its inputs (nil for one that is left out) and its parameters. It runs inside the call that
// needs it, on that call's goroutine. It may use tensors, read the model's parameters and call the Forward of the module's children;
// collective calls and all other calls on the model are ErrBusy inside. It must use the library from its own goroutine only, and must
// not end it by runtime.Goexit, as testing.T's FailNow does.
//
// Inputs, parameters and what is computed from them are in a scope that ends with the function; the outputs, 1 to 64, outlive it. An
// output that carries an error, an error and a panic fail the outer call with ErrCallback on this rank, whose Unwrap returns the cause,
// and with ErrPeerFailed on others. Under activation checkpointing it runs a second time, in backward.
type ForwardFunc func(call *ForwardCall, inputs []*Tensor) ([]*Tensor, error)

// ForwardCall is one run of a ForwardFunc.
type ForwardCall struct {
	IsTraining bool
	Kind       string    // the module's
	Parameters []*Tensor // its own, in the order in which they were added
	Scope      *Scope    // that ends with the function

	names []string
}

// Parameter returns the parameter of that name, or a tensor with the error ErrNotFound.
func (c *ForwardCall) Parameter(name string) *Tensor {
	for i, known := range c.names {
		if known == name && i < len(c.Parameters) {
			return c.Parameters[i]
		}
	}
	return failed(&Error{Code: ErrNotFound, Rank: -1, Function: "fsdp2.ForwardCall.Parameter",
		Message: c.Kind + " has no parameter '" + name + "'"})
}

// custom is what a module's handles and its forward share.
type custom struct {
	kind    string
	forward ForwardFunc
	names   []string // of the parameters
}

// NewCustomModule makes a module of the class kind, by which ShardOptions.WrapKinds and CheckpointActivations choose it. It is put
// together (AddParameter, AddChild) before its first forward and before anything in it is sharded; then it is sharded, saved and trained
// as the library's own. The seed is that of the whole.
//
// forward may hold the modules that are its children. If it holds its own module, that one ends by Close and not by the collector.
func NewCustomModule(kind string, options *ModuleOptions, forward ForwardFunc) (*Module, error) {
	if forward == nil {
		return nil, invalid("NewCustomModule", "forward: expected a function, found nil")
	}
	shared := &custom{kind: kind, forward: forward}
	var raw capi.Module
	err := keep(capi.ForwardFunc(shared.run), func(userData userData) error {
		return capi.ModuleCreateCustom(kind, options.raw(), capi.ForwardCallback, userData, capi.ReleaseCallback, &raw)
	})
	module, err := madeModule(&raw, &tree{}, err)
	if err == nil {
		module.custom = shared
	}
	return module, err
}

// run is a forward as the library calls it.
func (c *custom) run(info *capi.ForwardInfo, inputs, outputs []capi.Tensor) (n int, err error) {
	err = scoped(func(scope *Scope) error {
		call := &ForwardCall{
			IsTraining: info.IsTraining != 0,
			Kind:       c.kind,
			Parameters: lendAll(unsafe.Slice(info.Parameters, int(info.NParameters)), scope),
			Scope:      scope,
			names:      c.names,
		}
		given := lendAll(inputs, scope)
		results, err := c.forward(call, given)
		if err != nil {
			return err
		}
		n, err = giveOutputs(call, given, results, outputs)
		return err
	})
	return n, err
}

func lendAll(tensors []capi.Tensor, scope *Scope) []*Tensor {
	lent := make([]*Tensor, len(tensors))
	for i, tensor := range tensors {
		if tensor.ID != 0 {
			lent[i] = lend(tensor, scope)
		}
	}
	return lent
}

// giveOutputs gives the library handles of its own, whoever owns the results, but for what it has lent to this call.
func giveOutputs(call *ForwardCall, inputs, results []*Tensor, outputs []capi.Tensor) (int, error) {
	defer runtime.KeepAlive(results)
	if len(results) > len(outputs) {
		return 0, invalid("ForwardFunc", "outputs: expected at most %d, found %d", len(outputs), len(results))
	}
	for i, result := range results {
		if result != nil && (isAmong(inputs, result) || isAmong(call.Parameters, result)) {
			outputs[i] = result.raw()
			continue
		}
		err := result.call(func(raw capi.Tensor) error { return capi.TensorDuplicate(raw, &outputs[i]) })
		if err != nil {
			for j, given := range outputs[:i] {
				if given != results[j].raw() {
					_ = capi.TensorDestroy(given)
				}
			}
			return 0, err
		}
	}
	return len(results), nil
}

func isAmong(tensors []*Tensor, tensor *Tensor) bool {
	for _, one := range tensors {
		if one == tensor {
			return true
		}
	}
	return false
}

// Init is what a parameter begins with, the same at any world size.
type Init int32

// The beginnings.
const (
	InitNormal Init = capi.InitNormal // of mean 0
	InitZeros  Init = capi.InitZeros
	InitOnes   Init = capi.InitOnes
)

// ParameterOptions describe a parameter of a custom module.
type ParameterOptions struct {
	Dtype Dtype // DtypeKeep: that of its module
	Init  Init
	Std   float64 // of InitNormal
}

// DefaultParameterOptions returns the library's defaults.
func DefaultParameterOptions() ParameterOptions {
	raw := defaults(capi.ParameterOptionsInit)
	return ParameterOptions{Dtype: Dtype(raw.Dtype), Init: Init(raw.Init), Std: raw.Std}
}

// AddParameter adds a parameter to a custom module. options nil: DefaultParameterOptions. Errors: ErrInvalidArgument (a name that is
// empty, has a dot or is taken; a shape), ErrUnsupported (no custom module), ErrWrongState (a part of another module; one that has run,
// or in which something is sharded).
func (m *Module) AddParameter(name string, shape []int, options *ParameterOptions) error {
	defer runtime.KeepAlive(m)
	sizes := int64s(shape)
	var raw *capi.ParameterOptions
	if options != nil {
		given := sized[capi.ParameterOptions]()
		given.Dtype, given.Init, given.Std = int32(options.Dtype), int32(options.Init), options.Std
		raw = &given
	}
	err := capi.ModuleAddParameter(m.raw(), name, first(sizes), uint(len(sizes)), raw)
	if err == nil && m.custom != nil {
		m.custom.names = append(m.custom.names, name)
	}
	return failure(err)
}

// AddChild makes child a part of the module. It then only serves to be called, by Forward inside its parent's, and ends with the last
// of the whole's modules, shards, optimizers and steps. Errors: as AddParameter's, of either.
func (m *Module) AddChild(name string, child *Module) error {
	defer runtime.KeepAlive(m)
	defer runtime.KeepAlive(child)
	if err := capi.ModuleAddChild(m.raw(), name, child.raw()); err != nil {
		return failure(err)
	}
	m.tree.adopt(child)
	return nil
}
