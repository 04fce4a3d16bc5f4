/* Forward-only work through the C ABI. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>

#include "tests/capi/tiny_model.h"

enum { kRows = 3, kLength = 6 };

static fsdp2_tensor tokens_from(int64_t first, int64_t rows, int64_t length) {
  const int64_t shape[2] = {rows, length};
  int64_t values[64], i;
  for (i = 0; i < rows * length; ++i) {
    values[i] = (first * 5 + 3 * i) % kTinyVocabulary;
  }
  return int64_tensor(values, shape, 2);
}

static double value_at(fsdp2_tensor tensor, size_t index) {
  float values[64];
  fsdp2_tensor_info info;
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_tensor_get_info(tensor, &info));
  EXPECT(info.dtype == FSDP2_DTYPE_F32);
  EXPECT_OK(fsdp2_tensor_read(tensor, values, (size_t)info.n_bytes));
  return values[index];
}

static void scores_are_of_each_next_token(void) {
  fsdp2_module module = tiny_model();
  fsdp2_tensor inputs[1] = {tokens_from(1, kRows, kLength)}, log_probs = {0}, entropies = {0};
  fsdp2_tensor logits = {0};
  fsdp2_tensor_info info;
  float all[kRows * kLength * kTinyVocabulary];
  size_t n = 0;
  int row, at, word;
  EXPECT_OK(fsdp2_module_score(module, inputs, 1, NULL, &log_probs, &entropies));
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_tensor_get_info(log_probs, &info));
  EXPECT(info.n_dims == 2 && info.shape[0] == kRows && info.shape[1] == kLength - 1);
  EXPECT_OK(fsdp2_module_forward(module, inputs, 1, FSDP2_FORWARD_NO_GRAD, &logits, 1, &n));
  EXPECT_OK(fsdp2_tensor_read(logits, all, sizeof(all)));
  for (row = 0; row < kRows; ++row) {
    for (at = 0; at + 1 < kLength; ++at) {
      const float* place = all + (row * kLength + at) * kTinyVocabulary;
      const int next = (int)((5 + 3 * (row * kLength + at + 1)) % kTinyVocabulary);
      double sum = 0.0, mean = 0.0;
      for (word = 0; word < kTinyVocabulary; ++word) {
        sum += exp((double)place[word]);
        mean += exp((double)place[word]) * (double)place[word];
      }
      EXPECT_NEAR(value_at(log_probs, (size_t)(row * (kLength - 1) + at)),
                  (double)place[next] - log(sum), 1e-5);
      EXPECT_NEAR(value_at(entropies, (size_t)(row * (kLength - 1) + at)), log(sum) - mean / sum,
                  1e-5);
    }
  }
  EXPECT_OK(fsdp2_tensor_destroy(logits));
  EXPECT_OK(fsdp2_tensor_destroy(log_probs));
  EXPECT_OK(fsdp2_tensor_destroy(entropies));
  EXPECT_OK(fsdp2_tensor_destroy(inputs[0]));
  EXPECT_OK(fsdp2_module_destroy(module));
}

/* Rank 0 has 3 rows, rank 1 one, rank 2 none; 2 rows a forward. */
static void score_on_uneven_ranks(fsdp2_mesh mesh, int rank) {
  fsdp2_module module = tiny_model(), whole = tiny_model();
  fsdp2_shard shard = shard_with(module, mesh, NULL);
  fsdp2_infer_options options = FSDP2_INFER_OPTIONS_INIT;
  const int64_t rows = rank == 0 ? 3 : 2 - rank;
  fsdp2_tensor inputs[1] = {tokens_from(rank, rows, kLength)}, log_probs = {0}, entropies = {0};
  fsdp2_evaluation evaluation, alone;
  size_t i;
  options.batch_size = 2;
  options.reshard_after_forward = FSDP2_RESHARD_NEVER;
  evaluation.struct_size = alone.struct_size = (uint32_t)sizeof(evaluation);
  EXPECT_OK(fsdp2_module_score(module, inputs, 1, &options, &log_probs, &entropies));
  EXPECT_OK(fsdp2_module_evaluate(module, inputs, 1, &options, &evaluation));
  EXPECT(evaluation.n_labels == 4 * (kLength - 1) && evaluation.loss > 0.0);
  EXPECT_OK(fsdp2_module_evaluate(whole, inputs, 1, NULL, &alone));
  EXPECT(alone.n_labels == rows * (kLength - 1) && (rows > 0 || isnan(alone.loss)));
  if (rows > 0) {
    double sum = 0.0;
    for (i = 0; i < (size_t)alone.n_labels; ++i) {
      sum -= value_at(log_probs, i);
    }
    EXPECT_NEAR(sum / (double)alone.n_labels, alone.loss, 1e-5);
  }
  EXPECT_OK(fsdp2_tensor_destroy(log_probs));
  EXPECT_OK(fsdp2_tensor_destroy(entropies));
  EXPECT_OK(fsdp2_tensor_destroy(inputs[0]));
  EXPECT_OK(fsdp2_module_destroy(whole));
  destroy_tiny(module, shard);
}
static void ranks_may_have_different_numbers_of_rows(void) {
  on_ranks("uneven-scores", 3, 0, score_on_uneven_ranks);
}

