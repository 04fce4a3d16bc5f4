package fsdp2

import (
	"runtime"
	"unsafe"

	"fsdp2/internal/capi"
)

// The settings of a unit hold from now on; all ranks must make the same ones. recurse: for every unit below as well. ErrNotFound if there
// is no module of that name, ErrInvalidArgument if it is no unit.

type (
	unitFlag        = func(shard capi.Shard, unit string, value int32) error
	unitFlagRecurse = func(shard capi.Shard, unit string, value int32, recurse int32) error
)

func (s *Shard) setFlag(set unitFlag, unit string, value bool) error {
	defer runtime.KeepAlive(s)
	return failure(set(s.raw(), unit, flag(value)))
}

func (s *Shard) setFlags(set unitFlagRecurse, unit string, value, recurse bool) error {
	defer runtime.KeepAlive(s)
	return failure(set(s.raw(), unit, flag(value), flag(recurse)))
}

// SetRequiresGradientSync false: backward leaves gradients unreduced on every rank, and later ones add to them (accumulation). It sets
// requires-all-reduce as well.
func (s *Shard) SetRequiresGradientSync(unit string, required, recurse bool) error {
	return s.setFlags(capi.ShardSetRequiresGradientSync, unit, required, recurse)
}

// SetRequiresAllReduce false, with replicas: gradients are reduced over the shard group's ranks only, and kept for a later backward.
func (s *Shard) SetRequiresAllReduce(unit string, required, recurse bool) error {
	return s.setFlags(capi.ShardSetRequiresAllReduce, unit, required, recurse)
}

// SetIsLastBackward false: the end of backward neither waits for the last reduction nor forgets the order of forwards, because more
// backwards follow. It applies to the whole tree.
func (s *Shard) SetIsLastBackward(last bool) error {
	defer runtime.KeepAlive(s)
	return failure(capi.ShardSetIsLastBackward(s.raw(), flag(last)))
}

// FinalizeBackward ends the backwards of a step by hand: it reduces what they have put off for want of gradient sync or all-reduce,
// and waits for it. It is collective.
func (s *Shard) FinalizeBackward() error {
	defer runtime.KeepAlive(s)
	return failure(capi.ShardFinalizeBackward(s.raw()))
}

// IsLastBackward returns what SetIsLastBackward has set.
func (s *Shard) IsLastBackward() (bool, error) {
	defer runtime.KeepAlive(s)
	var last int32
	err := capi.ShardGetIsLastBackward(s.raw(), &last)
	return last != 0, failure(err)
}

// SetReshardAfterForward acts as ReshardAlways or ReshardNever in place of the option of that name, also at the root.
func (s *Shard) SetReshardAfterForward(unit string, reshard, recurse bool) error {
	return s.setFlags(capi.ShardSetReshardAfterForward, unit, reshard, recurse)
}

// SetReshardAfterBackward says whether backward frees the gathered parameters.
func (s *Shard) SetReshardAfterBackward(unit string, reshard, recurse bool) error {
	return s.setFlags(capi.ShardSetReshardAfterBackward, unit, reshard, recurse)
}

// SetUnshardInBackward false: backward does not gather the unit, because it can do without its parameters (an embedding's). If it needs
// one after all, that backward is ErrWrongState.
func (s *Shard) SetUnshardInBackward(unit string, unshard bool) error {
	return s.setFlag(capi.ShardSetUnshardInBackward, unit, unshard)
}

// SetReduceUnusedParameters true: a parameter without a gradient on any rank gets zeros instead of none.
func (s *Shard) SetReduceUnusedParameters(unit string, reduce, recurse bool) error {
	return s.setFlags(capi.ShardSetReduceUnusedParameters, unit, reduce, recurse)
}

// SetForceSumReduction true: collectives only sum; scaling is a pass of its own.
func (s *Shard) SetForceSumReduction(unit string, force bool) error {
	return s.setFlag(capi.ShardSetForceSumReduction, unit, force)
}

// SetGradientDivideFactor divides gradients by this factor, finite and above 0, instead of the number of data-parallel ranks.
func (s *Shard) SetGradientDivideFactor(unit string, factor float64) error {
	defer runtime.KeepAlive(s)
	return failure(capi.ShardSetGradientDivideFactor(s.raw(), unit, factor))
}

// SetAllocateMemoryFromProcessGroup true: what gathers and reductions send and receive is in memory that their groups of ranks give
// (NCCL's).
func (s *Shard) SetAllocateMemoryFromProcessGroup(unit string, allocate bool) error {
	return s.setFlag(capi.ShardSetAllocateMemoryFromProcessGroup, unit, allocate)
}

