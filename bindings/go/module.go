package fsdp2

import (
	"runtime"
	"unsafe"

	"fsdp2/internal/capi"
)

// Module is a model or a part of one. It has its structure at once and its memory later: the parameters get values when the module is
// sharded (each rank reads only its rows) or, without sharding, at its first forward. One goroutine at a time uses a model.
type Module struct {
	handle
	custom *custom // of NewCustomModule and NewLayer; else nil
}

// ModuleOptions are for whatever makes a module. The zero value has the defaults.
type ModuleOptions struct {
	Dtype Dtype  // of the parameters; DtypeKeep: f32, or that of an exported program
	Seed  uint64 // for dropout, and for the initial values, if there are no weights to read
	// ConfigOverrides is the text of a JSON object: fields that are changed in config.json. Weights that are read must still fit.
	ConfigOverrides string
	// PlainOperators runs a program of torch.export as the operators in its file: none of the library's, which are faster, differ by
	// rounding alone and mostly have no second derivatives, takes their place.
	PlainOperators bool
}

func (o *ModuleOptions) raw(memory *capi.Memory) *capi.ModuleOptions {
	if o == nil {
		return nil
	}
	raw := sized[capi.ModuleOptions]()
	raw.Dtype, raw.Seed = int32(o.Dtype), o.Seed
	raw.ConfigOverrides = memory.OptionalString(o.ConfigOverrides)
	raw.PlainOperators = flag(o.PlainOperators)
	return &raw
}

// ModuleFromPretrained makes the model of a Hugging Face directory: config.json and safetensors, in one file or indexed. Model types:
// encoder, gemma, gemma2, gemma3_text, gpt2, llama, mistral, mixtral, phi3 (also Phi-4 mini), qwen2 (also Qwen2.5), qwen2_5_vl, qwen3,
// qwen3_moe, qwen3_vl. Errors, which name the file and the key or tensor: ErrNotFound, ErrUnsupported (model_type), ErrCorruptData.
func ModuleFromPretrained(directory string, options *ModuleOptions) (*Module, error) {
	var memory capi.Memory
	defer memory.Free()
	var raw capi.Module
	return madeModule(&raw, capi.ModuleFromPretrained(directory, options.raw(&memory), &raw))
}

// ModuleFromConfig makes the model that the text of a config.json describes. The seed determines the initial values, which are the same
// at any world size.
func ModuleFromConfig(json string, options *ModuleOptions) (*Module, error) {
	var memory capi.Memory
	defer memory.Free()
	var raw capi.Module
	return madeModule(&raw, capi.ModuleFromConfig(json, options.raw(&memory), &raw))
}

// ModuleFromExported makes the model of any architecture that Python's torch.export has written to a .pt2 file, for example by
// examples/python/export_model.py, or torch.jit.save to any file. What an export fixed stays: train or eval mode, the types and ranges
// of sizes of the inputs, and the dtype. The first output is the loss. Errors, which name the file and the key or node: ErrNotFound,
// ErrUnsupported, ErrCorruptData.
func ModuleFromExported(path string, options *ModuleOptions) (*Module, error) {
	var memory capi.Memory
	defer memory.Free()
	var raw capi.Module
	return madeModule(&raw, capi.ModuleFromExported(path, options.raw(&memory), &raw))
}

func madeModule(raw *capi.Module, err error) (*Module, error) {
	if err != nil {
		return nil, failure(err)
	}
	module := &Module{}
	module.own(moduleKind, raw.ID)
	return module, nil
}

func (m *Module) raw() capi.Module {
	if m == nil {
		return capi.Module{}
	}
	return capi.Module{ID: m.id}
}

// Close ends this owner of the module. It lives on in its shard, and as a part of another module, whose Close is then its own.
func (m *Module) Close() error {
	if m == nil {
		return nil
	}
	return m.close()
}

// Duplicate returns another owner of the same module.
func (m *Module) Duplicate() (*Module, error) {
	defer runtime.KeepAlive(m)
	var raw capi.Module
	duplicate, err := madeModule(&raw, capi.ModuleDuplicate(m.raw(), &raw))
	if err == nil && m.custom != nil {
		duplicate.share(m.custom)
	}
	return duplicate, err
}

// ModuleInfo describes a module.
type ModuleInfo struct {
	Parameters   int // a tied parameter counts once
	Numel        int // elements of all parameters, ties counted once
	VocabSize    int // 0 for a module that is no language model, as MaxPositions
	MaxPositions int
	Bytes        int // of parameters and gradients on this rank, now
}

