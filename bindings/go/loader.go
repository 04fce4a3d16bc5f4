package fsdp2

import (
	"runtime"

	"fsdp2/internal/capi"
)

// Loader reads batches of token windows for this rank, from a flat token file, from any text, or from records in JSON lines
// (TokensRecords). With T tokens and sequence length S a file has (T-1)/S windows. Window w is the S+1 tokens that begin at w*S: the
// first S are the inputs, the last S the labels. A window of records holds as many of the next ones as fit whole.
// One goroutine at a time uses a loader.
type Loader struct{ handle }

// Tokens is what a file consists of.
type Tokens int32

// The formats.
const (
	TokensAuto    Tokens = capi.TokensAuto    // little-endian uint16 up to a vocabulary of 65536, uint32 above
	TokensBytes   Tokens = capi.TokensBytes   // text: each byte is a token, or it has those of a Tokenizer
	TokensRecords Tokens = capi.TokensRecords // records in JSON lines, of which answers are labels; tokens as for texts
)

// Order is the order of windows.
type Order int32

// The orders.
const (
	OrderSequential Order = capi.OrderSequential // file order, wrapping around
	OrderShuffled   Order = capi.OrderShuffled   // a new permutation for each epoch, by seed
)

// LoaderOptions say what to read. SequenceLength, GlobalBatch and VocabSize have no defaults.
type LoaderOptions struct {
	Format         Tokens
	Order          Order
	Accumulate     int // micro batches per step; 0: 1
	SequenceLength int // S
	GlobalBatch    int // windows per step, over all ranks and micro batches
	VocabSize      int // every token must be below it
	Seed           uint64
	// CutLongRecords leaves out the end of records that do not fit a window, and SkipBadRecords lines that are no record or have no
	// answer. Otherwise they are errors.
	CutLongRecords, SkipBadRecords bool
	// DropLast leaves out the windows of a shuffled epoch that do not fill a step. Otherwise its first windows fill that step.
	DropLast  bool
	ReadAhead int    // batches that a thread prepares while the caller computes
	Tokenizer string // a tokenizer.json, or a directory with one: the tokens of texts and records; none: bytes
	// VisionModel is the config.json of the model, or the directory with it: records may have images if it sees any.
	VisionModel string
}

func (o *LoaderOptions) raw(memory *capi.Memory) *capi.LoaderOptions {
	given := defaults(capi.LoaderOptionsInit)
	given.Format, given.Order = int32(o.Format), int32(o.Order)
	if o.Accumulate != 0 {
		given.Accumulate = to32(o.Accumulate)
	}
	given.SequenceLength, given.GlobalBatch = int64(o.SequenceLength), int64(o.GlobalBatch)
	given.VocabSize, given.Seed = int64(o.VocabSize), o.Seed
	given.CutLongRecords, given.SkipBadRecords = flag(o.CutLongRecords), flag(o.SkipBadRecords)
	given.DropLast, given.ReadAhead = flag(o.DropLast), to32(o.ReadAhead)
	given.Tokenizer = memory.OptionalString(o.Tokenizer)
	given.VisionModel = memory.OptionalString(o.VisionModel)
	return &given
}

// OpenLoader opens a file. Collective. Errors: ErrNotFound, ErrCorruptData (not a whole number of tokens), ErrInvalidArgument (less than
// one window, a GlobalBatch that is not a multiple of ranks x Accumulate, options that differ between ranks).
func OpenLoader(mesh *Mesh, path string, options LoaderOptions) (*Loader, error) {
	defer runtime.KeepAlive(mesh)
	var memory capi.Memory
	defer memory.Free()
	var raw capi.Loader
	return madeLoader(&raw, capi.LoaderOpen(mesh.raw(), path, options.raw(&memory), &raw))
}

// OpenMixture opens several files of one format as one, by weights, of which only the proportions count. Each file has epochs of its
// own. Collective.
func OpenMixture(mesh *Mesh, paths []string, weights []float64, options LoaderOptions) (*Loader, error) {
	defer runtime.KeepAlive(mesh)
	if len(paths) != len(weights) {
		return nil, invalid("OpenMixture", "weights: expected %d, one for each path, found %d", len(paths), len(weights))
	}
	var memory capi.Memory
	defer memory.Free()
	var raw capi.Loader
	err := capi.LoaderOpenMixture(mesh.raw(), memory.Strings(paths), first(weights), uint(len(paths)), options.raw(&memory), &raw)
	return madeLoader(&raw, err)
}

// LoaderInfo says how much there is to read.
type LoaderInfo struct {
	Windows       int // of all files, each counted once
	StepsPerEpoch int // that they are enough for, rounded up; down with DropLast
	Images        int // in all windows
	Videos        int // in all windows
	VideoInputs   int // of a Forward that the videos of a batch are: 3 for qwen2_5_vl, 2 for qwen3_vl, 0 without videos
}

