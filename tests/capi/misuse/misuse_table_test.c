/* Every function with each of its arguments wrong in each way that its declaration rules out: a
 * handle that is null, made up, destroyed or of another kind; a NULL where none may be; a struct of
 * a wrong size; a text that is not UTF-8 or too long; a count beyond any memory; too little room.
 */
#define _POSIX_C_SOURCE 200809L
#include "tests/capi/misuse/good_arguments.h"

static const size_t kHuge = ((size_t)1 << 31) + 1;

/* No call of this test succeeds, so none of them may keep or call a function. */
fsdp2_status abi_called_back(const struct abi_callback* callback,
                             const union abi_argument* arguments) {
  (void)arguments;
  EXPECT(callback == NULL);
  return FSDP2_OK;
}

/* Handles are counted for the whole process: beside other ranks the count says nothing of a call.
 */
static _Thread_local int is_alone;

static void make_call(const struct call* call, const char* parameter, const char* what,
                      fsdp2_status expected) {
  static _Thread_local unsigned char options_before[kMaxParameters]
                                                   [sizeof(options_memory[0].bytes)];
  const int64_t live = fsdp2_live_handles();
  char text[128];
  fsdp2_status status;
  snprintf(text, sizeof(text), "%s: %s", parameter, what);
  memcpy(options_before, options_memory, sizeof(options_before));
  status = call->function->call(call->arguments);
  EXPECT(memcmp(options_before, options_memory, sizeof(options_before)) == 0);
  EXPECT(!is_alone || fsdp2_live_handles() == live);
  expect_refusal(call->function->name, text, status, expected);
}

/* ---- handles */

enum { kKinds = 11 };
struct handle_of_kind {
  const char* type;
  uint64_t id;
};
static _Thread_local struct handle_of_kind live[kKinds], stale[kKinds];

static uint64_t handle_of(const struct handle_of_kind* handles, const char* type) {
  int i;
  for (i = 0; i < kKinds; ++i) {
    if (strcmp(handles[i].type, type) == 0) {
      return handles[i].id;
    }
  }
  ++harness_failures;
  fprintf(stderr, "%s: is in no list of handles of this test\n", type);
  return 0;
}

static int ends_with(const char* text, const char* end) {
  return strlen(text) >= strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0;
}

/* Only the first rank of a scatter passes a tensor: the others hear of its mistake. */
static fsdp2_status status_of_null(const struct abi_function* function,
                                   const struct abi_variable* parameter) {
  fsdp2_mesh_info place;
  place.struct_size = (uint32_t)sizeof(place);
  EXPECT_OK(fsdp2_mesh_get_info(job.mesh, &place));
  return strcmp(function->name, "fsdp2_mesh_scatter") == 0 &&
                 strcmp(parameter->name, "whole") == 0 && place.rank > 0
             ? FSDP2_E_PEER_FAILED
             : FSDP2_E_INVALID_HANDLE;
}

/* `place`: where the id lies, in the arguments of the call or in an array that they point to. */
static void give_wrong_handles(struct call* call, const struct abi_variable* parameter,
                               uint64_t* place) {
  const uint64_t own = *place;
  const uint64_t made_up[] = {UINT64_MAX, 0xdeadbeef, own + 1000, own + (UINT64_C(1) << 24)};
  size_t i;
  *place = 0;
  if (ends_with(call->function->name, "_destroy")) {
    EXPECT_OK(call->function->call(call->arguments));
  } else if (!parameter->is_optional) {
    make_call(call, parameter->name, "null", status_of_null(call->function, parameter));
  }
  for (i = 0; i < sizeof(made_up) / sizeof(made_up[0]); ++i) {
    *place = made_up[i];
    make_call(call, parameter->name, "made up", FSDP2_E_INVALID_HANDLE);
  }
  *place = handle_of(stale, parameter->type);
  make_call(call, parameter->name, "destroyed", FSDP2_E_STALE_HANDLE);
  for (i = 0; i < kKinds; ++i) {
    if (strcmp(live[i].type, parameter->type) != 0) {
      *place = live[i].id;
      make_call(call, parameter->name, live[i].type, FSDP2_E_HANDLE_KIND);
    }
  }
  *place = own;
}

