/* What the C ABI promises, on one rank; one promise a function. */
#include "tests/capi/harness.h"

static void the_version_is_the_headers(void) {
  EXPECT(fsdp2_version() == FSDP2_HEADER_VERSION);
  EXPECT_OK(fsdp2_check_version(FSDP2_HEADER_VERSION));
}

static void another_major_or_minor_is_a_mismatch(void) {
  EXPECT_STATUS(fsdp2_check_version(FSDP2_HEADER_VERSION + 1), FSDP2_E_ABI_MISMATCH);
  EXPECT_MESSAGE("expected a header of the same version");
  EXPECT_STATUS(fsdp2_check_version(FSDP2_HEADER_VERSION - 1), FSDP2_E_ABI_MISMATCH);
  EXPECT_STATUS(fsdp2_check_version(FSDP2_HEADER_VERSION + 0x10000), FSDP2_E_ABI_MISMATCH);
}

static void an_error_is_told_with_all_there_is(void) {
  fsdp2_error_info info = FSDP2_ERROR_INFO_INIT;
  fsdp2_module module = {77};
  EXPECT_STATUS(fsdp2_module_from_pretrained("/no/such/directory", NULL, &module),
                FSDP2_E_NOT_FOUND);
  EXPECT(module.id == 77);
  fsdp2_error_last(&info);
  EXPECT(info.status == FSDP2_E_NOT_FOUND);
  EXPECT(info.rank == -1);
  EXPECT(strstr(info.message, "/no/such/directory") != NULL);
  EXPECT(strcmp(info.function, "fsdp2_module_from_pretrained") == 0);
  EXPECT(info.detail != NULL);
  EXPECT(strcmp(info.message, fsdp2_error_message()) == 0);
}

static void an_error_is_told_as_far_as_the_struct_goes(void) {
  fsdp2_error_info info = FSDP2_ERROR_INFO_INIT;
  fsdp2_error_info before;
  uint32_t size;
  EXPECT_STATUS(fsdp2_check_version(0), FSDP2_E_ABI_MISMATCH);
  EXPECT_STATUS(fsdp2_error_last(NULL), FSDP2_E_NULL_ARGUMENT);
  for (size = 0; size < 8; ++size) {
    info.struct_size = size;
    before = info;
    EXPECT_STATUS(fsdp2_error_last(&info), FSDP2_E_STRUCT_SIZE);
    EXPECT(memcmp(&info, &before, sizeof(info)) == 0);
  }
  info.struct_size = FSDP2_MAX_STRUCT_SIZE + 1;
  EXPECT_STATUS(fsdp2_error_last(&info), FSDP2_E_STRUCT_SIZE);
  info.struct_size = 8;
  info.rank = 77;
  EXPECT_OK(fsdp2_error_last(&info));
  EXPECT(info.struct_size == 8 && info.status == FSDP2_E_ABI_MISMATCH); /* of none of these calls */
  EXPECT(info.rank == 77 && info.message == NULL);
}

