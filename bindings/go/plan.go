package fsdp2

import (
	"runtime"

	"fsdp2/internal/capi"
)

// PlanOptions are what a plan assumes. Begin with DefaultPlanOptions: the zero value plans for an optimizer without
// states.
type PlanOptions struct {
	OptimizerStates float64 // elements kept for each trainable element: 2 for AdamW, 1 for SGD with momentum, 0 without
	// Rows and their length are those of a micro batch, for what ranks that share sequences exchange; 0: nothing is counted.
	Rows, SequenceLength int
	OptimizerBytes       int // OptimizerInfo.FullBytes, in place of OptimizerStates; 0: those count
}

// DefaultPlanOptions returns the library's defaults.
func DefaultPlanOptions() PlanOptions {
	return PlanOptions{OptimizerStates: defaults(capi.PlanOptionsInit).OptimizerStates}
}

func (o *PlanOptions) raw() *capi.PlanOptions {
	if o == nil {
		return nil
	}
	raw := sized[capi.PlanOptions]()
	raw.OptimizerStates = o.OptimizerStates
	raw.Rows, raw.SequenceLength = int64(o.Rows), int64(o.SequenceLength)
	raw.OptimizerBytes = int64(o.OptimizerBytes)
	return &raw
}

// PlanInfo is what a sharded model holds and moves in one training step. Bytes leave out activations and
// communication buffers.
type PlanInfo struct {
	Units                                              int
	Numel                                              int // of the sharded parameters, ties counted once
	ShardBytes, GradientBytes, OptimizerBytes          int // on this rank
	PeakUnshardedBytes                                 int // of gathered parameters, at most
	PeakUnreducedGradientBytes                         int // of gradients before they are reduced, at most
	AllGathers, ReduceScatters, AllReduces             int // in one step of one micro batch
	AllGatherBytes, ReduceScatterBytes, AllReduceBytes int // that this rank receives in it
	AllToAlls, AllToAllBytes                           int // of attention in it, where ranks share sequences
}

// Plan works out a step that begins with everything sharded, by the present settings, without running it. The parameters need not have
// values: with BackendFake and DeferValues, a plan takes one process and no memory for parameters. options nil: DefaultPlanOptions.
// ErrUnsupported for CommScheduleOnUse and for units with an all-gather extension.
func (s *Shard) Plan(options *PlanOptions) (PlanInfo, error) {
	defer runtime.KeepAlive(s)
	raw := sized[capi.PlanInfo]()
	err := capi.PlanGetInfo(s.raw(), options.raw(), &raw)
	return PlanInfo{
		Units:                      int(raw.NUnits),
		Numel:                      int(raw.Numel),
		ShardBytes:                 int(raw.ShardBytes),
		GradientBytes:              int(raw.GradientBytes),
		OptimizerBytes:             int(raw.OptimizerBytes),
		PeakUnshardedBytes:         int(raw.PeakUnshardedBytes),
		PeakUnreducedGradientBytes: int(raw.PeakUnreducedGradientBytes),
		AllGathers:                 int(raw.AllGathers),
		ReduceScatters:             int(raw.ReduceScatters),
		AllReduces:                 int(raw.AllReduces),
		AllGatherBytes:             int(raw.AllGatherBytes),
		ReduceScatterBytes:         int(raw.ReduceScatterBytes),
		AllReduceBytes:             int(raw.AllReduceBytes),
		AllToAlls:                  int(raw.AllToAlls),
		AllToAllBytes:              int(raw.AllToAllBytes),
	}, failure(err)
}

// PlanMemory is what a rank holds at the moment of a step when that is most, in bytes.
type PlanMemory struct {
	PeakBytes       int // the following three together
	ModelBytes      int // shards, gathered parameters, gradients and buffers
	ActivationBytes int // what forward keeps for backward, what is being computed, and communication buffers
	OptimizerBytes  int
}

// PlanMemory finds the memory of a step by taking it without values: the forward and the backward of a module whose output is its loss,
// for each of microBatches with these inputs, of which only the shapes and dtypes count. The shard is over a mesh of BackendFake and
// device type "meta", and made with DeferValues; ErrUnsupported for another. options nil: DefaultPlanOptions.
func (s *Shard) PlanMemory(options *PlanOptions, microBatches int, inputs ...*Tensor) (PlanMemory, error) {
	defer runtime.KeepAlive(s)
	defer runtime.KeepAlive(inputs)
	raw := sized[capi.PlanMemory]()
	handles, err := rawTensors(inputs)
	if err != nil {
		return PlanMemory{}, err
	}
	err = capi.PlanGetMemory(s.raw(), first(handles), uint(len(handles)), uint(microBatches), options.raw(), &raw)
	return PlanMemory{
		PeakBytes:       int(raw.PeakBytes),
		ModelBytes:      int(raw.ModelBytes),
		ActivationBytes: int(raw.ActivationBytes),
		OptimizerBytes:  int(raw.OptimizerBytes),
	}, failure(err)
}

// PlanReshard is what ChooseReshard has chosen.
type PlanReshard struct {
	Candidates         int // units, without the root, whose parameters come from other ranks
	Kept               int // of these, units that stay gathered after forward
	PeakBytes          int // of a step then, as in PlanMemory
	ReshardedPeakBytes int // of a step in which none stays gathered
}

// ChooseReshard sets ReshardAfterForward of all units but the root: off for as many as a step of PlanMemory stays within budgetBytes
// with, and on for the rest. UnitSettings tells them, and SetReshardAfterForward does the same to the shard that is to take the step.
// The mesh is that of rank 0, so that all ranks choose alike. ErrOutOfMemory, with nothing set, if a step is beyond the budget whichever
// units stay gathered. options nil: DefaultPlanOptions.
func (s *Shard) ChooseReshard(options *PlanOptions, budgetBytes, microBatches int, inputs ...*Tensor) (PlanReshard, error) {
	defer runtime.KeepAlive(s)
	defer runtime.KeepAlive(inputs)
	raw := sized[capi.PlanReshard]()
	handles, err := rawTensors(inputs)
	if err != nil {
		return PlanReshard{}, err
	}
	err = capi.PlanChooseReshard(s.raw(), first(handles), uint(len(handles)), uint(microBatches), options.raw(), int64(budgetBytes), &raw)
	return PlanReshard{
		Candidates:         int(raw.NCandidates),
		Kept:               int(raw.NKept),
		PeakBytes:          int(raw.PeakBytes),
		ReshardedPeakBytes: int(raw.ReshardedPeakBytes),
	}, failure(err)
}

// DescribePlan returns what Plan does as text: units, memory, traffic, and the order of gathers and reductions.
func (s *Shard) DescribePlan(options *PlanOptions) (string, error) {
	defer runtime.KeepAlive(s)
	return text(func(buf *byte, cap uint, needed *uint) error {
		return capi.PlanDescribe(s.raw(), options.raw(), buf, cap, needed)
	})
}
