package fsdp2

import (
	"runtime"

	"fsdp2/internal/capi"
)

// Optimizer updates a shard's parameters. Its state lies beside the rank's own rows. At first every parameter is in one group; more
// groups can be added, alike on all ranks.
type Optimizer struct{ handle }

// AdamWOptions are AdamW's (Loshchilov and Hutter, 2019): decoupled decay, bias-corrected; or Adam's. Begin with DefaultAdamWOptions: an
// Eps of 0, as a literal without it has, is refused, and an LR of 0 trains nothing.
type AdamWOptions struct {
	LR, Beta1, Beta2, Eps, WeightDecay float64
	CoupledDecay                       bool // Adam, whose weight decay is added to the gradient
	// StateDtype is that of both moments, such as DtypeBF16 beside parameters in fp32, in half the memory. DtypeKeep: each parameter's own,
	// or, of a group, the optimizer's.
	StateDtype Dtype
}

// DefaultAdamWOptions returns the library's defaults, which are PyTorch's.
func DefaultAdamWOptions() AdamWOptions {
	raw := defaults(capi.AdamwOptionsInit)
	return AdamWOptions{
		LR:           raw.Lr,
		Beta1:        raw.Beta1,
		Beta2:        raw.Beta2,
		Eps:          raw.Eps,
		WeightDecay:  raw.WeightDecay,
		CoupledDecay: raw.CoupledDecay != 0,
		StateDtype:   Dtype(raw.StateDtype),
	}
}

func (o *AdamWOptions) check(function string) error {
	if o == nil {
		return nil
	}
	return checkEps(function, "DefaultAdamWOptions", o.Eps)
}

// checkEps refuses what a literal without it has: NaN for each element whose gradients have all been 0.
func checkEps(function, defaults string, eps float64) error {
	if eps != 0 {
		return nil
	}
	return invalid(function, "options: Eps is 0: begin with %s, whose fields have the usual values", defaults)
}

func (o *AdamWOptions) raw() *capi.AdamwOptions {
	if o == nil {
		return nil
	}
	raw := sized[capi.AdamwOptions]()
	raw.Lr, raw.Beta1, raw.Beta2, raw.Eps, raw.WeightDecay = o.LR, o.Beta1, o.Beta2, o.Eps, o.WeightDecay
	raw.CoupledDecay, raw.StateDtype = flag(o.CoupledDecay), int32(o.StateDtype)
	return &raw
}

// SGDOptions are those of SGD with momentum, without dampening; weight decay is added to the gradient. An LR of 0 trains nothing: begin
// with DefaultSGDOptions.
type SGDOptions struct {
	LR, Momentum, WeightDecay float64
	Nesterov                  bool
}

// DefaultSGDOptions returns the library's defaults, which are PyTorch's.
func DefaultSGDOptions() SGDOptions {
	raw := defaults(capi.SgdOptionsInit)
	return SGDOptions{LR: raw.Lr, Momentum: raw.Momentum, WeightDecay: raw.WeightDecay, Nesterov: raw.Nesterov != 0}
}

func (o *SGDOptions) raw() *capi.SgdOptions {
	if o == nil {
		return nil
	}
	raw := sized[capi.SgdOptions]()
	raw.Lr, raw.Momentum, raw.WeightDecay, raw.Nesterov = o.LR, o.Momentum, o.WeightDecay, flag(o.Nesterov)
	return &raw
}

// MuonOptions are those of Muon (Jordan, 2024) for the matrices of hidden layers, and of AdamW for the rest. Begin with
// DefaultMuonOptions: an Eps of 0 is refused, and an LR of 0 trains nothing.
type MuonOptions struct {
	LR, WeightDecay   float64 // of all groups; the decay is decoupled
	Momentum          float64 // of matrices
	MatchedAdamWRMS   float64 // the rate of a matrix is LR times this times the root of its longer side; 0: Jordan's own scale
	NewtonSchulzSteps int     // of the iteration that makes a matrix orthogonal: 1 to 99
	NoNesterov        bool    // plain momentum
	Beta1, Beta2, Eps float64 // of AdamW
}

// DefaultMuonOptions returns the library's defaults.
func DefaultMuonOptions() MuonOptions {
	raw := defaults(capi.MuonOptionsInit)
	return MuonOptions{
		LR:                raw.Lr,
		WeightDecay:       raw.WeightDecay,
		Momentum:          raw.Momentum,
		MatchedAdamWRMS:   raw.MatchedAdamwRms,
		NewtonSchulzSteps: int(raw.NewtonSchulzSteps),
		NoNesterov:        raw.NoNesterov != 0,
		Beta1:             raw.Beta1,
		Beta2:             raw.Beta2,
		Eps:               raw.Eps,
	}
}

func (o *MuonOptions) raw() *capi.MuonOptions {
	if o == nil {
		return nil
	}
	raw := sized[capi.MuonOptions]()
	raw.Lr, raw.WeightDecay, raw.Momentum, raw.MatchedAdamwRms = o.LR, o.WeightDecay, o.Momentum, o.MatchedAdamWRMS
	raw.NewtonSchulzSteps, raw.NoNesterov = to32(o.NewtonSchulzSteps), flag(o.NoNesterov)
	raw.Beta1, raw.Beta2, raw.Eps = o.Beta1, o.Beta2, o.Eps
	return &raw
}