static void an_error_can_be_taken_once(void) {
  fsdp2_error_info info = FSDP2_ERROR_INFO_INIT;
  char text[512], message[512];
  size_t needed = 0;
  EXPECT_STATUS(fsdp2_check_version(0), FSDP2_E_ABI_MISMATCH);
  snprintf(message, sizeof(message), "%s", fsdp2_error_message());
  EXPECT_STATUS(fsdp2_error_take(NULL, text, sizeof(text), &needed), FSDP2_E_NULL_ARGUMENT);
  EXPECT_STATUS(fsdp2_error_take(&info, text, sizeof(text), NULL), FSDP2_E_NULL_ARGUMENT);
  EXPECT_STATUS(fsdp2_error_take(&info, NULL, 1, &needed), FSDP2_E_NULL_ARGUMENT);
  EXPECT_OK(fsdp2_error_take(&info, NULL, 0, &needed));
  EXPECT(needed == strlen(message) + sizeof("fsdp2_check_version") + 2);
  memset(text, '?', sizeof(text));
  EXPECT_STATUS(fsdp2_error_take(&info, text, needed - 1, &needed), FSDP2_E_BUFFER_TOO_SMALL);
  EXPECT(info.status == FSDP2_OK && text[0] == '?'); /* all as it was */
  EXPECT(strcmp(fsdp2_error_message(), message) == 0);
  EXPECT_OK(fsdp2_error_take(&info, text, needed, &needed));
  EXPECT(info.status == FSDP2_E_ABI_MISMATCH && info.rank == -1 && info.native_code == 0);
  EXPECT(info.message == text && strcmp(info.message, message) == 0);
  EXPECT(strcmp(info.function, "fsdp2_check_version") == 0 && info.detail[0] == '\0');
  EXPECT(info.detail + 1 == text + needed && text[needed] == '?');
  EXPECT(fsdp2_error_message()[0] == '\0');
  EXPECT_OK(fsdp2_error_take(&info, text, sizeof(text), &needed));
  EXPECT(needed == 3 && info.status == FSDP2_OK && info.message[0] == '\0');
}