// SetForwardPrefetch sets the units whose all-gathers are issued when this unit's forward begins. No units: back to the schedule's own
// rule.
func (s *Shard) SetForwardPrefetch(unit string, units ...string) error {
	return s.setPrefetch(capi.ShardSetForwardPrefetch, unit, units)
}

// SetBackwardPrefetch sets the units whose all-gathers are issued when this unit's backward begins. No units: back to the schedule's own
// rule.
func (s *Shard) SetBackwardPrefetch(unit string, units ...string) error {
	return s.setPrefetch(capi.ShardSetBackwardPrefetch, unit, units)
}

func (s *Shard) setPrefetch(set func(capi.Shard, string, *unsafe.Pointer, uint) error, unit string, units []string) error {
	defer runtime.KeepAlive(s)
	return failure(withNames(units, func(array *unsafe.Pointer, n uint) error {
		return set(s.raw(), unit, array, n)
	}))
}

// ForwardPrefetch returns the list of SetForwardPrefetch as indices of units; units without parameters are left out.
func (s *Shard) ForwardPrefetch(unit string) ([]int, error) {
	return s.prefetch(capi.ShardGetForwardPrefetch, unit)
}

// BackwardPrefetch returns the list of SetBackwardPrefetch as indices of units; units without parameters are left out.
func (s *Shard) BackwardPrefetch(unit string) ([]int, error) {
	return s.prefetch(capi.ShardGetBackwardPrefetch, unit)
}

func (s *Shard) prefetch(get func(capi.Shard, string, *uint, uint, *uint) error, unit string) ([]int, error) {
	defer runtime.KeepAlive(s)
	units, err := list(func(array *uint, cap uint, needed *uint) error {
		return get(s.raw(), unit, array, cap, needed)
	})
	return ints(units), err
}

// UnitSettings is what is set about one unit, apart from its prefetch lists.
type UnitSettings struct {
	RequiresGradientSync           bool
	RequiresAllReduce              bool
	ReshardAfterForward            Reshard // ReshardAuto: the option of that name holds
	ReshardAfterBackward           bool
	UnshardInBackward              bool
	ReduceUnusedParameters         bool
	ForceSumReduction              bool
	GradientDivideFactor           float64 // 0: not set, the number of data-parallel ranks
	AllocateMemoryFromProcessGroup bool
}

// UnitSettings returns a unit's settings.
func (s *Shard) UnitSettings(unit string) (UnitSettings, error) {
	defer runtime.KeepAlive(s)
	raw := sized[capi.UnitSettings]()
	err := capi.ShardGetUnitSettings(s.raw(), unit, &raw)
	return UnitSettings{
		RequiresGradientSync:           raw.RequiresGradientSync != 0,
		RequiresAllReduce:              raw.RequiresAllReduce != 0,
		ReshardAfterForward:            Reshard(raw.ReshardAfterForward),
		ReshardAfterBackward:           raw.ReshardAfterBackward != 0,
		UnshardInBackward:              raw.UnshardInBackward != 0,
		ReduceUnusedParameters:         raw.ReduceUnusedParameters != 0,
		ForceSumReduction:              raw.ForceSumReduction != 0,
		GradientDivideFactor:           raw.GradientDivideFactor,
		AllocateMemoryFromProcessGroup: raw.AllocateMemoryFromProcessGroup != 0,
	}, failure(err)
}

// SetUnitSettings sets all of them at once, and so restores what UnitSettings has returned.
func (s *Shard) SetUnitSettings(unit string, settings UnitSettings) error {
	defer runtime.KeepAlive(s)
	raw := sized[capi.UnitSettings]()
	raw.RequiresGradientSync = flag(settings.RequiresGradientSync)
	raw.RequiresAllReduce = flag(settings.RequiresAllReduce)
	raw.ReshardAfterForward = int32(settings.ReshardAfterForward)
	raw.ReshardAfterBackward = flag(settings.ReshardAfterBackward)
	raw.UnshardInBackward = flag(settings.UnshardInBackward)
	raw.ReduceUnusedParameters = flag(settings.ReduceUnusedParameters)
	raw.ForceSumReduction = flag(settings.ForceSumReduction)
	raw.GradientDivideFactor = settings.GradientDivideFactor
	raw.AllocateMemoryFromProcessGroup = flag(settings.AllocateMemoryFromProcessGroup)
	return failure(capi.ShardSetUnitSettings(s.raw(), unit, &raw))
}
