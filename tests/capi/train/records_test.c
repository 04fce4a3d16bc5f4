/* Records in JSON lines through the C ABI, on one rank. */
#include "tests/capi/harness.h"

static const char kRecords[] =
    "{\"prompt\": \"ab\", \"response\": \"c\"}\n"
    "{\"text\": \"xy\"}\n"
    "no record\n";

static fsdp2_status open_records(fsdp2_mesh mesh, int32_t skip_bad_records, fsdp2_loader* out) {
  fsdp2_loader_options options = FSDP2_LOADER_OPTIONS_INIT;
  const char* path = temporary_path("records.jsonl");
  write_file(path, kRecords, strlen(kRecords));
  options.format = FSDP2_TOKENS_RECORDS;
  options.sequence_length = 6;
  options.global_batch = 1;
  options.vocab_size = 384;
  options.skip_bad_records = skip_bad_records;
  return fsdp2_loader_open(mesh, path, &options, out);
}

static void numbers_are(fsdp2_tensor tensor, const int64_t* expected) {
  int64_t found[6] = {0};
  EXPECT_OK(fsdp2_tensor_read(tensor, found, sizeof(found)));
  EXPECT(memcmp(found, expected, sizeof(found)) == 0);
}

static void records_have_labels_for_answers_and_positions_of_their_own(void) {
  static const int64_t tokens[6] = {'a', 'b', 'c', 'x', 'y', 0};
  static const int64_t labels[6] = {-100, 'c', 0, 'y', 0, -100};
  static const int64_t positions[6] = {0, 1, 2, 0, 1, 0};
  struct job job = start_lone_job();
  fsdp2_step_result result;
  fsdp2_tensor batch[3] = {{0}, {0}, {5}}, changed = {0};
  int i;
  EXPECT_OK(fsdp2_loader_destroy(job.loader));
  EXPECT_OK(open_records(job.mesh, 1, &job.loader));
  EXPECT_STATUS(fsdp2_loader_get_positions(job.loader, &batch[2]), FSDP2_E_WRONG_STATE);
  EXPECT(batch[2].id == 5);
  EXPECT_OK(fsdp2_loader_next(job.loader, &batch[0], &batch[1]));
  EXPECT_OK(fsdp2_loader_get_positions(job.loader, &changed));
  EXPECT_OK(fsdp2_tensor_write(changed, tokens, sizeof(tokens)));
  EXPECT_OK(fsdp2_tensor_destroy(changed));
  EXPECT_OK(fsdp2_loader_get_positions(job.loader, &batch[2]));
  numbers_are(batch[0], tokens);
  numbers_are(batch[1], labels);
  numbers_are(batch[2], positions);
  memset(&result, 0, sizeof(result));
  result.struct_size = (uint32_t)sizeof(result);
  EXPECT_OK(fsdp2_step_run(job.step, batch, 3, &result));
  EXPECT(result.applied == 1 && result.n_tokens == 6 && result.n_labels == 4);
  for (i = 0; i < 3; ++i) {
    EXPECT_OK(fsdp2_tensor_destroy(batch[i]));
  }
  end_lone_job(&job);
}

static void tokens_have_positions_from_the_beginning_of_their_row(void) {
  struct job job = start_lone_job();
  fsdp2_tensor batch[3] = {{0}, {0}, {0}};
  int64_t positions[8][32];
  int i;
  EXPECT_OK(fsdp2_loader_next(job.loader, &batch[0], &batch[1]));
  EXPECT_OK(fsdp2_loader_get_positions(job.loader, &batch[2]));
  EXPECT_OK(fsdp2_tensor_read(batch[2], positions, sizeof(positions)));
  for (i = 0; i < 8 * 32; ++i) {
    EXPECT(positions[i / 32][i % 32] == i % 32);
  }
  for (i = 0; i < 3; ++i) {
    EXPECT_OK(fsdp2_tensor_destroy(batch[i]));
  }
  end_lone_job(&job);
}

