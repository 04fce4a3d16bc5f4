package fsdp2

import (
	"unsafe"

	"fsdp2/internal/capi"
)

type userData = unsafe.Pointer

// keep hands a function to the library by a call that takes it over if it succeeds.
func keep(function any, call func(userData userData) error) error {
	data := capi.NewUserData(function)
	err := call(data)
	if err != nil {
		capi.DropUserData(data)
	}
	return failure(err)
}

// lend is a tensor of the library's for the time of a callback. What is computed from it goes into the scope.
func lend(tensor capi.Tensor, scope *Scope) *Tensor {
	lent := &Tensor{scope: scope}
	lent.id = tensor.ID
	return lent
}

// scoped runs the body of a callback with a scope for what it computes.
func scoped(body func(scope *Scope) error) error {
	scope := &Scope{late: true}
	defer scope.Close()
	return body(scope)
}
