package fsdp2

import (
	"runtime"
	"sync/atomic"
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
// and with ErrPeerFailed on others. If a call inside it fails with an error of ClassMemory or ClassCommunication, and it returns that,
// the outer call fails with the same code, and for ClassCommunication has no cause. Under activation checkpointing it runs a second
// time, in backward.
type ForwardFunc func(call *ForwardCall, inputs []*Tensor) ([]*Tensor, error)

// ForwardCall is one run of a ForwardFunc.
type ForwardCall struct {
	IsTraining bool
	Kind       string    // the module's
	Parameters []*Tensor // its own, in the order in which they were added
	Buffers    []*Tensor // likewise
	Scope      *Scope    // that ends with the function

	custom *custom
}

// Parameter returns the parameter of that name, or a tensor with the error ErrNotFound.
func (c *ForwardCall) Parameter(name string) *Tensor {
	return c.named("parameter", name, c.custom.parameters, c.Parameters)
}

// Buffer returns the buffer of that name, whose values may be changed in place, or a tensor with the error ErrNotFound.
func (c *ForwardCall) Buffer(name string) *Tensor {
	return c.named("buffer", name, c.custom.buffers, c.Buffers)
}

func (c *ForwardCall) named(what, name string, names []string, tensors []*Tensor) *Tensor {
	for i, known := range names {
		if known == name && i < len(tensors) {
			return tensors[i]
		}
	}
	return failed(&Error{Code: ErrNotFound, Rank: -1, Function: "fsdp2.ForwardCall", Message: c.Kind + " has no " + what + " '" + name + "'"})
}

// custom is what the handles of a module that the program puts together, and its forward, share.
type custom struct {
	kind                string
	forward             ForwardFunc // nil: the library's, of a layer
	parameters, buffers []string    // their names
	children            []*handle
	owners              int32 // handles, of a layer
	frames              atomic.Pointer[frames]
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
	var memory capi.Memory
	defer memory.Free()
	var raw capi.Module
	err := keep(&capi.Forward{Run: shared.run, Released: shared.released}, func(userData userData) error {
		return capi.ModuleCreateCustom(kind, options.raw(&memory), capi.ForwardCallback, userData, capi.ReleaseCallback, &raw)
	})
	module, err := madeModule(&raw, err)
	if err == nil {
		module.share(shared)
	}
	return module, err
}

// run is a forward as the library calls it.
func (c *custom) run(info *capi.ForwardInfo, inputs, outputs []capi.Tensor) (int, error) {
	parameters, buffers := unsafe.Slice(info.Parameters, int(info.NParameters)), unsafe.Slice(info.Buffers, int(info.NBuffers))
	frame := c.newFrame(frameSizes{len(inputs), len(parameters), len(buffers)})
	defer frame.scope.Close()
	frame.call.IsTraining = info.IsTraining != 0
	given := frame.lend(inputs, parameters, buffers)
	results, err := c.forward(&frame.call, given)
	if err != nil {
		return 0, err
	}
	if len(results) > len(outputs) {
		return 0, invalid("ForwardFunc", "outputs: expected at most %d, found %d", len(outputs), len(results))
	}
	if err := allMade(results); err != nil {
		return 0, err
	}
	return len(results), give(results, outputs, inputs, parameters, buffers)
}

// released closes the children, which nothing runs any more.
func (c *custom) released() {
	for _, child := range c.children {
		child.close()
	}
}

// destroy ends a handle of a layer, and with the last one the children: no function of the program's, which the library would release, can
// be running them.
func (c *custom) destroy(id uint64) error {
	err := moduleKind.destroy(id)
	if atomic.AddInt32(&c.owners, -1) == 0 {
		c.released()
	}
	return err
}

// share makes the module a handle of what custom is about.
func (m *Module) share(custom *custom) {
	m.custom = custom
	if custom.forward == nil {
		atomic.AddInt32(&custom.owners, 1)
		m.guard.kind = &kind{destroy: custom.destroy}
	}
}

// lendAll is what lend makes of each tensor of a list, and nil of one that is left out.
func lendAll(scope *Scope, list []capi.Tensor) []*Tensor {
	tensors, lent := make([]Tensor, len(list)), make([]*Tensor, len(list))
	for i, raw := range list {
		if raw.ID != 0 {
			tensors[i].id, tensors[i].scope = raw.ID, scope
			lent[i] = &tensors[i]
		}
	}
	return lent
}

func allMade(tensors []*Tensor) error {
	for _, tensor := range tensors {
		if err := tensor.Err(); err != nil {
			return err
		}
	}
	return nil
}

// give gives the library handles of its own, whoever owns the results, but for what it has lent to this call. nil gives none.
func give(results []*Tensor, to []capi.Tensor, lent ...[]capi.Tensor) error {
	defer runtime.KeepAlive(results)
	for i, result := range results {
		if result == nil {
			continue
		}
		if isAmong(lent, result.raw()) {
			to[i] = result.raw()
			continue
		}
		err := result.call(func(raw capi.Tensor) error { return capi.TensorDuplicate(raw, &to[i]) })
		if err != nil {
			for j, given := range to[:i] {
				if given != results[j].raw() {
					_ = capi.TensorDestroy(given)
				}
			}
			return err
		}
	}
	return nil
}

func isAmong(lists [][]capi.Tensor, tensor capi.Tensor) bool {
	for _, list := range lists {
		for _, one := range list {
			if one == tensor {
				return true
			}
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

// ParameterOptions describe a parameter of a custom module or a layer. The zero value has the defaults.
type ParameterOptions struct {
	Dtype Dtype // DtypeKeep: that of its module
	Init  Init
	Std   float64 // of InitNormal; 0: the library's default, 0.02 (InitZeros makes zeros)
}

// DefaultParameterOptions returns the library's defaults.
func DefaultParameterOptions() ParameterOptions {
	raw := defaults(capi.ParameterOptionsInit)
	return ParameterOptions{Dtype: Dtype(raw.Dtype), Init: Init(raw.Init), Std: raw.Std}
}

// AddParameter adds a parameter to a custom module or a layer. options nil: DefaultParameterOptions. Errors: ErrInvalidArgument (a name
// that is empty, has a dot or is taken; a shape), ErrUnsupported (any other module), ErrWrongState (a part of another module; one that
// has run, or in which something is sharded).
func (m *Module) AddParameter(name string, shape []int, options *ParameterOptions) error {
	defer runtime.KeepAlive(m)
	sizes := int64s(shape)
	var raw *capi.ParameterOptions
	if options != nil {
		given := sized[capi.ParameterOptions]()
		given.Dtype, given.Init, given.Std = int32(options.Dtype), int32(options.Init), options.Std
		if given.Std == 0 {
			given.Std = DefaultParameterOptions().Std
		}
		raw = &given
	}
	err := capi.ModuleAddParameter(m.raw(), name, first(sizes), uint(len(sizes)), raw)
	if err == nil && m.custom != nil {
		m.custom.parameters = append(m.custom.parameters, name)
	}
	return failure(err)
}

// AddChild makes child a part of a custom module or a layer. It then only serves to be called, by Forward inside its parent's, and ends
// once neither the module nor what was made from it can run that; the child of a layer ends with the layer's last owner. Errors: as
// AddParameter's, of either.
func (m *Module) AddChild(name string, child *Module) error {
	defer runtime.KeepAlive(m)
	defer runtime.KeepAlive(child)
	if err := capi.ModuleAddChild(m.raw(), name, child.raw()); err != nil {
		return failure(err)
	}
	m.custom.children = append(m.custom.children, &handle{id: child.id, guard: child.guard})
	child.guard = nil
	return nil
}

// TieParameter makes the parameter name the same as other, as PyTorch's head.weight = embed.weight: one parameter, sharded and saved
// once, with the gradients of both places. Both are dotted paths in the module, which is that of the whole. Errors: as AddParameter's;
// ErrNotFound (a name), ErrInvalidArgument (their shapes or dtypes differ).
func (m *Module) TieParameter(name, other string) error {
	defer runtime.KeepAlive(m)
	return failure(capi.ModuleTieParameter(m.raw(), name, other))
}

// BufferOptions describe a buffer of a custom module or a layer.
type BufferOptions struct {
	NotPersistent bool // checkpoints do not hold it
}

// AddBuffer adds a buffer to a custom module or a layer: a tensor that no optimizer updates, such as a table or a running mean. It begins
// as a copy of value. Every rank has all of it, and each rank's changes are its own. Errors: as AddParameter's.
func (m *Module) AddBuffer(name string, value *Tensor, options BufferOptions) error {
	defer runtime.KeepAlive(m)
	var flags uint32
	if options.NotPersistent {
		flags = capi.BufferNotPersistent
	}
	err := value.call(func(raw capi.Tensor) error { return capi.ModuleAddBuffer(m.raw(), name, raw, flags) })
	if err == nil {
		m.custom.buffers = append(m.custom.buffers, name)
	}
	return err
}

// Buffer returns the buffer at a dotted path in the module, sharing its memory. ErrNotFound if there is none.
func (m *Module) Buffer(name string) (*Tensor, error) {
	defer runtime.KeepAlive(m)
	var raw capi.Tensor
	return made(&raw, capi.ModuleGetBuffer(m.raw(), name, &raw))
}
