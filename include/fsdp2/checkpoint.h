/* Checkpoints: all of a run by all ranks, in the background if asked to, in the format that
 * Python's torch.distributed.checkpoint reads; whole models by rank 0; and what can be done with
 * either offline. Whatever is written appears whole or not at all; whatever is read is checked
 * first. */
#ifndef FSDP2_CHECKPOINT_H_
#define FSDP2_CHECKPOINT_H_

#include "base.h"

FSDP2_BEGIN_DECLS

enum {
  FSDP2_CHECKPOINT_SHARDED = 0,     /* DCP directory: each rank writes its part, of everything */
  FSDP2_CHECKPOINT_SAFETENSORS = 1, /* one file with the model */
  FSDP2_CHECKPOINT_PTH = 2,         /* the same for torch.load */
  FSDP2_CHECKPOINT_MODEL_DIRECTORY = 3, /* config.json and safetensors, as transformers has it */
  FSDP2_CHECKPOINT_PTH_PER_RANK = 4     /* a directory with a .pth file of each rank's part */
};

typedef struct fsdp2_save_options {
  uint32_t struct_size;
  int32_t format;
  int32_t background; /* 1: return once a copy is made; sharded only */
  int32_t keep_last;  /* n > 0: of a series DIR/step-XXXXXXXX only the newest n; sharded only. Later
                       * steps than this one, of a run that was given up, are neither counted nor
                       * removed, and stay the newest until this run has passed them */
  int32_t no_rng;     /* 1: without LibTorch's random generator; sharded only */
  int32_t dtype;      /* FSDP2_DTYPE_ that floating-point parameters are rounded to in the file, or
                       * _KEEP; not sharded, not per rank; the model itself stays as it is */
  int64_t max_file_bytes; /* model directory: size above which weights are split; 0: 5 GiB */
  int32_t no_overwrite;   /* 1: FSDP2_E_IO if something is at `path` already; not per rank */
  int32_t reserved;
} fsdp2_save_options;
#define FSDP2_SAVE_OPTIONS_INIT {(uint32_t)sizeof(fsdp2_save_options), 0, 0, 0, 0, 0, 0, 0, 0}
FSDP2_CALL fsdp2_save_options_init(fsdp2_save_options* options, size_t struct_size);

/* [c] What goes with the model, each {0} if not: the optimizer's state, the step's position, the
 * loader's (a sharded checkpoint holds them; the number in the names of per-rank files is the
 * step's position). Names are those of Python's get_state_dict: model.*, optim.*, step; ours begin
 * with fsdp2. At most one save of a shard is under way: another waits for it, and tells its error
 * if it failed. Ranks of replicas share the work.
 *
 * A checkpoint at `path` is replaced, but nothing else: a sharded one takes the place of an empty
 * directory or of a sharded checkpoint with no other file in it; a model directory keeps what it
 * does not write itself (a tokenizer). A symbolic link stands for what it points to. Errors:
 * FSDP2_E_IO (something else is in the way, disk full, not writable), the same on all ranks; an
 * older checkpoint at `path` or beside it is untouched then. Of files per rank each is replaced by
 * itself: if that is interrupted, the step counts as missing and the one before is loaded. Old
 * files that cannot be removed are no error, but logged. */
FSDP2_CALL fsdp2_checkpoint_save(fsdp2_shard shard, fsdp2_optimizer optimizer /*(opt)*/,
                                 fsdp2_step step /*(opt)*/, fsdp2_loader loader /*(opt)*/,
                                 const char* path, const fsdp2_save_options* options /*(opt)*/);
/* Makes the memory that saves in the background with these objects copy into, on a thread of the
 * library: else the first one does, and holds training up for about as long again as later ones do.
 * Local, and back at once. From here on rather than from the first save on, the host has as many
 * bytes less as this rank writes; they are kept until the shard is destroyed. To be called after
 * the first step, since an optimizer that has made none yet gets its state here. Does nothing if
 * the memory is there, or while a save is under way. Errors: FSDP2_E_OUT_OF_MEMORY. */