static void an_errors_rank_is_the_meshs(void) {
  fsdp2_error_info info = FSDP2_ERROR_INFO_INIT;
  fsdp2_mesh mesh = lone_mesh();
  char name[8];
  size_t needed = 0;
  EXPECT_STATUS(fsdp2_mesh_get_dim_name(mesh, 1, name, sizeof(name), &needed),
                FSDP2_E_INVALID_ARGUMENT);
  fsdp2_error_last(&info);
  EXPECT(info.rank == 0);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void destroying_null_is_fine_and_twice_is_stale(void) {
  fsdp2_mesh none = {0};
  fsdp2_mesh mesh = lone_mesh();
  EXPECT(fsdp2_live_handles() == 1);
  EXPECT_OK(fsdp2_mesh_destroy(none));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
  EXPECT(fsdp2_live_handles() == 0);
  EXPECT_STATUS(fsdp2_mesh_destroy(mesh), FSDP2_E_STALE_HANDLE);
  EXPECT_STATUS(fsdp2_mesh_barrier(mesh), FSDP2_E_STALE_HANDLE);
}

static void options_begin_with_their_defaults(void) {
  const fsdp2_mesh_options mesh_expected = FSDP2_MESH_OPTIONS_INIT;
  const fsdp2_adamw_options adamw_expected = FSDP2_ADAMW_OPTIONS_INIT;
  fsdp2_mesh_options mesh;
  fsdp2_adamw_options adamw;
  memset(&mesh, 0xff, sizeof(mesh));
  memset(&adamw, 0xff, sizeof(adamw));
  EXPECT_OK(fsdp2_mesh_options_init(&mesh, sizeof(mesh)));
  EXPECT_OK(fsdp2_adamw_options_init(&adamw, sizeof(adamw)));
  EXPECT(memcmp(&mesh, &mesh_expected, sizeof(mesh)) == 0);
  EXPECT(memcmp(&adamw, &adamw_expected, sizeof(adamw)) == 0);
}

static void a_later_callers_longer_options_are_fine_while_unused(void) {
  struct {
    fsdp2_module_options known;
    int64_t unknown;
  } options = {FSDP2_MODULE_OPTIONS_INIT, 0};
  fsdp2_module module = {0};
  options.known.struct_size = (uint32_t)sizeof(options);
  EXPECT_OK(fsdp2_module_from_pretrained(TINY_LLAMA, &options.known, &module));
  EXPECT_OK(fsdp2_module_destroy(module));
  options.unknown = 1;
  EXPECT_STATUS(fsdp2_module_from_pretrained(TINY_LLAMA, &options.known, &module),
                FSDP2_E_UNSUPPORTED);
}

static void a_later_callers_longer_info_tells_what_was_filled(void) {
  struct {
    fsdp2_module_info known;
    int64_t unknown;
  } info;
  fsdp2_module module = tiny_llama();
  info.known.struct_size = (uint32_t)sizeof(info);
  info.unknown = 99;
  EXPECT_OK(fsdp2_module_get_info(module, &info.known));
  EXPECT(info.known.struct_size == sizeof(info.known));
  EXPECT(info.known.vocab_size == 384 && info.unknown == 99);
  EXPECT_OK(fsdp2_module_get_info(module, &info.known)); /* and so again */
  EXPECT_OK(fsdp2_module_destroy(module));
}

static void a_later_callers_options_keep_their_size(void) {
  struct {
    fsdp2_shard_options known;
    int64_t unknown;
  } options = {FSDP2_SHARD_OPTIONS_INIT, 0};
  fsdp2_mesh_options mesh = FSDP2_MESH_OPTIONS_INIT;
  options.known.struct_size = (uint32_t)sizeof(options);
  EXPECT_OK(fsdp2_shard_apply_strategy("SHARD_GRAD_OP", 0, &mesh, &options.known));
  EXPECT(options.known.struct_size == sizeof(options));
  EXPECT(options.known.reshard_after_forward == FSDP2_RESHARD_NEVER);
}

static void strings_out_tell_their_length(void) {
  fsdp2_mesh mesh = lone_mesh();
  char text[64] = "before";
  size_t needed = 0;
  const char* expected = "Mesh(fsdp=1) rank 0 at (0)";
  EXPECT_OK(fsdp2_mesh_describe(mesh, NULL, 0, &needed));
  EXPECT(needed == strlen(expected) + 1);
  needed = 0;
  EXPECT_STATUS(fsdp2_mesh_describe(mesh, text, strlen(expected), &needed),
                FSDP2_E_BUFFER_TOO_SMALL);
  EXPECT(needed == strlen(expected) + 1 && strcmp(text, "before") == 0);
  EXPECT_OK(fsdp2_mesh_describe(mesh, text, needed, &needed));
  EXPECT(strcmp(text, expected) == 0);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void a_mesh_of_one_rank_needs_nothing(void) {
  fsdp2_mesh mesh = lone_mesh();
  fsdp2_mesh_info info;
  double values[2] = {1.5, -2.0};
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_mesh_get_info(mesh, &info));
  EXPECT(info.rank == 0 && info.world_size == 1 && info.n_dims == 1);
  EXPECT(info.shape[0] == 1 && info.coordinate[0] == 0);
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  EXPECT_OK(fsdp2_mesh_all_reduce(mesh, values, 2, FSDP2_REDUCE_SUM));
  EXPECT(values[0] == 1.5 && values[1] == -2.0);
  EXPECT_OK(fsdp2_mesh_agree(mesh, "the data", "path=x\nbytes=7\n"));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void a_model_tells_its_size(void) {
  fsdp2_module module = tiny_llama();
  fsdp2_module_info info;
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_module_get_info(module, &info));
  EXPECT(info.n_parameters == 21);
  EXPECT(info.numel == 2 * 384 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 176 + 2 * 64) + 64);
  EXPECT(info.vocab_size == 384 && info.max_positions == 2048);
  EXPECT_OK(fsdp2_module_destroy(module));
}

/* The loss of windows 0 and 1 of the golden tokens. */
static fsdp2_tensor golden_loss(fsdp2_module module, uint32_t flags) {
  unsigned char* bytes;
  int64_t tokens[64], labels[64];
  const int64_t shape[2] = {2, 32};
  fsdp2_tensor inputs[2], loss = {0};
  size_t n = 0, n_outputs = 0;
  int i;
  bytes = (unsigned char*)read_file(TINY_LLAMA_TOKENS, &n);
  for (i = 0; i < 64; ++i) {
    tokens[i] = bytes[2 * i] + 256 * bytes[2 * i + 1];
    labels[i] = bytes[2 * i + 2] + 256 * bytes[2 * i + 3];
  }
  free(bytes);
  inputs[0] = int64_tensor(tokens, shape, 2);
  inputs[1] = int64_tensor(labels, shape, 2);
  EXPECT_OK(fsdp2_module_forward(module, inputs, 2, flags, &loss, 1, &n_outputs));
  EXPECT(n_outputs == 1);
  EXPECT_OK(fsdp2_tensor_destroy(inputs[0]));
  EXPECT_OK(fsdp2_tensor_destroy(inputs[1]));
  return loss;
}

