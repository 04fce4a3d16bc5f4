package fsdp2

import (
	"sync/atomic"

	"fsdp2/internal/capi"
)

// framesAtOnce is how many frames are made together.
const framesAtOnce = 8

// frame is what one run of a ForwardFunc is lent. The program may keep any of it, so that no later run can have the same.
type frame struct {
	call    ForwardCall
	scope   Scope
	tensors []Tensor  // the inputs, then the parameters, then the buffers
	lent    []*Tensor // their addresses; nil for an input that is left out
}

// frameSizes are the numbers of tensors in a frame.
type frameSizes struct {
	inputs, parameters, buffers int
}

// frames are those of several runs of a module, because to make them one by one would cost as much as a whole call of the library's. All
// that is the same in each run is written beforehand.
type frames struct {
	sizes  frameSizes
	used   int32
	frames [framesAtOnce]frame
}

// newFrame returns a frame for so many tensors.
func (c *custom) newFrame(sizes frameSizes) *frame {
	if made := c.frames.Load(); made != nil && made.sizes == sizes {
		if i := atomic.AddInt32(&made.used, 1); i <= framesAtOnce {
			return &made.frames[i-1]
		}
	}
	made := c.makeFrames(sizes)
	c.frames.Store(made)
	return &made.frames[0]
}

// makeFrames returns frames of which the first is in use.
func (c *custom) makeFrames(sizes frameSizes) *frames {
	made := &frames{sizes: sizes, used: 1}
	n := sizes.inputs + sizes.parameters + sizes.buffers
	tensors, lent := make([]Tensor, framesAtOnce*n), make([]*Tensor, framesAtOnce*n)
	for i := range made.frames {
		frame := &made.frames[i]
		from, to := i*n, (i+1)*n
		frame.tensors, frame.lent = tensors[from:to:to], lent[from:to:to]
		for j := range frame.tensors {
			frame.tensors[j].scope = &frame.scope
			frame.lent[j] = &frame.tensors[j]
		}
		parameters, buffers := sizes.inputs, sizes.inputs+sizes.parameters
		frame.call.Kind, frame.call.custom, frame.call.Scope = c.kind, c, &frame.scope
		frame.call.Parameters = frame.lent[parameters:buffers:buffers]
		frame.call.Buffers = frame.lent[buffers:]
		frame.scope.late = true
	}
	return made
}

// lend gives the frame's tensors their handles, and returns the inputs.
func (f *frame) lend(inputs, parameters, buffers []capi.Tensor) []*Tensor {
	for i, raw := range inputs {
		f.tensors[i].id = raw.ID
		if raw.ID == 0 {
			f.lent[i] = nil
		}
	}
	i := len(inputs)
	for _, raw := range parameters {
		f.tensors[i].id = raw.ID
		i++
	}
	for _, raw := range buffers {
		f.tensors[i].id = raw.ID
		i++
	}
	return f.lent[:len(inputs):len(inputs)]
}
