/* What a caller's threads, callbacks and small stacks must not do to the library: crash it, or make
 * it keep what it should have let go. */
#define _POSIX_C_SOURCE 200809L
#include "tests/capi/tiny_model.h"

static void count_release(void* user_data) { ++*(int*)user_data; }

/* ---- inputs that change while they are used */

static const int64_t kBatchShape[2] = {1, 4};
static const int64_t kTokens[4] = {1, 2, 3, 4};
static const int64_t kWrongLabels[4] = {2, 3, INT64_C(1) << 40, 5};

/* Sends the chunk as it is, once it has spoilt the labels that user_data may point to. */
static fsdp2_status spoil_labels(const fsdp2_gather_info* gather, fsdp2_tensor chunk,
                                 fsdp2_tensor* out, void* user_data) {
  (void)gather;
  *out = chunk;
  return user_data == NULL
             ? FSDP2_OK
             : fsdp2_tensor_write(*(fsdp2_tensor*)user_data, kWrongLabels, sizeof(kWrongLabels));
}

static fsdp2_status take_pieces(const fsdp2_gather_info* gather, fsdp2_tensor pieces,
                                fsdp2_tensor chunks, void* user_data) {
  float values[kTinyVocabulary * kTinyWidth];
  fsdp2_tensor_info info;
  (void)gather, (void)user_data;
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_tensor_get_info(pieces, &info));
  EXPECT((size_t)info.n_bytes <= sizeof(values));
  EXPECT_OK(fsdp2_tensor_read(pieces, values, info.n_bytes));
  return fsdp2_tensor_write(chunks, values, info.n_bytes);
}

/* A device has labels of its own, which it has copied before. */
static void change_labels_during_forward(fsdp2_mesh mesh, int rank) {
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_of(module, mesh);
  fsdp2_tensor batch[2], loss = {0};
  size_t n = 0;
  batch[0] = int64_tensor(kTokens, kBatchShape, 2);
  batch[1] = int64_tensor(kTokens, kBatchShape, 2);
  EXPECT_OK(fsdp2_shard_set_all_gather_extension(shard, "model.layers.1", spoil_labels, take_pieces,
                                                 rank == 0 ? &batch[1] : NULL, NULL));
  if (rank == 0 && test_device() == NULL) {
    EXPECT_STATUS(fsdp2_module_forward(module, batch, 2, 0, &loss, 1, &n),
                  FSDP2_E_INVALID_ARGUMENT);
    EXPECT_MESSAGE("label 1099511627776");
  } else {
    EXPECT_OK(fsdp2_module_forward(module, batch, 2, 0, &loss, 1, &n));
    EXPECT_OK(fsdp2_tensor_destroy(loss));
  }
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
  destroy_tiny(module, shard);
}
static void labels_are_checked_where_they_are_used(void) {
  on_ranks("labels", 2, 0, change_labels_during_forward);
}

