// Package fsdp2 trains models sharded over many processes: PyTorch's FSDP2 and HSDP by libfsdp2, without Python.
//
//	mesh, err := fsdp2.NewMesh(ctx, nil)                        // joins the ranks that the launcher has started
//	model, err := fsdp2.ModuleFromPretrained("models/llama", nil)
//	shard, err := fsdp2.NewShard(model, mesh, nil)              // cuts the parameters over the ranks
//	optimizer, err := fsdp2.NewAdamW(shard, nil)
//	step, err := fsdp2.NewStep(shard, optimizer, nil)
//	result, err := step.Run(tokens, labels)                     // forward, backward, update
//
// The names are those of the C headers, include/fsdp2, with constructors as New, Open or From and getters without Get: what is
// fsdp2_shard_get_unit_info there is Shard.UnitInfo here. Calls that say "Collective" are made by all ranks of the mesh, in the same
// order.
//
// # Ownership
//
// Everything that a call returns has a Close, which may come in any order and more than once: an object lives until nothing needs it
// any more. What is never closed is closed by the garbage collector, at some time. The collector does not see how much memory a tensor
// keeps, so a loop closes its tensors itself or has them in a Scope; where tensors are forgotten, it also runs when the process has grown
// by 1 GiB. A closed object answers with ErrStaleHandle.
//
// # Options
//
// Where options may be nil, nil stands for the library's defaults. Where a type has a Default function, such as DefaultAdamWOptions, change
// fields of what that returns, unless the type says that its zero value will do: a literal such as &AdamWOptions{LR: 3e-3} leaves the
// others at 0. The zero value of every other type has the defaults, but for the three sizes of LoaderOptions, which have none.
//
// # Errors
//
// Errors of calls are of the type *Error. errors.Is compares them with codes (ErrPeerFailed) and classes (ClassCommunication). If a
// function of the program made the call fail, errors.Is and errors.As see its own error, too. Operators carry their error in the tensor
// that they return; see Tensor.
//
// # Goroutines
//
// Any goroutine may call anything, one after another or at once; only one at a time uses a model (a module, its shard, their
// optimizers and steps), a loader, or makes collective calls on a mesh: a second one gets ErrBusy. Functions of the program run on the
// goroutine of the call that needs them. A call occupies a thread of the system until it returns. No goroutine is bound to a thread,
// but LibTorch has a pool of workers for each thread that computes: a program with SetThreads above 1 that computes all the time in
// one goroutine may call runtime.LockOSThread there and keep to one pool.
//
// # Cancelling
//
// No call of the library can be cancelled, so calls take no context but for NewMesh and Checkpoint.Wait, which say what it does.
// Mesh.FailOnDone lets a context end what waits for other ranks, at a price: the mesh is spent, on all ranks. A rank that never comes
// is noticed without it, after MeshOptions.Timeout. What computes or uses files goes on to its end.
package fsdp2
