/* Batches of token windows for this rank, from a flat token file, from any text, or from records in
 * JSON lines; of one file, or of a mixture of several.
 *
 * With T tokens and sequence length S a file has N = (T-1)/S windows. Window w is the S+1 tokens
 * that begin at w*S: the first S are the inputs, the last S the labels.
 *
 * A line of FSDP2_TOKENS_RECORDS is {"text": T}, {"prompt": P, "response": R}, or {"messages":
 * [{"role": "system" | "user" | "assistant", "content": C}, ...]}, and may have other keys. Its
 * tokens are bytes, or those of a tokenizer (tokenizer.h). Only answers are labels: T, R, or what
 * the assistant says; the label of anything else is -100. T and R end with a zero byte, or with the
 * tokenizer's end of a text. A message becomes ChatML: "<|im_start|>ROLE\nC<|im_end|>\n", with
 * <|im_end|> as a part of the answer; with a tokenizer, what the model's chat template makes of it.
 * A window holds as many of the next records as fit whole; give the positions to the module, too,
 * so that no record sees another.
 *
 * For a model that sees images (vision_model below), a record may have them: "images": [FILE, ...],
 * with "<image>" in its texts where they are seen, in this order; C may also be a list of parts
 * {"type": "text", "text": T}, {"type": "image"}, which is the next of "images", or {"type":
 * "image", "image": FILE}. FILE is a JPEG or a PNG, which is resized and normalised as
 * transformers' processors do, by the processor_config.json (its "image_processor") or the
 * preprocessor_config.json beside the model's config.json; or a safetensors file with pixel_values
 * and image_grid_thw, of one image or of several, as they make them. A relative name counts from
 * the folder of the JSON lines. An image becomes as many tokens
 * as its grid has for the model, between those of its start and end; their labels are -100, and no
 * record is cut within an image.
 *
 * Videos likewise: "videos": [VIDEO, ...], "<video>", {"type": "video"} and {"type": "video",
 * "video": VIDEO}. VIDEO is {"frames": [FILE, ...], "fps": NUMBER}, the JPEGs or PNGs of frames of
 * one size that were sampled at so many a second, which are treated by processor_config.json (its
 * "video_processor"), video_preprocessor_config.json or preprocessor_config.json, the first of
 * these that there is; or a
 * safetensors file with pixel_values_videos and video_grid_thw, and with second_per_grid_ts
 * [videos] for qwen2_5_vl, or timestamps [frames of all grids], in seconds, for qwen3_vl. The
 * latter has the frames of a grid apart, each with
 * "<0.3 seconds>" before it, as transformers' processor writes them. */
#ifndef FSDP2_LOADER_H_
#define FSDP2_LOADER_H_

#include "base.h"

FSDP2_BEGIN_DECLS

enum {
  FSDP2_TOKENS_AUTO = 0,   /* little-endian uint16 up to a vocabulary of 65536, uint32 above */
  FSDP2_TOKENS_BYTES = 1,  /* text: each byte is a token, or it has those of a tokenizer */
  FSDP2_TOKENS_RECORDS = 2 /* JSON lines; the vocabulary has at least all bytes, 256 */
};
enum {
  FSDP2_ORDER_SEQUENTIAL = 0, /* windows in file order, wrapping around */
  FSDP2_ORDER_SHUFFLED = 1    /* a new permutation for each epoch, by seed */
};

typedef struct fsdp2_loader_options {
  uint32_t struct_size;
  int32_t format;
  int32_t order;
  int32_t accumulate;      /* micro batches per step */
  int64_t sequence_length; /* S */
  int64_t global_batch;    /* windows per step, over all ranks and micro batches */
  int64_t vocab_size;      /* every token must be below it */
  uint64_t seed;
  /* For FSDP2_TOKENS_RECORDS. What they leave out is counted in the log of rank 0. */
  int32_t cut_long_records; /* 1: to S+1 tokens; 0: FSDP2_E_INVALID_ARGUMENT, with the line */
  /* 1: leave out lines that are not JSON, no record, or without an answer; 0: FSDP2_E_CORRUPT_DATA,
   * with the line */
  int32_t skip_bad_records;
  /* 1: a shuffled epoch leaves out the windows that do not fill a step (others each epoch); 0: its
   * first windows fill that step. A mixture leaves out none. */
  int32_t drop_last;
  /* Batches that a thread prepares while the caller computes; 0: none. They count as not taken, and
   * what is wrong with one comes with the fsdp2_loader_next that returns it. */
  int32_t read_ahead;
  /* (opt) A tokenizer.json, or a directory with one: the tokens of texts and records. NULL: bytes.
   * vocab_size is then at least the tokenizer's. */
  const char* tokenizer;
  /* (opt) The config.json of the model, or the directory with it: records may then have images and
   * videos, if the model sees any (qwen2_5_vl, qwen3_vl). Without a tokenizer the model's tokens of
   * these are from 256 on. */
  const char* vision_model;
} fsdp2_loader_options;
#define FSDP2_LOADER_OPTIONS_INIT \
  {(uint32_t)sizeof(fsdp2_loader_options), 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL}
