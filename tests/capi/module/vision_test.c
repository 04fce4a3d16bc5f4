/* Vision-language models through the C ABI: steps in which only some ranks have images, mistakes in
 * the images, units, frozen encoders, and directories written back. */
#define _POSIX_C_SOURCE 200809L
#include "tests/capi/tiny_model.h"

#define VISION_TOKENS "\"image_token_id\": 8, \"video_token_id\": 9,"
#define VISION_TEXT                                                                      \
  "\"vocab_size\": 32, \"hidden_size\": 16, \"intermediate_size\": 24, \"head_dim\": 8," \
  " \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1,"   \
  " \"max_position_embeddings\": 64, \"initializer_range\": 0.2,"                        \
  " \"rope_scaling\": {\"type\": \"default\", \"mrope_section\": [2, 1, 1]}"
#define VISION_ENCODER                                                              \
  "\"depth\": 2, \"hidden_size\": 16, \"intermediate_size\": 20, \"num_heads\": 2," \
  " \"patch_size\": 2, \"spatial_merge_size\": 2, \"temporal_patch_size\": 2,"      \
  " \"out_hidden_size\": 16"

/* As published files have it: the decoder's keys beside the encoder's. */
static const char* const kQwen25 =
    "{\"model_type\": \"qwen2_5_vl\"," VISION_TOKENS VISION_TEXT
    ", \"vision_config\": {" VISION_ENCODER
    ", \"window_size\": 8, \"fullatt_block_indexes\": [1], \"tokens_per_second\": 2}}";
static const char* const kQwen3 =
    "{\"model_type\": \"qwen3_vl\"," VISION_TOKENS "\"text_config\": {" VISION_TEXT
    "}, \"vision_config\": {" VISION_ENCODER
    ", \"num_position_embeddings\": 16, \"deepstack_visual_indexes\": [0]}}";

enum { kLength = 12, kPatch = 24, kInputs = 6 };
enum { kImageToken = 8, kPixels = 4, kGrids = 5 };

/* Whose tests run now; ranks are threads. */
static const char* model_json;

static fsdp2_module vision_model(void) {
  fsdp2_module_options options = FSDP2_MODULE_OPTIONS_INIT;
  fsdp2_module module = {0};
  options.seed = 3;
  EXPECT_OK(fsdp2_module_from_config(model_json, &options, &module));
  return module;
}

/* The images of a rank: two, none, one, none. */
static const int64_t kGridsOfRanks[4][2][3] = {{{1, 4, 6}, {1, 2, 4}}, {{0}}, {{1, 6, 2}}, {{0}}};
static int images_of(int rank) { return rank % 2 == 1 ? 0 : 2 - rank / 2; }

/* Inputs with these images; tokens of `missing` of which are text. */
static void make_inputs(const int64_t grids[][3], int n_images, int turn, int missing,
                        int64_t missing_patches, fsdp2_tensor inputs[kInputs]) {
  const int64_t shape[2] = {1, kLength};
  int64_t values[2][kLength], patches = 0;
  int i, place = 2;
  memset(inputs, 0, kInputs * sizeof(inputs[0]));
  for (i = 0; i < kLength; ++i) {
    values[0][i] = 10 + (3 * i + 7 * turn) % 20;
    values[1][i] = (2 + 5 * i + turn) % 32;
  }
  for (i = 0; i < n_images; ++i) {
    const int64_t tokens = grids[i][0] * (grids[i][1] / 2) * (grids[i][2] / 2);
    const int64_t end = place + tokens - (i + 1 == n_images ? missing : 0);
    patches += grids[i][0] * grids[i][1] * grids[i][2];
    while (place < end && place < kLength) {
      values[0][place++] = kImageToken;
    }
    ++place;
  }
  inputs[0] = int64_tensor(values[0], shape, 2);
  inputs[1] = int64_tensor(values[1], shape, 2);
  if (n_images > 0) {
    const int64_t grid_shape[2] = {n_images, 3};
    const int64_t pixel_shape[2] = {patches - missing_patches, kPatch};
    static _Thread_local float pixels[64 * kPatch];
    for (i = 0; i < 64 * kPatch; ++i) {
      pixels[i] = (float)((i * 37 + turn * 11) % 101) / 50.0F - 1.0F;
    }
    EXPECT_OK(fsdp2_tensor_from_buffer(pixels, (size_t)(pixel_shape[0] * kPatch) * sizeof(float),
                                       FSDP2_DTYPE_F32, pixel_shape, 2, &inputs[kPixels]));
    inputs[kGrids] = int64_tensor(grids[0], grid_shape, 2);
  }
}

