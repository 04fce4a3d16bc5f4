package fsdp2

import (
	"runtime"

	"fsdp2/internal/capi"
)

// UnitState is where a unit's parameters are.
type UnitState int32

// The states.
const (
	UnitSharded   UnitState = capi.UnitSharded
	UnitGathering UnitState = capi.UnitGathering // an all-gather is under way
	UnitUnsharded UnitState = capi.UnitUnsharded
	UnitSliced    UnitState = capi.UnitSliced // cut into slices over a smaller group
)

// UnitInfo describes a unit.
type UnitInfo struct {
	Name           string // "" for the root
	IsRoot         bool
	State          UnitState
	Modules        int
	Parameters     int   // 0: the units below have them all
	Dtype          Dtype // of the first parameter
	ComputeDtype   Dtype
	ShardDim       int // -1: parameters differ in it, or there are none
	Numel          int // global elements
	ShardedBytes   int // of this rank's part, with padding
	UnshardedBytes int // of the gathered parameters in full
	LiveBytes      int // of them, now
}

// UnitCount returns the number of units.
func (s *Shard) UnitCount() (int, error) {
	defer runtime.KeepAlive(s)
	var count uint
	err := capi.ShardGetUnitCount(s.raw(), &count)
	return int(count), failure(err)
}

// UnitInfo describes a unit; 0 is the root.
func (s *Shard) UnitInfo(index int) (UnitInfo, error) {
	defer runtime.KeepAlive(s)
	info := sized[capi.UnitInfo]()
	if err := capi.ShardGetUnitInfo(s.raw(), uint(index), &info); err != nil {
		return UnitInfo{}, failure(err)
	}
	name, err := text(func(buf *byte, cap uint, needed *uint) error {
		return capi.ShardGetUnitName(s.raw(), uint(index), buf, cap, needed)
	})
	return UnitInfo{
		Name:           name,
		IsRoot:         info.IsRoot != 0,
		State:          UnitState(info.State),
		Modules:        int(info.NModules),
		Parameters:     int(info.NParameters),
		Dtype:          Dtype(info.Dtype),
		ComputeDtype:   Dtype(info.ComputeDtype),
		ShardDim:       int(info.ShardDim),
		Numel:          int(info.Numel),
		ShardedBytes:   int(info.ShardedBytes),
		UnshardedBytes: int(info.UnshardedBytes),
		LiveBytes:      int(info.LiveBytes),
	}, err
}

// UnitIndex finds a unit by its name.
func (s *Shard) UnitIndex(unit string) (int, error) {
	defer runtime.KeepAlive(s)
	var index uint
	err := capi.ShardGetUnitIndex(s.raw(), unit, &index)
	return int(index), failure(err)
}

// Unshard gathers the unit's own parameters. Collective. async only starts it; the next use, or WaitUnshard, waits for it.
func (s *Shard) Unshard(unit string, async bool) error {
	defer runtime.KeepAlive(s)
	return failure(capi.ShardUnshard(s.raw(), unit, flag(async)))
}

// WaitUnshard waits until the unit's parameters are gathered. Collective.
func (s *Shard) WaitUnshard(unit string) error {
	defer runtime.KeepAlive(s)
	return failure(capi.ShardWaitUnshard(s.raw(), unit))
}

// Reshard frees the unit's gathered parameters.
func (s *Shard) Reshard(unit string) error {
	defer runtime.KeepAlive(s)
	return failure(capi.ShardReshard(s.raw(), unit))
}

// Reset is for an iteration that was given up: it leaves the whole tree sharded and idle, and drops unreduced gradients. Calls that fail
// have done that themselves.
func (s *Shard) Reset() error {
	defer runtime.KeepAlive(s)
	return failure(capi.ShardReset(s.raw()))
}

// ReleaseBuffers gives the memory that KeepBuffers has kept, and that is not in use, back to the allocator.
func (s *Shard) ReleaseBuffers() error {
	defer runtime.KeepAlive(s)
	return failure(capi.ShardReleaseBuffers(s.raw()))
}

