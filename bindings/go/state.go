package fsdp2

import (
	"runtime"

	"fsdp2/internal/capi"
)

// State is named tensors, of which each rank holds chunks, and small values. It is saved, loaded and gathered like the checkpoint of a
// shard, for what is not part of one and for full states in memory.
//
// All ranks add the same names in the same order, with the same dtypes and global shapes; the chunks differ. A rank that holds several
// chunks of a tensor adds it once for each of them; all other ranks then add it as many times in a row, with empty chunks where they
// have none. A state shares memory with its tensors: a save writes their values at that moment, and a load overwrites them. One
// goroutine at a time uses a state.
type State struct{ handle }

// NewState makes an empty state over all ranks of the mesh.
func NewState(mesh *Mesh) (*State, error) {
	defer runtime.KeepAlive(mesh)
	var raw capi.State
	return madeState(&raw, capi.StateCreate(mesh.raw(), &raw))
}

func madeState(raw *capi.State, err error) (*State, error) {
	if err != nil {
		return nil, failure(err)
	}
	state := &State{}
	state.own(stateKind, raw.ID)
	return state, nil
}

func (s *State) raw() capi.State {
	if s == nil {
		return capi.State{}
	}
	return capi.State{ID: s.id}
}

// Close ends this owner of the state.
func (s *State) Close() error {
	if s == nil {
		return nil
	}
	return s.close()
}

// Duplicate returns another owner of the same state.
func (s *State) Duplicate() (*State, error) {
	defer runtime.KeepAlive(s)
	var raw capi.State
	return madeState(&raw, capi.StateDuplicate(s.raw(), &raw))
}

// AddTensor adds a tensor that every rank holds whole.
func (s *State) AddTensor(name string, tensor *Tensor) error {
	defer runtime.KeepAlive(s)
	return tensor.call(func(raw capi.Tensor) error {
		return capi.StateAddTensor(s.raw(), name, nil, nil, 0, raw)
	})
}

// AddChunk adds the chunk at offsets of a tensor of the global shape, both with as many dims as the chunk. ErrInvalidArgument if the
// chunk lies outside.
func (s *State) AddChunk(name string, shape, offsets []int, chunk *Tensor) error {
	defer runtime.KeepAlive(s)
	if len(shape) != len(offsets) || len(shape) == 0 {
		return invalid("State.AddChunk", "shape and offsets: expected as many dims, and one at least, found %d and %d", len(shape),
			len(offsets))
	}
	sizes, starts := int64s(shape), int64s(offsets)
	return chunk.call(func(raw capi.Tensor) error {
		return capi.StateAddTensor(s.raw(), name, &sizes[0], &starts[0], uint(len(sizes)), raw)
	})
}

// AddValue adds a value as JSON: null, a flag, a number, a text, or a list of these; the same on all ranks.
func (s *State) AddValue(name, json string) error {
	defer runtime.KeepAlive(s)
	return failure(capi.StateAddValue(s.raw(), name, json))
}

// StateInfo describes a state.
type StateInfo struct {
	Tensors int // entries, one for each chunk
	Values  int
	Bytes   int // of this rank's chunks; not of values
}

// Info describes the state.
func (s *State) Info() (StateInfo, error) {
	defer runtime.KeepAlive(s)
	raw := sized[capi.StateInfo]()
	err := capi.StateGetInfo(s.raw(), &raw)
	return StateInfo{Tensors: int(raw.NTensors), Values: int(raw.NValues), Bytes: int(raw.NBytes)}, failure(err)
}

// Names lists the entries: first the tensors, one entry for each chunk, then the values.
func (s *State) Names() ([]string, error) {
	defer runtime.KeepAlive(s)
	var count uint
	if err := capi.StateGetCount(s.raw(), &count); err != nil {
		return nil, failure(err)
	}
	return namesOf(int(count), func(name int, buf *byte, cap uint, needed *uint) error {
		return capi.StateGetName(s.raw(), uint(name), buf, cap, needed)
	})
}

// Tensor returns this rank's (first) chunk, sharing its memory. ErrNotFound if there is no such tensor.
func (s *State) Tensor(name string) (*Tensor, error) {
	defer runtime.KeepAlive(s)
	var raw capi.Tensor
	return made(&raw, capi.StateGetTensor(s.raw(), name, &raw))
}

// Value returns a value as JSON. ErrNotFound if there is none, ErrUnsupported if JSON has no form for it.
func (s *State) Value(name string) (string, error) {
	defer runtime.KeepAlive(s)
	return text(func(buf *byte, cap uint, needed *uint) error {
		return capi.StateGetValue(s.raw(), name, buf, cap, needed)
	})
}

// StateSaveOptions say how to save a state.
type StateSaveOptions struct {
	Safetensors   bool // sharded safetensors: tensors only, one chunk of each per rank
	Threads       int  // writers on each rank, each with files of its own; 0: one
	FilePerTensor bool // one file for each tensor
	NoOverwrite   bool // ErrIO if anything exists at the path
}

// Save writes a directory in PyTorch's DCP format, as Checkpoint.Save does. Collective. options nil: the defaults.
func (s *State) Save(path string, options *StateSaveOptions) error {
	defer runtime.KeepAlive(s)
	raw := defaults(capi.StateSaveOptionsInit)
	if options != nil {
		raw.Safetensors, raw.FilePerTensor = flag(options.Safetensors), flag(options.FilePerTensor)
		raw.NoOverwrite = flag(options.NoOverwrite)
		if options.Threads != 0 {
			raw.Threads = to32(options.Threads)
		}
	}
	return failure(capi.StateSave(s.raw(), path, &raw))
}

// Load overwrites the state's tensors and values from a checkpoint of any format, however its tensors were cut; anything else in the
// checkpoint is ignored. Collective. Errors before anything is changed: ErrNotFound (missing names), ErrInvalidArgument (other shapes).
func (s *State) Load(path string) error {
	defer runtime.KeepAlive(s)
	return failure(capi.StateLoad(s.raw(), path))
}

// Gather returns a state of whole tensors, copied to the CPU: on every rank or, with rank0Only, on rank 0, while the others get empty
// states. Collective. ErrInvalidArgument if the chunks do not cover a tensor.
func (s *State) Gather(rank0Only bool) (*State, error) {
	defer runtime.KeepAlive(s)
	var raw capi.State
	return madeState(&raw, capi.StateGather(s.raw(), flag(rank0Only), &raw))
}
