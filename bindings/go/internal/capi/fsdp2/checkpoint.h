/* Checkpoints. All ranks together save a run, in the background if asked, in the format of Python's
 * torch.distributed.checkpoint (DCP). Rank 0 saves a whole model. Either kind can be inspected,
 * verified and converted offline. Whatever is written appears whole or not at all; whatever is read
 * is checked first. */
#ifndef FSDP2_CHECKPOINT_H_
#define FSDP2_CHECKPOINT_H_

#include "base.h"

FSDP2_BEGIN_DECLS

enum {
  FSDP2_CHECKPOINT_SHARDED = 0,     /* a DCP directory with everything; each rank writes its part */
  FSDP2_CHECKPOINT_SAFETENSORS = 1, /* one file with the model */
  FSDP2_CHECKPOINT_PTH = 2,         /* one file with the model, for torch.load */
  FSDP2_CHECKPOINT_MODEL_DIRECTORY = 3, /* config.json and safetensors, as transformers has it */
  FSDP2_CHECKPOINT_PTH_PER_RANK = 4     /* a directory with one .pth file per rank */
};

typedef struct fsdp2_save_options {
  uint32_t struct_size;
  int32_t format;
  int32_t background; /* 1: return once a copy has been made; sharded only */
  /* n > 0: keep only the newest n of a series (see fsdp2_checkpoint_save); sharded only. Steps
   * later than this one, left by a run that was given up, are neither counted nor removed, and stay
   * the newest until this run has passed them. */
  int32_t keep_last;
  int32_t no_rng; /* 1: leave out the random generator; sharded only */
  int32_t dtype;  /* the FSDP2_DTYPE_ to which the file rounds floating-point parameters, or _KEEP;
                     not sharded, not per rank; the model itself does not change */
  int64_t max_file_bytes; /* model directory: split the weights above this size; 0: 5 GiB */
  int32_t no_overwrite;   /* 1: FSDP2_E_IO if anything exists at `path`; not per rank */
  /* 1: save even what FSDP2_NOT_FINITE_APPLY has made infinite or NaN */
  int32_t allow_not_finite;
} fsdp2_save_options;
#define FSDP2_SAVE_OPTIONS_INIT {(uint32_t)sizeof(fsdp2_save_options), 0, 0, 0, 0, 0, 0, 0, 0}
FSDP2_CALL fsdp2_save_options_init(fsdp2_save_options* options, size_t struct_size);

/* [c] Saves the model, and with it the optimizer's state, the step's position and the loader's
 * position; {0} leaves one of them out. A sharded checkpoint holds all of them; per-rank files have
 * the step's position in their names. The names inside are those of Python's get_state_dict
 * (model.*, optim.*, step); our own begin with fsdp2. Only one save of a shard runs at a time: a
 * second save waits for the first, and returns the first one's error if it failed. Ranks that are
 * replicas of each other share the work.
 *
 * The save replaces a checkpoint at `path`, and nothing else. A sharded save replaces an empty
 * directory, or a sharded checkpoint with no other files in it. A model directory keeps the files
 * that the save does not write (a tokenizer, for example). A symbolic link stands for its target.
 *
 * Checkpoints DIR/step-00000100, DIR/step-00000200 and so on (the step in 8 digits) are a series. A
 * series is one run's: from its first save into DIR on, a run holds a lock there until its shard
 * ends (see fsdp2_shard_duplicate), or its process in any way, and a save by another process fails.
 * On NFS this holds between machines as far as its locks do; on a file system without locks, only
 * one run at a time may save a series.
 *
 * Errors: FSDP2_E_IO (something else is in the way, another run saves into the series, the disk is
 * full or not writable), the same on all ranks; an older checkpoint at `path` or beside it is then
 * untouched. Per-rank files are replaced one by one: if a save is interrupted, its step counts as
 * missing, and a load takes the step before it. If old files cannot be removed, that is logged and
 * is not an error. FSDP2_E_NOT_FINITE on all ranks, before anything is written, if values to be
 * saved are infinite or NaN since a step that may have ruined them (gradients that are not finite,
 * a huge learning rate, an eps of 0) or a fsdp2_optimizer_run: no good checkpoint gives way to such
 * a state unless options.allow_not_finite asks for it.
 * FSDP2_E_WRONG_STATE, before anything is written, if a parameter has no values yet
 * (defer_values). */
FSDP2_CALL fsdp2_checkpoint_save(fsdp2_shard shard, fsdp2_optimizer optimizer /*(opt)*/,
                                 fsdp2_step step /*(opt)*/, fsdp2_loader loader /*(opt)*/,
                                 const char* path, const fsdp2_save_options* options /*(opt)*/);
