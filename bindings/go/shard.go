package fsdp2

import (
	"runtime"
	"unsafe"

	"fsdp2/internal/capi"
)

// Shard is a module whose parameters are cut over the ranks of a mesh: gathered around the forward and backward of each unit, with
// gradients reduced to the shards. It is PyTorch's fully_shard. bindings/names.md lists PyTorch's names for all of it.
//
// A unit is named by the dotted path of its module; "" is the root.
type Shard struct{ handle }

// NewShard shards the module over the mesh, which is 1-D, or 2-D as (replicate, shard). Collective. The modules that the options'
// wrap fields select become units, inner ones first; then the module itself becomes the root. options nil: the defaults. All ranks pass
// the same options and model; otherwise ErrInvalidArgument, on every rank, names what differs.
func NewShard(module *Module, mesh *Mesh, options *ShardOptions) (*Shard, error) {
	defer runtime.KeepAlive(module)
	defer runtime.KeepAlive(mesh)
	var raw capi.Shard
	return madeShard(&raw, options.with(func(given *capi.ShardOptions) error {
		return capi.ShardCreate(module.raw(), mesh.raw(), given, &raw)
	}))
}

// MakeUnit makes one unit by hand, of one module below this one or of several as a group. Collective. Units are made bottom-up, before
// NewShard makes the rest the root, each with options and a mesh of its own. The wrap fields, LoadFromRank0 and DeferValues must keep
// their defaults. Errors, with nothing changed: ErrNotFound (a name), ErrWrongState (sharded already, or below a module that is),
// ErrInvalidArgument, ErrUnsupported (a shard dim that does not divide).
func (m *Module) MakeUnit(mesh *Mesh, names []string, options *ShardOptions) error {
	defer runtime.KeepAlive(m)
	defer runtime.KeepAlive(mesh)
	return options.with(func(given *capi.ShardOptions) error {
		return withNames(names, func(array *unsafe.Pointer, n uint) error {
			return capi.ShardMakeUnit(m.raw(), mesh.raw(), array, n, given)
		})
	})
}

// MakeUnits makes units by rule: one of each module that the wrap fields select. So the modules of some classes can have a mesh and
// options of their own (experts, say), before NewShard wraps those around them. Collective. ErrWrongState if this makes no unit.
func (m *Module) MakeUnits(mesh *Mesh, options *ShardOptions) error {
	defer runtime.KeepAlive(m)
	defer runtime.KeepAlive(mesh)
	return options.with(func(given *capi.ShardOptions) error {
		return capi.ShardMakeUnits(m.raw(), mesh.raw(), given)
	})
}

func madeShard(raw *capi.Shard, err error) (*Shard, error) {
	if err != nil {
		return nil, failure(err)
	}
	shard := &Shard{}
	shard.own(shardKind, raw.ID)
	return shard, nil
}

func (s *Shard) raw() capi.Shard {
	if s == nil {
		return capi.Shard{}
	}
	return capi.Shard{ID: s.id}
}

// Close ends this owner of the shard. The shard ends with the last owner of it, of its optimizers and of its steps; that call waits for
// a save in the background.
func (s *Shard) Close() error {
	if s == nil {
		return nil
	}
	return s.close()
}

// Duplicate returns another owner of the same shard.
func (s *Shard) Duplicate() (*Shard, error) {
	defer runtime.KeepAlive(s)
	var raw capi.Shard
	return madeShard(&raw, capi.ShardDuplicate(s.raw(), &raw))
}

// LoadValues gives the parameters their values, after DeferValues. Collective. ErrWrongState if they have values.
func (s *Shard) LoadValues() error {
	defer runtime.KeepAlive(s)
	return failure(capi.ShardLoadValues(s.raw()))
}

// Mesh returns the mesh that the module is sharded over.
func (s *Shard) Mesh() (*Mesh, error) {
	defer runtime.KeepAlive(s)
	var raw capi.Mesh
	return madeMesh(&raw, capi.ShardGetMesh(s.raw(), &raw))
}

// CastParameters casts every shard to a floating-point dtype and forgets gradients. Optimizers made before keep the old shards.
func (s *Shard) CastParameters(dtype Dtype) error {
	defer runtime.KeepAlive(s)
	return failure(capi.ShardCastParameters(s.raw(), int32(dtype)))
}

// ZeroGrad forgets all gradients of what is sharded, unreduced ones included. For ignored parameters there is Module.ZeroGrad.
func (s *Shard) ZeroGrad() error {
	defer runtime.KeepAlive(s)
	return failure(capi.ShardZeroGrad(s.raw()))
}

// GradNorm returns the norm of all gradients, with replicas and ties counted once. normType is above 0 or infinite; usually 2.
// Collective.
func (s *Shard) GradNorm(normType float64) (float64, error) {
	defer runtime.KeepAlive(s)
	var norm float64
	err := capi.ShardGetGradNorm(s.raw(), normType, &norm)
	return norm, failure(err)
}

// ClipGradNorm returns the norm as GradNorm does, and multiplies the gradients by min(1, maxNorm / (norm + 1e-6)). maxNorm 0 only
// measures. Collective.
func (s *Shard) ClipGradNorm(maxNorm, normType float64) (float64, error) {
	defer runtime.KeepAlive(s)
	var norm float64
	err := capi.ShardClipGradNorm(s.raw(), maxNorm, normType, &norm)
	return norm, failure(err)
}

// GradOverflow reports whether the gradients of any rank contain an infinity or a NaN. Collective.
func (s *Shard) GradOverflow() (bool, error) {
	defer runtime.KeepAlive(s)
	var overflow int32
	err := capi.ShardGetGradOverflow(s.raw(), &overflow)
	return overflow != 0, failure(err)
}

// ScaleGrad multiplies this rank's gradients by a finite factor.
func (s *Shard) ScaleGrad(factor float64) error {
	defer runtime.KeepAlive(s)
	return failure(capi.ShardScaleGrad(s.raw(), factor))
}
