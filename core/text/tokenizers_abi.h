/* What libfsdp2.so and libfsdp2_tokenizers.so say to each other: a table of functions, in plain C,
 * because one is C++ and the other is Rust. plugins/tokenizers/src/abi.rs says the same.
 *
 * Functions that can fail return null or 0 and fill *error, one line of text. What they return is
 * freed by the table's own functions. Tokenizers and templates never change: any thread may use
 * them. Nothing unwinds out of a function. */
#ifndef FSDP2_CORE_TEXT_TOKENIZERS_ABI_H_
#define FSDP2_CORE_TEXT_TOKENIZERS_ABI_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Counted up by every change of this file that an older one cannot live with. */
#define FSDP2_TOKENIZERS_ABI 2
#define FSDP2_TOKENIZERS_GET "fsdp2_tokenizers_get"

typedef struct fsdp2_tokenizers_tokenizer fsdp2_tokenizers_tokenizer;
typedef struct fsdp2_tokenizers_template fsdp2_tokenizers_template;

/* UTF-8, without a NUL at its end. */
typedef struct {
  char* data;
  size_t size;
} fsdp2_tokenizers_text;

typedef struct {
  uint32_t* ids;
  uint64_t* begins; /* of each token: the byte of the text that it begins at */
  size_t count;
  size_t behind; /* of these, at the end: what the tokenizer puts behind a text that has tokens */
} fsdp2_tokenizers_tokens;

typedef struct {
  uint32_t abi; /* FSDP2_TOKENIZERS_ABI of the plug-in */
  /* From the bytes of a tokenizer.json, whose truncation and padding are left out. */
  fsdp2_tokenizers_tokenizer* (*open)(const char* json, size_t size, fsdp2_tokenizers_text* error);
  void (*close)(fsdp2_tokenizers_tokenizer* tokenizer);
  /* One more than the largest id. */
  uint64_t (*vocab_size)(const fsdp2_tokenizers_tokenizer* tokenizer);
  /* -1: there is no such token. */
  int64_t (*find_token)(const fsdp2_tokenizers_tokenizer* tokenizer, const char* token,
                        size_t size);
  /* add_special: with the tokens that the tokenizer puts around a text. */
  int (*encode)(const fsdp2_tokenizers_tokenizer* tokenizer, const char* text, size_t size,
                int add_special, fsdp2_tokenizers_tokens* out, fsdp2_tokenizers_text* error);
  int (*decode)(const fsdp2_tokenizers_tokenizer* tokenizer, const uint32_t* ids, size_t count,
                int skip_special, fsdp2_tokenizers_text* out, fsdp2_tokenizers_text* error);
  /* A chat template, in Jinja. */
  fsdp2_tokenizers_template* (*open_template)(const char* source, size_t size,
                                              fsdp2_tokenizers_text* error);
  void (*close_template)(fsdp2_tokenizers_template* chat);
  /* context: a JSON object, the variables of the template. */
  int (*render)(const fsdp2_tokenizers_template* chat, const char* context, size_t size,
                fsdp2_tokenizers_text* out, fsdp2_tokenizers_text* error);
  void (*free_text)(fsdp2_tokenizers_text text);
  void (*free_tokens)(fsdp2_tokenizers_tokens tokens);
} fsdp2_tokenizers_api;

/* The plug-in's one symbol: its table, or null if it does not have this ABI. */
typedef const fsdp2_tokenizers_api* fsdp2_tokenizers_get_function(uint32_t abi);

#ifdef __cplusplus
}
#endif

#endif /* FSDP2_CORE_TEXT_TOKENIZERS_ABI_H_ */
