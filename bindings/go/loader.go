package fsdp2

import (
	"runtime"

	"fsdp2/internal/capi"
)

// Loader reads batches of token windows for this rank, from a flat token file, from any file as bytes, or from records in JSON lines
// (TokensRecords). With T tokens and sequence length S there are (T-1)/S windows. Window w is the S+1 tokens that begin at w*S: the first
// S are the inputs, the last S the labels. A window of records holds as many of the next ones as fit whole.
// One goroutine at a time uses a loader.
type Loader struct{ handle }

// Tokens is what a file consists of.
type Tokens int32

// The formats.
const (
	TokensAuto    Tokens = capi.TokensAuto    // little-endian uint16 up to a vocabulary of 65536, uint32 above
	TokensBytes   Tokens = capi.TokensBytes   // each byte of the file is a token of a vocabulary of 256
	TokensRecords Tokens = capi.TokensRecords // records in JSON lines, of which answers are labels; each byte is a token
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
}

// OpenLoader opens a file. Collective. Errors: ErrNotFound, ErrCorruptData (not a whole number of tokens), ErrInvalidArgument (less than
// one window, a GlobalBatch that is not a multiple of ranks x Accumulate, options that differ between ranks).
func OpenLoader(mesh *Mesh, path string, options LoaderOptions) (*Loader, error) {
	defer runtime.KeepAlive(mesh)
	given := defaults(capi.LoaderOptionsInit)
	given.Format, given.Order = int32(options.Format), int32(options.Order)
	if options.Accumulate != 0 {
		given.Accumulate = to32(options.Accumulate)
	}
	given.SequenceLength, given.GlobalBatch = int64(options.SequenceLength), int64(options.GlobalBatch)
	given.VocabSize, given.Seed = int64(options.VocabSize), options.Seed
	given.CutLongRecords, given.SkipBadRecords = flag(options.CutLongRecords), flag(options.SkipBadRecords)
	var raw capi.Loader
	return madeLoader(&raw, capi.LoaderOpen(mesh.raw(), path, &given, &raw))
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