// Info describes the module.
func (m *Module) Info() (ModuleInfo, error) {
	defer runtime.KeepAlive(m)
	info := sized[capi.ModuleInfo]()
	err := capi.ModuleGetInfo(m.raw(), &info)
	return ModuleInfo{
		Parameters:   int(info.NParameters),
		Numel:        int(info.Numel),
		VocabSize:    int(info.VocabSize),
		MaxPositions: int(info.MaxPositions),
		Bytes:        int(info.NBytes),
	}, failure(err)
}

// Train puts the module and everything below it into training mode, in which modules begin.
func (m *Module) Train() error { return m.setMode(true) }

// Eval puts the module and everything below it into evaluation mode: without dropout. Both modes record gradients.
func (m *Module) Eval() error { return m.setMode(false) }

func (m *Module) setMode(training bool) error {
	defer runtime.KeepAlive(m)
	return failure(capi.ModuleTrain(m.raw(), flag(training)))
}

// IsTraining reports the mode.
func (m *Module) IsTraining() (bool, error) {
	defer runtime.KeepAlive(m)
	var training int32
	err := capi.ModuleIsTraining(m.raw(), &training)
	return training != 0, failure(err)
}

// SetRequiresGrad freezes parameters (false) or lets them train again. A name is that of a parameter or the path of a module, which
// stands for all parameters at and below it; without names, the call is for the whole module. Before anything is sharded, alike on all
// ranks. ErrNotFound (a name) and ErrWrongState (sharded already) change nothing.
func (m *Module) SetRequiresGrad(required bool, names ...string) error {
	defer runtime.KeepAlive(m)
	return failure(withNames(names, func(array *unsafe.Pointer, n uint) error {
		return capi.ModuleSetRequiresGrad(m.raw(), array, n, flag(required))
	}))
}

// ZeroGrad forgets all gradients: those of the shard and those of ignored parameters.
func (m *Module) ZeroGrad() error {
	defer runtime.KeepAlive(m)
	return failure(capi.ModuleZeroGrad(m.raw()))
}

// ActivationOptions choose what CheckpointActivations is for. The zero value is each of the model's own layers.
type ActivationOptions struct {
	Kinds       []string // classes, such as "LlamaDecoderLayer"; none: the model's own layers
	Paths       []string // nil, or, in place of classes, dotted paths such as "model.layers.3", in any order; at least one
	Every       int      // the last of each so many modules, in the model's order; 0: 1
	NoEarlyStop bool     // the second run goes to its end, so that collective calls inside are made as often on all ranks
}

// TileMLPs makes the gated MLPs of a model from config.json run in tiles of tokens, each computed again in backward, so that what lies
// between their projections exists for one tile at a time; 4 is usual. It returns how many MLPs these are, and may come before or after
// sharding. Errors, with nothing changed: ErrNotFound (no such MLP), ErrInvalidArgument (fewer than 1).
func (m *Module) TileMLPs(tiles int) (int, error) {
	defer runtime.KeepAlive(m)
	if tiles < 1 {
		return 0, invalid("TileMLPs", "tiles: expected at least 1, found %d", tiles)
	}
	var mlps uint
	err := capi.ModuleTileMlps(m.raw(), uint(tiles), &mlps)
	return int(mlps), failure(err)
}

// CheckpointActivations makes modules keep only their inputs in forward and run again in backward. It may come before or after sharding,
// and changes no loss and no gradient. Errors, with nothing changed: ErrNotFound (a class or path that does not exist; lists the
// classes that do), ErrWrongState (checkpointed already), ErrInvalidArgument (both Kinds and Paths, no paths, the path of a container).
func (m *Module) CheckpointActivations(options ActivationOptions) error {
	defer runtime.KeepAlive(m)
	if options.Every == 0 {
		options.Every = 1
	}
	if options.Every < 0 {
		return invalid("CheckpointActivations", "Every: expected at least 1, found %d", options.Every)
	}
	names, flags := options.Kinds, uint32(0)
	if options.Paths != nil {
		if len(options.Kinds) > 0 {
			return invalid("CheckpointActivations", "expected Kinds or Paths, found both")
		}
		names, flags = options.Paths, capi.ActivationsByPath
	}
	if options.NoEarlyStop {
		flags |= capi.ActivationsNoEarlyStop
	}
	return failure(withNames(names, func(array *unsafe.Pointer, n uint) error {
		return capi.ModuleCheckpointActivations(m.raw(), array, n, uint(options.Every), flags)
	}))
}