/* Allocates, on a thread of the library, the memory into which background saves of these objects
 * copy. Without this call the first background save allocates it, and holds up training for about
 * twice as long as a later save does. The memory, as many bytes as this rank writes, is kept until
 * the shard ends; this call only takes it earlier. Local; returns at once. Call it after the first
 * step, because an optimizer that has no state yet gets it here. Does nothing if the memory exists
 * or a save is under way. Errors: FSDP2_E_OUT_OF_MEMORY. */
FSDP2_CALL fsdp2_checkpoint_prepare(fsdp2_shard shard, fsdp2_optimizer optimizer /*(opt)*/,
                                    fsdp2_step step /*(opt)*/, fsdp2_loader loader /*(opt)*/);
/* Checks whether such a save may replace what is at `path`, and whether no other run saves into the
 * series that it is of, so that a program can ask before hours of training and not after.
 * FSDP2_E_IO says what is in the way and what to do. Only looks at the file system. */
FSDP2_CALL fsdp2_checkpoint_check_path(const char* path,
                                       const fsdp2_save_options* options /*(opt)*/);
/* [c] Waits until the save in the background has ended, and returns its error, once. The call that
 * ends the shard also waits, but then an error that nobody has waited for is only logged. */
FSDP2_CALL fsdp2_checkpoint_wait(fsdp2_shard shard);
/* Sets *out_done to 1 if no save is under way on this rank. */
FSDP2_CALL fsdp2_checkpoint_poll(fsdp2_shard shard, int32_t* out_done);

typedef struct fsdp2_load_options {
  uint32_t struct_size;
  int32_t partial;    /* 1: skip names that only the run or only the checkpoint has */
  int32_t no_rng;     /* 1: leave the random generator as it is */
  int32_t from_rank0; /* 1: rank 0 alone reads, and sends one tensor after the other, whole */
} fsdp2_load_options;
#define FSDP2_LOAD_OPTIONS_INIT {(uint32_t)sizeof(fsdp2_load_options), 0, 0, 0}
FSDP2_CALL fsdp2_load_options_init(fsdp2_load_options* options, size_t struct_size);

/* [c] Restores the model, and the optimizer, step and loader that are given, from a checkpoint of
 * any format, world size and mesh, ours or Python's. `path` is a checkpoint, or a directory with a
 * series of checkpoints, whose newest complete one is loaded; a directory with "dcp" in it is read
 * from there. Each rank reads only its part; with options.from_rank0 rank 0 reads everything, and
 * the other ranks need not see the files (their `path` is not looked at). Gradients are dropped;
 * floating-point values are converted to the run's dtypes.
 *
 * The optimizer takes the hyper-parameters of each of its groups from the checkpoint (betas, eps,
 * weight decay, momentum, learning rate; a schedule goes on setting the rate), as Python's
 * set_optimizer_state_dict does; those that differ from the run's are logged. Groups of the
 * checkpoint that differ and have parameters in one group of the run are an error, unless the load
 * is partial: that keeps the run's values. The step is the
 * checkpoint's "step", or else the one that its trainer, its schedule or its optimizer counted. If
 * the checkpoint has no data position, the loader takes its position from the step.
 *
 * Errors before anything is changed: FSDP2_E_NOT_FOUND (no checkpoint; missing names; no step, if
 * an optimizer and a step are given), FSDP2_E_INVALID_ARGUMENT (unexpected names, different shapes;
 * a loader over different data, or shuffled with a different seed; groups of an optimizer that
 * do not match), FSDP2_E_UNSUPPORTED
 * (hyper-parameters of another algorithm, such as amsgrad). Errors after which all values are
 * undefined until the next load: FSDP2_E_CORRUPT_DATA, which names the file and the item, and
 * FSDP2_E_IO, also where a save has replaced the checkpoint while it was read. */
FSDP2_CALL fsdp2_checkpoint_load(fsdp2_shard shard, fsdp2_optimizer optimizer /*(opt)*/,
                                 fsdp2_step step /*(opt)*/, fsdp2_loader loader /*(opt)*/,
                                 const char* path, const fsdp2_load_options* options /*(opt)*/);
/* Describes the last load of the shard: {"path": ..., "step": 100 or -1, "missing": [...],
 * "unexpected": [...]}. If the run has an optimizer, "missing" also lists what a checkpoint may
 * lack without an error: "fsdp2.rng" (this rank's), "fsdp2.data" (the loader has taken its
 * position from the step), and the optimizer's state of parameters that were frozen when it was
 * saved and are trained now, which begins anew. FSDP2_E_WRONG_STATE if there was no load. */
FSDP2_CALL fsdp2_checkpoint_get_report(fsdp2_shard shard, char* buf, size_t cap, size_t* needed);

/* [c] Returns what fsdp2_checkpoint_save would write, as a state that shares memory with the run.
 * flat_optimizer_keys 1: optim.param_groups.<parameter>.lr instead of optim.param_groups.0.lr. */
