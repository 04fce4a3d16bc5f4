package fsdp2

import (
	"runtime"

	"fsdp2/internal/capi"
)

// ParameterInfo describes a sharded parameter.
type ParameterInfo struct {
	Names        []string // its own, then its ties
	Dtype        Dtype    // of the shard
	ComputeDtype Dtype    // for gathering and computing
	RequiresGrad bool
	HasGrad      bool
	ShardDim     int   // -1: whole on this rank
	Shape        []int // global, row-major
	LocalShape   []int // this rank's rows; may be empty
	LocalOffset  int   // global index of the first of these rows
	ShardRanks   int   // over which the parameter is cut
	ReplicaRanks int   // that hold the same rows: 1 unless the mesh is 2-D
	Unit         int   // index of its unit
}

// ParameterCount returns the number of sharded parameters. Their indices are the shard's own, not those of Module.ParameterInfo, which
// counts ignored parameters, too.
func (s *Shard) ParameterCount() (int, error) {
	defer runtime.KeepAlive(s)
	var count uint
	err := capi.ShardGetParameterCount(s.raw(), &count)
	return int(count), failure(err)
}

// ParameterInfo describes a parameter.
func (s *Shard) ParameterInfo(index int) (ParameterInfo, error) {
	defer runtime.KeepAlive(s)
	info := sized[capi.ParameterInfo]()
	if err := capi.ShardGetParameterInfo(s.raw(), uint(index), &info); err != nil {
		return ParameterInfo{}, failure(err)
	}
	names, err := namesOf(int(info.NNames), func(name int, buf *byte, cap uint, needed *uint) error {
		return capi.ShardGetParameterName(s.raw(), uint(index), uint(name), buf, cap, needed)
	})
	return ParameterInfo{
		Names:        names,
		Dtype:        Dtype(info.Dtype),
		ComputeDtype: Dtype(info.ComputeDtype),
		RequiresGrad: info.RequiresGrad != 0,
		HasGrad:      info.HasGrad != 0,
		ShardDim:     int(info.ShardDim),
		Shape:        ints(info.Shape[:info.NDims]),
		LocalShape:   ints(info.LocalShape[:info.NDims]),
		LocalOffset:  int(info.LocalOffset),
		ShardRanks:   int(info.ShardRanks),
		ReplicaRanks: int(info.ReplicaRanks),
		Unit:         int(info.Unit),
	}, err
}

// ParameterIndex finds a parameter by any of its names. ErrNotFound if there is none, or if it is ignored.
func (s *Shard) ParameterIndex(name string) (int, error) {
	defer runtime.KeepAlive(s)
	var index uint
	err := capi.ShardGetParameterIndex(s.raw(), name, &index)
	return int(index), failure(err)
}

// Parameter returns a part of a parameter. Collective for ParameterFull and ParameterFullGrad. What a forward without a backward has kept
// gathered is not gathered anew because its rows (ParameterLocal) are written: call Reset on all ranks first.
func (s *Shard) Parameter(index int, part Part) (*Tensor, error) {
	defer runtime.KeepAlive(s)
	var raw capi.Tensor
	return made(&raw, capi.ShardGetParameter(s.raw(), uint(index), int32(part), &raw))
}