/* ---- pointers */

/* Optional alone, but not beside a number of elements. */
static int has_count(const struct abi_function* function, int index) {
  while (++index < function->n_parameters) {
    if (function->parameters[index].role == ABI_NUMBER) {
      return strcmp(function->parameters[index].type, "size_t") == 0;
    }
  }
  return 0;
}

static int may_be_null(const struct abi_function* function, int index) {
  const struct abi_variable* parameter = &function->parameters[index];
  switch (parameter->role) {
    case ABI_USER_DATA:
      return 1;
    case ABI_CALLBACK: /* NULL takes no user_data and no release, which the call has */
      return strcmp(parameter->type, "fsdp2_release_fn") == 0;
    case ABI_TEXTS:
    case ABI_HANDLES:
    case ABI_INPUT:
      return parameter->is_optional && !has_count(function, index);
    default:
      return parameter->is_optional;
  }
}

static void give_null(struct call* call, int index) {
  union abi_argument* argument = &call->arguments[index];
  const union abi_argument own = *argument;
  argument->pointer = NULL;
  if (!may_be_null(call->function, index)) {
    make_call(call, call->function->parameters[index].name, "NULL", FSDP2_E_NULL_ARGUMENT);
  }
  *argument = own;
}

/* ---- texts */

static const char* const kBadTexts[] = {
    "\xff", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "cut \xe2\x82", "\x80",
};
static char long_text[(20 << 20) + 1];

static void give_wrong_texts(struct call* call, const struct abi_variable* parameter, void** text) {
  void* const own = *text;
  size_t i;
  for (i = 0; i < sizeof(kBadTexts) / sizeof(kBadTexts[0]); ++i) {
    *text = (void*)kBadTexts[i];
    make_call(call, parameter->name, "not UTF-8", FSDP2_E_INVALID_ARGUMENT);
  }
  *text = long_text;
  make_call(call, parameter->name, "too long", FSDP2_E_INVALID_ARGUMENT);
  *text = own;
}

/* ---- structs */

/* The size that a struct had when it appeared, of those that have grown since. */
static const struct {
  const char* type;
  size_t size;
} kFirstSizes[] = {
    {"fsdp2_error_info", 8}, /* error.h fills what fits */
    {"fsdp2_generate_options", offsetof(fsdp2_generate_options, top_p)},
    {"fsdp2_mesh_options", offsetof(fsdp2_mesh_options, ulysses_size)},
    {"fsdp2_plan_info", offsetof(fsdp2_plan_info, all_to_alls)},
    {"fsdp2_plan_options", offsetof(fsdp2_plan_options, rows)},
    {"fsdp2_shard_options", offsetof(fsdp2_shard_options, one_communicator)},
    {"fsdp2_shard_stats", offsetof(fsdp2_shard_stats, all_to_alls)},
    {"fsdp2_loader_info", offsetof(fsdp2_loader_info, n_images)},
    {"fsdp2_loader_options", offsetof(fsdp2_loader_options, drop_last)},
    {"fsdp2_step_options", offsetof(fsdp2_step_options, not_finite)},
    {"fsdp2_unit_settings", offsetof(fsdp2_unit_settings, allocate_memory_from_process_group)},
    {"fsdp2_step_result", offsetof(fsdp2_step_result, finite)},
    {"fsdp2_adamw_options", offsetof(fsdp2_adamw_options, state_dtype)},
    {"fsdp2_module_options", offsetof(fsdp2_module_options, config_overrides)},
    {"fsdp2_optimizer_info", offsetof(fsdp2_optimizer_info, n_received_bytes)},
    {"fsdp2_optimizer_group_info", offsetof(fsdp2_optimizer_group_info, newton_schulz_steps)},
};

static size_t first_size(const struct abi_variable* parameter) {
  size_t i;
  for (i = 0; i < sizeof(kFirstSizes) / sizeof(kFirstSizes[0]); ++i) {
    if (strcmp(kFirstSizes[i].type, parameter->type) == 0) {
      return kFirstSizes[i].size;
    }
  }
  return parameter->size;
}

