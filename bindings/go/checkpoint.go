package fsdp2

import (
	"context"
	"runtime"
	"time"

	"fsdp2/internal/capi"
)

// Checkpoint is what is saved and loaded together: a shard, and what there is of the others; nil leaves one out.
//
//	run := fsdp2.Checkpoint{Shard: shard, Optimizer: optimizer, Step: step, Loader: loader}
//	err := run.Save("runs/step-00000100", nil)
type Checkpoint struct {
	Shard     *Shard
	Optimizer *Optimizer
	Step      *Step
	Loader    *Loader
}

// keepAlive is for the end of a call.
func (c *Checkpoint) keepAlive() { runtime.KeepAlive(*c) }

// CheckpointFormat is how a checkpoint lies on disk.
type CheckpointFormat int32

// The formats.
const (
	CheckpointSharded        CheckpointFormat = capi.CheckpointSharded        // a DCP directory; each rank writes its part
	CheckpointSafetensors    CheckpointFormat = capi.CheckpointSafetensors    // one file with the model
	CheckpointPTH            CheckpointFormat = capi.CheckpointPth            // one file with the model, for torch.load
	CheckpointModelDirectory CheckpointFormat = capi.CheckpointModelDirectory // config.json and safetensors, as transformers has it
	CheckpointPTHPerRank     CheckpointFormat = capi.CheckpointPthPerRank     // a directory with one .pth file per rank
)

// SaveOptions say how to save. The zero value has the defaults.
type SaveOptions struct {
	Format     CheckpointFormat
	Background bool // return once a copy has been made; sharded only
	// KeepLast n > 0: keep only the newest n of a series DIR/step-00000100, DIR/step-00000200, ...; sharded only.
	KeepLast       int
	NoRNG          bool  // leave out the random generator; sharded only
	Dtype          Dtype // to which the file rounds floating-point parameters; not sharded, not per rank
	MaxFileBytes   int   // model directory: split the weights above this size; 0: 5 GiB
	NoOverwrite    bool  // ErrIO if anything exists at the path; not per rank
	AllowNotFinite bool  // save even what NotFiniteApply has made infinite or NaN
}

func (o *SaveOptions) raw() *capi.SaveOptions {
	if o == nil {
		return nil
	}
	raw := sized[capi.SaveOptions]()
	raw.Format, raw.Background, raw.KeepLast = int32(o.Format), flag(o.Background), to32(o.KeepLast)
	raw.NoRng, raw.Dtype, raw.MaxFileBytes = flag(o.NoRNG), int32(o.Dtype), int64(o.MaxFileBytes)
	raw.NoOverwrite, raw.AllowNotFinite = flag(o.NoOverwrite), flag(o.AllowNotFinite)
	return &raw
}

// LoadOptions say how to load. The zero value has the defaults.
type LoadOptions struct {
	Partial   bool // skip names that only the run or only the checkpoint has
	NoRNG     bool // leave the random generator as it is
	FromRank0 bool // rank 0 alone reads, and sends one tensor after the other, whole
}

func (o *LoadOptions) raw() *capi.LoadOptions {
	if o == nil {
		return nil
	}
	raw := sized[capi.LoadOptions]()
	raw.Partial, raw.NoRng, raw.FromRank0 = flag(o.Partial), flag(o.NoRNG), flag(o.FromRank0)
	return &raw
}

// Save saves the model, the optimizer's state, and the positions of step and loader. Collective. The names inside are those of Python's
// get_state_dict. Only one save of a shard runs at a time: a second save waits for the first, and returns its error if it failed. The
// save replaces a checkpoint at the path, and nothing else. checkpoint.h has the details.
//
// Errors: ErrIO (something else is in the way, another run saves into the series, the disk is full or not writable), the same on all
// ranks; an older checkpoint at the path is then untouched. ErrNotFinite on all ranks, before anything is written. ErrWrongState if a
// parameter has no values yet.
func (c Checkpoint) Save(path string, options *SaveOptions) error {
	defer c.keepAlive()
	return failure(capi.CheckpointSave(c.Shard.raw(), c.Optimizer.raw(), c.Step.raw(), c.Loader.raw(), path,
		options.raw()))
}

