package fsdp2

import (
	"runtime"

	"fsdp2/internal/capi"
)

// Hooks run inside the call that needs them (a forward, a backward), on its goroutine, in the same order on every rank. They may use
// tensors and read the model's parameters; collective calls and all other calls on the model are ErrBusy inside them, but for what a
// hook says. Their tensors are the library's and valid until the hook returns. An error or a panic fails the call as that of a
// ForwardFunc does.

// AllReduceInfo is what an AllReduceHook is told.
type AllReduceInfo struct {
	Unit      string // its name; "": the root
	UnitIndex int
}

// AllReduceHook gets the gradients of all parameters of a unit (1-D), summed over the ranks but not yet divided or cast. It may overwrite
// them, and make collective calls on tensors and numbers (all ranks alike), over a sub-mesh or another mesh than the unit's.
type AllReduceHook func(info AllReduceInfo, gradients *Tensor) error

// SetAllReduceHook sets the hook of a unit; nil removes it.
func (s *Shard) SetAllReduceHook(unit string, hook AllReduceHook) error {
	defer runtime.KeepAlive(s)
	if hook == nil {
		return failure(capi.ShardSetAllReduceHook(s.raw(), unit, nil, nil, nil))
	}
	return keep(capi.AllReduceHookFunc(func(info *capi.AllReduceInfo, gradients capi.Tensor) error {
		return scoped(func(scope *Scope) error {
			return hook(AllReduceInfo{Unit: capi.Text(info.Unit), UnitIndex: int(info.UnitIndex)}, lend(gradients, scope))
		})
	}), func(userData userData) error {
		return capi.ShardSetAllReduceHook(s.raw(), unit, capi.AllReduceHookCallback, userData, capi.ReleaseCallback)
	})
}

// GradientInfo is what a GradientReadyHook is told.
type GradientInfo struct {
	Parameter      string // its name
	ParameterIndex int
	UnitIndex      int
}

// GradientReadyHook is called when the gradient of this rank's rows of a parameter is complete for this backward.
type GradientReadyHook func(info GradientInfo, gradient *Tensor) error

// SetGradientReady sets the hook of a unit, with recurse for every unit below as well; nil removes it.
func (s *Shard) SetGradientReady(unit string, recurse bool, hook GradientReadyHook) error {
	defer runtime.KeepAlive(s)
	if hook == nil {
		return failure(capi.ShardSetGradientReady(s.raw(), unit, flag(recurse), nil, nil, nil))
	}
	return keep(capi.GradientReadyFunc(func(info *capi.GradientInfo, gradient capi.Tensor) error {
		return scoped(func(scope *Scope) error {
			return hook(GradientInfo{
				Parameter:      capi.Text(info.Parameter),
				ParameterIndex: int(info.ParameterIndex),
				UnitIndex:      int(info.UnitIndex),
			}, lend(gradient, scope))
		})
	}), func(userData userData) error {
		return capi.ShardSetGradientReady(s.raw(), unit, flag(recurse), capi.GradientReadyCallback, userData,
			capi.ReleaseCallback)
	})
}

// GatherInfo says how a parameter is gathered.
type GatherInfo struct {
	Parameter      string // its name
	ParameterIndex int
	UnitIndex      int
	ComputeDtype   Dtype // for gathering and computing
	ShardRank      int   // this rank's number in the group that gathers (a dim of the mesh)
	ShardRanks     int   // the size of that group
}

// AllGatherExtension changes what travels in place of a parameter's rows, for example to an 8-bit form of them.
type AllGatherExtension struct {
	// Pre turns this rank's chunk (1-D, zero-padded to the same length on every rank, in the shard's dtype) into the tensor that is
	// sent (1-D, of the same size and dtype on all ranks).
	Pre func(info GatherInfo, chunk *Tensor) (*Tensor, error)
	// Post turns the tensors of all ranks, pieces [ranks, n], back into their chunks in the compute dtype, and writes these to chunks
	// [ranks, length].
	Post func(info GatherInfo, pieces, chunks *Tensor) error
}

// SetAllGatherExtension sets the extension of a unit; nil removes it. It runs only where there is something to gather.
func (s *Shard) SetAllGatherExtension(unit string, extension *AllGatherExtension) error {
	defer runtime.KeepAlive(s)
	if extension == nil {
		return failure(capi.ShardSetAllGatherExtension(s.raw(), unit, nil, nil, nil, nil))
	}
	if extension.Pre == nil || extension.Post == nil {
		return invalid("SetAllGatherExtension", "Pre and Post: expected both, found nil")
	}
	return keep(extension.raw(), func(userData userData) error {
		return capi.ShardSetAllGatherExtension(s.raw(), unit, capi.PreAllGatherCallback, capi.PostAllGatherCallback,
			userData, capi.ReleaseCallback)
	})
}

func (e AllGatherExtension) raw() capi.AllGatherExtension {
	return capi.AllGatherExtension{
		Pre: func(info *capi.GatherInfo, chunk capi.Tensor) (sent capi.Tensor, err error) {
			err = scoped(func(scope *Scope) error {
				made, err := e.Pre(gatherInfo(info), lend(chunk, scope))
				if err != nil {
					return err
				}
				return made.call(func(raw capi.Tensor) error { return capi.TensorDuplicate(raw, &sent) })
			})
			return sent, err
		},
		Post: func(info *capi.GatherInfo, pieces, chunks capi.Tensor) error {
			return scoped(func(scope *Scope) error {
				return e.Post(gatherInfo(info), lend(pieces, scope), lend(chunks, scope))
			})
		},
	}
}

func gatherInfo(info *capi.GatherInfo) GatherInfo {
	return GatherInfo{
		Parameter:      capi.Text(info.Parameter),
		ParameterIndex: int(info.ParameterIndex),
		UnitIndex:      int(info.UnitIndex),
		ComputeDtype:   Dtype(info.ComputeDtype),
		ShardRank:      int(info.ShardRank),
		ShardRanks:     int(info.ShardRanks),
	}
}
