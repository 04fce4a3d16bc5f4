package fsdp2

import (
	"fmt"
	"strings"

	"fsdp2/internal/capi"
)

// HeaderVersion is the version of the C headers that this package was made from: major << 16 | minor.
const HeaderVersion = capi.HeaderVersion

// Version returns the library's version, in the form of HeaderVersion.
func Version() uint32 { return capi.Version() }

// CheckVersion says whether the library is one that this package can work with: ErrABIMismatch if its version is not HeaderVersion,
// or if the LibTorch found is not the one that the library was built against. NewMesh does this by itself.
func CheckVersion() error { return failure(capi.CheckVersion(HeaderVersion)) }

// LiveHandles returns the number of objects of the library in this process that are not closed yet.
func LiveHandles() int { return int(capi.LiveHandles()) }

// DescribeRuntime describes what runs here in "key: value" lines: version, LibTorch, CPU, threads, product engine,
// matmul precision, kept memory.
func DescribeRuntime() (string, error) { return text(capi.RuntimeDescribe) }

// SetThreads sets the number of CPU threads that one operation of LibTorch uses. The library keeps it for each thread of the process;
// threads that Go starts later inherit it, so call this early in main.
func SetThreads(n int) error {
	if n < 1 {
		return invalid("SetThreads", "n: expected at least 1, found %d", n)
	}
	return failure(capi.RuntimeSetThreads(uint(n)))
}

// ProductEngine is the CPU engine that computes the fp32 products of linear layers.
type ProductEngine int32

// The engines.
const (
	ProductEngineAuto   ProductEngine = capi.ProductEngineAuto // the faster one, measured once where it is not known
	ProductEngineMKL    ProductEngine = capi.ProductEngineMkl
	ProductEngineOneDNN ProductEngine = capi.ProductEngineOnednn
)

// SetProductEngine chooses the engine for the whole process.
func SetProductEngine(engine ProductEngine) error {
	return failure(capi.RuntimeSetProductEngine(int32(engine)))
}

// SetDeterministic makes LibTorch's operators in this process give the same bits in every run on the same machines, with as many ranks
// and threads; on a CPU they do anyway once a product engine is named. On a GPU a call that cannot fails, and products need
// CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment.
func SetDeterministic(on bool) error {
	return failure(capi.RuntimeSetDeterministic(flag(on)))
}

// KeepMemory says whether the memory of large CPU tensors that are freed stays with the process, for those that are made next: a training
// step then takes the memory of the one before. False, as a process begins, gives back what is kept. What is kept and what is in use are
// together never more than was in use at once.
func KeepMemory(on bool) error {
	return failure(capi.RuntimeKeepMemory(flag(on)))
}

// MatmulPrecision is what the fp32 products of linear layers may round on a CPU, by the words of torch.set_float32_matmul_precision.
type MatmulPrecision int32

// The precisions.
const (
	MatmulHighest      MatmulPrecision = capi.MatmulHighest      // nothing: strict fp32
	MatmulHigh         MatmulPrecision = capi.MatmulHigh         // operands are sums of two bf16 numbers where that is measured to be faster
	MatmulMedium       MatmulPrecision = capi.MatmulMedium       // operands are rounded to bf16 where that is measured to be faster
	MatmulHighAlways   MatmulPrecision = capi.MatmulHighAlways   // as MatmulHigh, however slow
	MatmulMediumAlways MatmulPrecision = capi.MatmulMediumAlways // as MatmulMedium, however slow
)

// SetMatmulPrecision chooses the precision for the whole process. All ranks must have the same when they shard a module.
func SetMatmulPrecision(precision MatmulPrecision) error {
	return failure(capi.RuntimeSetMatmulPrecision(int32(precision)))
}

// Dtype is the type of a tensor's elements.
type Dtype int32

// The types. In options, DtypeKeep means "leave it as it is"; DtypeOther comes out for a type that has no number here.
const (
	DtypeOther Dtype = capi.DtypeOther
	DtypeKeep  Dtype = capi.DtypeKeep
	DtypeF32   Dtype = capi.DtypeF32
	DtypeF64   Dtype = capi.DtypeF64
	DtypeF16   Dtype = capi.DtypeF16
	DtypeBF16  Dtype = capi.DtypeBf16
	DtypeI64   Dtype = capi.DtypeI64
	DtypeI32   Dtype = capi.DtypeI32
	DtypeI16   Dtype = capi.DtypeI16
	DtypeI8    Dtype = capi.DtypeI8
	DtypeU8    Dtype = capi.DtypeU8
	DtypeBool  Dtype = capi.DtypeBool
)

var dtypeNames = strings.Fields("keep f32 f64 f16 bf16 i64 i32 i16 i8 u8 bool")

// String returns the name, such as "bf16".
func (d Dtype) String() string {
	if d >= 0 && int(d) < len(dtypeNames) {
		return dtypeNames[d]
	}
	return fmt.Sprintf("dtype %d", int32(d))
}
