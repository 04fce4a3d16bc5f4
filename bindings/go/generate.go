package fsdp2

import (
	"runtime"

	"fsdp2/internal/capi"
)

// GenerateOptions say how Generate and GenerateBatch choose tokens. In the zero value, MaxNewTokens is 0: nothing is generated. The rest
// are the defaults.
type GenerateOptions struct {
	MaxNewTokens        int     // 0 to 2^24
	TopK                int     // only the so many most likely tokens; 0: all
	TopP                float64 // of what TopK leaves, the fewest tokens that are as likely together; 0: all
	Temperature         float64 // 0: always the most likely token
	Seed                uint64
	StopTokens          []int64 // each ends the row that it is generated in
	FirstRow            int     // the number of this rank's first prompt among those of all ranks, from 0
	ReshardAfterForward Reshard // as in InferOptions; each token takes a forward

	// Images and videos of this rank's prompts, row by row: the inputs of Forward from pixel_values on, nil for one that is left out.
	VisionInputs []*Tensor
}

// DefaultGenerateOptions returns the library's defaults.
func DefaultGenerateOptions() GenerateOptions {
	raw := defaults(capi.GenerateOptionsInit)
	return GenerateOptions{
		MaxNewTokens:        int(raw.MaxNewTokens),
		TopK:                int(raw.TopK),
		TopP:                raw.TopP,
		Temperature:         raw.Temperature,
		Seed:                raw.Seed,
		FirstRow:            int(raw.FirstRow),
		ReshardAfterForward: Reshard(raw.ReshardAfterForward),
	}
}

func (o *GenerateOptions) raw(memory *capi.Memory) *capi.GenerateOptions {
	if o == nil {
		return nil
	}
	raw := sized[capi.GenerateOptions]()
	raw.MaxNewTokens, raw.TopK, raw.TopP = to32(o.MaxNewTokens), to32(o.TopK), o.TopP
	raw.Temperature, raw.Seed, raw.FirstRow = o.Temperature, o.Seed, int64(o.FirstRow)
	raw.ReshardAfterForward = int32(o.ReshardAfterForward)
	raw.StopTokens, raw.NStopTokens = capi.Numbers(memory, o.StopTokens), uint(len(o.StopTokens))
	return &raw
}

// seeing is raw with the images.
func (o *GenerateOptions) seeing(memory *capi.Memory) (*capi.GenerateOptions, error) {
	raw := o.raw(memory)
	if raw == nil {
		return nil, nil
	}
	handles, err := rawTensors(o.VisionInputs)
	if err != nil {
		return nil, err
	}
	raw.VisionInputs, raw.NVisionInputs = capi.Numbers(memory, handles), uint(len(handles))
	return raw, nil
}

// Generate goes on with one prompt: at most MaxNewTokens tokens, a stop token included. Collective if the module is sharded. Ranks that
// pass the same prompt get the same tokens; otherwise it is as GenerateBatch. options nil: DefaultGenerateOptions.
func (m *Module) Generate(prompt []int64, options *GenerateOptions) ([]int64, error) {
	defer runtime.KeepAlive(m)
	own := DefaultGenerateOptions()
	if options != nil {
		own = *options
	}
	var memory capi.Memory
	defer memory.Free()
	defer runtime.KeepAlive(own.VisionInputs)
	raw, err := own.seeing(&memory)
	if err != nil {
		return nil, err
	}
	const most = 1 << 24
	var tokens []int64
	if own.MaxNewTokens > 0 && own.MaxNewTokens <= most { // the library refuses others, on all ranks
		tokens = make([]int64, own.MaxNewTokens)
	}
	var n uint
	if err := capi.ModuleGenerate(m.raw(), first(prompt), uint(len(prompt)), raw, first(tokens), uint(len(tokens)), &n); err != nil {
		return nil, failure(err)
	}
	return tokens[:n], nil
}

// GenerateBatch goes on with several prompts at once and returns what each becomes: at most MaxNewTokens tokens, a stop token included.
// Only the last tokens of a prompt that is longer than the model's positions are seen. options nil: DefaultGenerateOptions.
//
// Sampling draws by the seed and the number of the row, so that a prompt goes on alike whatever prompts are beside it and whichever rank
// has it, as far as rounding does not decide. Collective if the module is sharded: ranks pass prompts of their own, or none, and the same
// options apart from FirstRow; all make forwards until the last row of any rank has ended. Errors: ErrInvalidArgument (an empty prompt,
// tokens outside the vocabulary), ErrUnsupported (a module that is no language model).
func (m *Module) GenerateBatch(prompts [][]int64, options *GenerateOptions) ([][]int64, error) {
	defer runtime.KeepAlive(m)
	padded, lengths, err := pad(prompts)
	if err != nil {
		return nil, err
	}
	defer padded.Close()
	var memory capi.Memory
	defer memory.Free()
	defer runtime.KeepAlive(options)
	raw, err := options.seeing(&memory)
	if err != nil {
		return nil, err
	}
	var rawTokens, rawCounts capi.Tensor
	if err := capi.ModuleGenerateBatch(m.raw(), padded.raw(), first(lengths), uint(len(lengths)), raw,
		&rawTokens, &rawCounts); err != nil {
		return nil, failure(err)
	}
	tokens, counts := newTensor(rawTokens), newTensor(rawCounts)
	defer tokens.Close()
	defer counts.Close()
	return cut(tokens, counts)
}

// pad makes one tensor [B,S] of rows of any lengths.
func pad(rows [][]int64) (tensor *Tensor, lengths []int64, err error) {
	longest := 1
	for _, row := range rows {
		if len(row) > longest {
			longest = len(row)
		}
	}
	all := make([]int64, len(rows)*longest)
	lengths = make([]int64, len(rows))
	for i, row := range rows {
		lengths[i] = int64(copy(all[i*longest:], row))
	}
	tensor, err = FromSlice(all, len(rows), longest)
	return tensor, lengths, err
}

// cut makes rows of their own lengths of a tensor [B,S].
func cut(tensor, lengths *Tensor) ([][]int64, error) {
	all, err := ToSlice[int64](tensor)
	if err != nil {
		return nil, err
	}
	counts, err := ToSlice[int64](lengths)
	if err != nil {
		return nil, err
	}
	rows := make([][]int64, len(counts))
	for i, count := range counts {
		begin := i * (len(all) / len(counts))
		rows[i] = all[begin : begin+int(count) : begin+int(count)]
	}
	return rows, nil
}