static void a_bad_line_is_told(void) {
  fsdp2_mesh mesh = lone_mesh();
  fsdp2_loader loader = {5};
  EXPECT_STATUS(open_records(mesh, 0, &loader), FSDP2_E_CORRUPT_DATA);
  EXPECT_MESSAGE("records.jsonl: line 3: is not JSON");
  EXPECT(loader.id == 5);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

/* ---- images */

enum { kPatches = 4, kPatch = 24 }; /* one image of 2 x 2 patches, which is one token */

static const char kVisionModel[] =
    "{\"model_type\": \"qwen2_5_vl\", \"vocab_size\": 272, \"hidden_size\": 16,"
    " \"vision_start_token_id\": 256, \"image_token_id\": 257, \"vision_end_token_id\": 258,"
    " \"video_token_id\": 259, \"intermediate_size\": 24, \"num_hidden_layers\": 1,"
    " \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"max_position_embeddings\": 64,"
    " \"rope_scaling\": {\"type\": \"default\", \"mrope_section\": [2, 1, 1]},"
    " \"vision_config\": {\"depth\": 1, \"hidden_size\": 16, \"intermediate_size\": 20,"
    " \"num_heads\": 2, \"patch_size\": 2, \"spatial_merge_size\": 2,"
    " \"temporal_patch_size\": 2, \"out_hidden_size\": 16, \"window_size\": 8,"
    " \"fullatt_block_indexes\": [0]}}";

static void write_image(const char* path, float* pixels) {
  static const char header[] =
      "{\"image_grid_thw\":{\"dtype\":\"I64\",\"shape\":[1,3],\"data_offsets\":[0,24]},"
      "\"pixel_values\":{\"dtype\":\"F32\",\"shape\":[4,24],\"data_offsets\":[24,408]}}";
  const uint64_t length = sizeof(header) - 1;
  const int64_t grid[3] = {1, 2, 2};
  char file[1024];
  size_t n = 0;
  int i;
  for (i = 0; i < kPatches * kPatch; ++i) {
    pixels[i] = (float)i / 50.0F - 1.0F;
  }
  memcpy(file, &length, sizeof(length));
  n += sizeof(length);
  memcpy(file + n, header, sizeof(header) - 1);
  n += sizeof(header) - 1;
  memcpy(file + n, grid, sizeof(grid));
  n += sizeof(grid);
  memcpy(file + n, pixels, sizeof(float) * kPatches * kPatch);
  write_file(path, file, n + sizeof(float) * kPatches * kPatch);
}

static fsdp2_status open_images(fsdp2_mesh mesh, const char* line, int32_t has_model, float* pixels,
                                fsdp2_loader* out) {
  fsdp2_loader_options options = FSDP2_LOADER_OPTIONS_INIT;
  char records[512], model[512];
  write_image(temporary_path("image.safetensors"), pixels);
  snprintf(model, sizeof(model), "%s", temporary_path("config.json"));
  write_file(model, kVisionModel, strlen(kVisionModel));
  snprintf(records, sizeof(records), "%s", temporary_path("images.jsonl"));
  write_file(records, line, strlen(line));
  options.format = FSDP2_TOKENS_RECORDS;
  options.sequence_length = 6;
  options.global_batch = 2;
  options.vocab_size = 272;
  options.vision_model = has_model ? model : NULL;
  return fsdp2_loader_open(mesh, records, &options, out);
}

static const char* image_line(void) {
  static char line[1024];
  snprintf(line, sizeof(line),
           "{\"images\": [\"%s\"], \"prompt\": \"<image>\", \"response\": \"a\"}\n"
           "{\"text\": \"bcdefg\"}\n",
           temporary_path("image.safetensors"));
  return line;
}

/* The images of a prompt are those of its record. */
static void images_come_with_a_prompt(void) {
  static const int64_t tokens[3] = {256, 257, 258};
  fsdp2_tokenizer tokenizer = {0};
  fsdp2_tensor prompt = {0}, seen[5] = {{0}, {0}, {5}, {5}, {5}};
  float pixels[kPatches * kPatch], read[kPatches * kPatch];
  int64_t found[3], grid[3];
  char model[512], folder[512];
  int i;
  write_image(temporary_path("image.safetensors"), pixels);
  snprintf(model, sizeof(model), "%s", temporary_path("config.json"));
  write_file(model, kVisionModel, strlen(kVisionModel));
  snprintf(folder, sizeof(folder), "%s", model);
  *strrchr(folder, '/') = 0;
  EXPECT_OK(fsdp2_tokenizer_open(NULL, &tokenizer));
  for (i = 0; i < 2; ++i) { /* at first no pixel is asked for */
    const char* line = "{\"images\": [\"image.safetensors\"], \"prompt\": \"<image>\"}";
    EXPECT_OK(fsdp2_tokenizer_encode_prompt(
        tokenizer, line, model, folder, &prompt, i == 0 ? NULL : &seen[0], i == 0 ? NULL : &seen[1],
        i == 0 ? NULL : &seen[2], i == 0 ? NULL : &seen[3], i == 0 ? NULL : &seen[4]));
    EXPECT_OK(fsdp2_tensor_read(prompt, found, sizeof(found)));
    EXPECT(memcmp(found, tokens, sizeof(found)) == 0);
    EXPECT_OK(fsdp2_tensor_destroy(prompt));
  }
  EXPECT(seen[2].id == 0 && seen[3].id == 0 && seen[4].id == 0);
  EXPECT_OK(fsdp2_tensor_read(seen[0], read, sizeof(read)));
  EXPECT(memcmp(read, pixels, sizeof(read)) == 0);
  EXPECT_OK(fsdp2_tensor_read(seen[1], grid, sizeof(grid)));
  EXPECT(grid[0] == 1 && grid[1] == 2 && grid[2] == 2);
  EXPECT_OK(fsdp2_tensor_destroy(seen[0]));
  EXPECT_OK(fsdp2_tensor_destroy(seen[1]));
  EXPECT_STATUS(fsdp2_tokenizer_encode_prompt(
                    tokenizer, "{\"images\": [\"none.safetensors\"], \"text\": \"<image>\"}", model,
                    folder, &prompt, NULL, NULL, NULL, NULL, NULL),
                FSDP2_E_CORRUPT_DATA);
  EXPECT_MESSAGE("none.safetensors");
  EXPECT_OK(fsdp2_tokenizer_destroy(tokenizer));
}

/* What the loader gives is what the model takes. */
static void images_come_with_their_records(void) {
  static const int64_t tokens[12] = {256, 257, 258, 'a', 0, 0, 'b', 'c', 'd', 'e', 'f', 'g'};
  static const int64_t boundaries[4] = {0, 4, 6, 12};
  fsdp2_mesh mesh = lone_mesh();
  fsdp2_loader loader = {0};
  fsdp2_loader_info info;
  fsdp2_tensor batch[6] = {{0}, {0}, {0}, {5}, {5}, {5}}, loss = {0};
  fsdp2_module module = {0};
  float pixels[kPatches * kPatch], read[kPatches * kPatch];
  int64_t found[12], grid[3];
  size_t n = 0;
  int i;
  EXPECT_OK(open_images(mesh, image_line(), 1, pixels, &loader));
  memset(&info, 0, sizeof(info));
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_loader_get_info(loader, &info));
  EXPECT(info.n_images == 1 && info.n_windows == 2);
  EXPECT_STATUS(fsdp2_loader_get_boundaries(loader, &batch[3]), FSDP2_E_WRONG_STATE);
  EXPECT_STATUS(fsdp2_loader_get_images(loader, &batch[4], &batch[5]), FSDP2_E_WRONG_STATE);
  EXPECT(batch[3].id == 5 && batch[4].id == 5 && batch[5].id == 5);
  EXPECT_OK(fsdp2_loader_next(loader, &batch[0], &batch[1]));
  EXPECT_OK(fsdp2_loader_get_boundaries(loader, &batch[3]));
  EXPECT_OK(fsdp2_loader_get_images(loader, &batch[4], &batch[5]));
  EXPECT_OK(fsdp2_tensor_read(batch[0], found, sizeof(found)));
  EXPECT(memcmp(found, tokens, sizeof(tokens)) == 0);
  EXPECT_OK(fsdp2_tensor_read(batch[3], found, sizeof(boundaries)));
  EXPECT(memcmp(found, boundaries, sizeof(boundaries)) == 0);
  EXPECT_OK(fsdp2_tensor_read(batch[4], read, sizeof(read)));
  EXPECT(memcmp(read, pixels, sizeof(read)) == 0);
  EXPECT_OK(fsdp2_tensor_read(batch[5], grid, sizeof(grid)));
  EXPECT(grid[0] == 1 && grid[1] == 2 && grid[2] == 2);
  EXPECT_OK(fsdp2_module_from_config(kVisionModel, NULL, &module));
  EXPECT_OK(fsdp2_module_forward(module, batch, 6, FSDP2_FORWARD_NO_GRAD, &loss, 1, &n));
  EXPECT_OK(fsdp2_tensor_destroy(loss));
  EXPECT_OK(fsdp2_module_destroy(module));
  for (i = 0; i < 6; ++i) {
    if (batch[i].id != 0) {
      EXPECT_OK(fsdp2_tensor_destroy(batch[i]));
    }
  }
  EXPECT_OK(fsdp2_loader_destroy(loader));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

/* ---- videos */

static void write_video(const char* path, float* pixels) {
  static const char header[] =
      "{\"video_grid_thw\":{\"dtype\":\"I64\",\"shape\":[1,3],\"data_offsets\":[0,24]},"
      "\"second_per_grid_ts\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[24,32]},"
      "\"pixel_values_videos\":{\"dtype\":\"F32\",\"shape\":[4,24],\"data_offsets\":[32,416]}}";
  const uint64_t length = sizeof(header) - 1;
  const int64_t grid[3] = {1, 2, 2};
  const double seconds = 2.5;
  char file[1024];
  size_t n = 0;
  int i;
  for (i = 0; i < kPatches * kPatch; ++i) {
    pixels[i] = 1.0F - (float)i / 40.0F;
  }
  memcpy(file, &length, sizeof(length));
  n += sizeof(length);
  memcpy(file + n, header, sizeof(header) - 1);
  n += sizeof(header) - 1;
  memcpy(file + n, grid, sizeof(grid));
  n += sizeof(grid);
  memcpy(file + n, &seconds, sizeof(seconds));
  n += sizeof(seconds);
  memcpy(file + n, pixels, sizeof(float) * kPatches * kPatch);
  write_file(path, file, n + sizeof(float) * kPatches * kPatch);
}

static void videos_come_with_their_records(void) {
  static const int64_t tokens[6] = {256, 259, 258, 'a', 0, 0};
  fsdp2_mesh mesh = lone_mesh();
  fsdp2_loader loader = {0};
  fsdp2_loader_info info;
  fsdp2_tensor batch[9] = {{0}, {0}, {0}, {0}, {0}, {0}, {5}, {5}, {5}}, loss = {0};
  fsdp2_module module = {0};
  float unused[kPatches * kPatch], pixels[kPatches * kPatch], read[kPatches * kPatch];
  char line[1024];
  int64_t found[12], grid[3];
  double seconds = 0;
  size_t n = 0;
  int i;
  write_video(temporary_path("video.safetensors"), pixels);
  snprintf(line, sizeof(line),
           "{\"videos\": [\"%s\"], \"prompt\": \"<video>\", \"response\": \"a\"}\n"
           "{\"text\": \"bcdefg\"}\n",
           temporary_path("video.safetensors"));
  EXPECT_OK(open_images(mesh, line, 1, unused, &loader));
  memset(&info, 0, sizeof(info));
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_loader_get_info(loader, &info));
  EXPECT(info.n_images == 0 && info.n_videos == 1 && info.n_video_inputs == 3);
  EXPECT_STATUS(fsdp2_loader_get_videos(loader, &batch[6], &batch[7], &batch[8]),
                FSDP2_E_WRONG_STATE);
  EXPECT(batch[6].id == 5 && batch[7].id == 5 && batch[8].id == 5);
  EXPECT_OK(fsdp2_loader_next(loader, &batch[0], &batch[1]));
  EXPECT_OK(fsdp2_loader_get_boundaries(loader, &batch[3]));
  EXPECT_OK(fsdp2_loader_get_images(loader, &batch[4], &batch[5]));
  EXPECT(batch[4].id == 0 && batch[5].id == 0);
  EXPECT_STATUS(fsdp2_loader_get_videos(loader, &batch[6], NULL, &batch[8]), FSDP2_E_NULL_ARGUMENT);
  EXPECT_OK(fsdp2_loader_get_videos(loader, &batch[6], &batch[7], &batch[8]));
  EXPECT_OK(fsdp2_tensor_read(batch[0], found, sizeof(found)));
  EXPECT(memcmp(found, tokens, sizeof(tokens)) == 0);
  EXPECT_OK(fsdp2_tensor_read(batch[6], read, sizeof(read)));
  EXPECT(memcmp(read, pixels, sizeof(read)) == 0);
  EXPECT_OK(fsdp2_tensor_read(batch[7], grid, sizeof(grid)));
  EXPECT(grid[0] == 1 && grid[1] == 2 && grid[2] == 2);
  EXPECT_OK(fsdp2_tensor_read(batch[8], &seconds, sizeof(seconds)));
  EXPECT(seconds == 2.5);
  EXPECT_OK(fsdp2_module_from_config(kVisionModel, NULL, &module));
  EXPECT_OK(fsdp2_module_forward(module, batch, 9, FSDP2_FORWARD_NO_GRAD, &loss, 1, &n));
  EXPECT_OK(fsdp2_tensor_destroy(loss));
  EXPECT_OK(fsdp2_module_destroy(module));
  for (i = 0; i < 9; ++i) {
    if (batch[i].id != 0) {
      EXPECT_OK(fsdp2_tensor_destroy(batch[i]));
    }
  }
  EXPECT_OK(fsdp2_loader_destroy(loader));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void a_batch_may_have_no_images(void) {
  fsdp2_mesh mesh = lone_mesh();
  fsdp2_loader loader = {0};
  fsdp2_tensor batch[2] = {{0}, {0}}, images[2] = {{5}, {5}}, seconds = {5};
  float pixels[kPatches * kPatch];
  EXPECT_OK(open_images(mesh, "{\"text\": \"ab\"}\n", 1, pixels, &loader));
  EXPECT_OK(fsdp2_loader_next(loader, &batch[0], &batch[1]));
  EXPECT_OK(fsdp2_loader_get_images(loader, &images[0], &images[1]));
  EXPECT(images[0].id == 0 && images[1].id == 0);
  EXPECT_OK(fsdp2_loader_get_videos(loader, &images[0], &images[1], &seconds));
  EXPECT(images[0].id == 0 && images[1].id == 0 && seconds.id == 0);
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
  EXPECT_OK(fsdp2_loader_destroy(loader));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void images_that_nobody_sees_are_refused(void) {
  fsdp2_mesh mesh = lone_mesh();
  fsdp2_loader loader = {5};
  float pixels[kPatches * kPatch];
  fsdp2_loader_options options = FSDP2_LOADER_OPTIONS_INIT;
  EXPECT_STATUS(open_images(mesh, image_line(), 0, pixels, &loader), FSDP2_E_CORRUPT_DATA);
  EXPECT_MESSAGE("line 1: has \"images\", and nothing says what model sees them");
  options.sequence_length = 6, options.global_batch = 2, options.vocab_size = 272;
  options.vision_model = temporary_path("config.json");
  EXPECT_STATUS(fsdp2_loader_open(mesh, TINY_LLAMA_TOKENS, &options, &loader),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("options.vision_model: expected options.format FSDP2_TOKENS_RECORDS");
  EXPECT(loader.id == 5);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

int main(void) {
  RUN(records_have_labels_for_answers_and_positions_of_their_own);
  RUN(tokens_have_positions_from_the_beginning_of_their_row);
  RUN(a_bad_line_is_told);
  RUN(images_come_with_their_records);
  RUN(images_come_with_a_prompt);
  RUN(videos_come_with_their_records);
  RUN(a_batch_may_have_no_images);
  RUN(images_that_nobody_sees_are_refused);
  return harness_result();
}
