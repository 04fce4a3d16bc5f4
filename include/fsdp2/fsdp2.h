/* libfsdp2: fully sharded data parallel training (FSDP2, HSDP) behind one C ABI.
 *
 * Conventions, for every header of this directory:
 *  1. Names are fsdp2_<noun>_<verb>. An _options struct goes in, an _info or _result comes out.
 *     The subject comes first, then inputs (pointer, then count), then options, outputs last.
 *  2. A handle is a struct of one id; {0} is null. What a call gives through an output is yours to
 *     destroy, in any order: an object lives until everything that needs it is gone. Destroying
 *     {0} is fine, destroying twice is FSDP2_E_STALE_HANDLE. Destroying never communicates.
 *  3. Calls return a fsdp2_status. 0 is FSDP2_OK; the hundreds digit of any other is its class for
 *     ever. A failing call fills this thread's error record (error.h), leaves its outputs
 *     untouched and leaves nothing to clean up. A call that succeeds does not touch the record.
 *  4. Pointers are required unless marked (opt). Strings in are NUL-terminated UTF-8 and copied.
 *     Strings out are (buf, cap, needed): *needed is the length with its NUL; too small a buffer
 *     is FSDP2_E_BUFFER_TOO_SMALL with *needed set; (NULL, 0) only asks.
 *  5. Structs in and out begin with struct_size: their sizeof in the caller's version. Of options
 *     the FSDP2_..._INIT macro or the _init function sets it. A shorter struct of an older caller
 *     gets defaults for what it lacks; a longer one is fine if the tail that this library does not
 *     know is all zero.
 *  6. [c] marks a collective call: all ranks of the mesh make it, in the same order. If one rank
 *     fails, the others get FSDP2_E_PEER_FAILED with its number and message, and do not hang.
 *     After that the mesh is spent, and all collective calls on it fail alike. Not so if a rank is
 *     refused for its arguments, before anything moves, or has too little room for the outputs:
 *     its call counts as not made, and the mesh stays usable. The other ranks are told at once; but
 *     in fsdp2_module_forward and _forward_submodule, fsdp2_tensor_backward and _run_backward,
 *     fsdp2_step_run and fsdp2_shard_unshard, which do not stop to compare notes, they wait until
 *     that rank makes the call aright, tells them (fsdp2_mesh_fail), or the time-out. Calls that
 *     create, open, agree, save or load settle all failures among the ranks.
 *  7. Any thread may call any function. One model (a module, its shard, their optimizers and
 *     steps), one loader, and the collective calls of one mesh serve one thread at a time: a second
 *     one gets FSDP2_E_BUSY.
 *  8. The library never ends the process, installs no signal handler and changes no process-wide
 *     setting unless asked. dlclose is not supported.
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
#include "module.h"
#include "shard.h"
#include "unit.h"
#include "hook.h"
#include "plan.h"
#include "optimizer.h"
#include "loader.h"
#include "step.h"
#include "state.h"
#include "checkpoint.h"
/* clang-format on */

#endif /* FSDP2_FSDP2_H_ */
