package fsdp2

import (
	"runtime"
	"sync"
	"sync/atomic"

	"fsdp2/internal/capi"
)

// handle is what every noun begins with: one handle of the library. The id stays after Close, so that the library itself says of
// what it is given that it was closed.
type handle struct {
	id     uint64
	guard  *guard // nil: somebody else closes it
	closed uint32
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

var guards = sync.Pool{New: func() any {
	guard := &guard{}
	runtime.SetFinalizer(guard, finalize)
	return guard
}}

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

// own makes the handle one that Close or the collector destroys.
func (h *handle) own(kind *kind, id uint64) {
	h.id, h.guard, h.closed = id, guards.Get().(*guard), 0
	h.guard.id, h.guard.kind = id, kind
}

func (h *handle) close() error {
	if !atomic.CompareAndSwapUint32(&h.closed, 0, 1) || h.guard == nil {
		return nil
	}
	kind := h.guard.kind
	h.guard.kind = nil
	guards.Put(h.guard)
	h.guard = nil
	return failure(kind.destroy(h.id))
}