static void the_head_alone_refuses_a_wrong_label(void) {
  const int64_t hidden_shape[3] = {1, 4, kTinyWidth};
  const float hidden[4 * kTinyWidth] = {0};
  const fsdp2_module module = tiny_model();
  fsdp2_tensor inputs[2], loss = {0};
  size_t n = 0;
  EXPECT_OK(
      fsdp2_tensor_from_buffer(hidden, sizeof(hidden), FSDP2_DTYPE_F32, hidden_shape, 3, inputs));
  inputs[1] = int64_tensor(kWrongLabels, kBatchShape, 2);
  EXPECT_STATUS(fsdp2_module_forward_submodule(module, "lm_head", inputs, 2, 0, &loss, 1, &n),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("label 1099511627776");
  EXPECT_OK(fsdp2_tensor_destroy(inputs[0]));
  EXPECT_OK(fsdp2_tensor_destroy(inputs[1]));
  EXPECT_OK(fsdp2_module_destroy(module));
}

/* ---- modules that change while they are used */

static fsdp2_status run_nothing(const fsdp2_forward_info* info, const fsdp2_tensor* inputs,
                                size_t n_inputs, fsdp2_tensor* outputs, size_t cap,
                                size_t* n_outputs, void* user_data) {
  (void)info, (void)inputs, (void)n_inputs, (void)outputs, (void)cap, (void)n_outputs;
  (void)user_data;
  return FSDP2_E_CANCELLED;
}

static fsdp2_module custom_module(void) {
  fsdp2_module module = {0};
  EXPECT_OK(fsdp2_module_create_custom("Custom", NULL, run_nothing, NULL, NULL, &module));
  return module;
}

struct growing_module {
  fsdp2_module module;
  _Atomic int is_whole;
};

/* Asks for a child that is never there. */
static void* ask_for_a_child(void* argument) {
  struct growing_module* growing = (struct growing_module*)argument;
  const fsdp2_tensor none = {0};
  fsdp2_tensor output = {0};
  size_t n = 0;
  while (!growing->is_whole) {
    const fsdp2_status status =
        fsdp2_module_forward_submodule(growing->module, "nobody", &none, 0, 0, &output, 1, &n);
    EXPECT(status == FSDP2_E_NOT_FOUND || status == FSDP2_E_BUSY);
  }
  return NULL;
}

static void a_child_may_be_looked_for_while_others_are_added(void) {
  enum { kChildren = 1000 };
  struct growing_module growing;
  pthread_t asking;
  char name[16];
  int i;
  growing.module = custom_module();
  growing.is_whole = 0;
  EXPECT(pthread_create(&asking, NULL, ask_for_a_child, &growing) == 0);
  for (i = 0; i < kChildren; ++i) {
    const fsdp2_module child = custom_module();
    fsdp2_status status;
    snprintf(name, sizeof(name), "child%d", i);
    do {
      status = fsdp2_module_add_child(growing.module, name, child);
    } while (status == FSDP2_E_BUSY);
    EXPECT(status == FSDP2_OK);
    EXPECT_OK(fsdp2_module_destroy(child));
  }
  growing.is_whole = 1;
  EXPECT(pthread_join(asking, NULL) == 0);
  EXPECT_OK(fsdp2_module_destroy(growing.module));
}

/* ---- what a failed backward keeps */

static fsdp2_status refuse_gradient(const fsdp2_gradient_info* info, fsdp2_tensor gradient,
                                    void* user_data) {
  (void)gradient, (void)user_data;
  return strcmp(info->parameter, "model.layers.1.mlp.up_proj.weight") == 0 ? FSDP2_E_CANCELLED
                                                                           : FSDP2_OK;
}

static void fail_backward(fsdp2_mesh mesh, int rank) {
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_of(module, mesh);
  fsdp2_tensor loss;
  int released = 0;
  (void)rank;
  EXPECT_OK(
      fsdp2_shard_set_gradient_ready(shard, NULL, 1, refuse_gradient, &released, count_release));
  loss = tiny_loss(module, 0);
  EXPECT_STATUS(fsdp2_tensor_backward(loss), FSDP2_E_CALLBACK);
  EXPECT_OK(fsdp2_tensor_destroy(loss));
  destroy_tiny(module, shard);
  EXPECT(released == 1);
}
static void a_failed_backward_keeps_nothing_alive(void) {
  on_ranks("failed-backward", 1, 0, fail_backward);
}

static void fail_step(fsdp2_mesh mesh, int rank) {
  struct job job = start_job(mesh);
  fsdp2_step_result result;
  fsdp2_tensor batch[2] = {{0}, {0}};
  int released = 0;
  (void)rank;
  result.struct_size = (uint32_t)sizeof(result);
  EXPECT_OK(fsdp2_shard_set_gradient_ready(job.shard, NULL, 1, refuse_gradient, &released,
                                           count_release));
  EXPECT_OK(fsdp2_loader_next(job.loader, &batch[0], &batch[1]));
  EXPECT_STATUS(fsdp2_step_run(job.step, batch, 2, &result), FSDP2_E_CALLBACK);
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
  end_job(&job);
  EXPECT(released == 1);
}
static void a_failed_step_keeps_nothing_alive(void) { on_ranks("failed-step", 1, 0, fail_step); }

/* ---- small stacks */

/* fsdp2.h, convention 7. The address sanitizer's frames are several times as large. */
#ifdef __SANITIZE_ADDRESS__
enum { kSmallestStack = 1 << 20 };
#else
enum { kSmallestStack = 128 << 10 };
#endif
enum { kSmallestStackOnGpus = 1 << 20 };

static void train_and_save(fsdp2_mesh mesh, int rank) {
  struct job job = start_job(mesh);
  fsdp2_state state = {0};
  char deepest[130] = "";
  size_t needed = 0;
  (void)rank;
  memset(deepest, '[', 64); /* state.h */
  memset(deepest + 64, ']', 64);
  take_step(job.loader, job.step);
  EXPECT_OK(fsdp2_module_checkpoint_activations(job.module, NULL, 0, 1, 0));
  take_step(job.loader, job.step);
  EXPECT_OK(fsdp2_checkpoint_save_pretrained(job.shard, temporary_path("small-stack")));
  EXPECT_OK(fsdp2_state_create(job.mesh, &state));
  EXPECT_OK(fsdp2_state_add_value(state, "value", deepest));
  EXPECT_OK(fsdp2_state_get_value(state, "value", NULL, 0, &needed));
  EXPECT_OK(fsdp2_state_save(state, temporary_path("small-stack-state"), NULL));
  EXPECT_OK(fsdp2_state_load(state, temporary_path("small-stack-state")));
  EXPECT_OK(fsdp2_state_destroy(state));
  end_job(&job);
}

static void* train_alone(void* argument) {
  const fsdp2_mesh mesh = lone_mesh();
  (void)argument;
  train_and_save(mesh, 0);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
  return NULL;
}

static void the_smallest_stack_suffices(void) {
  const char* device = test_device();
  const int on_gpus = device != NULL && strcmp(device, "cpu") != 0;
  pthread_attr_t attributes;
  pthread_t thread;
  EXPECT(pthread_attr_init(&attributes) == 0);
  EXPECT(pthread_attr_setstacksize(&attributes, on_gpus ? kSmallestStackOnGpus : kSmallestStack) ==
         0);
  EXPECT(pthread_create(&thread, &attributes, train_alone, NULL) == 0);
  EXPECT(pthread_join(thread, NULL) == 0);
  EXPECT(pthread_attr_destroy(&attributes) == 0);
}

int main(void) {
  RUN(the_smallest_stack_suffices); /* first: what is set up once needs stack, too */
  RUN(labels_are_checked_where_they_are_used);
  RUN(the_head_alone_refuses_a_wrong_label);
  RUN(a_child_may_be_looked_for_while_others_are_added);
  RUN(a_failed_backward_keeps_nothing_alive);
  RUN(a_failed_step_keeps_nothing_alive);
  return harness_result();
}