// EventKind is what a unit did.
type EventKind int32

// The kinds.
const (
	EventAllGather     EventKind = capi.EventAllGather     // an all-gather was issued
	EventUnshard       EventKind = capi.EventUnshard       // the unit's parameters are gathered
	EventReshard       EventKind = capi.EventReshard       // they were freed, or cut into slices
	EventReduceScatter EventKind = capi.EventReduceScatter // a reduction of gradients was issued
	EventPostBackward  EventKind = capi.EventPostBackward  // the unit is done with this backward, or with one forward in it
)

var eventNames = []string{"all-gather", "unshard", "reshard", "reduce-scatter", "post-backward"}

// String returns the name, such as "all-gather".
func (k EventKind) String() string {
	if k >= 0 && int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "other"
}

// Event is something that a unit did.
type Event struct {
	Kind EventKind
	Unit int // its index
}

// Events returns what the units did, oldest first: the last 16,384 events since creation or ClearEvents.
func (s *Shard) Events() ([]Event, error) {
	defer runtime.KeepAlive(s)
	var units []uint
	kinds, err := list(func(kinds *int32, cap uint, needed *uint) error {
		units = make([]uint, cap)
		return capi.ShardGetEvents(s.raw(), kinds, first(units), cap, needed)
	})
	events := make([]Event, len(kinds))
	for i, kind := range kinds {
		events[i] = Event{EventKind(kind), int(units[i])}
	}
	return events, err
}

// ClearEvents forgets the events.
func (s *Shard) ClearEvents() error {
	defer runtime.KeepAlive(s)
	return failure(capi.ShardClearEvents(s.raw()))
}

// ShardStats counts what the units did, since creation or ResetStats.
type ShardStats struct {
	Units                                              int // with parameters
	AllGathers, ReduceScatters, AllReduces             int
	AllGatherBytes, ReduceScatterBytes, AllReduceBytes int // received by this rank
	UnshardedBytes, PeakUnshardedBytes                 int // of gathered parameters: now, at most
	AllToAlls, AllToAllBytes                           int // of attention, where ranks share sequences
	KeptBytes                                          int // of KeepBuffers: kept now, and not in use
}

// Stats returns the counts. Bytes are those of the groups of the shard's mesh, which other shards on the same mesh share.
func (s *Shard) Stats() (ShardStats, error) {
	defer runtime.KeepAlive(s)
	raw := sized[capi.ShardStats]()
	err := capi.ShardGetStats(s.raw(), &raw)
	return ShardStats{
		Units:              int(raw.NUnits),
		AllGathers:         int(raw.AllGathers),
		ReduceScatters:     int(raw.ReduceScatters),
		AllReduces:         int(raw.AllReduces),
		AllGatherBytes:     int(raw.AllGatherBytes),
		ReduceScatterBytes: int(raw.ReduceScatterBytes),
		AllReduceBytes:     int(raw.AllReduceBytes),
		UnshardedBytes:     int(raw.UnshardedBytes),
		PeakUnshardedBytes: int(raw.PeakUnshardedBytes),
		AllToAlls:          int(raw.AllToAlls),
		AllToAllBytes:      int(raw.AllToAllBytes),
		KeptBytes:          int(raw.KeptBytes),
	}, failure(err)
}

// ResetStats sets the counts to zero.
func (s *Shard) ResetStats() error {
	defer runtime.KeepAlive(s)
	return failure(capi.ShardResetStats(s.raw()))
}

// Describe returns the units as a table: name, parameters, bytes, dtypes, shard dim, path of communication.
func (s *Shard) Describe() (string, error) {
	defer runtime.KeepAlive(s)
	return text(func(buf *byte, cap uint, needed *uint) error { return capi.ShardDescribe(s.raw(), buf, cap, needed) })
}
