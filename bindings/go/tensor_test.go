package fsdp2_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"fsdp2"
)

func TestATensorPrintsAsItsTypeAndShape(t *testing.T) {
	defer noHandles(t)
	x := floats(t, []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	half := x.To(fsdp2.DtypeBF16).Select(0, 0).Sum()
	defer half.Close()
	if found := fmt.Sprint(x, " ", half); found != "Tensor(f32 [2 3]) Tensor(bf16 [])" {
		t.Errorf("found %s", found)
	}
	x.Close()
	var none *fsdp2.Tensor
	for text, tensor := range map[string]*fsdp2.Tensor{"STALE_HANDLE": x, "is nil": none, "view": half.View(7)} {
		if found := tensor.String(); !strings.HasPrefix(found, "Tensor(") || !strings.Contains(found, text) {
			t.Errorf("expected %s, found %s", text, found)
		}
	}
}

func TestArraysGoInAndOut(t *testing.T) {
	defer noHandles(t)
	tensor := floats(t, []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	defer tensor.Close()
	info, err := tensor.Info()
	must(t, err)
	equal(t, "shape", info.Shape, []int{2, 3})
	equal(t, "strides", info.Strides, []int{3, 1})
	if info.Dtype != fsdp2.DtypeF32 || info.Bytes != 24 {
		t.Errorf("%+v", info)
	}
	turned := tensor.Transpose(0, 1)
	defer turned.Close()
	values, err := fsdp2.ToSlice[float32](turned)
	must(t, err)
	equal(t, "row-major", values, []float32{1, 4, 2, 5, 3, 6})
	must(t, fsdp2.Write(tensor, []float32{6, 5, 4, 3, 2, 1}))
	must(t, fsdp2.Read(turned, values))
	equal(t, "written", values, []float32{6, 3, 5, 2, 4, 1})

	empty, err := fsdp2.FromSlice([]int64{}, 0, 4)
	must(t, err)
	defer empty.Close()
	none, err := fsdp2.ToSlice[int64](empty)
	must(t, err)
	equal(t, "empty", none, []int64{})
	half, err := fsdp2.FromBytes([]byte{0x80, 0x3f}, fsdp2.DtypeBF16)
	must(t, err)
	defer half.Close()
	if value, err := half.Value(); err != nil || value != 1 {
		t.Errorf("bf16: %v, %v", value, err)
	}
}

func TestArraysThatDoNotFitAreRefused(t *testing.T) {
	defer noHandles(t)
	tensor := floats(t, []float32{1, 2, 3})
	defer tensor.Close()
	_, short := fsdp2.FromSlice([]float32{1, 2, 3}, 2, 2)
	_, negative := fsdp2.FromSlice([]float32{1}, -1)
	_, other := fsdp2.ToSlice[int64](tensor)
	for name, err := range map[string]error{
		"short":    short,
		"negative": negative,
		"dtype":    other,
		"read":     fsdp2.Read(tensor, make([]float32, 2)),
		"write":    fsdp2.Write(tensor, make([]float32, 4)),
	} {
		if !errors.Is(err, fsdp2.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnOperatorByNameWithAutograd(t *testing.T) {
	defer noHandles(t)
	x := floats(t, []float32{-1, 2, 3})
	defer x.Close()
	must(t, x.SetRequiresGrad(true))
	must(t, fsdp2.WithScope(func(scope *fsdp2.Scope) error {
		y := fsdp2.Call("aten::leaky_relu", scope.Use(x), 0.5)
		return y.Mul(y).Sum().Backward()
	}))
	grad, err := x.Grad()
	must(t, err)
	defer grad.Close()
	values, err := fsdp2.ToSlice[float32](grad)
	must(t, err)
	equal(t, "gradient", values, []float32{-0.5, 4, 6})
}

func TestRandomNumbersFollowFromTheGenerator(t *testing.T) {
	defer noHandles(t)
	seeded := func(seed uint64) *fsdp2.Generator {
		generator, err := fsdp2.NewGenerator(seed)
		must(t, err)
		return generator
	}
	draw := func(generator *fsdp2.Generator) []float32 {
		drawn := fsdp2.Call("aten::randn.generator", []int{4}, generator)
		defer drawn.Close()
		values, err := fsdp2.ToSlice[float32](drawn)
		must(t, err)
		return values
	}
	a, b, other := seeded(7), seeded(7), seeded(8)
	defer a.Close()
	defer b.Close()
	defer other.Close()
	equal(t, "numbers of one seed", draw(a), draw(b))
	state, err := a.State()
	must(t, err)
	defer state.Close()
	must(t, other.SetState(state))
	again, err := other.Duplicate()
	must(t, err)
	defer again.Close()
	equal(t, "numbers after one state", draw(a), draw(again))
	x := floats(t, []float32{1})
	defer x.Close()
	if err := a.SetState(x); !errors.Is(err, fsdp2.ErrInvalidArgument) {
		t.Errorf("a state that is none: %v", err)
	}
}

func TestOperatorTakesAndGivesEveryKind(t *testing.T) {
	defer noHandles(t)
	must(t, fsdp2.WithScope(func(scope *fsdp2.Scope) error {
		x := floats(t, []float32{1, 2, 3, 4}, 2, 2)
		must(t, scope.Add(x))
		pieces, err := fsdp2.Operator{Name: "aten::split.Tensor"}.Call(x, 1, 0)
		must(t, err)
		if len(pieces) != 2 {
			t.Fatalf("pieces: %v", pieces)
		}
		joined := fsdp2.Cat([]*fsdp2.Tensor{pieces[1].(*fsdp2.Tensor), pieces[0].(*fsdp2.Tensor)}, 0)
		values, err := fsdp2.ToSlice[float32](joined)
		must(t, err)
		equal(t, "joined", values, []float32{3, 4, 1, 2})
		same, err := fsdp2.Operator{Name: "aten::equal"}.Call(x, joined)
		must(t, err)
		if same[0] != false {
			t.Errorf("equal: %v", same)
		}
		ones, err := fsdp2.Operator{Name: "aten::full", Scope: scope}.Call([]int{2, 2}, 1.0, fsdp2.DtypeF64, fsdp2.Default, "cpu")
		must(t, err)
		sum, err := ones[0].(*fsdp2.Tensor).Sum().Value()
		must(t, err)
		if sum != 4 {
			t.Errorf("sum: %v", sum)
		}
		many := make([]any, 65)
		if _, err := (fsdp2.Operator{Name: "aten::relu"}).Call(many...); !errors.Is(err, fsdp2.ErrInvalidArgument) {
			t.Errorf("too many: %v", err)
		}
		hundred := floats(t, make([]float32, 100))
		defer hundred.Close()
		parts, err := fsdp2.Operator{Name: "aten::unbind.int", Scope: scope}.Call(hundred)
		must(t, err)
		if len(parts) != 100 {
			t.Errorf("parts: %d", len(parts))
		}
		return nil
	}))
}

func TestAWrongArgumentOfAnOperatorQuotesTheSchema(t *testing.T) {
	defer noHandles(t)
	x := floats(t, []float32{1})
	defer x.Close()
	wrong := fsdp2.Call("aten::softmax.int", x, "dim")
	contains(t, wrong.Err(), "aten::softmax.int(Tensor self, int dim", "FSDP2_E_INVALID_ARGUMENT")
	if err := wrong.Add(x).Mean().Backward(); err != wrong.Err() {
		t.Errorf("the chain lost the error: %v", err)
	}
	contains(t, fsdp2.Call("aten::relu", struct{}{}).Err(), "argument 0", "struct {}")
	contains(t, fsdp2.Call("aten::no_such", x).Err(), "FSDP2_E_NOT_FOUND")
	schema, err := fsdp2.OpSchema("aten::relu")
	must(t, err)
	if schema != "aten::relu(Tensor self) -> Tensor" {
		t.Errorf("schema %q", schema)
	}
}

func TestOperatorsCompute(t *testing.T) {
	defer noHandles(t)
	must(t, fsdp2.WithScope(func(s *fsdp2.Scope) error {
		x, w := floats(t, []float32{1, 2, 3, 4}, 2, 2), floats(t, []float32{1, 1}, 2)
		must(t, s.Add(x, w))
		row := floats(t, []float32{0, 1, 0, 0}, 2, 2)
		must(t, s.Add(row))
		labels, err := fsdp2.FromSlice([]int64{1, 0})
		must(t, err)
		must(t, s.Add(labels))
		for name, result := range map[string]struct {
			tensor   *fsdp2.Tensor
			expected float64
		}{
			"arithmetic":  {x.Add(x).Sub(row).Mul(x).Div(x).AddScalar(1).MulScalar(2).DivScalar(2).Sum(), 23},
			"matmul":      {x.Matmul(x).Sum(), 54},
			"linear":      {x.Linear(x, w).Sum(), 56},
			"shapes":      {x.Reshape(4).View(1, 4).Unsqueeze(0).Squeeze(0).Permute(1, 0).Narrow(0, 1, 2).Sum(), 5},
			"mean":        {x.Mean(0).Select(0, 1), 3},
			"softmax":     {x.Softmax(1).Sum(), 2},
			"norm":        {x.LayerNorm(w, nil, 0).Pow(2).Sum(), 4},
			"plain norm":  {x.LayerNorm(nil, nil, 0).Pow(2).Sum(), 4},
			"rms norm":    {x.RMSNorm(w, 0).Pow(2).Sum(), 4},
			"embedding":   {x.Embedding(labels).Select(0, 0).Sum(), 7},
			"cross":       {x.CrossEntropy(labels), (math.Log1p(math.Exp(-1)) + math.Log1p(math.Exp(1))) / 2},
			"attention":   {x.Unsqueeze(0).ScaledDotProductAttention(x.Unsqueeze(0), x.Unsqueeze(0), fsdp2.Attention{Causal: true}).Select(1, 0).Sum(), 3},
			"silu":        {x.Silu().Div(x).Sub(x.Sigmoid()).Sum(), 0},
			"gelu":        {x.MulScalar(100).Gelu().Sum(), 1000},
			"log":         {x.Exp().Log().Sqrt().Pow(2).Neg().Relu().Tanh().Sum(), 0},
			"log softmax": {x.LogSoftmax(0).Exp().Sum(), 2},
			"conversions": {x.To(fsdp2.DtypeF64).Detach().Clone().Contiguous().Dropout(0.5, false).Sum(), 10},
			"stack":       {fsdp2.Stack([]*fsdp2.Tensor{x, x}, 0).Argmax(0).Sum(), 0},
		} {
			value, err := result.tensor.Value()
			if err != nil || math.Abs(value-result.expected) > 1e-5*math.Max(1, math.Abs(result.expected)) {
				t.Errorf("%s: expected %v, found %v, %v", name, result.expected, value, err)
			}
		}
		return nil
	}))
}

func TestScopeKeepsAndFrees(t *testing.T) {
	defer noHandles(t)
	x := floats(t, []float32{2})
	defer x.Close()
	scope, err := fsdp2.NewScope()
	must(t, err)
	kept, lost := scope.Use(x).Mul(x), scope.Use(x).Add(x)
	must(t, scope.Keep(kept))
	if err := scope.Keep(x); !errors.Is(err, fsdp2.ErrNotFound) {
		t.Errorf("a tensor that is not in it: %v", err)
	}
	must(t, scope.Close())
	if value, err := kept.Value(); err != nil || value != 4 {
		t.Errorf("kept: %v, %v", value, err)
	}
	if _, err := lost.Value(); !errors.Is(err, fsdp2.ErrStaleHandle) {
		t.Errorf("lost: %v", err)
	}
	if err := x.Err(); err != nil {
		t.Error(err)
	}
}

func TestBackwardFromSeveralTensors(t *testing.T) {
	defer noHandles(t)
	x := floats(t, []float32{1, 2})
	defer x.Close()
	must(t, x.SetRequiresGrad(true))
	double, sum := x.MulScalar(2), x.Sum()
	defer double.Close()
	defer sum.Close()
	start := floats(t, []float32{1, 10})
	defer start.Close()
	if err := fsdp2.Backward([]*fsdp2.Tensor{double, sum}, []*fsdp2.Tensor{start}, false); !errors.Is(err, fsdp2.ErrInvalidArgument) {
		t.Errorf("too few gradients: %v", err)
	}
	must(t, fsdp2.Backward([]*fsdp2.Tensor{double, sum}, []*fsdp2.Tensor{start, nil}, false))
	grad, err := x.Grad()
	must(t, err)
	defer grad.Close()
	values, err := fsdp2.ToSlice[float32](grad)
	must(t, err)
	equal(t, "gradient", values, []float32{3, 21})
}
