/* Tokenizers, mixtures and reading ahead on one rank, without the plug-in of tokenizers. */
#define _POSIX_C_SOURCE 200809L
#include "tests/capi/harness.h"

static void bytes_are_tokens(void) {
  static const int64_t expected[3] = {'a', 0xc3, 0xa9};
  static const int64_t record[4] = {'b', 'c', 0, 7};
  fsdp2_tokenizer tokenizer = {0}, other = {0};
  fsdp2_tokenizer_info info;
  int64_t tokens[4] = {7, 7, 7, 7};
  char text[16];
  size_t needed = 0;
  memset(&info, 0, sizeof(info));
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_tokenizer_open(NULL, &tokenizer));
  EXPECT_OK(fsdp2_tokenizer_get_info(tokenizer, &info));
  EXPECT(info.vocab_size == 256 && info.end_token == 0 && info.has_chat_template == 0);
  EXPECT_OK(fsdp2_tokenizer_encode(tokenizer, "a\xc3\xa9", 1, NULL, 0, &needed));
  EXPECT(needed == 3);
  EXPECT_STATUS(fsdp2_tokenizer_encode(tokenizer, "abcde", 1, tokens, 4, &needed),
                FSDP2_E_BUFFER_TOO_SMALL);
  EXPECT(needed == 5 && tokens[0] == 7);
  EXPECT_OK(fsdp2_tokenizer_encode(tokenizer, "a\xc3\xa9", 1, tokens, 4, &needed));
  EXPECT(needed == 3 && memcmp(tokens, expected, sizeof(expected)) == 0);
  EXPECT_OK(fsdp2_tokenizer_duplicate(tokenizer, &other));
  EXPECT_OK(fsdp2_tokenizer_destroy(tokenizer));
  EXPECT_OK(fsdp2_tokenizer_decode(other, tokens, 3, 0, text, sizeof(text), &needed));
  EXPECT(needed == 4 && strcmp(text, "a\xc3\xa9") == 0);
  tokens[3] = 7;
  EXPECT_OK(fsdp2_tokenizer_encode_record(other, "{\"prompt\": \"b\", \"response\": \"c\"}", tokens,
                                          4, &needed));
  EXPECT(needed == 3 && memcmp(tokens, record, sizeof(record)) == 0);
  EXPECT_STATUS(fsdp2_tokenizer_encode_record(other, "{", tokens, 4, &needed),
                FSDP2_E_CORRUPT_DATA);
  tokens[0] = 256;
  EXPECT_STATUS(fsdp2_tokenizer_decode(other, tokens, 1, 0, text, sizeof(text), &needed),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_OK(fsdp2_tokenizer_destroy(other));
  EXPECT_STATUS(fsdp2_tokenizer_open("/no/such/tokenizer.json", &tokenizer), FSDP2_E_NOT_FOUND);
}

/* The bytes of a prompt, or what is wrong with it. */
static void a_prompt_is_what_comes_before_the_answer(void) {
  static const char* const records[4] = {
      "{\"prompt\": \"ab\", \"response\": \"c\"}", "{\"prompt\": \"ab\"}", "{\"text\": \"ab\"}",
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
      "\"content\": \"b\"}]}"};
  static const char opened[] = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n";
  fsdp2_tokenizer tokenizer = {0};
  fsdp2_tensor prompt = {0}, pixels = {5};
  int64_t tokens[64];
  int i, at;
  EXPECT_OK(fsdp2_tokenizer_open(NULL, &tokenizer));
  for (i = 0; i < 4; ++i) {
    const char* expected = i < 3 ? "ab" : opened;
    EXPECT_OK(fsdp2_tokenizer_encode_prompt(tokenizer, records[i], NULL, NULL, &prompt, &pixels,
                                            NULL, NULL, NULL, NULL));
    EXPECT(pixels.id == 0);
    EXPECT_OK(fsdp2_tensor_read(prompt, tokens, strlen(expected) * sizeof(int64_t)));
    for (at = 0; expected[at] != 0; ++at) {
      EXPECT(tokens[at] == expected[at]);
    }
    EXPECT_OK(fsdp2_tensor_destroy(prompt));
  }
  pixels.id = 5;
  EXPECT_STATUS(
      fsdp2_tokenizer_encode_prompt(tokenizer,
                                    "{\"messages\": [{\"role\": \"system\", \"content\": \"a\"}, "
                                    "{\"role\": \"assistant\", \"content\": \"b\"}]}",
                                    NULL, NULL, &prompt, &pixels, NULL, NULL, NULL, NULL),
      FSDP2_E_CORRUPT_DATA);
  EXPECT_MESSAGE("expected the last message to answer to be the user's, found the system's");
  EXPECT(pixels.id == 5);
  EXPECT_STATUS(fsdp2_tokenizer_encode_prompt(tokenizer, "{\"text\": \"\"}", NULL, NULL, &prompt,
                                              NULL, NULL, NULL, NULL, NULL),
                FSDP2_E_CORRUPT_DATA);
  EXPECT_STATUS(
      fsdp2_tokenizer_encode_prompt(tokenizer, "{\"prompt\": \"<image>\", \"images\": [\"a\"]}",
                                    NULL, NULL, &prompt, NULL, NULL, NULL, NULL, NULL),
      FSDP2_E_CORRUPT_DATA);
  EXPECT_MESSAGE("nothing says what model sees them");
  EXPECT_OK(fsdp2_tokenizer_destroy(tokenizer));
}

