package fsdp2

import (
	"runtime"

	"fsdp2/internal/capi"
)

// InferOptions say how forward-only work goes through the rows of a batch. Begin with DefaultInferOptions: a Temperature of 0 is refused.
type InferOptions struct {
	// ReshardAfterForward is ReshardAuto, as the units have it; ReshardAlways; or ReshardNever: what is gathered serves all forwards of
	// the call, which frees it at its end.
	ReshardAfterForward Reshard
	BatchSize           int     // rows of one forward, of which the last may have fewer; 0: all
	ChunkSize           int     // tokens whose logits exist at a time; 0: by the vocabulary
	Temperature         float64 // > 0; logits are divided by it
}

// DefaultInferOptions returns the library's defaults.
func DefaultInferOptions() InferOptions {
	raw := defaults(capi.InferOptionsInit)
	return InferOptions{
		ReshardAfterForward: Reshard(raw.ReshardAfterForward),
		BatchSize:           int(raw.BatchSize),
		ChunkSize:           int(raw.ChunkSize),
		Temperature:         raw.Temperature,
	}
}

func (o *InferOptions) raw() *capi.InferOptions {
	if o == nil {
		return nil
	}
	raw := sized[capi.InferOptions]()
	raw.ReshardAfterForward, raw.Temperature = int32(o.ReshardAfterForward), o.Temperature
	raw.BatchSize, raw.ChunkSize = int64(o.BatchSize), int64(o.ChunkSize)
	return &raw
}

// Score says of each label, without gradients and without ever holding all logits, its log-probability, and the entropy of the
// distribution in its place: both in nats, f32, 0 for labels of -100. Collective if the module is sharded. options nil:
// DefaultInferOptions. The inputs are those of Forward. Both results are [B,S]; without labels, each token's label is the next token, and
// they are [B,S-1].
//
// Ranks may have batches of different sizes, or of no rows ([0,S]), if they pass the same options apart from BatchSize: all make as many
// forwards as the rank with the most. Dropout is on in training mode (Eval turns it off). Errors: those of Forward; ErrUnsupported (a
// module that is no language model).
func (m *Module) Score(options *InferOptions, inputs ...*Tensor) (logProbs, entropies *Tensor, err error) {
	defer runtime.KeepAlive(m)
	defer runtime.KeepAlive(inputs)
	given, err := rawTensors(inputs)
	if err != nil {
		return nil, nil, err
	}
	scores := make([]capi.Tensor, 2)
	if err := capi.ModuleScore(m.raw(), first(given), uint(len(given)), options.raw(), &scores[0], &scores[1]); err != nil {
		return nil, nil, failure(err)
	}
	tensors, err := take(scores, scopeOf(inputs))
	if err != nil {
		return nil, nil, err
	}
	return tensors[0], tensors[1], nil
}

// Evaluation is the loss of a batch.
type Evaluation struct {
	Labels int     // that count, over all ranks
	Loss   float64 // their mean cross-entropy; NaN if there are none
}

// Evaluate returns the loss of a batch without gradients, over the labels of all ranks; otherwise it is as Score. The mean of several
// batches is that of their losses weighted by Labels.
func (m *Module) Evaluate(options *InferOptions, inputs ...*Tensor) (Evaluation, error) {
	defer runtime.KeepAlive(m)
	defer runtime.KeepAlive(inputs)
	given, err := rawTensors(inputs)
	if err != nil {
		return Evaluation{}, err
	}
	raw := sized[capi.Evaluation]()
	if err := capi.ModuleEvaluate(m.raw(), first(given), uint(len(given)), options.raw(), &raw); err != nil {
		return Evaluation{}, failure(err)
	}
	return Evaluation{Labels: int(raw.NLabels), Loss: raw.Loss}, nil
}
