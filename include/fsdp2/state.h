/* States: named tensors, of which each rank holds chunks, and small values; saved, loaded and
 * gathered as the checkpoints of shards are (checkpoint.h), for what is not a shard's own, and for
 * full states in memory.
 *
 * All ranks add the same names in the same order with the same dtypes and global shapes; chunks
 * differ. A rank with several chunks of a tensor adds it once for each; all ranks then add it so
 * many times in a row, with empty chunks where they have none. Tensors share memory with the
 * caller's: they are saved as they are at the save, and loads overwrite them. One thread at a time
 * per state. */
#ifndef FSDP2_STATE_H_
#define FSDP2_STATE_H_

#include "base.h"

FSDP2_BEGIN_DECLS

/* An empty one, of all ranks of the job. */
FSDP2_CALL fsdp2_state_create(fsdp2_mesh mesh, fsdp2_state* out);
FSDP2_API fsdp2_status fsdp2_state_destroy(fsdp2_state state);

/* The chunk at `offsets` of a tensor of this global shape; n_dims as the chunk's. shape and offsets
 * NULL: every rank holds it whole. FSDP2_E_INVALID_ARGUMENT if the chunk lies outside. */
FSDP2_CALL fsdp2_state_add_tensor(fsdp2_state state, const char* name,
                                  const int64_t* shape /*(opt)*/, const int64_t* offsets /*(opt)*/,
                                  size_t n_dims, fsdp2_tensor chunk);
/* A value as JSON: null, a flag, a number, a text, or a list of these; the same on all ranks. */
FSDP2_CALL fsdp2_state_add_value(fsdp2_state state, const char* name, const char* json);

/* Tensors, each chunk once, and then values. */
FSDP2_CALL fsdp2_state_get_count(fsdp2_state state, size_t* out);
FSDP2_CALL fsdp2_state_get_name(fsdp2_state state, size_t index, char* buf, size_t cap,
                                size_t* needed);
/* This rank's (first) chunk, sharing its memory. FSDP2_E_NOT_FOUND if there is no such tensor. */
FSDP2_CALL fsdp2_state_get_tensor(fsdp2_state state, const char* name, fsdp2_tensor* out);
/* As JSON. FSDP2_E_NOT_FOUND if there is no such value. */
FSDP2_CALL fsdp2_state_get_value(fsdp2_state state, const char* name, char* buf, size_t cap,
                                 size_t* needed);

typedef struct fsdp2_state_save_options {
  uint32_t struct_size;
  int32_t safetensors;     /* 1: sharded safetensors; tensors alone, one chunk of each on a rank */
  int32_t threads;         /* that write on each rank, each files of its own; not safetensors */
  int32_t file_per_tensor; /* 1: not safetensors */
  int32_t no_overwrite;    /* 1: FSDP2_E_IO if something is at `path` already */
  int32_t reserved;
} fsdp2_state_save_options;
#define FSDP2_STATE_SAVE_OPTIONS_INIT {(uint32_t)sizeof(fsdp2_state_save_options), 0, 1, 0, 0, 0}
FSDP2_CALL fsdp2_state_save_options_init(fsdp2_state_save_options* options, size_t struct_size);
/* [c] Writes a directory in PyTorch's DCP format, as fsdp2_checkpoint_save does. */
FSDP2_CALL fsdp2_state_save(fsdp2_state state, const char* path,
                            const fsdp2_state_save_options* options /*(opt)*/);
/* [c] Overwrites the state's tensors and values from a checkpoint of any format, however it was
 * cut; what else is in it is left alone. FSDP2_E_NOT_FOUND (names that are missing),
 * FSDP2_E_INVALID_ARGUMENT (other shapes) before anything is changed. */
FSDP2_CALL fsdp2_state_load(fsdp2_state state, const char* path);
/* [c] A state of whole tensors, copies on the CPU: on every rank, or (rank0_only 1) on rank 0 with
 * empty states on the others. FSDP2_E_INVALID_ARGUMENT if the chunks leave out a part. */
FSDP2_CALL fsdp2_state_gather(fsdp2_state state, int32_t rank0_only, fsdp2_state* out);

FSDP2_END_DECLS

#endif /* FSDP2_STATE_H_ */
