package fsdp2

import (
	"runtime"

	"fsdp2/internal/capi"
)

// Generator is a source of random numbers. An operator that draws takes one as its argument generator, and what it draws then depends on
// that one alone. Goroutines may share it: each operator has it for itself.
//
//	noise := fsdp2.Call("aten::randn.generator", []int{2, 3}, generator)
//
// A forward that draws draws the same again under activation checkpointing. Ranks that are to draw the same begin with the same seed.
type Generator struct{ handle }

func madeGenerator(raw *capi.Generator, err error) (*Generator, error) {
	if err != nil {
		return nil, failure(err)
	}
	generator := &Generator{}
	generator.own(generatorKind, raw.ID)
	return generator, nil
}

// NewGenerator makes a generator that begins with a seed.
func NewGenerator(seed uint64) (*Generator, error) {
	var raw capi.Generator
	return madeGenerator(&raw, capi.GeneratorCreate(seed, &raw))
}

func (g *Generator) raw() capi.Generator {
	if g == nil {
		return capi.Generator{}
	}
	return capi.Generator{ID: g.id}
}

// State returns all that the next numbers depend on, as bytes.
func (g *Generator) State() (*Tensor, error) {
	defer runtime.KeepAlive(g)
	var raw capi.Tensor
	return made(&raw, capi.GeneratorGetState(g.raw(), &raw))
}

// SetState goes on from a State, of this generator or another. ErrInvalidArgument for a tensor that is none.
func (g *Generator) SetState(state *Tensor) error {
	defer runtime.KeepAlive(g)
	return state.call(func(raw capi.Tensor) error { return capi.GeneratorSetState(g.raw(), raw) })
}

// Close destroys the generator, unless a Duplicate is left.
func (g *Generator) Close() error {
	if g == nil {
		return nil
	}
	return g.close()
}

// Duplicate returns another owner of the same generator.
func (g *Generator) Duplicate() (*Generator, error) {
	defer runtime.KeepAlive(g)
	var raw capi.Generator
	return madeGenerator(&raw, capi.GeneratorDuplicate(g.raw(), &raw))
}
