/* Text to tokens and back: by a model's tokenizer.json, which Hugging Face's tokenizers library
 * reads, or by bytes. The library is in libfsdp2_tokenizers.so, which is opened at the first need:
 * beside libfsdp2.so, or where the environment's FSDP2_TOKENIZERS_LIBRARY says.
 * plugins/tokenizers/build.sh builds it.
 *
 * A tokenizer never changes: any threads may use it at once. */
#ifndef FSDP2_TOKENIZER_H_
#define FSDP2_TOKENIZER_H_

#include "base.h"

FSDP2_BEGIN_DECLS

typedef struct fsdp2_tokenizer_info {
  uint32_t struct_size;
  int32_t has_chat_template; /* 1: the files beside it have one, which records of messages take */
  int64_t vocab_size;        /* one more than its largest token */
  int64_t end_token;         /* that ends a text; -1: no file beside it names one */
} fsdp2_tokenizer_info;

/* Opens `path`: a tokenizer.json, or a directory with one. NULL or "": the tokenizer whose tokens
 * are bytes, where 0 ends a text; it needs no file and no other library. Beside a tokenizer.json,
 * tokenizer_config.json, special_tokens_map.json, config.json and chat_template.jinja are read
 * where they are. Errors: FSDP2_E_NOT_FOUND, FSDP2_E_IO, FSDP2_E_CORRUPT_DATA (a file that is not
 * what it is to be), FSDP2_E_UNSUPPORTED (no libfsdp2_tokenizers.so, or one of another version). */
FSDP2_CALL fsdp2_tokenizer_open(const char* path /*(opt)*/, fsdp2_tokenizer* out);
/* Tells what the tokenizer has. */
FSDP2_CALL fsdp2_tokenizer_get_info(fsdp2_tokenizer tokenizer, fsdp2_tokenizer_info* out);
/* Writes the tokens of a text of at most FSDP2_MAX_CONFIG bytes. surround: 1 for the tokens that
 * the tokenizer puts around a text, such as a beginning. FSDP2_E_CORRUPT_DATA for a text that it
 * has no tokens for. */
FSDP2_CALL fsdp2_tokenizer_encode(fsdp2_tokenizer tokenizer, const char* text, int32_t surround,
                                  int64_t* tokens, size_t cap, size_t* needed);
/* Writes the tokens of a line of JSON, as FSDP2_TOKENS_RECORDS has them (loader.h), whose tokens a
 * loader takes. FSDP2_E_CORRUPT_DATA for a line that is no record, FSDP2_E_INVALID_ARGUMENT for one
 * that the tokenizer cannot write: no end of a text, or no chat template. */
FSDP2_CALL fsdp2_tokenizer_encode_record(fsdp2_tokenizer tokenizer, const char* text,
                                         int64_t* tokens, size_t cap, size_t* needed);
/* Makes what fsdp2_module_generate_batch takes of a record that it is to answer: `prompt`, its
 * tokens i64 [1,n]. The prompt of a record (loader.h) is what comes before its response, or before
 * its last message where that is the assistant's; {"prompt": P} needs no response here, and
 * {"text": T} is a prompt as a whole. Messages become what the chat template makes of them where it
 * opens an answer.
 *
 * vision_model: the config.json of a model that sees images, or the directory with it, if a record
 * may have some. directory: what relative names of files count from; NULL: the process's own. The
 * other outputs are the images and videos, as fsdp2_generate_options.vision_inputs has them: each
 * {0} where the prompt has none, and NULL where it is not asked for. Where all are NULL, files are
 * looked at and no pixel is read.
 *
 * Errors: as fsdp2_tokenizer_encode_record; FSDP2_E_CORRUPT_DATA also for messages that do not end
 * with one of the user's, and for a file that a record names and that is missing or bad; those of
 * reading vision_model. */
FSDP2_CALL fsdp2_tokenizer_encode_prompt(
    fsdp2_tokenizer tokenizer, const char* text, const char* vision_model /*(opt)*/,
    const char* directory /*(opt)*/, fsdp2_tensor* prompt, fsdp2_tensor* pixel_values /*(opt)*/,
    fsdp2_tensor* image_grid_thw /*(opt)*/, fsdp2_tensor* pixel_values_videos /*(opt)*/,
    fsdp2_tensor* video_grid_thw /*(opt)*/, fsdp2_tensor* second_per_grid_ts /*(opt)*/);
/* Writes the text of tokens. keep_special: 1 to write special tokens, such as the end of a text,
 * too. FSDP2_E_INVALID_ARGUMENT for numbers that are no tokens. */
FSDP2_CALL fsdp2_tokenizer_decode(fsdp2_tokenizer tokenizer, const int64_t* tokens, size_t n_tokens,
                                  int32_t keep_special, char* buf, size_t cap, size_t* needed);
FSDP2_API fsdp2_status fsdp2_tokenizer_destroy(fsdp2_tokenizer tokenizer);
/* Returns another handle to the same tokenizer; see convention 2 of fsdp2.h. */
FSDP2_CALL fsdp2_tokenizer_duplicate(fsdp2_tokenizer tokenizer, fsdp2_tokenizer* out);

FSDP2_END_DECLS

#endif /* FSDP2_TOKENIZER_H_ */