// NewAdamW makes an AdamW optimizer. options nil: DefaultAdamWOptions.
func NewAdamW(shard *Shard, options *AdamWOptions) (*Optimizer, error) {
	defer runtime.KeepAlive(shard)
	if err := options.check("NewAdamW"); err != nil {
		return nil, err
	}
	var raw capi.Optimizer
	return madeOptimizer(&raw, capi.OptimizerCreateAdamw(shard.raw(), options.raw(), &raw))
}

// NewSGD makes an SGD optimizer. options nil: DefaultSGDOptions.
func NewSGD(shard *Shard, options *SGDOptions) (*Optimizer, error) {
	defer runtime.KeepAlive(shard)
	var raw capi.Optimizer
	return madeOptimizer(&raw, capi.OptimizerCreateSgd(shard.raw(), options.raw(), &raw))
}

// NewMuon makes Muon for the matrices of hidden layers, and AdamW for the rest in a second group. options nil: DefaultMuonOptions. Its
// Run is collective.
func NewMuon(shard *Shard, options *MuonOptions) (*Optimizer, error) {
	defer runtime.KeepAlive(shard)
	if options != nil {
		if err := checkEps("NewMuon", "DefaultMuonOptions", options.Eps); err != nil {
			return nil, err
		}
	}
	var raw capi.Optimizer
	return madeOptimizer(&raw, capi.OptimizerCreateMuon(shard.raw(), options.raw(), &raw))
}

func madeOptimizer(raw *capi.Optimizer, err error) (*Optimizer, error) {
	if err != nil {
		return nil, failure(err)
	}
	optimizer := &Optimizer{}
	optimizer.own(optimizerKind, raw.ID)
	return optimizer, nil
}

func (o *Optimizer) raw() capi.Optimizer {
	if o == nil {
		return capi.Optimizer{}
	}
	return capi.Optimizer{ID: o.id}
}

// Close ends this owner of the optimizer. It lives on in its steps.
func (o *Optimizer) Close() error {
	if o == nil {
		return nil
	}
	return o.close()
}

// Duplicate returns another owner of the same optimizer.
func (o *Optimizer) Duplicate() (*Optimizer, error) {
	defer runtime.KeepAlive(o)
	var raw capi.Optimizer
	return madeOptimizer(&raw, capi.OptimizerDuplicate(o.raw(), &raw))
}

// Run updates every shard that has a gradient, once. Muon's is collective; the others communicate nothing.
func (o *Optimizer) Run() error {
	defer runtime.KeepAlive(o)
	return failure(capi.OptimizerRun(o.raw()))
}

// LR returns the learning rate of the first group.
func (o *Optimizer) LR() (float64, error) {
	defer runtime.KeepAlive(o)
	var lr float64
	err := capi.OptimizerGetLr(o.raw(), &lr)
	return lr, failure(err)
}

// SetLR sets the learning rate of the first group; those of the other groups follow it, each in a ratio of its own. Step.Run sets it in
// every step.
func (o *Optimizer) SetLR(lr float64) error {
	defer runtime.KeepAlive(o)
	return failure(capi.OptimizerSetLr(o.raw(), lr))
}

// State returns the state of a parameter, by the index that the shard has for it and by torch.optim's name: "exp_avg", "exp_avg_sq" and
// "step" of AdamW, "momentum_buffer" of SGD and Muon. part is ParameterLocal, which shares memory with the optimizer, or ParameterFull,
// a copy, which is collective. ErrNotFound if the parameter is frozen or has no such state.
func (o *Optimizer) State(parameter int, name string, part Part) (*Tensor, error) {
	defer runtime.KeepAlive(o)
	var raw capi.Tensor
	return made(&raw, capi.OptimizerGetState(o.raw(), uint(parameter), name, int32(part), &raw))
}

// Algorithm is what an optimizer does.
type Algorithm int32

// The algorithms.
const (
	AlgorithmAdamW Algorithm = capi.OptimizerAdamw
	AlgorithmSGD   Algorithm = capi.OptimizerSgd
	AlgorithmMuon  Algorithm = capi.OptimizerMuon
)

// OptimizerInfo describes an optimizer.
type OptimizerInfo struct {
	Algorithm     Algorithm
	Groups        int // 1 until groups are added
	Parameters    int // those of the shard that are not frozen, a tied parameter once
	Bytes         int // of this rank's state
	ReceivedBytes int // from other ranks in all updates so far; 0 but for Muon
	FullBytes     int // what Bytes is once every parameter has been updated
}

// Info describes the optimizer.
func (o *Optimizer) Info() (OptimizerInfo, error) {
	defer runtime.KeepAlive(o)
	raw := sized[capi.OptimizerInfo]()
	err := capi.OptimizerGetInfo(o.raw(), &raw)
	return OptimizerInfo{
		Algorithm:     Algorithm(raw.Algorithm),
		Groups:        int(raw.NGroups),
		Parameters:    int(raw.NParameters),
		Bytes:         int(raw.NBytes),
		ReceivedBytes: int(raw.NReceivedBytes),
		FullBytes:     int(raw.NFullBytes),
	}, failure(err)
}