/* Results are compared with what they were, so that takes note of each wrong size. */
static void set_size(const struct abi_variable* parameter, void* memory, uint32_t size) {
  int i;
  memcpy(memory, &size, sizeof(size));
  for (i = 0; parameter->role == ABI_RESULT && i < kOutputs; ++i) {
    if (memory == outputs[i].bytes) {
      memcpy(outputs_before[i], outputs[i].bytes, kOutputBytes);
    }
  }
}

static void give_wrong_structs(struct call* call, const struct abi_variable* parameter,
                               unsigned char* memory) {
  const uint32_t sizes[] = {0,    1,         (uint32_t)first_size(parameter) - 1, kMaxStruct + 1,
                            5000, UINT32_MAX};
  const uint32_t own = (uint32_t)parameter->size;
  size_t i;
  for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
    set_size(parameter, memory, sizes[i]);
    make_call(call, parameter->name, "a wrong struct_size", FSDP2_E_STRUCT_SIZE);
  }
  if (parameter->role == ABI_OPTIONS) {
    set_size(parameter, memory, own + 8);
    memory[own + 3] = 1;
    make_call(call, parameter->name, "a field of later", FSDP2_E_UNSUPPORTED);
    memory[own + 3] = 0;
  }
  set_size(parameter, memory, own);
}

/* The _init functions take the size as an argument. */
static void give_wrong_sizes(struct call* call, const struct abi_variable* options, size_t* size) {
  const size_t sizes[] = {0, 1, first_size(options) - 1, kMaxStruct + 1, SIZE_MAX};
  size_t i;
  for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
    *size = sizes[i];
    make_call(call, "struct_size", "wrong", FSDP2_E_STRUCT_SIZE);
  }
  *size = options->size;
}

/* ---- counts and room */

/* The output behind a cap says how much room is needed; everything else stays as it was. */
static void give_no_room(struct call* call, int index) {
  size_t needed = 0, unset;
  void* said = call->arguments[index + 1].pointer;
  memcpy(&unset, said, sizeof(unset));
  call->arguments[index].as_size_t = 0;
  EXPECT_STATUS(call->function->call(call->arguments), FSDP2_E_BUFFER_TOO_SMALL);
  memcpy(&needed, said, sizeof(needed));
  if (!EXPECT(needed > 0 && needed != unset)) {
    fprintf(stderr, "  %s does not say how much room it needs\n", call->function->name);
  }
  memcpy(said, &unset, sizeof(unset));
  expect_refusal(call->function->name, "no room", FSDP2_E_BUFFER_TOO_SMALL,
                 FSDP2_E_BUFFER_TOO_SMALL);
}

static void give_wrong_counts(struct call* call, int index) {
  const struct abi_variable* parameter = &call->function->parameters[index];
  size_t* count = &call->arguments[index].as_size_t;
  const size_t own = *count;
  const int is_text = index > 0 && strcmp(call->function->parameters[index - 1].type, "char") == 0;
  if (strcmp(parameter->name, "struct_size") == 0) {
    give_wrong_sizes(call, &call->function->parameters[0], count);
    return;
  }
  if (strcmp(parameter->name, "cap") == 0) {
    give_no_room(call, index);
    if (is_text) { /* any room is fine that is enough */
      *count = own;
      return;
    }
  }
  *count = kHuge;
  make_call(call, parameter->name, "huge", FSDP2_E_INVALID_ARGUMENT);
  *count = SIZE_MAX;
  make_call(call, parameter->name, "SIZE_MAX", FSDP2_E_INVALID_ARGUMENT);
  *count = own;
}

/* ---- all of it */

static void give_wrong_arguments(struct call* call, int index) {
  const struct abi_variable* parameter = &call->function->parameters[index];
  void* memory = call->arguments[index].pointer;
  if (parameter->role == ABI_HANDLE) {
    give_wrong_handles(call, parameter, &call->arguments[index].id);
  } else if (parameter->role != ABI_NUMBER) {
    give_null(call, index);
  }
  if (parameter->role == ABI_HANDLES) {
    fsdp2_tensor copy = *(const fsdp2_tensor*)memory;
    call->arguments[index].pointer = &copy;
    give_wrong_handles(call, parameter, &copy.id);
    call->arguments[index].pointer = memory;
  } else if (parameter->role == ABI_TEXT) {
    give_wrong_texts(call, parameter, &call->arguments[index].pointer);
  } else if (parameter->role == ABI_TEXTS) {
    void* copy = NULL;
    call->arguments[index].pointer = &copy;
    make_call(call, parameter->name, "a NULL", FSDP2_E_NULL_ARGUMENT);
    give_wrong_texts(call, parameter, &copy);
    call->arguments[index].pointer = memory;
  } else if (parameter->role == ABI_RESULT ||
             (parameter->role == ABI_OPTIONS && !ends_with(call->function->name, "_init"))) {
    give_wrong_structs(call, parameter, (unsigned char*)memory);
  } else if (parameter->role == ABI_NUMBER && strcmp(parameter->type, "size_t") == 0) {
    give_wrong_counts(call, index);
  }
}

