package fsdp2

import (
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"fsdp2/internal/capi"
)

// handle is what every noun begins with: one handle of the library. The id stays after Close, so that the library itself says of
// what it is given that it was closed.
type handle struct {
	id    uint64
	guard *guard // nil: it was closed, or somebody else closes it
}

// kind says how the handles of a noun end.
type kind struct {
	destroy func(id uint64) error
	waits   bool // the last handle may wait for a save in the background
}

var (
	meshKind      = &kind{destroy: func(id uint64) error { return capi.MeshDestroy(capi.Mesh{ID: id}) }}
	tensorKind    = &kind{destroy: func(id uint64) error { return capi.TensorDestroy(capi.Tensor{ID: id}) }}
	scopeKind     = &kind{destroy: func(id uint64) error { return capi.ScopeDestroy(capi.Scope{ID: id}) }}
	moduleKind    = &kind{destroy: func(id uint64) error { return capi.ModuleDestroy(capi.Module{ID: id}) }}
	shardKind     = &kind{destroy: func(id uint64) error { return capi.ShardDestroy(capi.Shard{ID: id}) }, waits: true}
	optimizerKind = &kind{destroy: func(id uint64) error { return capi.OptimizerDestroy(capi.Optimizer{ID: id}) }, waits: true}
	loaderKind    = &kind{destroy: func(id uint64) error { return capi.LoaderDestroy(capi.Loader{ID: id}) }}
	stepKind      = &kind{destroy: func(id uint64) error { return capi.StepDestroy(capi.Step{ID: id}) }, waits: true}
	tokenizerKind = &kind{destroy: func(id uint64) error { return capi.TokenizerDestroy(capi.Tokenizer{ID: id}) }}
	generatorKind = &kind{destroy: func(id uint64) error { return capi.GeneratorDestroy(capi.Generator{ID: id}) }}
	stateKind     = &kind{destroy: func(id uint64) error { return capi.StateDestroy(capi.State{ID: id}) }}
)

// guard destroys a handle whose object the collector finds without Close. To set a finalizer takes longer than most calls, so the
// guards of objects that were closed serve others.
type guard struct {
	id   uint64
	kind *kind // nil: of no object
}

func finalize(g *guard) {
	if g.kind == nil {
		return
	}
	if g.kind.waits {
		go g.kind.destroy(g.id) // the collector's one goroutine is not to wait
	} else {
		_ = g.kind.destroy(g.id)
	}
}

// spareGuards are guards of no object. A pool of them, a stack each, because a pool of the guards themselves takes longer: it has one
// place that is quick to reach.
type spareGuards struct {
	guards [64]*guard
	count  int
}

var (
	someSpares = sync.Pool{New: func() any { return &spareGuards{} }}
	fullSpares sync.Pool
)

func takeGuard() *guard {
	spares := someSpares.Get().(*spareGuards)
	if spares.count == 0 {
		if full, ok := fullSpares.Get().(*spareGuards); ok {
			spares = full
		}
	}
	var taken *guard
	if spares.count > 0 {
		spares.count--
		taken, spares.guards[spares.count] = spares.guards[spares.count], nil // its object alone refers to it from now on
	}
	someSpares.Put(spares)
	if taken == nil {
		taken = &guard{}
		runtime.SetFinalizer(taken, finalize)
		lookAtMemory()
	}
	return taken
}

// release makes the guard one of no object.
func (g *guard) release() {
	g.kind = nil
	spares := someSpares.Get().(*spareGuards)
	if spares.count == len(spares.guards) {
		fullSpares.Put(spares)
		spares = &spareGuards{}
	}
	spares.guards[spares.count] = g
	spares.count++
	someSpares.Put(spares)
}

// own makes the handle one that Close or the collector destroys.
func (h *handle) own(kind *kind, id uint64) {
	h.id, h.guard = id, takeGuard()
	h.guard.id, h.guard.kind = id, kind
}

func (h *handle) close() error {
	guard := (*guard)(atomic.SwapPointer((*unsafe.Pointer)(unsafe.Pointer(&h.guard)), nil))
	if guard == nil {
		return nil
	}
	kind := guard.kind
	guard.release()
	return failure(kind.destroy(h.id))
}
