package fsdp2

import (
	"runtime"

	"fsdp2/internal/capi"
)

// Reduce is how collectives put values together.
type Reduce int32

// The ways.
const (
	ReduceSum     Reduce = capi.ReduceSum
	ReduceAverage Reduce = capi.ReduceAverage
	ReduceMax     Reduce = capi.ReduceMax
)

// AllReduce reduces numbers over all ranks, in place: at most 2^24. Collective.
func (m *Mesh) AllReduce(values []float64, how Reduce) error {
	defer runtime.KeepAlive(m)
	return failure(capi.MeshAllReduce(m.raw(), first(values), uint(len(values)), int32(how)))
}

// Tensors move along one dim: these calls are collective over the dim's group, and record no gradients. Dtypes or shapes that do not
// fit are ErrInvalidArgument on all ranks of the group, before any data moves. Pieces have ceil(n / ranks) elements along tensorDim;
// the last ones may have fewer or none.

// Broadcast overwrites the tensor with that of the group's first rank. Collective over the group of dim.
func (m *Mesh) Broadcast(dim int, tensor *Tensor) error {
	defer runtime.KeepAlive(m)
	return tensor.call(func(raw capi.Tensor) error { return capi.MeshBroadcast(m.raw(), to32(dim), raw) })
}

// Scatter returns this rank's piece, along tensorDim, of the tensor that the group's first rank passes; the other ranks pass nil.
// Collective over the group of dim.
func (m *Mesh) Scatter(dim int, whole *Tensor, tensorDim int) (*Tensor, error) {
	defer runtime.KeepAlive(m)
	defer runtime.KeepAlive(whole)
	if err := whole.optional(); err != nil {
		return nil, err
	}
	var raw capi.Tensor
	return made(&raw, capi.MeshScatter(m.raw(), to32(dim), whole.raw(), to32(tensorDim), &raw))
}

// AllGather concatenates all ranks' tensors along tensorDim, in which their sizes may differ. Collective over the group of dim.
func (m *Mesh) AllGather(dim int, piece *Tensor, tensorDim int) (*Tensor, error) {
	defer runtime.KeepAlive(m)
	var raw capi.Tensor
	return made(&raw, piece.call(func(tensor capi.Tensor) error {
		return capi.MeshAllGather(m.raw(), to32(dim), tensor, to32(tensorDim), &raw)
	}))
}

// ReduceScatter returns this rank's piece, along tensorDim, of the sum or average of all ranks' tensors. Collective over the group of
// dim.
func (m *Mesh) ReduceScatter(dim int, whole *Tensor, tensorDim int, how Reduce) (*Tensor, error) {
	defer runtime.KeepAlive(m)
	var raw capi.Tensor
	return made(&raw, whole.call(func(tensor capi.Tensor) error {
		return capi.MeshReduceScatter(m.raw(), to32(dim), tensor, to32(tensorDim), int32(how), &raw)
	}))
}

// AllReduceTensor reduces the tensor over the group, in place. Collective over the group of dim.
func (m *Mesh) AllReduceTensor(dim int, tensor *Tensor, how Reduce) error {
	defer runtime.KeepAlive(m)
	return tensor.call(func(raw capi.Tensor) error {
		return capi.MeshAllReduceTensor(m.raw(), to32(dim), raw, int32(how))
	})
}