/* What returns no status has nothing to say, and takes any pointer all the same. */
static void give_null_in_silence(struct call* call, int index) {
  if (call->function->parameters[index].role != ABI_NUMBER) {
    call->arguments[index].pointer = NULL;
    EXPECT_OK(call->function->call(call->arguments));
  }
}

static void every_function_refuses_every_wrong_argument(void) {
  size_t i;
  int k;
  for (i = 0; i < abi_n_functions; ++i) {
    struct call call;
    make_good_call(&abi_functions[i], &call);
    for (k = 0; k < abi_functions[i].n_parameters; ++k) {
      if (abi_functions[i].can_fail) {
        give_wrong_arguments(&call, k);
      } else {
        give_null_in_silence(&call, k);
      }
    }
  }
}

static void list_handles(struct handle_of_kind* handles, fsdp2_mesh mesh, const struct job* of,
                         fsdp2_tensor tensor, fsdp2_state own_state, fsdp2_scope own_scope,
                         fsdp2_generator own_generator, fsdp2_tokenizer own_tokenizer) {
  const struct handle_of_kind listed[kKinds] = {
      {"fsdp2_mesh", mesh.id},
      {"fsdp2_tensor", tensor.id},
      {"fsdp2_module", of->module.id},
      {"fsdp2_shard", of->shard.id},
      {"fsdp2_optimizer", of->optimizer.id},
      {"fsdp2_loader", of->loader.id},
      {"fsdp2_step", of->step.id},
      {"fsdp2_state", own_state.id},
      {"fsdp2_scope", own_scope.id},
      {"fsdp2_generator", own_generator.id},
      {"fsdp2_tokenizer", own_tokenizer.id},
  };
  memcpy(handles, listed, sizeof(listed));
}

static void make_stale_handles(fsdp2_mesh mesh) {
  struct job gone = start_job(mesh);
  const int64_t one = 1, shape = 1;
  const fsdp2_tensor tensor = int64_tensor(&one, &shape, 1);
  fsdp2_state own_state = {0};
  fsdp2_scope own_scope = {0};
  fsdp2_generator own_generator = {0};
  fsdp2_tokenizer own_tokenizer = {0};
  fsdp2_mesh own_mesh = {0};
  EXPECT_OK(fsdp2_mesh_from_group(mesh, 0, NULL, &own_mesh));
  EXPECT_OK(fsdp2_state_create(mesh, &own_state));
  EXPECT_OK(fsdp2_scope_create(&own_scope));
  EXPECT_OK(fsdp2_generator_create(1, &own_generator));
  EXPECT_OK(fsdp2_tokenizer_open(NULL, &own_tokenizer));
  list_handles(stale, own_mesh, &gone, tensor, own_state, own_scope, own_generator, own_tokenizer);
  EXPECT_OK(fsdp2_tokenizer_destroy(own_tokenizer));
  EXPECT_OK(fsdp2_generator_destroy(own_generator));
  EXPECT_OK(fsdp2_scope_destroy(own_scope));
  EXPECT_OK(fsdp2_state_destroy(own_state));
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
  EXPECT_OK(fsdp2_mesh_destroy(own_mesh));
  end_job(&gone);
}

/* What a call with no room needs to come so far (units to prefetch, a report of a load, values in a
 * state, events, a checkpoint), and objects that only some calls take. */