FSDP2_CALL fsdp2_checkpoint_prepare(fsdp2_shard shard, fsdp2_optimizer optimizer /*(opt)*/,
                                    fsdp2_step step /*(opt)*/, fsdp2_loader loader /*(opt)*/);
/* Whether such a save might replace what is at `path`, to be asked before hours of training rather
 * than after: FSDP2_E_IO with what is in the way and what to do. Looks at files only. */
FSDP2_CALL fsdp2_checkpoint_check_path(const char* path,
                                       const fsdp2_save_options* options /*(opt)*/);
/* [c] Until the save in the background has ended; its error, once. Destroying the shard waits too,
 * but an error that nobody has waited for is then only logged. */
FSDP2_CALL fsdp2_checkpoint_wait(fsdp2_shard shard);
/* 1 if none is under way on this rank. */
FSDP2_CALL fsdp2_checkpoint_poll(fsdp2_shard shard, int32_t* out_done);

typedef struct fsdp2_load_options {
  uint32_t struct_size;
  int32_t partial;    /* 1: what is missing stays as it is, what is unexpected is ignored */
  int32_t no_rng;     /* 1: leave LibTorch's random generator as it is */
  int32_t from_rank0; /* 1: see fsdp2_checkpoint_set_state */
} fsdp2_load_options;
#define FSDP2_LOAD_OPTIONS_INIT {(uint32_t)sizeof(fsdp2_load_options), 0, 0, 0}
FSDP2_CALL fsdp2_load_options_init(fsdp2_load_options* options, size_t struct_size);

/* [c] Brings back the model and what else is given, from any format, of any world size and mesh,
 * ours or Python's: a checkpoint, or a directory of a series, whose newest complete one is taken. A
 * loader gets its position from the step where the checkpoint has none of data. Each rank reads
 * only its part. Gradients are dropped; floats are converted to the run's dtypes. The optimizer
 * takes the checkpoint's hyper-parameters of each of its groups (betas, eps, weight decay,
 * momentum, rate; a schedule goes on setting the rate), as Python's set_optimizer_state_dict does;
 * those that differ from the run's are logged. The step is the checkpoint's "step", else the one
 * that its trainer, its schedule or its optimizer counted; a directory with dcp in it is read from
 * there. Errors: FSDP2_E_NOT_FOUND (no checkpoint; names that are missing, or with an optimizer and
 * a step the step), FSDP2_E_INVALID_ARGUMENT (unexpected names, other shapes; a loader over other
 * data, or shuffled with another seed), FSDP2_E_UNSUPPORTED (hyper-parameters of another algorithm,
 * such as amsgrad) before anything is changed; FSDP2_E_CORRUPT_DATA with file and item, FSDP2_E_IO:
 * values are undefined until the next load. */
FSDP2_CALL fsdp2_checkpoint_load(fsdp2_shard shard, fsdp2_optimizer optimizer /*(opt)*/,
                                 fsdp2_step step /*(opt)*/, fsdp2_loader loader /*(opt)*/,
                                 const char* path, const fsdp2_load_options* options /*(opt)*/);
/* The last load of the shard: {"path": ..., "step": 100 or -1, "missing": [...], "unexpected":
 * [...]}. Of a run with an optimizer, "missing" also has what a checkpoint may lack without an
 * error: "fsdp2.rng" (of this rank), "fsdp2.data" (the loader went to its place by the step).
 * FSDP2_E_WRONG_STATE if there was none. */
FSDP2_CALL fsdp2_checkpoint_get_report(fsdp2_shard shard, char* buf, size_t cap, size_t* needed);

/* [c] What fsdp2_checkpoint_save would write, as a state that shares memory with the run.
 * flat_optimizer_keys 1: optim.param_groups.<parameter>.lr in place of optim.param_groups.0.lr. */
