package fsdp2

import (
	"runtime"
	"time"

	"fsdp2/internal/capi"
)

// Step is one training step in one call: forward and backward of each micro batch, gradient norm, clipping, optimizer, schedule,
// zero-grad. The same pieces exist as calls of their own.
type Step struct{ handle }

// Schedule is how the learning rate goes on after the warm-up.
type Schedule int32

// The schedules.
const (
	ScheduleConstant Schedule = capi.ScheduleConstant
	ScheduleLinear   Schedule = capi.ScheduleLinear
	ScheduleCosine   Schedule = capi.ScheduleCosine
)

// NotFinite is what becomes of a step whose loss or gradient norm is infinite or NaN. All ranks come to the same decision.
type NotFinite int32

// The decisions.
const (
	NotFiniteError NotFinite = capi.NotFiniteError // ErrNotFinite on all ranks; nothing is updated (but see UpdateInBackward)
	NotFiniteSkip  NotFinite = capi.NotFiniteSkip  // nothing is updated, and the step counts
	NotFiniteApply NotFinite = capi.NotFiniteApply // as if nothing were wrong
)

// LossMean is what the loss of a step is the mean of.
type LossMean int32

// The means.
const (
	LossMeanMicroBatches LossMean = capi.LossMeanMicroBatches // their losses on all ranks, however many labels they have
	LossMeanLabels       LossMean = capi.LossMeanLabels       // the labels that count, in all micro batches and ranks
)

// StepOptions say what a step does. The zero value has the defaults, but for MaxSkipsInRow, which is no limit there and 100 in
// DefaultStepOptions.
type StepOptions struct {
	Accumulate     int  // micro batches per step; 0: 1
	AccumulateLast bool // reduce gradients at the last micro batch only
	VocabularyLast bool // reduce those of units with an embedding table or the head at the last micro batch only
	// CudaGraph makes steps of one shape replays of a CUDA graph, on GPUs. It excludes UpdateInBackward. Not yet run on a GPU.
	CudaGraph   bool
	Schedule    Schedule // after the warm-up
	WarmupSteps int
	TotalSteps  int     // length of the schedule, warm-up included
	MinLRRatio  float64 // final learning rate, as a fraction of the optimizer's
	MaxGradNorm float64 // 0: no clipping
	// LossScale is where dynamic loss scaling, for gradients in fp16, begins: 65536 is usual; 0 turns it off. A step whose gradients
	// overflow is not applied and halves the scale; LossScaleInterval steps in a row without overflow double it.
	LossScale         float64
	LossScaleInterval int // 0: 2000
	NotFinite         NotFinite
	MaxSkipsInRow     int // one more skipped step is ErrNotFinite; 0: no limit
	LossMean          LossMean
	// LossChunk is how many labels of a language model have their logits at a time: 1024 is usual; fewer need less memory and more time.
	// 0: by the vocabulary.
	LossChunk    int
	StartLRRatio float64 // where the warm-up begins, as a fraction of the optimizer's learning rate
	DecaySteps   int     // steps after which a linear or cosine schedule is at its final learning rate; 0: TotalSteps
	// UpdateInBackward updates each unit as soon as its gradients are reduced, and frees them: the same results in less memory. It
	// excludes what needs all gradients first, and an error amid the updates asks for a checkpoint (fsdp2_step_options in step.h).
	UpdateInBackward bool
}

// DefaultStepOptions returns the library's defaults.
func DefaultStepOptions() StepOptions {
	raw := defaults(capi.StepOptionsInit)
	return StepOptions{
		Accumulate:        int(raw.Accumulate),
		AccumulateLast:    raw.AccumulateLast != 0,
		VocabularyLast:    raw.VocabularyLast != 0,
		CudaGraph:         raw.CudaGraph != 0,
		Schedule:          Schedule(raw.Schedule),
		WarmupSteps:       int(raw.WarmupSteps),
		TotalSteps:        int(raw.TotalSteps),
		MinLRRatio:        raw.MinLrRatio,
		MaxGradNorm:       raw.MaxGradNorm,
		LossScale:         raw.LossScale,
		LossScaleInterval: int(raw.LossScaleInterval),
		NotFinite:         NotFinite(raw.NotFinite),
		MaxSkipsInRow:     int(raw.MaxSkipsInRow),
		LossMean:          LossMean(raw.LossMean),
		LossChunk:         int(raw.LossChunk),
		StartLRRatio:      raw.StartLrRatio,
		DecaySteps:        int(raw.DecaySteps),
		UpdateInBackward:  raw.UpdateInBackward != 0,
	}
}

