package fsdp2

import "fsdp2/internal/capi"

// Wrap says which modules become units.
type Wrap int32

// The ways.
const (
	WrapDefault Wrap = capi.WrapDefault // each module of the model's no-split classes
	WrapNone    Wrap = capi.WrapNone    // no class makes units
	WrapKinds   Wrap = capi.WrapKinds   // each module of the classes in ShardOptions.WrapKinds
)

// Reshard is what forward leaves of a unit's gathered parameters. A number n of at least 2 keeps a 1/n slice, which is then gathered
// over n neighbours. (PyTorch's True is ReshardAlways; its False and its 1 are ReshardNever.)
type Reshard int32

// The choices.
const (
	ReshardAuto   Reshard = capi.ReshardAuto   // nothing, but the root keeps everything
	ReshardAlways Reshard = capi.ReshardAlways // nothing
	ReshardNever  Reshard = capi.ReshardNever  // everything
)

// CommPath is how parameters travel.
type CommPath int32

// The paths.
const (
	CommPathAuto   CommPath = capi.CommPathAuto   // per parameter, by size and layout
	CommPathDirect CommPath = capi.CommPathDirect // each parameter straight into its storage where its layout allows
	CommPathPacked CommPath = capi.CommPathPacked // one buffer and one collective per unit
)

// CommSchedule is when parameters travel.
type CommSchedule int32

// The schedules.
const (
	// CommScheduleAgreed: every unit once per forward and once per backward, in one order on all ranks, whatever each rank uses.
	CommScheduleAgreed CommSchedule = capi.CommScheduleAgreed
	// CommScheduleOnUse is PyTorch's rule: what this rank uses, when it uses it.
	CommScheduleOnUse CommSchedule = capi.CommScheduleOnUse
)

// ShardDimInfo describes a parameter that is to be sharded.
type ShardDimInfo struct {
	Parameter string // its dotted path in the module
	Dtype     Dtype  // the module's
	Shape     []int  // of the whole parameter
}

// ShardDimFunc returns the dim to shard a parameter on; a negative one counts from the end, and any but 0 must divide evenly. All ranks
// give the same answer. It runs only inside the call that takes the options.
type ShardDimFunc func(info ShardDimInfo) (int, error)

// ShardOptions say how to shard. The zero value has the defaults. Names are dotted paths below the module, such as
// "model.layers.0.mlp".
type ShardOptions struct {
	ReshardAfterForward Reshard
	ParamDtype          Dtype // for gathering and computing; DtypeKeep: the shard's
	ReduceDtype         Dtype // for reducing gradients; DtypeKeep: the gradient's
	OutputDtype         Dtype // for floating-point outputs of the root, or of the units that MakeUnit and MakeUnits make
	NoCastForwardInputs bool  // leave floating-point inputs in their dtype
	CPUOffload          bool  // keep shards, their gradients and optimizer states in host memory
	NoPinMemory         bool  // CPUOffload uses ordinary memory
	CommPath            CommPath
	CommSchedule        CommSchedule // this and the next three apply to all units, and only in NewShard
	Prefetch            int          // units that the agreed schedule gathers ahead of use; -1: none, 0: one
	KeepBuffers         bool         // memory of gathered parameters, and of what travels, is kept from step to step (ReleaseBuffers)
	OneCommunicator     bool         // reductions share the connections of the gathers, in one order on all ranks
	LoadFromRank0       bool         // rank 0 alone reads the weights, and broadcasts them
	DeferValues         bool         // LoadValues or a checkpoint gives the parameters their values later

	Wrap           Wrap
	WrapKinds      []string // with Wrap: WrapKinds; class names
	WrapNames      []string // more modules, each of which is a unit
	ModulesPerUnit int      // how many consecutive siblings of the wrapped classes make one unit; 0: one
	WrapEmbeddings bool     // each embedding table is a unit
	WrapHead       bool     // the language-model head ("lm_head") is a unit
	WrapMinNumel   int      // > 0: a module is also a unit if it has this many elements that no module inside it has taken

	IgnoredNames []string     // parameters to leave alone: not sharded, not reduced, whole on every rank
	ShardDim     ShardDimFunc // called once for each parameter; nil: dim 0
}