// Info says how much there is to read.
func (l *Loader) Info() (LoaderInfo, error) {
	defer runtime.KeepAlive(l)
	raw := sized[capi.LoaderInfo]()
	err := capi.LoaderGetInfo(l.raw(), &raw)
	info := LoaderInfo{Windows: int(raw.NWindows), StepsPerEpoch: int(raw.StepsPerEpoch), Images: int(raw.NImages),
		Videos: int(raw.NVideos), VideoInputs: int(raw.NVideoInputs)}
	return info, failure(err)
}

func madeLoader(raw *capi.Loader, err error) (*Loader, error) {
	if err != nil {
		return nil, failure(err)
	}
	loader := &Loader{}
	loader.own(loaderKind, raw.ID)
	return loader, nil
}

func (l *Loader) raw() capi.Loader {
	if l == nil {
		return capi.Loader{}
	}
	return capi.Loader{ID: l.id}
}

// Close ends this owner of the loader.
func (l *Loader) Close() error {
	if l == nil {
		return nil
	}
	return l.close()
}

// Duplicate returns another owner of the same loader.
func (l *Loader) Duplicate() (*Loader, error) {
	defer runtime.KeepAlive(l)
	var raw capi.Loader
	return madeLoader(&raw, capi.LoaderDuplicate(l.raw(), &raw))
}

// Next returns the next micro batch of this rank: tokens and labels, both i64 [GlobalBatch/(ranks*Accumulate), SequenceLength].
// ErrCorruptData for a token outside the vocabulary, with its position.
func (l *Loader) Next() (tokens, labels *Tensor, err error) {
	defer runtime.KeepAlive(l)
	var batch [2]capi.Tensor
	if err := capi.LoaderNext(l.raw(), &batch[0], &batch[1]); err != nil {
		return nil, nil, failure(err)
	}
	return newTensor(batch[0]), newTensor(batch[1]), nil
}

// Positions returns the positions of the tokens that the last Next returned, for the module's Forward after the labels: they begin anew
// in each record. Records need them.
func (l *Loader) Positions() (*Tensor, error) {
	defer runtime.KeepAlive(l)
	var positions capi.Tensor
	if err := capi.LoaderGetPositions(l.raw(), &positions); err != nil {
		return nil, failure(err)
	}
	return newTensor(positions), nil
}

// Boundaries returns where the sequences of the last batch begin, for the module's Forward as its mask. A model that sees images needs
// them in place of the positions.
func (l *Loader) Boundaries() (*Tensor, error) {
	defer runtime.KeepAlive(l)
	var boundaries capi.Tensor
	if err := capi.LoaderGetBoundaries(l.raw(), &boundaries); err != nil {
		return nil, failure(err)
	}
	return newTensor(boundaries), nil
}

// Images returns the images of the last batch, for the module's Forward after the mask. Both are nil where it has none.
func (l *Loader) Images() (pixelValues, imageGridThw *Tensor, err error) {
	defer runtime.KeepAlive(l)
	var images [2]capi.Tensor
	if err := capi.LoaderGetImages(l.raw(), &images[0], &images[1]); err != nil {
		return nil, nil, failure(err)
	}
	if images[0].ID == 0 {
		return nil, nil, nil
	}
	return newTensor(images[0]), newTensor(images[1]), nil
}

// Videos returns the videos of the last batch, for the module's Forward after the images. All are nil where it has none, and
// secondPerGridTs for models that take none.
func (l *Loader) Videos() (pixelValuesVideos, videoGridThw, secondPerGridTs *Tensor, err error) {
	defer runtime.KeepAlive(l)
	var videos [3]capi.Tensor
	if err := capi.LoaderGetVideos(l.raw(), &videos[0], &videos[1], &videos[2]); err != nil {
		return nil, nil, nil, failure(err)
	}
	if videos[0].ID == 0 {
		return nil, nil, nil, nil
	}
	if videos[2].ID != 0 {
		secondPerGridTs = newTensor(videos[2])
	}
	return newTensor(videos[0]), newTensor(videos[1]), secondPerGridTs, nil
}

// Position returns the number of steps taken from the loader so far.
func (l *Loader) Position() (int, error) {
	defer runtime.KeepAlive(l)
	var step int64
	err := capi.LoaderGetPosition(l.raw(), &step)
	return int(step), failure(err)
}

// SetPosition says where to continue.
func (l *Loader) SetPosition(step int) error {
	defer runtime.KeepAlive(l)
	return failure(capi.LoaderSetPosition(l.raw(), int64(step)))
}
