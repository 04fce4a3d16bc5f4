/* libfsdp2: fully sharded data parallel training (FSDP2, HSDP) behind one C ABI.
 *
 * Conventions of every header in this directory:
 *
 *  1. Functions are named fsdp2_<noun>_<verb>. An _options struct goes in; an _info or _result
 *     struct comes out; a _settings struct does both. The subject comes first, then inputs
 *     (pointer, then count), then options; outputs come last. A setting of a unit takes (shard,
 *     unit, value, recurse). A function of the caller's comes after all other inputs, as (fn,
 *     user_data, release), and recurse then comes before it.
 *  2. A handle is a struct that holds one id; {0} is null. _create and _create_<kind> make an
 *     object from options, _from_<source> makes one from something that exists, and _open makes one
 *     from a file. Every handle that comes out of a call is a new one, whatever the call's name
 *     (_get_ included), and it is yours to destroy. You may destroy your handles in any order: an
 *     object lives until nothing needs it any more. Destroying {0} does nothing; destroying a
 *     handle twice is FSDP2_E_STALE_HANDLE. Destroying never communicates.
 *
 *     fsdp2_<noun>_duplicate returns another handle to the same object, for a second owner: the
 *     handles stand for the object alike, and each is destroyed by itself. It never communicates,
 *     and any thread may call it while others use the object. An object ends with its last handle,
 *     or with the last object that was made from it.
 *  3. A call returns an fsdp2_status. 0 is FSDP2_OK; the hundreds digit of any other status is its
 *     class and never changes. A call that fails fills this thread's error record (error.h),
 *     leaves its outputs untouched and leaves nothing to clean up. A call that succeeds does not
 *     touch the record, but for fsdp2_error_take, which empties it.
 *  4. Pointers are required unless marked (opt). A string that you pass in is NUL-terminated UTF-8
 *     and is copied. A string that you get comes through (buf, cap, needed): *needed is set to its
 *     length with the NUL, and a buffer that is too small is FSDP2_E_BUFFER_TOO_SMALL. (NULL, 0)
 *     only asks for the length. An array comes in the same way, its length counted in elements;
 *     calls that compute what they write (forwards, operators, fsdp2_module_generate) answer (NULL,
 *     0) by FSDP2_E_BUFFER_TOO_SMALL with the number in *needed.
 *  5. A struct begins with struct_size (but for fsdp2_value): its sizeof in the caller's version.
 *     In options, the FSDP2_..._INIT macro or the _init function sets it. If the struct is shorter
 *     than the library's, the fields that it lacks have their defaults. If it is longer, the part
 *     that the library does not know must be zero. In a struct that comes out, you set it. If that
 *     struct is longer than the library's, the library lowers struct_size to what it has filled;
 *     the fields beyond are as they were. If it is shorter, struct_size stays. A flag is named so
 *     that 0 is its default: no_rng, not rng.
 *  6. [c] marks a collective call: all ranks of the mesh make it, in the same order. If one rank
 *     fails, the others do not hang: they get FSDP2_E_PEER_FAILED with that rank's number and
 *     message. The mesh is then spent, and every later collective call on it fails the same way.
 *
 *     A mesh may be a slice of the job: a sub-mesh, or one that was made of some ranks. Its ranks
 *     alone make its calls, at their own time, whatever the other ranks do. So the stages of a
 *     pipeline can shard different modules, and rows can save to directories of their own. Where a
 *     call gives rank 0 a part of its own, or numbers files by rank, the ranks of the mesh count
 *     from 0, in the order of the job; messages have their numbers in the job. A failure spends the
 *     mesh of the call, and with it every mesh that shares a rank with that mesh. Meshes of other
 *     ranks alone go on, and hear of it when they need a mesh that is spent. Only the end of the
 *     process that keeps the job's store spends all meshes; that is rank 0, unless the launcher
 *     keeps it. If ranks may end at different times, let them meet in fsdp2_mesh_barrier over the
 *     whole job before rank 0 leaves.
 *
 *     A refused call is different: if a rank's arguments are wrong, or its outputs have too little
 *     room, the library refuses the call before any data moves. The call counts as not made, and
 *     the mesh stays usable. The other ranks are told at once, except in fsdp2_module_forward and
 *     _forward_submodule, fsdp2_tensor_backward and _run_backward, fsdp2_step_run and
 *     fsdp2_shard_unshard, which do not stop to compare outcomes: there the other ranks wait until
 *     the refused rank makes the call correctly, reports its failure (fsdp2_mesh_fail), or the
 *     timeout passes. Only whether tokens and labels are in range, and parameters have values, do
 *     forwards of a whole model and steps compare. In calls that create, open, agree, save or load,
 *     the ranks compare outcomes, so a failure on one rank fails the call on all of them.
 *  7. Any thread may call any function. Only one thread at a time may use a model (a module, its
 *     shard, their optimizers and steps), use a loader, or make collective calls on a mesh; a
 *     second thread gets FSDP2_E_BUSY. A thread that calls the library needs a stack of 128 KiB
 *     (of 1 MiB where meshes are on GPUs, whose driver needs more) beside what its own functions
 *     need. Values in memory that other threads write during a call may be refused or make the
 *     results wrong, but do no harm beyond that.
 *  8. The library never ends the process, installs no signal handlers, and changes no process-wide
 *     setting unless asked. dlclose is not supported. A process whose ranks are threads must call
 *     exit() only once none of them is inside a call: it destroys what they use. A callback
 *     returns: it neither leaves by longjmp nor ends its thread.
 *  9. size_t is the length of an array or a text, and a count or an index among the arguments.
 *     int32_t is a rank, a dim, a dtype or another number of an enum, a flag, and a count or an
 *     index inside a struct. int64_t is a size along a dim (of a tensor or a mesh), a number of
 *     elements, bytes, tokens or steps, and whatever adds up over a run. A set of flags is a
 *     uint32_t.
 * 10. Enums grow. Wherever a number of one comes out (a status, dtype, backend, log level, state
 *     of a unit, kind of an event), expect numbers that your headers do not have.
 * 11. A [c] call may block wherever it waits for other ranks, each time for up to the timeout_ms of
 *     the mesh. Beside that, calls take as long as they need to compute and to read and write
 *     files, which no timeout ends. Files are what takes long in every load and save, in
 *     fsdp2_module_from_pretrained, in a forward that gives a module its values, in
 *     fsdp2_loader_next, in fsdp2_checkpoint_find, _inspect, _verify, _rebuild_manifest and
 *     _convert, and, while a save runs in the background, in fsdp2_checkpoint_wait and
 *     fsdp2_shard_destroy.
 *
 *     No single call can be cancelled. fsdp2_mesh_fail, from another thread, ends what waits on a
 *     mesh, and spends the mesh; fsdp2_mesh_create, which has no mesh yet, ends at its timeout. A
 *     thread that is cancelled (pthread_cancel) inside a call ends after it.
 *
 *     Work that goes on between calls belongs to an object, and so does waiting for it:
 *     fsdp2_checkpoint_wait and fsdp2_shard_wait_unshard take the shard. There is no handle for the
 *     work itself.
 */
#ifndef FSDP2_FSDP2_H_
#define FSDP2_FSDP2_H_

/* In the order of use. */
/* clang-format off */
#include "base.h"
#include "error.h"
#include "runtime.h"
#include "log.h"
#include "mesh.h"
#include "tensor.h"
#include "scope.h"
#include "generator.h"
#include "op.h"
#include "function.h"
#include "module.h"
#include "custom.h"
#include "shard.h"
#include "unit.h"
#include "hook.h"
#include "plan.h"
#include "config.h"
#include "optimizer.h"
#include "tokenizer.h"
#include "loader.h"
#include "step.h"
#include "profile.h"
#include "state.h"
#include "checkpoint.h"
/* clang-format on */

#endif /* FSDP2_FSDP2_H_ */
