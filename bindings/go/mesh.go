package fsdp2

import (
	"context"
	"runtime"
	"unsafe"

	"fsdp2/internal/capi"
)

// Mesh is the ranks of a job as an n-D array, row-major, whose dims may have names. The group of a dim is the ranks whose coordinates
// differ from this rank's in that dim only.
type Mesh struct{ handle }

// NewMesh joins the job. Collective. options nil: DefaultMeshOptions.
//
// If ctx ends first, NewMesh returns its error at once. Joining itself cannot be stopped: it goes on behind, up to the timeout, and a
// mesh that still comes of it is failed, so that the other ranks hear of it, and closed. Once NewMesh has returned a mesh, ctx means
// nothing to it; see FailOnDone.
//
// Errors: ErrInvalidArgument (contradictory settings), ErrTimeout (a rank did not arrive), ErrIO or ErrComm (address in use or
// unreachable), ErrABIMismatch (another version of the library).
func NewMesh(ctx context.Context, options *MeshOptions) (*Mesh, error) {
	if err := CheckVersion(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if ctx.Done() == nil {
		return joinMesh(options)
	}
	return joinMeshUntil(ctx, options)
}

func joinMesh(options *MeshOptions) (*Mesh, error) {
	return createMesh(options, capi.MeshCreate)
}

func joinMeshUntil(ctx context.Context, options *MeshOptions) (*Mesh, error) {
	type outcome struct {
		mesh *Mesh
		err  error
	}
	joined := make(chan outcome, 1)
	own := options.clone() // the caller may change its options while joining goes on behind
	go func() {
		mesh, err := joinMesh(own)
		joined <- outcome{mesh, err}
	}()
	select {
	case outcome := <-joined:
		return outcome.mesh, outcome.err
	case <-ctx.Done():
		go func() {
			if late := <-joined; late.err == nil {
				late.mesh.Fail("joining was given up: " + ctx.Err().Error())
				late.mesh.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

func createMesh(options *MeshOptions, create func(options *capi.MeshOptions, out *capi.Mesh) error) (*Mesh, error) {
	var memory capi.Memory
	defer memory.Free()
	given, err := options.raw(&memory)
	if err != nil {
		return nil, err
	}
	var raw capi.Mesh
	return madeMesh(&raw, create(given, &raw))
}

func madeMesh(raw *capi.Mesh, err error) (*Mesh, error) {
	if err != nil {
		return nil, failure(err)
	}
	mesh := &Mesh{}
	mesh.own(meshKind, raw.ID)
	return mesh, nil
}

func (m *Mesh) raw() capi.Mesh {
	if m == nil {
		return capi.Mesh{}
	}
	return capi.Mesh{ID: m.id}
}

// Close ends this owner of the mesh. It lives on in what was made from it.
func (m *Mesh) Close() error {
	if m == nil {
		return nil
	}
	return m.close()
}

// Duplicate returns another owner of the same mesh.
func (m *Mesh) Duplicate() (*Mesh, error) {
	defer runtime.KeepAlive(m)
	var raw capi.Mesh
	return madeMesh(&raw, capi.MeshDuplicate(m.raw(), &raw))
}

// FailOnDone fails the mesh once ctx ends, until stop is called. It is the way to bound or cancel whatever waits for other ranks: no
// single call can be cancelled, but when the mesh fails, all calls that wait on it end with ErrPeerFailed, on every rank, and the mesh
// is spent. What computes, or reads and writes files, first goes on to its end.
//
//	stop := mesh.FailOnDone(ctx)
//	defer stop()
//
// stop returns once no failing is under way.
func (m *Mesh) FailOnDone(ctx context.Context) (stop func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	ended, stopping := make(chan struct{}), make(chan struct{}, 1)
	go func() {
		defer close(ended)
		select {
		case <-ctx.Done():
			m.Fail(ctx.Err().Error())
		case <-stopping:
		}
	}()
	return func() {
		select {
		case stopping <- struct{}{}:
		default:
		}
		<-ended
	}
}

// Fail tells all ranks of the mesh that this one has failed. Current and later collective calls on it end with ErrPeerFailed and this
// message, on this rank too. Any goroutine may call it while another is inside the mesh.
func (m *Mesh) Fail(message string) error {
	defer runtime.KeepAlive(m)
	return failure(capi.MeshFail(m.raw(), message))
}

// Barrier returns once all ranks have called it. Collective.
func (m *Mesh) Barrier() error {
	defer runtime.KeepAlive(m)
	return failure(capi.MeshBarrier(m.raw()))
}

// Agree compares a text of "key=value" lines between the ranks. If the texts differ, the call fails on all ranks with the same message,
// which names the first line that differs. what says what is compared. Collective.
func (m *Mesh) Agree(what, text string) error {
	defer runtime.KeepAlive(m)
	return failure(capi.MeshAgree(m.raw(), what, text))
}

// NewMesh makes another mesh over the ranks of this one. Only Shape, Names, Ranks, DeviceType and FSDPSize count; the options that say
// how to join must keep their defaults. Collective.
func (m *Mesh) NewMesh(options *MeshOptions) (*Mesh, error) {
	defer runtime.KeepAlive(m)
	if options == nil {
		own := DefaultMeshOptions()
		options = &own
	}
	return createMesh(options, func(given *capi.MeshOptions, out *capi.Mesh) error {
		return capi.MeshCreateIn(m.raw(), given, out)
	})
}

// FromGroup makes the 1-D mesh of the group of a dim. name "": no name.
func (m *Mesh) FromGroup(dim int, name string) (*Mesh, error) {
	defer runtime.KeepAlive(m)
	var raw capi.Mesh
	return madeMesh(&raw, capi.MeshFromGroup(m.raw(), to32(dim), name, &raw))
}

// Submesh returns the mesh along some dims that this rank is in, by their names in the mesh's order. A name that Flatten has given
// stands for the dims that it covers. ErrNotFound lists the names that exist.
func (m *Mesh) Submesh(names ...string) (*Mesh, error) {
	defer runtime.KeepAlive(m)
	var raw capi.Mesh
	err := withNames(names, func(array *unsafe.Pointer, n uint) error {
		return capi.MeshGetSubmesh(m.raw(), array, n, &raw)
	})
	return madeMesh(&raw, err)
}

// Flatten makes one dim of several, row-major, with a group of its own. name "": the names of the dims, joined by "_". Collective.
func (m *Mesh) Flatten(names []string, name string) (*Mesh, error) {
	defer runtime.KeepAlive(m)
	var raw capi.Mesh
	err := withNames(names, func(array *unsafe.Pointer, n uint) error {
		return capi.MeshFlatten(m.raw(), array, n, name, &raw)
	})
	return madeMesh(&raw, err)
}

// Root returns the mesh that this one is a sub-mesh of, and which of its dims this one has. ErrNotFound if this is no sub-mesh.
func (m *Mesh) Root() (root *Mesh, dims []int, err error) {
	defer runtime.KeepAlive(m)
	room := make([]int32, capi.MaxDims)
	var needed uint
	var raw capi.Mesh
	root, err = madeMesh(&raw, capi.MeshGetRoot(m.raw(), &room[0], uint(len(room)), &needed, &raw))
	if err != nil {
		return nil, nil, err
	}
	return root, ints(room[:needed]), nil
}

// withNames calls with an array of C strings.
func withNames(names []string, call func(array *unsafe.Pointer, n uint) error) error {
	var memory capi.Memory
	defer memory.Free()
	return call(memory.Strings(names), uint(len(names)))
}
