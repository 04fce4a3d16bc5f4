package fsdp2

import (
	"runtime"

	"fsdp2/internal/capi"
)

// MeshInfo describes a mesh and this rank's place in it.
type MeshInfo struct {
	Backend    Backend
	Rank       int
	WorldSize  int
	LocalRank  int
	Shape      []int
	Coordinate []int
}

// Info describes the mesh.
func (m *Mesh) Info() (MeshInfo, error) {
	defer runtime.KeepAlive(m)
	info := sized[capi.MeshInfo]()
	if err := capi.MeshGetInfo(m.raw(), &info); err != nil {
		return MeshInfo{}, failure(err)
	}
	return MeshInfo{
		Backend:    Backend(info.Backend),
		Rank:       int(info.Rank),
		WorldSize:  int(info.WorldSize),
		LocalRank:  int(info.LocalRank),
		Shape:      ints(info.Shape[:info.NDims]),
		Coordinate: ints(info.Coordinate[:info.NDims]),
	}, nil
}

// DimName returns the name of a dim; "" if the dims have none.
func (m *Mesh) DimName(dim int) (string, error) {
	defer runtime.KeepAlive(m)
	return text(func(buf *byte, cap uint, needed *uint) error {
		return capi.MeshGetDimName(m.raw(), to32(dim), buf, cap, needed)
	})
}

// DimIndex finds a dim by name. ErrNotFound lists the names that exist.
func (m *Mesh) DimIndex(name string) (int, error) {
	defer runtime.KeepAlive(m)
	var index int32
	err := capi.MeshGetDimIndex(m.raw(), name, &index)
	return int(index), failure(err)
}

// Ranks lists all ranks of the mesh, row-major.
func (m *Mesh) Ranks() ([]int, error) {
	defer runtime.KeepAlive(m)
	ranks, err := list(func(array *int32, cap uint, needed *uint) error {
		return capi.MeshGetRanks(m.raw(), array, cap, needed)
	})
	return ints(ranks), err
}

// GroupInfo describes the group of a dim.
type GroupInfo struct {
	Size int
	Rank int    // of this rank within the group
	ID   uint64 // the same for the same group, however it was reached, while a mesh of it lives
}

// Group describes the group of a dim.
func (m *Mesh) Group(dim int) (GroupInfo, error) {
	defer runtime.KeepAlive(m)
	info := sized[capi.GroupInfo]()
	err := capi.MeshGetGroup(m.raw(), to32(dim), &info)
	return GroupInfo{Size: int(info.Size), Rank: int(info.Rank), ID: info.ID}, failure(err)
}

// GroupRanks lists the ranks of the group of a dim, in group order.
func (m *Mesh) GroupRanks(dim int) ([]int, error) {
	defer runtime.KeepAlive(m)
	ranks, err := list(func(array *int32, cap uint, needed *uint) error {
		return capi.MeshGetGroupRanks(m.raw(), to32(dim), array, cap, needed)
	})
	return ints(ranks), err
}

// IsEqual reports whether ranks, shape, names and device type are equal.
func (m *Mesh) IsEqual(other *Mesh) (bool, error) {
	defer runtime.KeepAlive(m)
	defer runtime.KeepAlive(other)
	var equal int32
	err := capi.MeshIsEqual(m.raw(), other.raw(), &equal)
	return equal != 0, failure(err)
}

// DeviceMemory is what LibTorch's allocator has of a device's memory, in bytes.
type DeviceMemory struct {
	AllocatedBytes     int64 // that tensors of this process have
	PeakAllocatedBytes int64 // since the process began
	ReservedBytes      int64 // taken from the device, whether or not a tensor has it now
	PeakReservedBytes  int64
	FreeBytes          int64 // of the device, for all processes
	TotalBytes         int64
}

// DeviceMemory returns the memory of the device that the mesh has on this rank. ErrUnsupported for the host, whose memory the
// system counts.
func (m *Mesh) DeviceMemory() (DeviceMemory, error) {
	defer runtime.KeepAlive(m)
	raw := sized[capi.DeviceMemory]()
	err := capi.MeshGetDeviceMemory(m.raw(), &raw)
	return DeviceMemory{
		AllocatedBytes:     raw.AllocatedBytes,
		PeakAllocatedBytes: raw.PeakAllocatedBytes,
		ReservedBytes:      raw.ReservedBytes,
		PeakReservedBytes:  raw.PeakReservedBytes,
		FreeBytes:          raw.FreeBytes,
		TotalBytes:         raw.TotalBytes,
	}, failure(err)
}

// Hash returns a number that is the same for equal meshes.
func (m *Mesh) Hash() (uint64, error) {
	defer runtime.KeepAlive(m)
	var hash uint64
	err := capi.MeshGetHash(m.raw(), &hash)
	return hash, failure(err)
}

// ChooseDtype returns a ParamDtype that the devices of all ranks compute fast in: bf16 where each has products of it,
// otherwise fp16 where all are GPUs, which needs a loss scale, otherwise fp32. Collective.
func (m *Mesh) ChooseDtype() (Dtype, error) {
	defer runtime.KeepAlive(m)
	var dtype int32
	err := capi.MeshChooseDtype(m.raw(), &dtype)
	return Dtype(dtype), failure(err)
}

// Describe describes the mesh and this rank: "Mesh(ddp=2, fsdp=4) rank 5 at (1, 1)".
func (m *Mesh) Describe() (string, error) {
	defer runtime.KeepAlive(m)
	return text(func(buf *byte, cap uint, needed *uint) error { return capi.MeshDescribe(m.raw(), buf, cap, needed) })
}
