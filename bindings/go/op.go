package fsdp2

import (
	"reflect"
	"runtime"

	"fsdp2/internal/capi"
)

// Default stands for an argument of an operator that is left out, in the middle of others.
var Default = defaultArgument{}

type defaultArgument struct{}

// Operator is an operator of LibTorch with how to call it.
type Operator struct {
	Name   string // of the namespace aten, with the overload if it has one: "aten::add.Tensor"
	NoGrad bool   // record no gradients
	Scope  *Scope // of the results; nil: that of the first argument that is in one
}

// Call calls an operator by name, as Operator.Call does, and returns its first result that is a tensor, or a tensor with the error.
//
//	y := fsdp2.Call("aten::leaky_relu", x, 0.1)
func Call(name string, arguments ...any) *Tensor { return Operator{Name: name}.tensor(nil, arguments) }

func (o Operator) tensor(self *Tensor, arguments []any) *Tensor {
	var op capi.Op
	defer op.Free()
	scope, into, err := o.prepare(&op, self, arguments)
	if err != nil {
		return failed(err)
	}
	first, err := op.RunFirst(o.flags(), into)
	runtime.KeepAlive(self)
	runtime.KeepAlive(arguments)
	runtime.KeepAlive(scope)
	if err != nil {
		return failed(failure(err))
	}
	if first.ID == 0 {
		return failed(invalid("Call", "%s: expected a tensor as its result: see Operator.Call", o.Name))
	}
	return newTensorIn(first, scope)
}

// Call calls the operator. The arguments are those of its schema in order; the last ones may be missing if they have defaults. Go's
// types stand for the schema's:
//
//	*Tensor            a tensor; nil is none, as is nil by itself
//	int, int64         an int
//	float32, float64   a double
//	bool, Dtype        a bool, a dtype
//	string             a text; also a device ("cpu") or a memory format
//	[]int, []int64     a list of ints
//	[]float64, []bool  a list of doubles, of bools
//	[]*Tensor          a list of tensors
//	*Generator         what to draw random numbers from
//	Default            what the schema has as its default
//
// A number is taken where a tensor or a double is wanted, and one number for a list of ints. The results come one after the other, the
// elements of lists as well: *Tensor, int64, float64, bool, or nil for a tensor that is left undefined.
//
// Errors: ErrNotFound (no such operator), ErrInvalidArgument (arguments that do not fit the schema, which the message quotes, or each
// other), ErrUnsupported (operators that the library does not run, see op.h), ErrWrongState (a tensor whose memory FSDP has freed).
func (o Operator) Call(arguments ...any) ([]any, error) {
	var op capi.Op
	defer op.Free()
	scope, into, err := o.prepare(&op, nil, arguments)
	if err != nil {
		return nil, err
	}
	values, err := op.Run(o.flags(), into)
	runtime.KeepAlive(arguments)
	runtime.KeepAlive(scope)
	if err != nil {
		return nil, failure(err)
	}
	return results(values, scope), nil
}

func (o Operator) flags() uint32 {
	if o.NoGrad {
		return capi.OpNoGrad
	}
	return 0
}

// prepare gives the op its arguments, with self before the others if there is one, and returns the scope of the results.
func (o Operator) prepare(op *capi.Op, self *Tensor, arguments []any) (*Scope, capi.Scope, error) {
	op.Begin(o.Name)
	scope := o.Scope
	if self != nil {
		if err := addTensor(op, self, &scope); err != nil {
			return nil, capi.Scope{}, err
		}
	}
	for i, argument := range arguments {
		if err := addArgument(op, argument, &scope); err != nil {
			if err == errType {
				found := reflect.TypeOf(argument) // not %T, which would have all arguments moved to the heap
				err = invalid("Call", "%s: argument %d: expected a type that operators take, found %v", o.Name, i, found)
			}
			return nil, capi.Scope{}, err
		}
	}
	into, err := scope.open()
	return scope, into, err
}

// OpSchema returns the schema of an operator: "aten::relu(Tensor self) -> Tensor".
func OpSchema(name string) (string, error) {
	return text(func(buf *byte, cap uint, needed *uint) error {
		return capi.OpGetSchema(name, buf, cap, needed)
	})
}

var errType = invalid("Call", "type")

func addArgument(op *capi.Op, argument any, scope **Scope) error {
	switch value := argument.(type) {
	case nil:
		op.Simple(capi.ValueNone, 0)
	case *Tensor:
		return addTensor(op, value, scope)
	case int:
		op.Simple(capi.ValueInt, int64(value))
	case int64:
		op.Simple(capi.ValueInt, value)
	case float64:
		op.Double(value)
	case float32:
		op.Double(float64(value))
	case bool:
		op.Simple(capi.ValueBool, int64(flag(value)))
	case Dtype:
		op.Simple(capi.ValueDtype, int64(value))
	case string:
		op.String(value)
	case *Generator:
		op.Simple(capi.ValueGenerator, int64(value.raw().ID))
	case defaultArgument:
		op.Simple(capi.ValueDefault, 0)
	default:
		return addList(op, argument, scope)
	}
	return nil
}

func addTensor(op *capi.Op, tensor *Tensor, scope **Scope) error {
	if tensor == nil {
		op.Simple(capi.ValueNone, 0)
		return nil
	}
	if err := tensor.optional(); err != nil {
		return err
	}
	if *scope == nil {
		*scope = tensor.scope
	}
	op.Tensor(tensor.raw())
	return nil
}

func addList(op *capi.Op, argument any, scope **Scope) error {
	switch values := argument.(type) {
	case []int:
		op.List(capi.ValueInts, len(values))
		for _, value := range values {
			op.Element(uint64(value))
		}
	case []int64:
		op.List(capi.ValueInts, len(values))
		for _, value := range values {
			op.Element(uint64(value))
		}
	case []bool:
		op.List(capi.ValueInts, len(values))
		for _, value := range values {
			op.Element(uint64(flag(value)))
		}
	case []float64:
		op.List(capi.ValueDoubles, len(values))
		for _, value := range values {
			op.DoubleElement(value)
		}
	case []*Tensor:
		op.List(capi.ValueTensors, len(values))
		for _, tensor := range values {
			if err := tensor.optional(); err != nil {
				return err
			}
			if tensor != nil && *scope == nil {
				*scope = tensor.scope
			}
			op.Element(tensor.raw().ID)
		}
	default:
		return errType
	}
	return nil
}

func results(values []capi.OpValue, scope *Scope) []any {
	results := make([]any, len(values))
	for i, value := range values {
		switch value.Kind {
		case capi.ValueTensor:
			results[i] = newTensorIn(value.Tensor, scope)
		case capi.ValueInt:
			results[i] = value.Integer
		case capi.ValueDouble:
			results[i] = value.Number
		case capi.ValueBool:
			results[i] = value.Integer != 0
		}
	}
	return results
}