static void inputs_of_rank(int rank, fsdp2_tensor inputs[kInputs]) {
  make_inputs(kGridsOfRanks[rank], images_of(rank), rank, 0, 0, inputs);
}

static void destroy_inputs(fsdp2_tensor* inputs, int count) {
  int i;
  for (i = 0; i < count; ++i) {
    if (inputs[i].id != 0) {
      EXPECT_OK(fsdp2_tensor_destroy(inputs[i]));
    }
  }
}

static fsdp2_step_result run_step(fsdp2_step step, fsdp2_tensor* batch, int count) {
  fsdp2_step_result result;
  memset(&result, 0, sizeof(result));
  result.struct_size = (uint32_t)sizeof(result);
  EXPECT_OK(fsdp2_step_run(step, batch, (size_t)count, &result));
  return result;
}

/* Two steps: the second's loss shows what the first has updated. */
static void two_steps(fsdp2_mesh mesh, const fsdp2_shard_options* options, fsdp2_tensor* batch,
                      int count, int accumulate, int is_frozen, fsdp2_step_result results[2]) {
  static const char* const kEncoders[] = {"visual", "model.visual"};
  const fsdp2_module module = vision_model();
  fsdp2_shard shard;
  fsdp2_optimizer optimizer;
  fsdp2_step step = {0};
  fsdp2_step_options step_options = FSDP2_STEP_OPTIONS_INIT;
  if (is_frozen) {
    EXPECT_OK(fsdp2_module_set_requires_grad(module, kEncoders + (model_json == kQwen3), 1, 0));
  }
  shard = shard_with(module, mesh, options);
  optimizer = golden_adamw(shard);
  step_options.accumulate = accumulate;
  EXPECT_OK(fsdp2_step_create(shard, optimizer, &step_options, &step));
  results[0] = run_step(step, batch, count);
  results[1] = run_step(step, batch, count);
  EXPECT_OK(fsdp2_step_destroy(step));
  EXPECT_OK(fsdp2_optimizer_destroy(optimizer));
  destroy_tiny(module, shard);
}

/* What one rank makes of the batches of four as micro batches. */
static fsdp2_step_result expected[2][2]; /* frozen or not; step */