FSDP2_CALL fsdp2_checkpoint_get_state(fsdp2_shard shard, fsdp2_optimizer optimizer /*(opt)*/,
                                      fsdp2_step step /*(opt)*/, fsdp2_loader loader /*(opt)*/,
                                      int32_t flat_optimizer_keys, fsdp2_state* out);
/* [c] Like fsdp2_checkpoint_load, but from a full state (fsdp2_state_gather): each rank's own or,
 * with options.from_rank0, that of rank 0; the other ranks then pass {0}. */
FSDP2_CALL fsdp2_checkpoint_set_state(fsdp2_shard shard, fsdp2_optimizer optimizer /*(opt)*/,
                                      fsdp2_step step /*(opt)*/, fsdp2_loader loader /*(opt)*/,
                                      fsdp2_state state,
                                      const fsdp2_load_options* options /*(opt)*/);

/* [c] Saves the model as one file: for torch.load if `path` ends in .pth, .pt or .bin, otherwise as
 * safetensors. Ignored parameters and persistent buffers are those of rank 0. Refuses what
 * fsdp2_checkpoint_save refuses as not finite, as does fsdp2_checkpoint_save_pretrained. */
FSDP2_CALL fsdp2_checkpoint_save_full(fsdp2_shard shard, const char* path);
/* [c] Loads the model's parameters, ignored ones too, and its persistent buffers from any format.
 * Each must be there with its shape; a tied parameter may be stored under any of its names. */
FSDP2_CALL fsdp2_checkpoint_load_full(fsdp2_shard shard, const char* path);
/* [c] Saves config.json and the model's safetensors in `directory`, which is created if missing.
 * fsdp2_module_from_pretrained and the transformers library read the result. */
FSDP2_CALL fsdp2_checkpoint_save_pretrained(fsdp2_shard shard, const char* directory);

/* ---- offline: without a mesh, for any format */

/* Returns the path that fsdp2_checkpoint_load would read: `path` itself, or the newest complete
 * checkpoint in it. FSDP2_E_NOT_FOUND if there is none. */
FSDP2_CALL fsdp2_checkpoint_find(const char* path, char* buf, size_t cap, size_t* needed);
/* Describes the contents as JSON: the format; the step that it stands at and the number of ranks
 * that saved it, or null where it does not say; the tensors with dtype, shape, bytes, and chunks
 * with file and checksum; the objects with their values, or the error of an object that is not
 * read. A checksum of null means that nothing can tell whether that part is what was written. Reads
 * no values of tensors. */
FSDP2_CALL fsdp2_checkpoint_inspect(const char* path, char* buf, size_t cap, size_t* needed);
/* Reads everything and compares every checksum. FSDP2_E_CORRUPT_DATA names the file and the item;
 * FSDP2_E_IO also says that a save has replaced the checkpoint meanwhile. */
FSDP2_CALL fsdp2_checkpoint_verify(const char* path);
/* Writes the checksums of a DCP directory that another program has written or changed. Logs how
 * many items had no checksum of their own to compare with first. */
FSDP2_CALL fsdp2_checkpoint_rebuild_manifest(const char* path);

typedef struct fsdp2_convert_options {
  uint32_t struct_size;
  int32_t format; /* to write; FSDP2_CHECKPOINT_... */
  /* 1: leave out all but the model. FSDP2_CHECKPOINT_SHARDED and _PTH_PER_RANK then hold it under
   * "model", as otherwise; FSDP2_CHECKPOINT_PTH holds a state_dict under the model's own names. */
  int32_t model_only;
  int32_t ranks;           /* per-rank files: their number; 0: one */
  int64_t step;            /* per-rank files: the number in their names */
  int64_t max_file_bytes;  /* as in fsdp2_save_options */
  const char* config_path; /* (opt) model directory: a config.json; NULL: the source's */
} fsdp2_convert_options;
#define FSDP2_CONVERT_OPTIONS_INIT \
  {(uint32_t)sizeof(fsdp2_convert_options), 0, 0, 0, 0, 0, (const char*)0}
FSDP2_CALL fsdp2_convert_options_init(fsdp2_convert_options* options, size_t struct_size);
/* Converts the checkpoint `from` into `to`, with one tensor in memory at a time. Whole-model
 * formats get the model alone, under the model's own names. What is at `to` is replaced by the
 * rules of fsdp2_checkpoint_save, but a file that is no checkpoint, or a part of one, is not:
 * FSDP2_E_IO. Objects that need more than plain data are left out, which is logged. */
FSDP2_CALL fsdp2_checkpoint_convert(const char* from, const char* to,
                                    const fsdp2_convert_options* options);

FSDP2_END_DECLS

#endif /* FSDP2_CHECKPOINT_H_ */
