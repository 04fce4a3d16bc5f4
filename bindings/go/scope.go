package fsdp2

import (
	"runtime"

	"fsdp2/internal/capi"
)

// Scope frees tensors together, such as those that one forward has made. Whatever operators and forwards compute from a tensor of a
// scope is in that scope, too. Inside a callback the library's tensors are in a scope that ends with it.
//
//	err := fsdp2.WithScope(func(scope *fsdp2.Scope) error {
//		x := scope.Use(weight)
//		return x.Mul(x).Sum().Backward()
//	})
type Scope struct {
	handle
	late  bool // made by the library once something goes into it, because many callbacks compute nothing
	ended bool // before that
}

// NewScope makes an empty scope.
func NewScope() (*Scope, error) {
	var raw capi.Scope
	if err := capi.ScopeCreate(&raw); err != nil {
		return nil, failure(err)
	}
	return newScope(raw), nil
}

func newScope(raw capi.Scope) *Scope {
	scope := &Scope{}
	scope.own(scopeKind, raw.ID)
	return scope
}

// WithScope calls body with a new scope, and closes it.
func WithScope(body func(scope *Scope) error) error { return scoped(body) }

func (s *Scope) raw() capi.Scope {
	if s == nil {
		return capi.Scope{}
	}
	return capi.Scope{ID: s.id}
}

// open is raw with the library's scope made.
func (s *Scope) open() (capi.Scope, error) {
	if s == nil || s.id != 0 || !s.late {
		return s.raw(), nil
	}
	if s.ended {
		return capi.Scope{}, &Error{Code: ErrStaleHandle, Rank: -1, Function: "fsdp2.Scope", Message: "the scope is closed"}
	}
	var raw capi.Scope
	if err := capi.ScopeCreate(&raw); err != nil {
		return raw, failure(err)
	}
	s.own(scopeKind, raw.ID)
	return raw, nil
}

// Close destroys the tensors in the scope, unless a Duplicate is left. Tensors that were closed before are fine.
func (s *Scope) Close() error {
	if s == nil {
		return nil
	}
	if s.id == 0 {
		s.ended = true // what an atomic store would wait for costs more than the rest of Close
		return nil
	}
	return s.close()
}

// Add leaves tensors to the scope, and with them what is computed from them later.
func (s *Scope) Add(tensors ...*Tensor) error {
	defer runtime.KeepAlive(s)
	defer runtime.KeepAlive(tensors)
	raw, err := rawTensors(tensors)
	if err != nil {
		return err
	}
	scope, err := s.open()
	if err != nil {
		return err
	}
	if err := capi.ScopeAdd(scope, first(raw), uint(len(raw))); err != nil {
		return failure(err)
	}
	for _, tensor := range tensors {
		tensor.scope = s
	}
	return nil
}

// take makes the scope the owner of tensors that nobody has yet. Without a scope they stay the caller's.
func (s *Scope) take(raw []capi.Tensor) error {
	if s == nil {
		return nil
	}
	scope, err := s.open()
	if err == nil {
		err = failure(capi.ScopeAdd(scope, first(raw), uint(len(raw))))
		runtime.KeepAlive(s)
	}
	if err != nil {
		for _, tensor := range raw {
			_ = capi.TensorDestroy(tensor)
		}
	}
	return err
}

// Keep takes tensors out of the scope: they are the caller's again. ErrNotFound, with nothing changed, if one is not in it.
func (s *Scope) Keep(tensors ...*Tensor) error {
	defer runtime.KeepAlive(s)
	defer runtime.KeepAlive(tensors)
	raw, err := rawTensors(tensors)
	if err != nil {
		return err
	}
	scope, err := s.open()
	if err != nil {
		return err
	}
	if err := capi.ScopeKeep(scope, first(raw), uint(len(raw))); err != nil {
		return failure(err)
	}
	for _, tensor := range tensors {
		tensor.scope = nil
		if tensor.guard == nil { // made in the scope
			tensor.own(tensorKind, tensor.id)
		}
	}
	return nil
}

// Use returns the same tensor as one whose results go into the scope. The tensor itself stays its owner's.
func (s *Scope) Use(tensor *Tensor) *Tensor {
	if err := tensor.Err(); err != nil {
		return tensor
	}
	used := lend(tensor.raw(), s)
	used.aside = &aside{origin: tensor}
	return used
}

// Duplicate returns another owner of the same scope: its tensors end with the last one.
func (s *Scope) Duplicate() (*Scope, error) {
	defer runtime.KeepAlive(s)
	scope, err := s.open()
	if err != nil {
		return nil, err
	}
	var raw capi.Scope
	if err := capi.ScopeDuplicate(scope, &raw); err != nil {
		return nil, failure(err)
	}
	return newScope(raw), nil
}