static void expect_steps(void) {
  const fsdp2_mesh mesh = lone_mesh();
  fsdp2_tensor batch[4 * kInputs];
  int rank, is_frozen;
  for (rank = 0; rank < 4; ++rank) {
    inputs_of_rank(rank, batch + rank * kInputs);
  }
  for (is_frozen = 0; is_frozen < 2; ++is_frozen) {
    two_steps(mesh, NULL, batch, 4 * kInputs, 4, is_frozen, expected[is_frozen]);
  }
  EXPECT(expected[0][0].grad_norm > 1.01 * expected[1][0].grad_norm); /* the encoder has a part */
  destroy_inputs(batch, 4 * kInputs);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void step_on_ranks(fsdp2_mesh mesh, int rank) {
  fsdp2_tensor inputs[kInputs];
  fsdp2_step_result results[2];
  int is_frozen, step;
  inputs_of_rank(rank, inputs);
  for (is_frozen = 0; is_frozen < 2; ++is_frozen) {
    two_steps(mesh, NULL, inputs, kInputs, 1, is_frozen, results);
    for (step = 0; step < 2; ++step) {
      EXPECT_NEAR(results[step].loss, expected[is_frozen][step].loss, 1e-5);
      EXPECT_NEAR(results[step].grad_norm, expected[is_frozen][step].grad_norm, 1e-4);
    }
  }
  destroy_inputs(inputs, kInputs);
}

static void steps_are_the_same_where_only_some_ranks_have_images(void) {
  expect_steps();
  on_ranks("images", 4, 0, step_on_ranks);
  on_ranks("images-of-replicas", 4, 2, step_on_ranks);
}

/* ---- mistakes */

struct mistake {
  int missing_tokens;
  int64_t missing_patches, rows;
  const char* parts[2];
};
static const struct mistake kMistakes[] = {
    {2, 0, 4, {"image_grid_thw: expected 6 tokens 8 in a row", "found 4"}},
    {-1, 0, 4, {"image_grid_thw: expected 6 tokens 8 (those of 1 blocks)", "position [0, 8]"}},
    {0, 1, 4, {"image_grid_thw", "have 24 patches, but there are pixels of 23"}},
    {0, 0, 5, {"spatial_merge_size, 2, divides, got 1 x 5 x 6 in row 0", "image_grid_thw"}},
};
enum { kNMistakes = sizeof(kMistakes) / sizeof(kMistakes[0]) };

static void make_mistakes(fsdp2_mesh mesh, int rank) {
  const fsdp2_module module = vision_model();
  const fsdp2_shard shard = shard_with(module, mesh, NULL);
  const fsdp2_optimizer optimizer = golden_adamw(shard);
  fsdp2_step step = {0};
  fsdp2_step_result result;
  fsdp2_tensor good[kInputs];
  int i, part;
  result.struct_size = (uint32_t)sizeof(result);
  EXPECT_OK(fsdp2_step_create(shard, optimizer, NULL, &step));
  inputs_of_rank(rank, good);
  for (i = 0; i < kNMistakes; ++i) {
    const int64_t grids[1][3] = {{1, kMistakes[i].rows, 6}};
    fsdp2_tensor bad[kInputs], loss = {0};
    size_t n = 0;
    const fsdp2_tensor* inputs = rank == 1 ? bad : good;
    const fsdp2_status status = rank == 1 ? FSDP2_E_INVALID_ARGUMENT : FSDP2_E_PEER_FAILED;
    make_inputs(grids, 1, rank, kMistakes[i].missing_tokens, kMistakes[i].missing_patches, bad);
    EXPECT_STATUS(fsdp2_step_run(step, inputs, kInputs, &result), status);
    for (part = 0; part < 2; ++part) {
      EXPECT_MESSAGE(kMistakes[i].parts[part]);
    }
    EXPECT_STATUS(fsdp2_module_forward(module, inputs, kInputs, 0, &loss, 1, &n), status);
    destroy_inputs(bad, kInputs);
  }
  run_step(step, good, kInputs); /* nothing is broken */
  destroy_inputs(good, kInputs);
  EXPECT_OK(fsdp2_step_destroy(step));
  EXPECT_OK(fsdp2_optimizer_destroy(optimizer));
  destroy_tiny(module, shard);
}

static void mistakes_in_images_are_told_to_all_ranks(void) {
  on_ranks("wrong-images", 3, 0, make_mistakes);
}

/* Under the schedule of PyTorch all ranks have images, or none has. */
static void gather_on_use(fsdp2_mesh mesh, int rank) {
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  const fsdp2_module module = vision_model();
  fsdp2_generate_options generate = FSDP2_GENERATE_OPTIONS_INIT;
  fsdp2_shard shard;
  fsdp2_tensor inputs[kInputs], loss = {0}, made = {0}, counts = {0};
  size_t n = 0;
  options.comm_schedule = FSDP2_COMM_SCHEDULE_ON_USE;
  shard = shard_with(module, mesh, &options);
  inputs_of_rank(rank, inputs);
  EXPECT_STATUS(fsdp2_module_forward(module, inputs, kInputs, 0, &loss, 1, &n),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("whose units are gathered on use");
  EXPECT_MESSAGE("images: rank 0 has some, rank 1 has none");
  destroy_inputs(inputs, kInputs);
  inputs_of_rank(2 * rank, inputs);
  /* Rows need not end together, and what follows has no images. */
  generate.vision_inputs = inputs + kPixels;
  generate.n_vision_inputs = kInputs - kPixels;
  EXPECT_STATUS(fsdp2_module_generate_batch(module, inputs[0], NULL, 0, &generate, &made, &counts),
                FSDP2_E_UNSUPPORTED);
  EXPECT_MESSAGE("expected a shard with FSDP2_COMM_SCHEDULE_AGREED, found one on use");
  EXPECT_OK(fsdp2_module_forward(module, inputs, kInputs, 0, &loss, 1, &n));
  EXPECT_OK(fsdp2_tensor_backward(loss));
  EXPECT_OK(fsdp2_tensor_destroy(loss));
  destroy_inputs(inputs, kInputs);
  destroy_tiny(module, shard);
}

static void ranks_that_gather_on_use_must_have_images_alike(void) {
  on_ranks("images-on-use", 2, 0, gather_on_use);
}

static void expect_refused(fsdp2_module module, fsdp2_tensor* inputs, const char* part) {
  EXPECT_STATUS(fsdp2_module_check_inputs(module, inputs, kInputs), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE(part);
}

static void inputs_that_do_not_go_together_are_refused(void) {
  const fsdp2_module module = vision_model();
  const int64_t shape[2] = {24, kPatch}, line[1] = {3}, numbers[3] = {1, 4, 6};
  const int64_t negative[3] = {1, -4, 6}, huge[3] = {1 << 20, 1 << 20, 1 << 20};
  const int64_t one_row[2] = {1, 3};
  static int64_t integers[24 * kPatch];
  fsdp2_tensor inputs[kInputs], changed[kInputs];
  make_inputs(kGridsOfRanks[0], 1, 0, 0, 0, inputs);
  EXPECT_OK(fsdp2_module_check_inputs(module, inputs, kInputs));
  memcpy(changed, inputs, sizeof(inputs));
  changed[kGrids].id = 0;
  expect_refused(module, changed, "pixel_values: expected together with image_grid_thw, got");
  memcpy(changed, inputs, sizeof(inputs));
  changed[kPixels].id = 0;
  expect_refused(module, changed, "got image_grid_thw without pixel_values");
  changed[kGrids].id = 0;
  expect_refused(module, changed,
                 "image_grid_thw: expected grids for the tokens 8, the first of which is at "
                 "position [0, 2] of the tokens, found none");
  memcpy(changed, inputs, sizeof(inputs));
  changed[kGrids] = int64_tensor(numbers, line, 1);
  expect_refused(module, changed, "image_grid_thw: expected integers [images, 3] on the CPU");
  EXPECT_OK(fsdp2_tensor_destroy(changed[kGrids]));
  changed[kGrids] = int64_tensor(negative, one_row, 2);
  expect_refused(module, changed, "got 1 x -4 x 6 in row 0");
  EXPECT_OK(fsdp2_tensor_destroy(changed[kGrids]));
  changed[kGrids] = int64_tensor(huge, one_row, 2);
  expect_refused(module, changed, "1152921504606846976 patches, but there are pixels of 24");
  EXPECT_OK(fsdp2_tensor_destroy(changed[kGrids]));
  memcpy(changed, inputs, sizeof(inputs));
  changed[kPixels] = int64_tensor(integers, shape, 2);
  expect_refused(module, changed, "pixel_values: expected floating-point numbers [patches, 24]");
  EXPECT_OK(fsdp2_tensor_destroy(changed[kPixels]));
  destroy_inputs(inputs, kInputs);
  EXPECT_OK(fsdp2_module_destroy(module));
}

/* Text goes on without images, and no token comes that one would have to stand in for. */
static void text_is_generated_and_images_are_refused(void) {
  const fsdp2_module module = vision_model();
  const int64_t text[3] = {1, 2, 3}, seeing[3] = {1, kImageToken, 3};
  fsdp2_generate_options options = FSDP2_GENERATE_OPTIONS_INIT;
  int64_t tokens[40];
  size_t n = 0;
  options.max_new_tokens = 40;
  options.temperature = 30.0; /* so that all others come up */
  EXPECT_OK(fsdp2_module_generate(module, text, 3, &options, tokens, 40, &n));
  EXPECT(n == 40);
  while (n > 0) {
    --n;
    EXPECT(tokens[n] != kImageToken && tokens[n] != kImageToken + 1);
  }
  EXPECT_STATUS(fsdp2_module_generate(module, seeing, 3, &options, tokens, 40, &n),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("image_grid_thw: expected grids for the tokens 8");
  EXPECT_OK(fsdp2_module_destroy(module));
}

/* Greedy answers to each rank's prompt with its images, of which some ranks have none. */
static void answer(fsdp2_module module, const fsdp2_tensor* inputs, int64_t tokens[4]) {
  fsdp2_generate_options options = FSDP2_GENERATE_OPTIONS_INIT;
  int64_t count[1] = {0};
  fsdp2_tensor made = {0}, counts = {0};
  options.max_new_tokens = 4;
  options.temperature = 0.0;
  options.vision_inputs = inputs + kPixels;
  options.n_vision_inputs = kInputs - kPixels;
  EXPECT_OK(fsdp2_module_generate_batch(module, inputs[0], NULL, 0, &options, &made, &counts));
  EXPECT_OK(fsdp2_tensor_read(made, tokens, 4 * sizeof(tokens[0])));
  EXPECT_OK(fsdp2_tensor_read(counts, count, sizeof(count)));
  EXPECT(count[0] == 4);
  EXPECT_OK(fsdp2_tensor_destroy(made));
  EXPECT_OK(fsdp2_tensor_destroy(counts));
}

static int64_t answers[4][4];

static void answer_on_ranks(fsdp2_mesh mesh, int rank) {
  const fsdp2_module module = vision_model();
  const fsdp2_shard shard = shard_with(module, mesh, NULL);
  const int64_t grids[1][3] = {{1, 4, 6}};
  fsdp2_generate_options options = FSDP2_GENERATE_OPTIONS_INIT;
  fsdp2_tensor inputs[kInputs], bad[kInputs], made = {0}, counts = {0};
  int64_t tokens[4];
  inputs_of_rank(rank, inputs);
  answer(module, inputs, tokens);
  EXPECT(memcmp(tokens, answers[rank], sizeof(tokens)) == 0);
  /* Two of the image's tokens are missing on rank 1. */
  options.max_new_tokens = 4;
  make_inputs(grids, 1, rank, rank == 1 ? 2 : 0, 0, bad);
  options.vision_inputs = bad + kPixels;
  options.n_vision_inputs = kInputs - kPixels;
  EXPECT_STATUS(fsdp2_module_generate_batch(module, bad[0], NULL, 0, &options, &made, &counts),
                rank == 1 ? FSDP2_E_INVALID_ARGUMENT : FSDP2_E_PEER_FAILED);
  EXPECT_MESSAGE("image_grid_thw: expected 6 tokens 8 in a row");
  destroy_inputs(bad, kInputs);
  destroy_inputs(inputs, kInputs);
  destroy_tiny(module, shard);
}

static void answers_are_the_same_where_only_some_ranks_have_images(void) {
  const fsdp2_module module = vision_model();
  fsdp2_tensor inputs[kInputs];
  int rank;
  for (rank = 0; rank < 4; ++rank) {
    inputs_of_rank(rank, inputs);
    answer(module, inputs, answers[rank]);
    destroy_inputs(inputs, kInputs);
  }
  EXPECT_OK(fsdp2_module_destroy(module));
  on_ranks("image-answers", 4, 0, answer_on_ranks);
}

/* ---- units */

static void units_are_layers_and_blocks(void) {
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = vision_model();
  const fsdp2_shard shard = shard_with(module, mesh, NULL);
  expect_units(shard, model_json == kQwen3
                          ? "|model.visual.blocks.0|model.visual.blocks.1"
                            "|model.language_model.layers.0|model.language_model.layers.1"
                          : "|visual.blocks.0|visual.blocks.1|model.layers.0|model.layers.1");
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void units_may_be_chosen_by_class(void) {
  static const char* const kBlocks[] = {"Qwen2_5_VLVisionBlock", "Qwen3VLVisionBlock"};
  static const char* const kLayers[] = {"Qwen2_5_VLDecoderLayer", "Qwen3VLTextDecoderLayer"};
  const int is_qwen3 = model_json == kQwen3;
  const fsdp2_mesh mesh = lone_mesh();
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  fsdp2_module module = vision_model();
  fsdp2_shard shard;
  options.wrap = FSDP2_WRAP_KINDS;
  options.wrap_kinds = kBlocks + is_qwen3;
  options.n_wrap_kinds = 1;
  shard = shard_with(module, mesh, &options);
  expect_units(shard, is_qwen3 ? "|model.visual.blocks.0|model.visual.blocks.1"
                               : "|visual.blocks.0|visual.blocks.1");
  destroy_tiny(module, shard);
  module = vision_model();
  options.wrap_kinds = kLayers + is_qwen3;
  options.wrap_head = 1;
  shard = shard_with(module, mesh, &options);
  expect_units(shard, is_qwen3 ? "|model.language_model.layers.0|model.language_model.layers.1"
                                 "|lm_head"
                               : "|model.layers.0|model.layers.1|lm_head");
  destroy_tiny(module, shard);
  module = vision_model();
  options.wrap = FSDP2_WRAP_DEFAULT;
  options.wrap_kinds = NULL;
  options.n_wrap_kinds = 0;
  options.wrap_embeddings = 1;
  shard = shard_with(module, mesh, &options);
  expect_units(shard, is_qwen3 ? "|model.visual.pos_embed"
                                 "|model.visual.blocks.0|model.visual.blocks.1"
                                 "|model.language_model.embed_tokens"
                                 "|model.language_model.layers.0|model.language_model.layers.1"
                                 "|lm_head"
                               : "|visual.blocks.0|visual.blocks.1|model.embed_tokens"
                                 "|model.layers.0|model.layers.1|lm_head");
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

/* ---- directories */

static double loss_of(fsdp2_module module) {
  fsdp2_tensor inputs[kInputs], loss = {0};
  size_t n = 0;
  double value = 0.0;
  inputs_of_rank(0, inputs);
  EXPECT_OK(fsdp2_module_forward(module, inputs, kInputs, FSDP2_FORWARD_NO_GRAD, &loss, 1, &n));
  EXPECT_OK(fsdp2_tensor_get_value(loss, &value));
  EXPECT_OK(fsdp2_tensor_destroy(loss));
  destroy_inputs(inputs, kInputs);
  return value;
}

static void a_model_comes_back_from_its_directory(void) {
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = vision_model();
  const fsdp2_shard shard = shard_with(module, mesh, NULL);
  const char* directory = temporary_path(model_json == kQwen3 ? "qwen3-vl" : "qwen2.5-vl");
  fsdp2_module again = {0};
  EXPECT_OK(fsdp2_checkpoint_save_pretrained(shard, directory));
  EXPECT_OK(fsdp2_module_from_pretrained(directory, NULL, &again));
  {
    const fsdp2_shard other = shard_with(again, mesh, NULL);
    EXPECT(loss_of(again) == loss_of(module));
    destroy_tiny(again, other);
  }
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void test(const char* json) {
  model_json = json;
  RUN(steps_are_the_same_where_only_some_ranks_have_images);
  RUN(mistakes_in_images_are_told_to_all_ranks);
  RUN(ranks_that_gather_on_use_must_have_images_alike);
  RUN(inputs_that_do_not_go_together_are_refused);
  RUN(text_is_generated_and_images_are_refused);
  RUN(answers_are_the_same_where_only_some_ranks_have_images);
  RUN(units_are_layers_and_blocks);
  RUN(units_may_be_chosen_by_class);
  RUN(a_model_comes_back_from_its_directory);
}

int main(void) {
  test(kQwen25);
  test(kQwen3);
  return harness_result();
}