// with calls with the options as the library takes them; nil are NULL, the library's defaults.
func (o *ShardOptions) with(call func(options *capi.ShardOptions) error) error {
	if o == nil {
		return failure(call(nil))
	}
	var memory capi.Memory
	defer memory.Free()
	raw := o.raw(&memory)
	if o.ShardDim == nil {
		return failure(call(raw))
	}
	raw.ShardDim = capi.ShardDimCallback
	raw.ShardDimUserData = capi.NewUserData(capi.ShardDimFunc(func(info *capi.ShardDimInfo) (int32, error) {
		dim, err := o.ShardDim(ShardDimInfo{
			Parameter: capi.Text(info.Parameter),
			Dtype:     Dtype(info.Dtype),
			Shape:     ints(info.Shape[:info.NDims]),
		})
		return to32(dim), err
	}))
	defer capi.DropUserData(raw.ShardDimUserData)
	return failure(call(raw))
}

func (o *ShardOptions) raw(memory *capi.Memory) *capi.ShardOptions {
	raw := sized[capi.ShardOptions]()
	raw.ReshardAfterForward = int32(o.ReshardAfterForward)
	raw.ParamDtype, raw.ReduceDtype, raw.OutputDtype = int32(o.ParamDtype), int32(o.ReduceDtype), int32(o.OutputDtype)
	raw.NoCastForwardInputs = flag(o.NoCastForwardInputs)
	raw.CpuOffload, raw.NoPinMemory = flag(o.CPUOffload), flag(o.NoPinMemory)
	raw.CommPath, raw.CommSchedule, raw.Prefetch = int32(o.CommPath), int32(o.CommSchedule), to32(o.Prefetch)
	raw.KeepBuffers, raw.OneCommunicator = flag(o.KeepBuffers), flag(o.OneCommunicator)
	raw.LoadFromRank0, raw.DeferValues = flag(o.LoadFromRank0), flag(o.DeferValues)
	raw.Wrap, raw.ModulesPerUnit = int32(o.Wrap), to32(o.ModulesPerUnit)
	raw.WrapEmbeddings, raw.WrapHead, raw.WrapMinNumel = flag(o.WrapEmbeddings), flag(o.WrapHead), int64(o.WrapMinNumel)
	raw.WrapKinds, raw.NWrapKinds = memory.Strings(o.WrapKinds), uint(len(o.WrapKinds))
	raw.WrapNames, raw.NWrapNames = memory.Strings(o.WrapNames), uint(len(o.WrapNames))
	raw.IgnoredNames, raw.NIgnoredNames = memory.Strings(o.IgnoredNames), uint(len(o.IgnoredNames))
	return &raw
}

// ApplyStrategy applies a strategy of PyTorch's older FullyShardedDataParallel by its name, in either case: FULL_SHARD, SHARD_GRAD_OP,
// NO_SHARD, HYBRID_SHARD, HYBRID_SHARD_ZERO2. It sets FSDPSize of the mesh, which must have no Shape, and ReshardAfterForward of the
// options; the rest stays. fsdpSize: the number of ranks of a shard group, which the hybrid strategies need; 0: all ranks.
func ApplyStrategy(name string, fsdpSize int, mesh *MeshOptions, options *ShardOptions) error {
	if mesh == nil || options == nil {
		return invalid("ApplyStrategy", "mesh and options: expected both, found nil")
	}
	var memory capi.Memory
	defer memory.Free()
	rawMesh, err := mesh.raw(&memory)
	if err != nil {
		return err
	}
	rawOptions := options.raw(&memory)
	if err := capi.ShardApplyStrategy(name, int64(fsdpSize), rawMesh, rawOptions); err != nil {
		return failure(err)
	}
	mesh.FSDPSize = int(rawMesh.FsdpSize)
	options.ReshardAfterForward = Reshard(rawOptions.ReshardAfterForward)
	return nil
}
