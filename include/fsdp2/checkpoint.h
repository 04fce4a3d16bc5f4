/* Full state dicts: the model's parameters gathered one at a time and written by rank 0. A file
 * appears whole or not at all. */
#ifndef FSDP2_CHECKPOINT_H_
#define FSDP2_CHECKPOINT_H_

#include "base.h"

FSDP2_BEGIN_DECLS

/* [c] One safetensors file with every parameter under its own name (ties once). The status is the
 * same on all ranks. Errors: FSDP2_E_IO (directory missing, disk full) with the path. */
FSDP2_CALL fsdp2_checkpoint_save_full(fsdp2_shard shard, const char* path);
/* [c] Reads parameters back from such a file; each rank reads only its rows. Every parameter must
 * be there with its shape; a tie may stand under any of its names. */
FSDP2_CALL fsdp2_checkpoint_load_full(fsdp2_shard shard, const char* path);
/* [c] Writes config.json and model.safetensors into `directory` (made if missing): what
 * fsdp2_module_from_pretrained and the transformers library read. */
FSDP2_CALL fsdp2_checkpoint_save_pretrained(fsdp2_shard shard, const char* directory);

FSDP2_END_DECLS

#endif /* FSDP2_CHECKPOINT_H_ */
