/* Layers that the library has, each by itself: parameters, shapes, gradients, and wrong options.
 * What they compute, tests/core/nn/stock compares with PyTorch's. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>

#include "tests/capi/forwards.h"

enum { kVocabulary = 16 };
static const fsdp2_scope kNoScope = {0};

static fsdp2_module layer_of(const char* kind, const char* json) {
  fsdp2_module_options options = FSDP2_MODULE_OPTIONS_INIT;
  fsdp2_module module = {0};
  options.seed = 9;
  EXPECT_OK(fsdp2_module_create_layer(kind, json, &options, &module));
  return module;
}

/* ---- each kind by itself */

static fsdp2_tensor ramp(const int64_t* shape, size_t n_dims, int32_t dtype) {
  float numbers[256];
  int64_t indices[256], count = 1;
  fsdp2_tensor tensor = {0};
  size_t i;
  for (i = 0; i < n_dims; ++i) {
    count *= shape[i];
  }
  for (i = 0; i < (size_t)count; ++i) {
    numbers[i] = (float)((i * 7) % 11) / 11.0f - 0.4f;
    indices[i] = (int64_t)(i * 5) % kVocabulary;
  }
  if (dtype == FSDP2_DTYPE_I64) {
    return int64_tensor(indices, shape, n_dims);
  }
  EXPECT_OK(fsdp2_tensor_from_buffer(numbers, (size_t)count * sizeof(float), dtype, shape, n_dims,
                                     &tensor));
  return tensor;
}

/* What a kind takes and makes, and its parameters. */
struct kind {
  const char *name, *json, *parameters; /* names, each with "|" behind it */
  int32_t dtype;                        /* of the input */
  size_t n_dims, n_out;
  int64_t shape[4], out[4];
};

static const struct kind kKinds[] = {
    {"Linear",
     "{\"in_features\": 8, \"out_features\": 4}",
     "weight|bias|",
     FSDP2_DTYPE_F32,
     2,
     2,
     {3, 8},
     {3, 4}},
    {"Embedding",
     "{\"num_embeddings\": 16, \"embedding_dim\": 8}",
     "weight|",
     FSDP2_DTYPE_I64,
     2,
     3,
     {2, 3},
     {2, 3, 8}},
    {"LayerNorm",
     "{\"normalized_shape\": 8}",
     "weight|bias|",
     FSDP2_DTYPE_F32,
     2,
     2,
     {3, 8},
     {3, 8}},
    {"RMSNorm", "{\"normalized_shape\": 8}", "weight|", FSDP2_DTYPE_F32, 2, 2, {3, 8}, {3, 8}},
    {"Conv1d",
     "{\"in_channels\": 2, \"out_channels\": 3, \"kernel_size\": 2}",
     "weight|bias|",
     FSDP2_DTYPE_F32,
     3,
     3,
     {1, 2, 5},
     {1, 3, 4}},
    {"Conv2d",
     "{\"in_channels\": 2, \"out_channels\": 3, \"kernel_size\": 2, \"bias\": false}",
     "weight|",
     FSDP2_DTYPE_F32,
     4,
     4,
     {1, 2, 5, 5},
     {1, 3, 4, 4}},
    {"MultiheadAttention",
     "{\"embed_dim\": 8, \"num_heads\": 2}",
     "in_proj_weight|in_proj_bias|out_proj.weight|out_proj.bias|",
     FSDP2_DTYPE_F32,
     3,
     3,
     {2, 3, 8},
     {2, 3, 8}},
    {"TransformerEncoderLayer",
     "{\"d_model\": 8, \"nhead\": 2, \"dim_feedforward\": 16}",
     "self_attn.in_proj_weight|self_attn.in_proj_bias|self_attn.out_proj.weight|"
     "self_attn.out_proj.bias|linear1.weight|linear1.bias|linear2.weight|linear2.bias|"
     "norm1.weight|norm1.bias|norm2.weight|norm2.bias|",
     FSDP2_DTYPE_F32,
     3,
     3,
     {2, 3, 8},
     {2, 3, 8}},
    {"TransformerEncoder",
     "{\"num_layers\": 1, \"d_model\": 8, \"nhead\": 2, \"dim_feedforward\": 16}",
     "layers.0.self_attn.in_proj_weight|layers.0.self_attn.in_proj_bias|"
     "layers.0.self_attn.out_proj.weight|layers.0.self_attn.out_proj.bias|"
     "layers.0.linear1.weight|layers.0.linear1.bias|layers.0.linear2.weight|"
     "layers.0.linear2.bias|layers.0.norm1.weight|layers.0.norm1.bias|"
     "layers.0.norm2.weight|layers.0.norm2.bias|",
     FSDP2_DTYPE_F32,
     3,
     3,
     {2, 3, 8},
     {2, 3, 8}},
    {"MLP",
     "{\"hidden_size\": 8, \"intermediate_size\": 16}",
     "up_proj.weight|up_proj.bias|down_proj.weight|down_proj.bias|",
     FSDP2_DTYPE_F32,
     2,
     2,
     {3, 8},
     {3, 8}},
    {"GatedMLP",
     "{\"hidden_size\": 8, \"intermediate_size\": 16, \"bias\": false}",
     "gate_proj.weight|up_proj.weight|down_proj.weight|",
     FSDP2_DTYPE_F32,
     2,
     2,
     {3, 8},
     {3, 8}},
    {"Dropout", "{\"p\": 0.1}", "", FSDP2_DTYPE_F32, 2, 2, {3, 8}, {3, 8}},
    {"ReLU", NULL, "", FSDP2_DTYPE_F32, 2, 2, {3, 8}, {3, 8}},
    {"GELU", "{\"approximate\": \"tanh\"}", "", FSDP2_DTYPE_F32, 2, 2, {3, 8}, {3, 8}},
    {"SiLU", "{}", "", FSDP2_DTYPE_F32, 2, 2, {3, 8}, {3, 8}},
    {"Tanh", "", "", FSDP2_DTYPE_F32, 2, 2, {3, 8}, {3, 8}},
    {"Flatten", "{\"start_dim\": 0}", "", FSDP2_DTYPE_F32, 2, 1, {3, 8}, {24}},
    {"Sequential", NULL, "", FSDP2_DTYPE_F32, 2, 2, {3, 8}, {3, 8}},
};

