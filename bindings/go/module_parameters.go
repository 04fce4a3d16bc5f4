package fsdp2

import (
	"runtime"

	"fsdp2/internal/capi"
)

// Part is what to return of a parameter.
type Part int32

// The parts.
const (
	ParameterLocal     Part = capi.ParameterLocal     // this rank's rows, sharing their memory
	ParameterLocalGrad Part = capi.ParameterLocalGrad // their gradient
	ParameterFull      Part = capi.ParameterFull      // a copy of the gathered parameter; collective
	ParameterFullGrad  Part = capi.ParameterFullGrad  // collective
)

// ModuleParameterInfo describes a parameter of a module.
type ModuleParameterInfo struct {
	Names        []string // its own, then its ties
	Dtype        Dtype    // with which the module was made
	RequiresGrad bool
	IsSharded    bool
	HasGrad      bool // false where IsSharded
	Shape        []int
}

// ParameterCount returns the number of all parameters, a tied one counted once. Their order does not change by sharding. Parameters that
// sharding has taken over are read and changed through the shard, whose indices are others; those that it leaves alone
// (ShardOptions.IgnoredNames) are available here.
func (m *Module) ParameterCount() (int, error) {
	defer runtime.KeepAlive(m)
	var count uint
	err := capi.ModuleGetParameterCount(m.raw(), &count)
	return int(count), failure(err)
}

// ParameterInfo describes a parameter.
func (m *Module) ParameterInfo(index int) (ModuleParameterInfo, error) {
	defer runtime.KeepAlive(m)
	info := sized[capi.ModuleParameterInfo]()
	if err := capi.ModuleGetParameterInfo(m.raw(), uint(index), &info); err != nil {
		return ModuleParameterInfo{}, failure(err)
	}
	names, err := namesOf(int(info.NNames), func(name int, buf *byte, cap uint, needed *uint) error {
		return capi.ModuleGetParameterName(m.raw(), uint(index), uint(name), buf, cap, needed)
	})
	return ModuleParameterInfo{
		Names:        names,
		Dtype:        Dtype(info.Dtype),
		RequiresGrad: info.RequiresGrad != 0,
		IsSharded:    info.IsSharded != 0,
		HasGrad:      info.HasGrad != 0,
		Shape:        ints(info.Shape[:info.NDims]),
	}, err
}

func namesOf(n int, get func(name int, buf *byte, cap uint, needed *uint) error) ([]string, error) {
	names := make([]string, n)
	for i := range names {
		name, err := text(func(buf *byte, cap uint, needed *uint) error { return get(i, buf, cap, needed) })
		if err != nil {
			return nil, err
		}
		names[i] = name
	}
	return names, nil
}

// ParameterIndex finds a parameter by any of its names.
func (m *Module) ParameterIndex(name string) (int, error) {
	defer runtime.KeepAlive(m)
	var index uint
	err := capi.ModuleGetParameterIndex(m.raw(), name, &index)
	return int(index), failure(err)
}

// Parameter returns a parameter or its gradient (ParameterLocal or ParameterLocalGrad), sharing its memory. ErrWrongState (it is
// sharded, or has no values yet), ErrNotFound (no gradient).
func (m *Module) Parameter(index int, part Part) (*Tensor, error) {
	defer runtime.KeepAlive(m)
	var raw capi.Tensor
	return made(&raw, capi.ModuleGetParameter(m.raw(), uint(index), int32(part), &raw))
}