static fsdp2_loader_options text_options(void) {
  fsdp2_loader_options options = FSDP2_LOADER_OPTIONS_INIT;
  options.format = FSDP2_TOKENS_BYTES;
  options.sequence_length = 2;
  options.global_batch = 4;
  options.vocab_size = 384;
  return options;
}

/* The first token of each window of the next batch. */
static void next_begins(fsdp2_loader loader, char begins[5]) {
  fsdp2_tensor batch[2] = {{0}, {0}};
  int64_t tokens[4][2] = {{0}};
  int i;
  EXPECT_OK(fsdp2_loader_next(loader, &batch[0], &batch[1]));
  EXPECT_OK(fsdp2_tensor_read(batch[0], tokens, sizeof(tokens)));
  for (i = 0; i < 4; ++i) {
    begins[i] = (char)tokens[i][0];
  }
  begins[4] = 0;
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
}

static void mixture_takes_windows_by_weight(void) {
  char first[1100], second[1100], begins[5];
  const char* const paths[2] = {first, second};
  const double weights[2] = {3, 1}, none[2] = {3, 0};
  struct job job = start_lone_job();
  fsdp2_loader_options options = text_options();
  fsdp2_loader_info info;
  int32_t read_ahead;
  snprintf(first, sizeof(first), "%s", temporary_path("first"));
  snprintf(second, sizeof(second), "%s", temporary_path("second"));
  write_file(first, "aabbccd", 7);
  write_file(second, "xxyyz", 5);
  for (read_ahead = 0; read_ahead < 4; ++read_ahead) {
    options.read_ahead = read_ahead;
    EXPECT_OK(fsdp2_loader_destroy(job.loader));
    EXPECT_OK(fsdp2_loader_open_mixture(job.mesh, paths, weights, 2, &options, &job.loader));
    memset(&info, 0, sizeof(info));
    info.struct_size = (uint32_t)sizeof(info);
    EXPECT_OK(fsdp2_loader_get_info(job.loader, &info));
    EXPECT(info.n_windows == 5 && info.steps_per_epoch == 2);
    next_begins(job.loader, begins);
    EXPECT(strcmp(begins, "abxc") == 0);
    next_begins(job.loader, begins);
    EXPECT(strcmp(begins, "abyc") == 0);
    EXPECT_OK(fsdp2_loader_set_position(job.loader, 1));
    next_begins(job.loader, begins);
    EXPECT(strcmp(begins, "abyc") == 0);
  }
  EXPECT_STATUS(fsdp2_loader_open_mixture(job.mesh, paths, none, 2, &options, &job.loader),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_loader_open_mixture(job.mesh, NULL, NULL, 0, &options, &job.loader),
                FSDP2_E_INVALID_ARGUMENT);
  end_lone_job(&job);
}

static void last_windows_are_dropped_or_filled_up(void) {
  struct job job = start_lone_job();
  fsdp2_loader_options options = text_options();
  const char* path = temporary_path("text");
  fsdp2_loader_info info;
  write_file(path, "aabbccddeef", 11);
  options.order = FSDP2_ORDER_SHUFFLED;
  for (options.drop_last = 0; options.drop_last < 2; ++options.drop_last) {
    EXPECT_OK(fsdp2_loader_destroy(job.loader));
    EXPECT_OK(fsdp2_loader_open(job.mesh, path, &options, &job.loader));
    memset(&info, 0, sizeof(info));
    info.struct_size = (uint32_t)sizeof(info);
    EXPECT_OK(fsdp2_loader_get_info(job.loader, &info));
    EXPECT(info.n_windows == 5 && info.steps_per_epoch == 2 - options.drop_last);
  }
  end_lone_job(&job);
}

/* Without it, nothing is opened, and nothing is leaked. */
static void tokenizer_needs_its_plug_in(void) {
  struct job job = start_lone_job();
  fsdp2_loader_options options = text_options();
  const char* path = temporary_path("tokenizer.json");
  fsdp2_tokenizer tokenizer = {5};
  fsdp2_loader loader = {5};
  write_file(path, "{}", 2);
  EXPECT(setenv("FSDP2_TOKENIZERS_LIBRARY", "/no/such/library.so", 1) == 0);
  EXPECT_STATUS(fsdp2_tokenizer_open(path, &tokenizer), FSDP2_E_UNSUPPORTED);
  EXPECT(strstr(fsdp2_error_message(), "plugins/tokenizers/build.sh") != NULL);
  options.tokenizer = path;
  EXPECT_STATUS(fsdp2_loader_open(job.mesh, path, &options, &loader), FSDP2_E_UNSUPPORTED);
  options.format = FSDP2_TOKENS_AUTO;
  EXPECT_STATUS(fsdp2_loader_open(job.mesh, path, &options, &loader), FSDP2_E_INVALID_ARGUMENT);
  EXPECT(tokenizer.id == 5 && loader.id == 5);
  end_lone_job(&job);
}

int main(void) {
  RUN(bytes_are_tokens);
  RUN(a_prompt_is_what_comes_before_the_answer);
  RUN(mixture_takes_windows_by_weight);
  RUN(last_windows_are_dropped_or_filled_up);
  RUN(tokenizer_needs_its_plug_in);
  return harness_result();
}
