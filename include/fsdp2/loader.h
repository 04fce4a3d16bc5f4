/* Batches of token windows for this rank, from a flat token file or any file as bytes.
 *
 * With T tokens and sequence length S there are N = (T-1)/S windows; window w is the S+1 tokens
 * from w*S: inputs are its first S, labels its last S. */
#ifndef FSDP2_LOADER_H_
#define FSDP2_LOADER_H_

#include "base.h"

FSDP2_BEGIN_DECLS

enum {
  FSDP2_TOKENS_AUTO = 0, /* little-endian uint16 up to a vocabulary of 65536, else uint32 */
  FSDP2_TOKENS_BYTES = 1 /* each byte of the file is a token of a vocabulary of 256 */
};
enum {
  FSDP2_ORDER_SEQUENTIAL = 0, /* windows in file order, wrapping round */
  FSDP2_ORDER_SHUFFLED = 1    /* a permutation per epoch, by seed */
};

typedef struct fsdp2_loader_options {
  uint32_t struct_size;
  int32_t format;
  int32_t order;
  int32_t accumulate;      /* micro batches a step */
  int64_t sequence_length; /* S */
  int64_t global_batch;    /* windows a step, over all ranks and micro batches */
  int64_t vocab_size;      /* tokens must be below it */
  uint64_t seed;
} fsdp2_loader_options;
#define FSDP2_LOADER_OPTIONS_INIT {(uint32_t)sizeof(fsdp2_loader_options), 0, 0, 1, 0, 0, 0, 0}
FSDP2_CALL fsdp2_loader_options_init(fsdp2_loader_options* options, size_t struct_size);

/* [c] Errors: FSDP2_E_NOT_FOUND, FSDP2_E_CORRUPT_DATA (no whole number of tokens),
 * FSDP2_E_INVALID_ARGUMENT (not one whole window, global_batch not a multiple of ranks x
 * accumulate, ranks that pass different options). */
FSDP2_CALL fsdp2_loader_open(fsdp2_mesh mesh, const char* path, const fsdp2_loader_options* options,
                             fsdp2_loader* out);
/* The next micro batch of this rank: tokens and labels, both i64 [global_batch/(ranks*accumulate),
 * S]. FSDP2_E_CORRUPT_DATA for a token beyond the vocabulary, with its position. */
FSDP2_CALL fsdp2_loader_next(fsdp2_loader loader, fsdp2_tensor* tokens, fsdp2_tensor* labels);
/* Steps taken from the loader so far, and where to go on. */
FSDP2_CALL fsdp2_loader_get_position(fsdp2_loader loader, int64_t* step);
FSDP2_CALL fsdp2_loader_set_position(fsdp2_loader loader, int64_t step);
FSDP2_API fsdp2_status fsdp2_loader_destroy(fsdp2_loader loader);

FSDP2_END_DECLS

#endif /* FSDP2_LOADER_H_ */