static void score_wrong_tokens(fsdp2_mesh mesh, int rank) {
  fsdp2_module module = tiny_model();
  fsdp2_shard shard = shard_with(module, mesh, NULL);
  fsdp2_infer_options options = FSDP2_INFER_OPTIONS_INIT;
  const int64_t shape[2] = {1, 2}, values[2] = {1, rank == 1 ? 99 : 2};
  fsdp2_tensor inputs[1], log_probs = {5}, entropies = {6};
  fsdp2_evaluation evaluation;
  evaluation.struct_size = (uint32_t)sizeof(evaluation);
  inputs[0] = int64_tensor(values, shape, 2);
  EXPECT_STATUS(fsdp2_module_score(module, inputs, 1, NULL, &log_probs, &entropies),
                rank == 1 ? FSDP2_E_INVALID_ARGUMENT : FSDP2_E_PEER_FAILED);
  EXPECT_MESSAGE("token 99 at position [0, 1]");
  EXPECT(log_probs.id == 5 && entropies.id == 6);
  options.chunk_size = 1 + rank;
  EXPECT_STATUS(fsdp2_module_evaluate(module, inputs, 1, &options, &evaluation),
                rank == 1 ? FSDP2_E_INVALID_ARGUMENT : FSDP2_E_PEER_FAILED);
  EXPECT_OK(fsdp2_tensor_destroy(inputs[0]));
  inputs[0] = tokens_from(1, 2, 3);
  EXPECT_STATUS(fsdp2_module_evaluate(module, inputs, 1, &options, &evaluation),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("chunk_size: rank 0 has 1, rank 1 has 2");
  EXPECT_OK(fsdp2_module_evaluate(module, inputs, 1, NULL, &evaluation));
  EXPECT_OK(fsdp2_tensor_destroy(inputs[0]));
  destroy_tiny(module, shard);
}
static void a_mistake_is_told_to_all_ranks_and_costs_nothing(void) {
  on_ranks("wrong-scores", 2, 0, score_wrong_tokens);
}

enum { kNew = 6 };

/* Rows of different lengths; what is behind a row's length is no token of the vocabulary. */
static const int64_t kPrompts[kRows][4] = {{1, 9, 3, 28}, {7, -1, 99, -1}, {5, 5, 2, -1}};
static const int64_t kLengths[kRows] = {4, 1, 3};

static fsdp2_generate_options sampling(void) {
  static const int64_t kStop[] = {3, 17, 22, 30};
  fsdp2_generate_options options = FSDP2_GENERATE_OPTIONS_INIT;
  options.max_new_tokens = kNew;
  options.top_p = 0.95;
  options.seed = 11;
  options.stop_tokens = kStop;
  options.n_stop_tokens = sizeof(kStop) / sizeof(kStop[0]);
  return options;
}

struct continued {
  int64_t tokens[kRows][kNew], counts[kRows];
};

static struct continued continue_batch(fsdp2_module module, int64_t first, int64_t rows,
                                       const fsdp2_generate_options* options) {
  const int64_t shape[2] = {rows, 4};
  struct continued out;
  fsdp2_tensor prompts = int64_tensor(kPrompts[first], shape, 2), tokens = {0}, counts = {0};
  memset(&out, -1, sizeof(out));
  EXPECT_OK(fsdp2_module_generate_batch(module, prompts, kLengths + first, (size_t)rows, options,
                                        &tokens, &counts));
  EXPECT_OK(fsdp2_tensor_read(tokens, out.tokens, (size_t)rows * sizeof(out.tokens[0])));
  EXPECT_OK(fsdp2_tensor_read(counts, out.counts, (size_t)rows * sizeof(out.counts[0])));
  EXPECT_OK(fsdp2_tensor_destroy(prompts));
  EXPECT_OK(fsdp2_tensor_destroy(tokens));
  EXPECT_OK(fsdp2_tensor_destroy(counts));
  return out;
}

static void each_row_of_a_batch_is_what_its_prompt_alone_becomes(void) {
  fsdp2_module module = tiny_model();
  fsdp2_generate_options options = sampling();
  const struct continued all = continue_batch(module, 0, kRows, &options);
  int row, shorter = 0;
  for (row = 0; row < kRows; ++row) {
    int64_t alone[kNew] = {0};
    size_t n = 0;
    options.first_row = row;
    EXPECT_OK(fsdp2_module_generate(module, kPrompts[row], (size_t)kLengths[row], &options, alone,
                                    kNew, &n));
    EXPECT((int64_t)n == all.counts[row]);
    EXPECT(memcmp(alone, all.tokens[row], sizeof(alone)) == 0);
    shorter += n < kNew;
  }
  EXPECT(shorter > 0 && shorter < kRows);
  EXPECT_OK(fsdp2_module_destroy(module));
}

/* Rank 0 has two rows, rank 1 one, rank 2 none. */
static void generate_own_rows(fsdp2_mesh mesh, int rank) {
  fsdp2_module module = tiny_model(), whole = tiny_model();
  fsdp2_shard shard = shard_with(module, mesh, NULL);
  fsdp2_generate_options options = sampling();
  const struct continued all = continue_batch(whole, 0, kRows, &options);
  const int64_t rows = 2 - rank, first = rank == 0 ? 0 : 2;
  struct continued own;
  options.first_row = first;
  options.reshard_after_forward = FSDP2_RESHARD_NEVER;
  own = continue_batch(module, rank == 2 ? 0 : first, rows, &options);
  EXPECT(memcmp(own.tokens, all.tokens[first], (size_t)rows * sizeof(own.tokens[0])) == 0);
  EXPECT(memcmp(own.counts, all.counts + first, (size_t)rows * sizeof(own.counts[0])) == 0);
  EXPECT_OK(fsdp2_module_destroy(whole));
  destroy_tiny(module, shard);
}
static void ranks_generate_their_own_rows(void) { on_ranks("own-rows", 3, 0, generate_own_rows); }

static void wrong_lengths_and_stop_tokens_are_refused(void) {
  const int64_t shape[2] = {kRows, 4}, too_long[kRows] = {4, 1, 5}, stop[1] = {32};
  fsdp2_module module = tiny_model();
  fsdp2_generate_options options = FSDP2_GENERATE_OPTIONS_INIT;
  fsdp2_tensor prompts = int64_tensor(kPrompts[0], shape, 2), tokens = {5}, counts = {6};
  EXPECT_STATUS(
      fsdp2_module_generate_batch(module, prompts, kLengths, 2, &options, &tokens, &counts),
      FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("n_lengths: expected 3, the rows of the prompts, or 0, found 2");
  EXPECT_STATUS(
      fsdp2_module_generate_batch(module, prompts, too_long, kRows, &options, &tokens, &counts),
      FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("lengths");
  EXPECT_STATUS(fsdp2_module_generate_batch(module, prompts, NULL, 0, &options, &tokens, &counts),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("token -1 at position [1, 1]");
  options.stop_tokens = stop;
  options.n_stop_tokens = 1;
  EXPECT_STATUS(
      fsdp2_module_generate_batch(module, prompts, kLengths, kRows, &options, &tokens, &counts),
      FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("stop_tokens: token 32 is outside the vocabulary of 32");
  EXPECT(tokens.id == 5 && counts.id == 6);
  EXPECT_OK(fsdp2_tensor_destroy(prompts));
  EXPECT_OK(fsdp2_module_destroy(module));
}

int main(void) {
  RUN(scores_are_of_each_next_token);
  RUN(ranks_may_have_different_numbers_of_rows);
  RUN(a_mistake_is_told_to_all_ranks_and_costs_nothing);
  RUN(each_row_of_a_batch_is_what_its_prompt_alone_becomes);
  RUN(ranks_generate_their_own_rows);
  RUN(wrong_lengths_and_stop_tokens_are_refused);
  return harness_result();
}