FSDP2_CALL fsdp2_checkpoint_get_state(fsdp2_shard shard, fsdp2_optimizer optimizer /*(opt)*/,
                                      fsdp2_step step /*(opt)*/, fsdp2_loader loader /*(opt)*/,
                                      int32_t flat_optimizer_keys, fsdp2_state* out);
/* [c] As fsdp2_checkpoint_load, from a full state (fsdp2_state_gather): every rank's own, or, with
 * options.from_rank0, that of rank 0, where the others pass {0}. */
FSDP2_CALL fsdp2_checkpoint_set_state(fsdp2_shard shard, fsdp2_optimizer optimizer /*(opt)*/,
                                      fsdp2_step step /*(opt)*/, fsdp2_loader loader /*(opt)*/,
                                      fsdp2_state state,
                                      const fsdp2_load_options* options /*(opt)*/);

/* [c] The model as one safetensors file, or .pth file by the path's extension. */
FSDP2_CALL fsdp2_checkpoint_save_full(fsdp2_shard shard, const char* path);
/* [c] The model's parameters from any format. Every parameter must be there with its shape; a tie
 * may stand under any of its names. */
FSDP2_CALL fsdp2_checkpoint_load_full(fsdp2_shard shard, const char* path);
/* [c] Writes config.json and the model's safetensors into `directory` (made if missing): what
 * fsdp2_module_from_pretrained and the transformers library read. */
FSDP2_CALL fsdp2_checkpoint_save_pretrained(fsdp2_shard shard, const char* directory);

/* ---- offline: no mesh, any format */

/* The path that fsdp2_checkpoint_load would read: `path`, or the newest complete checkpoint in it.
 * FSDP2_E_NOT_FOUND if nothing is there. */
FSDP2_CALL fsdp2_checkpoint_find(const char* path, char* buf, size_t cap, size_t* needed);
/* What is in it, as JSON: format, tensors with dtype, shape, bytes, chunks with file and checksum,
 * objects with values, or the error of one that is not read. A checksum of null: nothing tells
 * whether that part is what was written. Reads no tensors' values. */
FSDP2_CALL fsdp2_checkpoint_inspect(const char* path, char* buf, size_t cap, size_t* needed);
/* Reads everything and compares every checksum there is; FSDP2_E_CORRUPT_DATA with file and item.
 */
FSDP2_CALL fsdp2_checkpoint_verify(const char* path);
/* Writes the checksums of a DCP directory that another program has written or changed; logs how
 * many items had none of their own to compare before. */
FSDP2_CALL fsdp2_checkpoint_rebuild_manifest(const char* path);

typedef struct fsdp2_convert_options {
  uint32_t struct_size;
  int32_t format;          /* to write; FSDP2_CHECKPOINT_... */
  int32_t model_only;      /* 1: leave out what is not the model, into any format */
  int32_t ranks;           /* per-rank files: how many; 0: one */
  int64_t step;            /* per-rank files: the number in their names */
  int64_t max_file_bytes;  /* as in fsdp2_save_options */
  const char* config_path; /* (opt) model directory: a config.json; NULL: the source's */
} fsdp2_convert_options;
#define FSDP2_CONVERT_OPTIONS_INIT \
  {(uint32_t)sizeof(fsdp2_convert_options), 0, 0, 0, 0, 0, (const char*)0}
FSDP2_CALL fsdp2_convert_options_init(fsdp2_convert_options* options, size_t struct_size);
/* Holds one tensor in memory at a time. Formats of whole models get the model alone, by its names.
 * What is at `to` is replaced as by fsdp2_checkpoint_save. Objects that need more than plain data
 * are left out, which is logged. */
FSDP2_CALL fsdp2_checkpoint_convert(const char* from, const char* to,
                                    const fsdp2_convert_options* options);

FSDP2_END_DECLS

#endif /* FSDP2_CHECKPOINT_H_ */
