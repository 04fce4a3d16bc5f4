package fsdp2

import (
	"runtime"
	"unsafe"

	"fsdp2/internal/capi"
)

// AddAdamWGroup moves parameters, by any of their names, out of the first group into a new one with its own options. The new group's
// learning rate keeps the ratio that options.LR has now to the optimizer's. Errors, with nothing changed: ErrNotFound (a name),
// ErrInvalidArgument (a parameter that is frozen or in another group; an optimizer of the other algorithm; an empty first group),
// ErrWrongState (the optimizer's learning rate is 0).
func (o *Optimizer) AddAdamWGroup(names []string, options *AdamWOptions) error {
	defer runtime.KeepAlive(o)
	if err := options.check("AddAdamWGroup"); err != nil {
		return err
	}
	return failure(withNames(names, func(array *unsafe.Pointer, n uint) error {
		return capi.OptimizerAddAdamwGroup(o.raw(), array, n, options.raw())
	}))
}

// AddSGDGroup is AddAdamWGroup for SGD.
func (o *Optimizer) AddSGDGroup(names []string, options *SGDOptions) error {
	defer runtime.KeepAlive(o)
	return failure(withNames(names, func(array *unsafe.Pointer, n uint) error {
		return capi.OptimizerAddSgdGroup(o.raw(), array, n, options.raw())
	}))
}

// NoDecay says which parameters ExemptFromDecay is for; several are joined by |.
type NoDecay uint32

// The parameters.
const (
	NoDecayNorms  NoDecay = capi.NoDecayNorms  // those of modules whose class has "Norm" in its name
	NoDecayBiases NoDecay = capi.NoDecayBiases // those whose name ends in "bias"
)

// ExemptFromDecay sets the weight decay of some parameters to 0. They move out of their group into a new one.
func (o *Optimizer) ExemptFromDecay(which NoDecay) error {
	defer runtime.KeepAlive(o)
	return failure(capi.OptimizerExemptFromDecay(o.raw(), uint32(which)))
}

// ExemptNamedFromDecay sets the weight decay of the parameters whose name one of these matches as a whole to 0; they may be patterns, as
// ScaleLR has them. Errors, with nothing changed: ErrNotFound (a name without a parameter that is not frozen), ErrInvalidArgument (none).
func (o *Optimizer) ExemptNamedFromDecay(names ...string) error {
	return o.exempt(names, 0)
}

// ExemptClassesFromDecay sets the weight decay of all parameters at and below modules of these classes to 0. Errors are those of
// ExemptNamedFromDecay.
func (o *Optimizer) ExemptClassesFromDecay(classes ...string) error {
	return o.exempt(classes, capi.NoDecayByClass)
}

func (o *Optimizer) exempt(names []string, flags uint32) error {
	defer runtime.KeepAlive(o)
	return failure(withNames(names, func(array *unsafe.Pointer, n uint) error {
		return capi.OptimizerExemptNamedFromDecay(o.raw(), array, n, flags)
	}))
}

// ScaleNamedLR is ScaleLR for the parameters that one of the patterns matches, each once and as one rule.
func (o *Optimizer) ScaleNamedLR(patterns []string, factor float64) error {
	defer runtime.KeepAlive(o)
	return failure(withNames(patterns, func(array *unsafe.Pointer, n uint) error {
		return capi.OptimizerScaleNamedLr(o.raw(), array, n, factor)
	}))
}

// ScaleLR multiplies the learning rate of the parameters whose name the pattern matches as a whole, now and through schedules. Patterns
// are those of the shell: * is any text, ? any character, [0-3] one of these. Errors, with nothing changed: ErrNotFound (no parameter
// that is not frozen matches), ErrInvalidArgument (the factor; a pattern for all of the first group).
func (o *Optimizer) ScaleLR(pattern string, factor float64) error {
	defer runtime.KeepAlive(o)
	return failure(capi.OptimizerScaleLr(o.raw(), pattern, factor))
}

// OptimizerGroupInfo describes a group. What the algorithm does not have is 0.
type OptimizerGroupInfo struct {
	LR, Beta1, Beta2, Eps, WeightDecay, Momentum float64
	Nesterov                                     bool
	NewtonSchulzSteps                            int // of matrices of Muon, as MatchedAdamWRMS
	MatchedAdamWRMS                              float64
	Parameters                                   []int // their indices in the shard, ascending
}

// Group describes a group. Groups count from 0, the first one, in the order in which they were added.
func (o *Optimizer) Group(group int) (OptimizerGroupInfo, error) {
	defer runtime.KeepAlive(o)
	raw := sized[capi.OptimizerGroupInfo]()
	if err := capi.OptimizerGetGroupInfo(o.raw(), uint(group), &raw); err != nil {
		return OptimizerGroupInfo{}, failure(err)
	}
	parameters, err := list(func(array *uint, cap uint, needed *uint) error {
		return capi.OptimizerGetGroupParameters(o.raw(), uint(group), array, cap, needed)
	})
	return OptimizerGroupInfo{
		LR:                raw.Lr,
		Beta1:             raw.Beta1,
		Beta2:             raw.Beta2,
		Eps:               raw.Eps,
		WeightDecay:       raw.WeightDecay,
		Momentum:          raw.Momentum,
		Nesterov:          raw.Nesterov != 0,
		NewtonSchulzSteps: int(raw.NewtonSchulzSteps),
		MatchedAdamWRMS:   raw.MatchedAdamwRms,
		Parameters:        ints(parameters),
	}, err
}

// SetGroupLR sets the learning rate of one group, which from now on follows the first group's in the new ratio, through schedules too.
// ErrWrongState if the first group's rate is 0, which leaves no ratio.
func (o *Optimizer) SetGroupLR(group int, lr float64) error {
	defer runtime.KeepAlive(o)
	return failure(capi.OptimizerSetGroupLr(o.raw(), uint(group), lr))
}

// SetGroupWeightDecay sets the weight decay of one group alone.
func (o *Optimizer) SetGroupWeightDecay(group int, weightDecay float64) error {
	defer runtime.KeepAlive(o)
	return failure(capi.OptimizerSetGroupWeightDecay(o.raw(), uint(group), weightDecay))
}
