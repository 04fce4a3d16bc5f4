package fsdp2

import (
	"runtime"
	"sync/atomic"

	"fsdp2/internal/capi"
)

// handle is what every noun begins with: one handle of the library. The id stays after Close, so that the library itself says of
// what it is given that it was closed.
type handle struct {
	id     uint64
	kind   *kind // nil: somebody else closes it
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
	stateKind     = &kind{destroy: func(id uint64) error { return capi.StateDestroy(capi.State{ID: id}) }}
)

// own makes the handle one that Close or the collector destroys. The handle is the first field of an object of its own.
func (h *handle) own(kind *kind, id uint64) {
	h.id, h.kind = id, kind
	runtime.SetFinalizer(h, (*handle).finalize)
}

func (h *handle) finalize() {
	if h.kind != nil && h.kind.waits {
		go h.close() // the collector's one goroutine is not to wait
	} else {
		h.close()
	}
}

func (h *handle) close() error {
	if h.kind == nil || !atomic.CompareAndSwapUint32(&h.closed, 0, 1) {
		return nil
	}
	return failure(h.kind.destroy(h.id))
}