static void prepare(const char* saved) {
  static const char* const kDim[] = {"fsdp"};
  static const char* const kUnit[] = {"model.layers.0"};
  size_t n = 0;
  EXPECT_OK(fsdp2_shard_set_forward_prefetch(job.shard, NULL, kUnit, 1));
  EXPECT_OK(fsdp2_shard_set_backward_prefetch(job.shard, NULL, kUnit, 1));
  EXPECT_OK(fsdp2_checkpoint_save(job.shard, job.optimizer, job.step, job.loader, saved, NULL));
  EXPECT_OK(fsdp2_checkpoint_load(job.shard, job.optimizer, job.step, job.loader, saved, NULL));
  EXPECT_OK(fsdp2_state_add_value(state, "value", "1"));
  EXPECT_OK(fsdp2_state_add_tensor(state, "tensor", NULL, NULL, 0, tokens));
  EXPECT_OK(fsdp2_module_forward(job.module, &tokens, 1, 0, &logits, 1, &n));
  EXPECT_OK(fsdp2_tensor_to_dlpack(tokens, 0, &lent));
  EXPECT_OK(fsdp2_mesh_get_submesh(job.mesh, kDim, 1, &submesh));
}

static fsdp2_status never_run(const fsdp2_forward_info* info, const fsdp2_tensor* inputs,
                              size_t n_inputs, fsdp2_tensor* outputs, size_t cap, size_t* n_outputs,
                              void* user_data) {
  (void)info, (void)inputs, (void)n_inputs, (void)outputs, (void)cap, (void)n_outputs;
  (void)user_data;
  return FSDP2_E_INTERNAL;
}

static fsdp2_module a_custom_module(void) {
  static const int64_t kShape[2] = {2, 3};
  fsdp2_module module = {0};
  EXPECT_OK(fsdp2_module_create_custom("Custom", NULL, never_run, NULL, NULL, &module));
  EXPECT_OK(fsdp2_module_add_parameter(module, "own", kShape, 2, NULL));
  EXPECT_OK(fsdp2_module_add_buffer(module, "table", tokens, 0));
  return module;
}

static void misuse(fsdp2_mesh mesh, int rank) {
  fsdp2_mesh_info place;
  char saved[1100], new_path[1100];
  (void)rank;
  place.struct_size = (uint32_t)sizeof(place);
  EXPECT_OK(fsdp2_mesh_get_info(mesh, &place));
  is_alone = place.world_size == 1;
  snprintf(saved, sizeof(saved), "%s-%d", temporary_path("misuse-saved"), place.world_size);
  snprintf(new_path, sizeof(new_path), "%s", temporary_path("misuse-new"));
  make_stale_handles(mesh);
  start_misuse(mesh);
  EXPECT_OK(fsdp2_scope_create(&scope));
  EXPECT_OK(fsdp2_generator_create(1, &generator));
  EXPECT_OK(fsdp2_generator_get_state(generator, &generator_state));
  EXPECT_OK(fsdp2_tokenizer_open(NULL, &tokenizer));
  list_handles(live, job.mesh, &job, tokens, state, scope, generator, tokenizer);
  custom_module = a_custom_module();
  custom_child = a_custom_module();
  prepare(saved);
  n_good = 0;
  list_good_handles();
  list_good_texts(saved, new_path);
  list_good_numbers();
  every_function_refuses_every_wrong_argument();
  EXPECT_OK(fsdp2_shard_reset(job.shard));
  EXPECT_OK(fsdp2_tensor_destroy(logits));
  lent->deleter(lent);
  EXPECT_OK(fsdp2_mesh_destroy(submesh));
  EXPECT_OK(fsdp2_scope_destroy(scope));
  EXPECT_OK(fsdp2_generator_destroy(generator));
  EXPECT_OK(fsdp2_tokenizer_destroy(tokenizer));
  EXPECT_OK(fsdp2_tensor_destroy(generator_state));
  EXPECT_OK(fsdp2_module_destroy(custom_module));
  EXPECT_OK(fsdp2_module_destroy(custom_child));
  end_misuse();
}

int main(void) {
  memset(long_text, 'x', sizeof(long_text) - 1);
  EXPECT_OK(fsdp2_profile_start()); /* one of the process, for all ranks to describe */
  EXPECT_OK(fsdp2_profile_stop(NULL));
  return run_misuse(misuse);
}