static void expect_parameters(fsdp2_module module, const char* expected) {
  char found[512] = "", name[128];
  size_t count = 0, needed = 0, i;
  EXPECT_OK(fsdp2_module_get_parameter_count(module, &count));
  for (i = 0; i < count; ++i) {
    EXPECT_OK(fsdp2_module_get_parameter_name(module, i, 0, name, sizeof(name), &needed));
    strcat(strcat(found, name), "|");
  }
  if (!EXPECT(strcmp(found, expected) == 0)) {
    fprintf(stderr, "  expected parameters %s\n  found %s\n", expected, found);
  }
}

static void run_kind(const struct kind* kind) {
  const fsdp2_module module = layer_of(kind->name, kind->json);
  const fsdp2_tensor x = ramp(kind->shape, kind->n_dims, kind->dtype);
  fsdp2_tensor y = {0}, sum = {0}, gradient = {0};
  fsdp2_tensor_info info;
  fsdp2_value output = FSDP2_NONE;
  fsdp2_status status = FSDP2_OK;
  size_t n = 0, count = 0, i;
  fprintf(stderr, "  %s\n", kind->name);
  info.struct_size = (uint32_t)sizeof(info);
  expect_parameters(module, kind->parameters);
  if (kind->dtype == FSDP2_DTYPE_F32) {
    EXPECT_OK(fsdp2_tensor_set_requires_grad(x, 1));
  }
  EXPECT_OK(fsdp2_module_forward(module, &x, 1, 0, &y, 1, &n));
  EXPECT_OK(fsdp2_tensor_get_info(y, &info));
  EXPECT(n == 1 && info.n_dims == (int32_t)kind->n_out);
  for (i = 0; i < kind->n_out; ++i) {
    EXPECT(info.shape[i] == kind->out[i]);
  }
  output = (fsdp2_value)FSDP2_TENSOR(y);
  sum = one_of(&status, "aten::sum", &output, 1, kNoScope);
  EXPECT_OK(status);
  EXPECT_OK(fsdp2_tensor_backward(sum));
  EXPECT_OK(fsdp2_module_get_parameter_count(module, &count));
  for (i = 0; i < count; ++i) {
    EXPECT_OK(fsdp2_module_get_parameter(module, i, FSDP2_PARAMETER_LOCAL_GRAD, &gradient));
    EXPECT_OK(fsdp2_tensor_destroy(gradient));
  }
  if (kind->dtype == FSDP2_DTYPE_F32) {
    EXPECT_OK(fsdp2_tensor_get_grad(x, &gradient));
    EXPECT_OK(fsdp2_tensor_destroy(gradient));
  }
  EXPECT_OK(fsdp2_tensor_destroy(sum));
  if (count > 0) { /* runs on what it takes alone */
    EXPECT_STATUS(fsdp2_module_forward(module, &x, 0, 0, &y, 1, &n), FSDP2_E_INVALID_ARGUMENT);
  }
  EXPECT_OK(fsdp2_tensor_destroy(y));
  EXPECT_OK(fsdp2_tensor_destroy(x));
  EXPECT_OK(fsdp2_module_destroy(module));
}

static void every_kind_runs_forward_and_backward(void) {
  size_t i;
  for (i = 0; i < sizeof(kKinds) / sizeof(kKinds[0]); ++i) {
    run_kind(&kKinds[i]);
  }
}

static void refuse(const char* kind, const char* json, const char* message) {
  fsdp2_module module = {0};
  EXPECT_STATUS(fsdp2_module_create_layer(kind, json, NULL, &module), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE(message);
  EXPECT(module.id == 0);
}

static void wrong_options_are_told(void) {
  fsdp2_module list = layer_of("ModuleList", NULL);
  fsdp2_tensor x, y = {0};
  size_t n = 0;
  refuse("Liner", NULL, "no layer is called 'Liner'; did you mean Linear?");
  refuse("Linear", "{\"in_features\": 8}", "Linear needs the option \"out_features\"");
  refuse("Linear", "{\"in_feature\": 8}", "did you mean \"in_features\"?");
  refuse("Linear", "{\"in_features\": 8, \"out_features\": \"4\"}", "found \"4\"");
  refuse("Linear", "[[[[[[[[[[[[[[[[[[[[[[[[", "nested more than 8 deep");
  refuse("Linear", "{\"in_features\": \xff", "expected UTF-8");
  x = ramp(kKinds[0].shape, 2, FSDP2_DTYPE_F32);
  EXPECT_STATUS(fsdp2_module_forward(list, &x, 1, 0, &y, 1, &n), FSDP2_E_UNSUPPORTED);
  EXPECT_MESSAGE("a ModuleList only holds modules");
  EXPECT_OK(fsdp2_tensor_destroy(x));
  EXPECT_OK(fsdp2_module_destroy(list));
}

int main(void) {
  RUN(every_kind_runs_forward_and_backward);
  RUN(wrong_options_are_told);
  return harness_result();
}
