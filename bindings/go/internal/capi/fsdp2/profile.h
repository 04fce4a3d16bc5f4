/* Profiles: what one thread of this rank computes and waits for, by LibTorch's own profiler:
 * operators, what a GPU does for them, and the phases of units as ranges that are named as in
 * PyTorch, such as "FSDP::all_gather (model.layers.0)". A step is some thousand events. While no
 * profile is taken, none of it costs anything. Where there is no GPU, LibTorch prints a line about
 * that to standard error, unless KINETO_LOG_LEVEL is 5 in the environment. */
#ifndef FSDP2_PROFILE_H_
#define FSDP2_PROFILE_H_

#include "base.h"

FSDP2_BEGIN_DECLS

/* Starts a profile of the calling thread, which also stops it. A process takes one at a time:
 * FSDP2_E_WRONG_STATE if another one is being taken, by Python's torch too. A thread that ends
 * without having stopped it leaves nothing of it. Callbacks neither start nor stop a profile: there
 * both calls are FSDP2_E_WRONG_STATE. */
FSDP2_CALL fsdp2_profile_start(void);
/* Stops the profile and keeps its table in place of the last one; on a GPU, waits for what the
 * device still does. trace_file: gets all events in Chrome's trace format (JSON), which
 * chrome://tracing, Perfetto and TensorBoard show; NULL: no trace. Errors: FSDP2_E_WRONG_STATE
 * (this thread takes no profile), FSDP2_E_IO (the file cannot be written; the profile has ended all
 * the same). */
FSDP2_CALL fsdp2_profile_stop(const char* trace_file /*(opt)*/);
/* Describes the profile of this process that was stopped last as a table, by self time: each
 * operator and range with its calls, its time without and with what ran inside it, and the mean of
 * a call. FSDP2_E_NOT_FOUND before the first one. */
FSDP2_CALL fsdp2_profile_describe(char* buf, size_t cap, size_t* needed);

FSDP2_END_DECLS

#endif /* FSDP2_PROFILE_H_ */