static void an_unsharded_forward_gives_the_golden_loss(void) {
  fsdp2_module module = tiny_llama();
  fsdp2_tensor loss = golden_loss(module, 0);
  fsdp2_tensor_info info;
  double value = 0.0;
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_tensor_get_info(loss, &info));
  EXPECT(info.dtype == FSDP2_DTYPE_F32 && info.n_dims == 0 && info.requires_grad == 1);
  EXPECT_OK(fsdp2_tensor_get_value(loss, &value));
  EXPECT_NEAR(value, 6.2473673820495605, 5e-6);
  EXPECT_OK(fsdp2_tensor_backward(loss));
  EXPECT_STATUS(fsdp2_tensor_backward(loss), FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("backward has run from it already");
  EXPECT_OK(fsdp2_tensor_destroy(loss));
  EXPECT_OK(fsdp2_module_destroy(module));
}

static void a_forward_without_gradients_has_no_graph(void) {
  fsdp2_module module = tiny_llama();
  fsdp2_tensor loss = golden_loss(module, FSDP2_FORWARD_NO_GRAD);
  EXPECT_STATUS(fsdp2_tensor_backward(loss), FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("FSDP2_FORWARD_NO_GRAD");
  EXPECT_OK(fsdp2_tensor_destroy(loss));
  EXPECT_OK(fsdp2_module_destroy(module));
}

static void an_optional_input_may_be_null(void) {
  const int64_t shape[2] = {1, 2}, values[2] = {1, 2};
  fsdp2_module module = tiny_llama();
  const fsdp2_tensor tokens = int64_tensor(values, shape, 2);
  fsdp2_tensor inputs[2] = {{0}, {0}}, logits = {0};
  fsdp2_tensor_info info;
  size_t n = 0;
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_STATUS(fsdp2_module_forward(module, inputs, 2, FSDP2_FORWARD_NO_GRAD, &logits, 1, &n),
                FSDP2_E_INVALID_HANDLE);
  inputs[0] = tokens;
  EXPECT_OK(fsdp2_module_forward(module, inputs, 2, FSDP2_FORWARD_NO_GRAD, &logits, 1, &n));
  EXPECT_OK(fsdp2_tensor_get_info(logits, &info));
  EXPECT(n == 1 && info.n_dims == 3); /* without labels, logits */
  EXPECT_OK(fsdp2_tensor_destroy(logits));
  EXPECT_OK(fsdp2_tensor_destroy(tokens));
  EXPECT_OK(fsdp2_module_destroy(module));
}

static void objects_live_as_long_as_they_are_needed(void) {
  fsdp2_mesh mesh = lone_mesh();
  fsdp2_module module = tiny_llama();
  fsdp2_shard shard = shard_of(module, mesh);
  fsdp2_tensor loss = golden_loss(module, 0);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
  EXPECT_OK(fsdp2_module_destroy(module));
  EXPECT_OK(fsdp2_shard_destroy(shard));
  EXPECT_OK(fsdp2_tensor_backward(loss));
  EXPECT_OK(fsdp2_tensor_destroy(loss));
}

static void models_from_a_config_depend_on_the_seed_alone(void) {
  size_t n = 0;
  char* config = read_file(TINY_LLAMA "/config.json", &n);
  fsdp2_module_options options = FSDP2_MODULE_OPTIONS_INIT;
  double losses[3];
  int i;
  for (i = 0; i < 3; ++i) {
    fsdp2_module module = {0};
    fsdp2_tensor loss;
    options.seed = i == 2 ? 8 : 7;
    EXPECT_OK(fsdp2_module_from_config(config, &options, &module));
    loss = golden_loss(module, FSDP2_FORWARD_NO_GRAD);
    EXPECT_OK(fsdp2_tensor_get_value(loss, &losses[i]));
    EXPECT_OK(fsdp2_tensor_destroy(loss));
    EXPECT_OK(fsdp2_module_destroy(module));
  }
  EXPECT(losses[0] == losses[1] && losses[0] != losses[2]);
  free(config);
}

static void generation_needs_room_for_all_tokens(void) {
  fsdp2_module module = tiny_llama();
  fsdp2_generate_options options = FSDP2_GENERATE_OPTIONS_INIT;
  const int64_t prompt[1] = {43};
  int64_t tokens[4] = {-7, -7, -7, -7};
  size_t n = 0;
  EXPECT_STATUS(fsdp2_module_generate(module, prompt, 1, NULL, NULL, 0, &n),
                FSDP2_E_BUFFER_TOO_SMALL);
  EXPECT(n == 64);
  options.max_new_tokens = 4;
  EXPECT_STATUS(fsdp2_module_generate(module, prompt, 1, &options, tokens, 3, &n),
                FSDP2_E_BUFFER_TOO_SMALL);
  EXPECT(n == 4 && tokens[0] == -7);
  options.max_new_tokens = 0;
  EXPECT_OK(fsdp2_module_generate(module, prompt, 1, &options, NULL, 0, &n));
  EXPECT(n == 0);
  options.max_new_tokens = 3;
  EXPECT_OK(fsdp2_module_generate(module, prompt, 1, &options, tokens, 4, &n));
  EXPECT(n == 3 && tokens[2] >= 0 && tokens[3] == -7);
  EXPECT_OK(fsdp2_module_destroy(module));
}

static void generation_is_the_same_for_the_same_seed(void) {
  fsdp2_module module = tiny_llama();
  fsdp2_generate_options options = FSDP2_GENERATE_OPTIONS_INIT;
  const int64_t prompt[3] = {43, 51, 5};
  int64_t first[8], second[8];
  size_t n_first = 0, n_second = 0, i;
  options.max_new_tokens = 8;
  options.top_k = 5;
  options.seed = 3;
  EXPECT_OK(fsdp2_module_generate(module, prompt, 3, &options, first, 8, &n_first));
  EXPECT_OK(fsdp2_module_generate(module, prompt, 3, &options, second, 8, &n_second));
  EXPECT(n_first == 8 && n_second == 8 && memcmp(first, second, sizeof(first)) == 0);
  for (i = 0; i < n_first; ++i) {
    EXPECT(first[i] >= 0 && first[i] < 384);
  }
  EXPECT_OK(fsdp2_module_destroy(module));
}

int main(void) {
  RUN(the_version_is_the_headers);
  RUN(another_major_or_minor_is_a_mismatch);
  RUN(an_error_is_told_with_all_there_is);
  RUN(an_error_is_told_as_far_as_the_struct_goes);
  RUN(an_error_can_be_taken_once);
  RUN(an_errors_rank_is_the_meshs);
  RUN(destroying_null_is_fine_and_twice_is_stale);
  RUN(options_begin_with_their_defaults);
  RUN(a_later_callers_longer_options_are_fine_while_unused);
  RUN(a_later_callers_longer_info_tells_what_was_filled);
  RUN(a_later_callers_options_keep_their_size);
  RUN(strings_out_tell_their_length);
  RUN(a_mesh_of_one_rank_needs_nothing);
  RUN(a_model_tells_its_size);
  RUN(an_unsharded_forward_gives_the_golden_loss);
  RUN(a_forward_without_gradients_has_no_graph);
  RUN(an_optional_input_may_be_null);
  RUN(objects_live_as_long_as_they_are_needed);
  RUN(models_from_a_config_depend_on_the_seed_alone);
  RUN(generation_needs_room_for_all_tokens);
  RUN(generation_is_the_same_for_the_same_seed);
  return harness_result();
}
