package fsdp2

import (
	"time"

	"fsdp2/internal/capi"
)

// Backend is what carries a mesh's communication.
type Backend int32

// The backends.
const (
	BackendAuto   Backend = capi.BackendAuto
	BackendGloo   Backend = capi.BackendGloo // CPU
	BackendNCCL   Backend = capi.BackendNccl // CUDA
	BackendThread Backend = capi.BackendThread
	// BackendFake is for planning: this process is one rank of WorldSize, and the others do not exist.
	BackendFake Backend = capi.BackendFake
)

// MeshOptions say who this rank is and where the others are. Begin with DefaultMeshOptions, which leaves it to the launcher's environment:
// torchrun, fsdp2 run, Kubernetes, Slurm or Open MPI; with none of them the job has one rank. A literal is rank 0 where it names none, and
// takes the first GPU of the machine; without a Timeout it is refused.
type MeshOptions struct {
	Backend    Backend
	Rank       int      // -1: from the environment
	WorldSize  int      // -1: from the environment
	LocalRank  int      // -1: from the environment
	Shape      []int    // sizes whose product is the world size; one may be -1, for what is left; none: FSDPSize decides
	Names      []string // of the dims, distinct; none: no names
	Rendezvous string   // env:// (default), tcp://host:port, file:///path, thread://name, fake://
	Timeout    time.Duration
	// FSDPSize counts without a Shape. 0, 1, or at least the world size: one dim, "fsdp". Less: "ddp" and "fsdp", of sizes
	// (world size / FSDPSize, FSDPSize). -1: replicas only, (world size, 1).
	FSDPSize   int
	Ranks      []int  // with a Shape: the ranks of this mesh, row-major, this rank among them; none: all
	DeviceType string // "cpu" (default) or "cuda"
	// UlyssesSize counts without a Shape. Above 1: so many consecutive ranks share sequences, along a last dim "cp"; 0 or 1: none do.
	UlyssesSize int
}

// Shares nothing with the options that could change.
func (options *MeshOptions) clone() *MeshOptions {
	if options == nil {
		return nil
	}
	own := *options
	own.Shape = append([]int(nil), options.Shape...)
	own.Names = append([]string(nil), options.Names...)
	own.Ranks = append([]int(nil), options.Ranks...)
	return &own
}

// DefaultMeshOptions returns the library's defaults.
func DefaultMeshOptions() MeshOptions {
	raw := defaults(capi.MeshOptionsInit)
	return MeshOptions{
		Backend:   Backend(raw.Backend),
		Rank:      int(raw.Rank),
		WorldSize: int(raw.WorldSize),
		LocalRank: int(raw.LocalRank),
		Timeout:   time.Duration(raw.TimeoutMs) * time.Millisecond,
		FSDPSize:  int(raw.FsdpSize),

		UlyssesSize: int(raw.UlyssesSize),
	}
}

// raw lies in memory until it is freed; nil options are NULL, the library's defaults.
func (o *MeshOptions) raw(memory *capi.Memory) (*capi.MeshOptions, error) {
	if o == nil {
		return nil, nil
	}
	dims := len(o.Shape)
	if dims == 0 {
		dims = len(o.Names)
	}
	if len(o.Names) != 0 && len(o.Names) != dims {
		return nil, invalid("MeshOptions", "Names: expected none or %d, as Shape has dims, found %d", dims, len(o.Names))
	}
	raw := sized[capi.MeshOptions]()
	raw.Backend = int32(o.Backend)
	raw.Rank, raw.WorldSize, raw.LocalRank = to32(o.Rank), to32(o.WorldSize), to32(o.LocalRank)
	raw.NDims = int32(dims)
	raw.Shape = capi.Numbers(memory, int64s(o.Shape))
	raw.Names = memory.Strings(o.Names)
	raw.Rendezvous = memory.OptionalString(o.Rendezvous)
	raw.TimeoutMs = o.Timeout.Milliseconds()
	raw.FsdpSize = int64(o.FSDPSize)
	raw.Ranks = capi.Numbers(memory, int32s(o.Ranks))
	raw.NRanks = uint(len(o.Ranks))
	raw.DeviceType = memory.OptionalString(o.DeviceType)
	raw.UlyssesSize = int64(o.UlyssesSize)
	return &raw, nil
}