FSDP2_CALL fsdp2_loader_options_init(fsdp2_loader_options* options, size_t struct_size);

typedef struct fsdp2_loader_info {
  uint32_t struct_size;
  int32_t reserved;        /* 0 */
  int64_t n_windows;       /* of all files, each counted once */
  int64_t steps_per_epoch; /* that they are enough for, rounded up; down with drop_last */
  int64_t n_images;        /* in all windows; fsdp2_loader_get_images gives those of a batch */
  int64_t n_videos;        /* likewise; fsdp2_loader_get_videos */
  int64_t n_video_inputs;  /* of a forward that those of a batch are: 3 for qwen2_5_vl, 2 for
                              qwen3_vl, which takes no second_per_grid_ts; 0 without videos */
} fsdp2_loader_info;

/* [c] Opens a file of tokens, text or records. Errors: FSDP2_E_NOT_FOUND, FSDP2_E_CORRUPT_DATA (not
 * a whole number of tokens, or a bad record, such as one whose image cannot be found),
 * FSDP2_E_INVALID_ARGUMENT (less than one window, a record that is too long, a global_batch that is
 * not a multiple of ranks x accumulate, options that differ between ranks). */
FSDP2_CALL fsdp2_loader_open(fsdp2_mesh mesh, const char* path, const fsdp2_loader_options* options,
                             fsdp2_loader* out);
/* [c] Opens several files of one format as one, by weights, of which only the proportions count.
 * Each file has a fixed number of every 65536 windows, by its weight; the next window is always of
 * the file that is furthest behind. Each file has epochs of its own, in its order or shuffled by
 * the seed. The steps of an epoch are those that all files together have windows for. Errors: as
 * fsdp2_loader_open; FSDP2_E_INVALID_ARGUMENT for no file, more than 256, or a weight that is no
 * positive number or less than a 65536th of all. */
FSDP2_CALL fsdp2_loader_open_mixture(fsdp2_mesh mesh, const char* const* paths,
                                     const double* weights, size_t n_paths,
                                     const fsdp2_loader_options* options, fsdp2_loader* out);
/* Tells how much the files have. */
FSDP2_CALL fsdp2_loader_get_info(fsdp2_loader loader, fsdp2_loader_info* out);
/* Returns the next micro batch of this rank: tokens and labels, both i64
 * [global_batch/(ranks*accumulate), S]. Ranks that share sequences (ulysses_size of mesh.h) take
 * the same rows, and count as one. FSDP2_E_CORRUPT_DATA for a token outside the vocabulary, with
 * its position. */
FSDP2_CALL fsdp2_loader_next(fsdp2_loader loader, fsdp2_tensor* tokens, fsdp2_tensor* labels);
/* Returns the positions of the tokens that the last fsdp2_loader_next returned, i64 of their shape:
 * from 0 in each row, and anew in each record. fsdp2_module_forward takes them after the labels,
 * and needs them for records. FSDP2_E_WRONG_STATE before the first batch. */
FSDP2_CALL fsdp2_loader_get_positions(fsdp2_loader loader, fsdp2_tensor* positions);
/* Returns where the sequences of the last batch begin, among its tokens row by row: i64 [n + 1] on
 * the host, 0 first and the number of tokens last. fsdp2_module_forward takes them as its mask. A
 * model that sees images needs them in place of the positions, which it finds by itself then.
 * Errors: as fsdp2_loader_get_positions. */
FSDP2_CALL fsdp2_loader_get_boundaries(fsdp2_loader loader, fsdp2_tensor* boundaries);
/* Returns the images of the last batch, in the order of its tokens, as fsdp2_module_forward takes
 * them after the mask: pixel_values f32 [patches, pixels of one] and image_grid_thw i64 [images,
 * 3]. Both are {0} where the batch has none, which forward takes, too. Errors: as
 * fsdp2_loader_get_positions. */
FSDP2_CALL fsdp2_loader_get_images(fsdp2_loader loader, fsdp2_tensor* pixel_values,
                                   fsdp2_tensor* image_grid_thw);
/* Returns the videos of the last batch likewise, for the module after the images:
 * pixel_values_videos, video_grid_thw and second_per_grid_ts f64 [videos], the last of which is {0}
 * for models that take none. All are {0} where the batch has none. */
FSDP2_CALL fsdp2_loader_get_videos(fsdp2_loader loader, fsdp2_tensor* pixel_values_videos,
                                   fsdp2_tensor* video_grid_thw, fsdp2_tensor* second_per_grid_ts);
/* Returns the number of steps taken from the loader so far. */
FSDP2_CALL fsdp2_loader_get_position(fsdp2_loader loader, int64_t* step);
/* Says where to continue: after so many steps. */
FSDP2_CALL fsdp2_loader_set_position(fsdp2_loader loader, int64_t step);
FSDP2_API fsdp2_status fsdp2_loader_destroy(fsdp2_loader loader);
/* Returns another handle to the same loader; see convention 2 of fsdp2.h. */
FSDP2_CALL fsdp2_loader_duplicate(fsdp2_loader loader, fsdp2_loader* out);

FSDP2_END_DECLS

#endif /* FSDP2_LOADER_H_ */