// Prepare allocates, in the background, the memory into which background saves copy. Without it the first such save does so, and takes
// about twice as long as a later one. Call it after the first step. It returns at once.
func (c Checkpoint) Prepare() error {
	defer c.keepAlive()
	return failure(capi.CheckpointPrepare(c.Shard.raw(), c.Optimizer.raw(), c.Step.raw(), c.Loader.raw()))
}

// Load restores the parts that are there from a checkpoint of any format, world size and mesh, ours or Python's. Collective. path is a
// checkpoint, or a directory with a series of them, whose newest complete one is loaded. Gradients are dropped; floating-point values are
// converted to the run's dtypes. checkpoint.h says what becomes of hyper-parameters and positions.
//
// Errors before anything is changed: ErrNotFound (no checkpoint; missing names), ErrInvalidArgument (unexpected names, different shapes,
// a loader over different data), ErrUnsupported. Errors after which all values are undefined until the next load: ErrCorruptData, which
// names the file and the item, and ErrIO.
func (c Checkpoint) Load(path string, options *LoadOptions) error {
	defer c.keepAlive()
	return failure(capi.CheckpointLoad(c.Shard.raw(), c.Optimizer.raw(), c.Step.raw(), c.Loader.raw(), path,
		options.raw()))
}

// Report describes the last load of the shard as JSON: {"path": ..., "step": 100 or -1, "missing": [...], "unexpected": [...]}.
// ErrWrongState if there was none.
func (c Checkpoint) Report() (string, error) {
	defer c.keepAlive()
	return text(func(buf *byte, cap uint, needed *uint) error {
		return capi.CheckpointGetReport(c.Shard.raw(), buf, cap, needed)
	})
}

// Poll reports whether no save is under way on this rank.
func (c Checkpoint) Poll() (done bool, err error) {
	defer c.keepAlive()
	var raw int32
	err = failure(capi.CheckpointPoll(c.Shard.raw(), &raw))
	return raw != 0, err
}

const pollInterval = 10 * time.Millisecond

// Wait waits until the save in the background has ended on all ranks, and returns its error, once. Collective.
//
// If ctx ends while this rank's part is under way, Wait returns its error; the save goes on, and the call counts as not made: the other
// ranks wait for it until this one calls Wait again, or the timeout of the mesh passes.
func (c Checkpoint) Wait(ctx context.Context) error {
	defer c.keepAlive()
	for ctx.Done() != nil {
		done, err := c.Poll()
		if err != nil {
			return err
		}
		if done {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollInterval):
		}
	}
	return failure(capi.CheckpointWait(c.Shard.raw()))
}

// State returns what Save would write, as a state that shares memory with the run. Collective. flatOptimizerKeys:
// optim.param_groups.<parameter>.lr instead of optim.param_groups.0.lr.
func (c Checkpoint) State(flatOptimizerKeys bool) (*State, error) {
	defer c.keepAlive()
	var raw capi.State
	return madeState(&raw, capi.CheckpointGetState(c.Shard.raw(), c.Optimizer.raw(), c.Step.raw(), c.Loader.raw(),
		flag(flatOptimizerKeys), &raw))
}

// SetState is Load from a full state (State.Gather): each rank's own or, with options.FromRank0, that of rank 0; the other ranks then
// pass nil. Collective.
func (c Checkpoint) SetState(state *State, options *LoadOptions) error {
	defer c.keepAlive()
	defer runtime.KeepAlive(state)
	return failure(capi.CheckpointSetState(c.Shard.raw(), c.Optimizer.raw(), c.Step.raw(), c.Loader.raw(), state.raw(), options.raw()))
}

// SaveFull saves the model as one file: for torch.load if the path ends in .pth, .pt or .bin, otherwise as safetensors. Collective.
func (c Checkpoint) SaveFull(path string) error {
	defer c.keepAlive()
	return failure(capi.CheckpointSaveFull(c.Shard.raw(), path))
}

// LoadFull loads the model's parameters from any format. Every parameter must be there with its shape. Collective.
func (c Checkpoint) LoadFull(path string) error {
	defer c.keepAlive()
	return failure(capi.CheckpointLoadFull(c.Shard.raw(), path))
}

// SavePretrained saves config.json and the model's safetensors in a directory, which is created if missing. ModuleFromPretrained and the
// transformers library read the result. Collective.
func (c Checkpoint) SavePretrained(directory string) error {
	defer c.keepAlive()
	return failure(capi.CheckpointSavePretrained(c.Shard.raw(), directory))
}
