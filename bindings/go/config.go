package fsdp2

import (
	"runtime"
	"unsafe"

	"fsdp2/internal/capi"
)

// ConfigOptions lower a configuration, beside its text.
type ConfigOptions struct {
	Name      string   // what messages call the text, usually the name of its file; "": "config"
	Role      string   // the one to train, where the configuration has several
	Sets      []string // assignments "path.to.key=value" to keys of the configuration, which go before it
	WorldSize int      // settles what depends on the number of ranks, such as global_batch; 0 leaves it open
}

// Config is the configuration of a training run as a plan: YAML with every key of fsdp2 train once, in its own words, and after each the
// place that its value comes from. It is a text of the program's, which any goroutine may use and nobody closes. LowerConfig makes it. A program takes
// values from it for objects of its own, or has the objects made that fsdp2 train would make.
type Config struct{ plan string }

// LowerConfig lowers a file of ROLL, of MindSpeed-MM, the simple file of the GPT presets, a plain one, or a plan again, so that a trainer
// reads what fsdp2 train reads; docs/yaml.md has the keys. options nil: none. Errors: ErrInvalidArgument, which names place and key (an
// unknown key, a value that a key does not take, a job of another size, what libfsdp2 cannot do).
func LowerConfig(yaml string, options *ConfigOptions) (Config, error) {
	var given ConfigOptions
	if options != nil {
		given = *options
	}
	if given.Name == "" {
		given.Name = "config"
	}
	plan, err := text(func(buf *byte, cap uint, needed *uint) error {
		return withNames(given.Sets, func(sets *unsafe.Pointer, n uint) error {
			return capi.ConfigLower(yaml, given.Name, given.Role, sets, n, to32(given.WorldSize), buf, cap, needed)
		})
	})
	return Config{plan}, err
}

// String returns the plan.
func (c Config) String() string { return c.plan }

// Value returns the value of a key: "0.001", "true", or a list as "A,B"; "" where nothing is given. Keys are those of plain files,
// "global_batch" or "global-batch". Errors: ErrNotFound (a key).
func (c Config) Value(key string) (string, error) {
	return text(func(buf *byte, cap uint, needed *uint) error {
		return capi.ConfigGetValue(c.plan, key, buf, cap, needed)
	})
}

// Shared returns what all ranks must have alike, for Mesh.Agree: "key=value" lines, with the places in the plan as notes.
func (c Config) Shared() (string, error) {
	return text(func(buf *byte, cap uint, needed *uint) error {
		return capi.ConfigGetShared(c.plan, buf, cap, needed)
	})
}

// SettleEpochs returns the plan with steps in place of its epochs, and with the warmup that depends on them. stepsPerEpoch: at least 1,
// as Loader.Info has it. A plan without epochs stays.
func (c Config) SettleEpochs(stepsPerEpoch int) (Config, error) {
	plan, err := text(func(buf *byte, cap uint, needed *uint) error {
		return capi.ConfigSettleEpochs(c.plan, int64(stepsPerEpoch), buf, cap, needed)
	})
	return Config{plan}, err
}

// SetUpProcess applies threads, product engine, precision of products, determinism and kept memory, which hold for the whole process. With
// determinism it also sets an environment variable. Call it before other goroutines use the library.
func (c Config) SetUpProcess() error {
	return failure(capi.ConfigSetUpProcess(c.plan))
}

// JoinJob joins the job that the environment describes. Its ranks must have the same plan: otherwise each of them is told the first key
// that differs. Collective.
func (c Config) JoinJob() (*Mesh, error) {
	var raw capi.Mesh
	return madeMesh(&raw, capi.ConfigJoinJob(c.plan, &raw))
}

// MakeMesh makes the mesh that strategy, sizes and device describe, over the ranks of a job. Collective.
func (c Config) MakeMesh(job *Mesh) (*Mesh, error) {
	defer runtime.KeepAlive(job)
	var raw capi.Mesh
	return madeMesh(&raw, capi.ConfigMakeMesh(c.plan, job.raw(), &raw))
}

// MakeModule makes the model, with parameters frozen, activations recomputed and MLPs tiled as the plan says.
func (c Config) MakeModule() (*Module, error) {
	var raw capi.Module
	return madeModule(&raw, capi.ConfigMakeModule(c.plan, &raw))
}

// MakeLoader opens the data, with the tokenizer that the plan names; they must fit the model's vocabulary and positions. Collective.
func (c Config) MakeLoader(module *Module, mesh *Mesh) (*Loader, error) {
	defer runtime.KeepAlive(module)
	defer runtime.KeepAlive(mesh)
	var raw capi.Loader
	return madeLoader(&raw, capi.ConfigMakeLoader(c.plan, module.raw(), mesh.raw(), &raw))
}

// MakeShard shards the module; its values come from Shard.LoadValues or a checkpoint. Collective.
func (c Config) MakeShard(module *Module, mesh *Mesh) (*Shard, error) {
	defer runtime.KeepAlive(module)
	defer runtime.KeepAlive(mesh)
	var raw capi.Shard
	return madeShard(&raw, capi.ConfigMakeShard(c.plan, module.raw(), mesh.raw(), &raw))
}

// MakeOptimizer makes the optimizer, with its groups.
func (c Config) MakeOptimizer(shard *Shard) (*Optimizer, error) {
	defer runtime.KeepAlive(shard)
	var raw capi.Optimizer
	return madeOptimizer(&raw, capi.ConfigMakeOptimizer(c.plan, shard.raw(), &raw))
}

// MakeStep makes the step: accumulation, schedule, clipping, loss scaling. A plan in epochs is refused: see SettleEpochs. Collective.
func (c Config) MakeStep(shard *Shard, optimizer *Optimizer) (*Step, error) {
	defer runtime.KeepAlive(shard)
	defer runtime.KeepAlive(optimizer)
	var raw capi.Step
	return madeStep(&raw, capi.ConfigMakeStep(c.plan, shard.raw(), optimizer.raw(), &raw))
}
