/* States: named tensors, of which each rank holds chunks, and small values. They are saved, loaded
 * and gathered like the checkpoints of shards (checkpoint.h). States are for what is not part of a
 * shard, and for full states in memory.
 *
 * All ranks add the same names in the same order, with the same dtypes and global shapes; the
 * chunks differ. A rank that holds several chunks of a tensor adds the tensor once for each of
 * them; all other ranks then add it as many times in a row, with empty chunks where they have none.
 * A state shares memory with the tensors that are added: a save writes their values at that moment,
 * and a load overwrites them. One thread at a time may use a state. */
#ifndef FSDP2_STATE_H_
#define FSDP2_STATE_H_

#include "base.h"

FSDP2_BEGIN_DECLS

/* Creates an empty state over all ranks of the mesh. */
FSDP2_CALL fsdp2_state_create(fsdp2_mesh mesh, fsdp2_state* out);
FSDP2_API fsdp2_status fsdp2_state_destroy(fsdp2_state state);
/* Returns another handle to the same state; see convention 2 of fsdp2.h. */
FSDP2_CALL fsdp2_state_duplicate(fsdp2_state state, fsdp2_state* out);

/* Adds the chunk at `offsets` of a tensor of global shape `shape`, both of n_dims as the chunk.
 * shape and offsets NULL: every rank holds the whole tensor. FSDP2_E_INVALID_ARGUMENT if the chunk
 * lies outside. */
FSDP2_CALL fsdp2_state_add_tensor(fsdp2_state state, const char* name,
                                  const int64_t* shape /*(opt)*/, const int64_t* offsets /*(opt)*/,
                                  size_t n_dims, fsdp2_tensor chunk);
/* Adds a value as JSON: null, a flag, a number, a text, or a list of these, at most 64 lists deep;
 * the same on all ranks. */
FSDP2_CALL fsdp2_state_add_value(fsdp2_state state, const char* name, const char* json);

typedef struct fsdp2_state_info {
  uint32_t struct_size;
  int32_t n_tensors, n_values; /* entries, see fsdp2_state_get_count */
  int32_t reserved;
  int64_t n_bytes; /* of this rank's chunks, also where it shares their memory; not of values */
} fsdp2_state_info;
/* Tells how many entries the state has, and how much memory. */
FSDP2_CALL fsdp2_state_get_info(fsdp2_state state, fsdp2_state_info* out);
/* Returns the number of entries: first the tensors, one entry for each chunk, then the values. */
FSDP2_CALL fsdp2_state_get_count(fsdp2_state state, size_t* out);
/* Returns the name of an entry. */
FSDP2_CALL fsdp2_state_get_name(fsdp2_state state, size_t index, char* buf, size_t cap,
                                size_t* needed);
/* Returns this rank's (first) chunk, sharing its memory. FSDP2_E_NOT_FOUND if there is no such
 * tensor. */
FSDP2_CALL fsdp2_state_get_tensor(fsdp2_state state, const char* name, fsdp2_tensor* out);
/* Returns a value as JSON. FSDP2_E_NOT_FOUND if there is no such value, FSDP2_E_UNSUPPORTED if JSON
 * has no form for it, as for bytes, infinities and NaN. */
FSDP2_CALL fsdp2_state_get_value(fsdp2_state state, const char* name, char* buf, size_t cap,
                                 size_t* needed);

typedef struct fsdp2_state_save_options {
  uint32_t struct_size;
  int32_t safetensors;     /* 1: sharded safetensors: tensors only, one chunk of each per rank */
  int32_t threads;         /* writers on each rank, each with files of its own; not safetensors */
  int32_t file_per_tensor; /* 1: one file for each tensor; not safetensors */
  int32_t no_overwrite;    /* 1: FSDP2_E_IO if anything exists at `path` */
  int32_t reserved;
} fsdp2_state_save_options;
#define FSDP2_STATE_SAVE_OPTIONS_INIT {(uint32_t)sizeof(fsdp2_state_save_options), 0, 1, 0, 0, 0}
FSDP2_CALL fsdp2_state_save_options_init(fsdp2_state_save_options* options, size_t struct_size);
/* [c] Writes a directory in PyTorch's DCP format, as fsdp2_checkpoint_save does. */
FSDP2_CALL fsdp2_state_save(fsdp2_state state, const char* path,
                            const fsdp2_state_save_options* options /*(opt)*/);
/* [c] Overwrites the state's tensors and values from a checkpoint of any format, however its
 * tensors were cut; anything else in the checkpoint is ignored. Errors before anything is changed:
 * FSDP2_E_NOT_FOUND (missing names), FSDP2_E_INVALID_ARGUMENT (different shapes). */
FSDP2_CALL fsdp2_state_load(fsdp2_state state, const char* path);
/* [c] Returns a state of whole tensors, copied to the CPU: on every rank or, with rank0_only 1, on
 * rank 0, while the others get empty states. FSDP2_E_INVALID_ARGUMENT if the chunks do not cover a
 * tensor. */
FSDP2_CALL fsdp2_state_gather(fsdp2_state state, int32_t rank0_only, fsdp2_state* out);

FSDP2_END_DECLS

#endif /* FSDP2_STATE_H_ */