func (o *StepOptions) raw() *capi.StepOptions {
	if o == nil {
		return nil
	}
	raw := defaults(capi.StepOptionsInit)
	if o.Accumulate != 0 {
		raw.Accumulate = to32(o.Accumulate)
	}
	if o.LossScaleInterval != 0 {
		raw.LossScaleInterval = int64(o.LossScaleInterval)
	}
	raw.AccumulateLast, raw.VocabularyLast = flag(o.AccumulateLast), flag(o.VocabularyLast)
	raw.CudaGraph = flag(o.CudaGraph)
	raw.Schedule, raw.WarmupSteps, raw.TotalSteps = int32(o.Schedule), int64(o.WarmupSteps), int64(o.TotalSteps)
	raw.MinLrRatio, raw.MaxGradNorm = o.MinLRRatio, o.MaxGradNorm
	raw.LossScale = o.LossScale
	raw.NotFinite, raw.MaxSkipsInRow, raw.LossMean = int32(o.NotFinite), to32(o.MaxSkipsInRow), int32(o.LossMean)
	raw.LossChunk, raw.UpdateInBackward = to32(o.LossChunk), flag(o.UpdateInBackward)
	raw.StartLrRatio, raw.DecaySteps = o.StartLRRatio, int64(o.DecaySteps)
	return &raw
}

// NewStep makes a step. Collective. The optimizer must belong to the shard; its learning rate at this call is the schedule's peak.
// options nil: DefaultStepOptions. ErrUnsupported for LossMeanLabels or a LossChunk on a module that does not count labels, for
// UpdateInBackward with Muon, and for CudaGraph where steps cannot be graphs (fsdp2_step_create in step.h).
func NewStep(shard *Shard, optimizer *Optimizer, options *StepOptions) (*Step, error) {
	defer runtime.KeepAlive(shard)
	defer runtime.KeepAlive(optimizer)
	var raw capi.Step
	return madeStep(&raw, capi.StepCreate(shard.raw(), optimizer.raw(), options.raw(), &raw))
}

func madeStep(raw *capi.Step, err error) (*Step, error) {
	if err != nil {
		return nil, failure(err)
	}
	step := &Step{}
	step.own(stepKind, raw.ID)
	return step, nil
}

func (s *Step) raw() capi.Step {
	if s == nil {
		return capi.Step{}
	}
	return capi.Step{ID: s.id}
}

// Close ends this owner of the step.
func (s *Step) Close() error {
	if s == nil {
		return nil
	}
	return s.close()
}

// Duplicate returns another owner of the same step.
func (s *Step) Duplicate() (*Step, error) {
	defer runtime.KeepAlive(s)
	var raw capi.Step
	return madeStep(&raw, capi.StepDuplicate(s.raw(), &raw))
}

// StepResult is what a step has done.
type StepResult struct {
	Step            int     // counts from 0
	Loss            float64 // before the update; see LossMean
	GradNorm        float64 // L2, before clipping, without the loss scale
	LR              float64
	Tokens          int  // over all ranks
	Labels          int  // that count, over all ranks; 0 for a module that does not count them
	Applied         bool // false: skipped, because of the loss scale or by NotFinite; nothing was updated
	Finite          bool // false: the loss or the gradient norm is infinite or NaN
	SkipsInRow      int  // steps not applied up to this one
	LossScale       float64
	Duration        time.Duration
	TokensPerSecond float64
	// PeakUnshardedBytes is of gathered parameters on this rank, so far.
	PeakUnshardedBytes int
	// Both means, whichever Loss is. NaN where micro batches have no labels that count.
	MeanOverMicroBatches, MeanOverLabels float64
}

// Run makes a step. Collective. The batch holds the inputs of each micro batch in turn, as Module.Forward takes them: tokens and labels
// for a language model, nil for one that is left out. The model's output must be its loss. After ErrNotFinite the step can be run
// again, with another batch.
func (s *Step) Run(batch ...*Tensor) (StepResult, error) {
	// A goroutine that has not been scheduled anew for 10 ms is taken for one that is stuck in C: Go's monitor takes its processor away and
	// looks every 20 us for a while, which is a tenth of the time of small steps.
	runtime.Gosched()
	defer runtime.KeepAlive(s)
	defer runtime.KeepAlive(batch)
	tensors, err := rawTensors(batch)
	if err != nil {
		return StepResult{}, err
	}
	raw := sized[capi.StepResult]()
	if err := capi.StepRun(s.raw(), first(tensors), uint(len(tensors)), &raw); err != nil {
		return StepResult{}, failure(err)
	}
	return StepResult{
		Step:                 int(raw.Step),
		Loss:                 raw.Loss,
		GradNorm:             raw.GradNorm,
		LR:                   raw.Lr,
		Tokens:               int(raw.NTokens),
		Labels:               int(raw.NLabels),
		Applied:              raw.Applied != 0,
		Finite:               raw.Finite != 0,
		SkipsInRow:           int(raw.SkipsInRow),
		LossScale:            raw.LossScale,
		Duration:             time.Duration(raw.Seconds * float64(time.Second)),
		TokensPerSecond:      raw.TokensPerSecond,
		PeakUnshardedBytes:   int(raw.PeakUnshardedBytes),
		MeanOverMicroBatches: raw.MeanOverMicroBatches,
		MeanOverLabels:       raw.MeanOverLabels,
	}, nil
}

// Position returns the number of the next step.
func (s *Step) Position() (int, error) {
	defer runtime.KeepAlive(s)
	var next int64
	err := capi.StepGetPosition(s.raw(), &next)
	return int(next), failure(err)
}

// SetPosition says where to continue, after a resume.
func (s *Step) SetPosition(next int) error {
	defer runtime.KeepAlive(s)
	return failure(capi.StepSetPosition(s.raw(), int64(next)))
}
