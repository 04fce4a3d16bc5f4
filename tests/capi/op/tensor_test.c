/* Tensors by copy and by DLPack. */
#include <math.h>

#include "tests/capi/dlpack.h"
#include "tests/capi/harness.h"

static int deleted;
static void count_deletion(DLManagedTensorVersioned* self) {
  (void)self;
  ++deleted;
}

static float values[6] = {1, 2, 3, 4, 5, 6};
static int64_t shape_2_3[2] = {2, 3};
static int64_t strides_by_columns[2] = {1, 2};

static DLManagedTensorVersioned a_source(void) {
  DLManagedTensorVersioned source = floats_of(values, shape_2_3);
  source.deleter = count_deletion;
  source.dl_tensor.ndim = 2;
  deleted = 0;
  return source;
}

static void a_buffer_comes_back_as_it_went_in(void) {
  const int64_t shape[2] = {2, 2};
  const uint16_t bf16[4] = {0x3f80, 0x4000, 0xbf80, 0};
  uint16_t back[4] = {9, 9, 9, 9};
  fsdp2_tensor tensor = {0};
  fsdp2_tensor_info info;
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_tensor_from_buffer(bf16, sizeof(bf16), FSDP2_DTYPE_BF16, shape, 2, &tensor));
  EXPECT_OK(fsdp2_tensor_get_info(tensor, &info));
  EXPECT(info.dtype == FSDP2_DTYPE_BF16 && info.device_type == FSDP2_DEVICE_CPU);
  EXPECT(info.n_dims == 2 && info.shape[0] == 2 && info.strides[0] == 2 && info.strides[1] == 1);
  EXPECT(info.n_bytes == sizeof(bf16) && info.requires_grad == 0);
  EXPECT_OK(fsdp2_tensor_read(tensor, back, sizeof(back)));
  EXPECT(memcmp(bf16, back, sizeof(back)) == 0);
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
}

static void scalars_and_empty_tensors_are_tensors(void) {
  const double number = -2.5;
  const int64_t none[2] = {0, 3};
  fsdp2_tensor tensor = {0};
  double value = 0.0;
  EXPECT_OK(fsdp2_tensor_from_buffer(&number, 8, FSDP2_DTYPE_F64, NULL, 0, &tensor));
  EXPECT_OK(fsdp2_tensor_get_value(tensor, &value));
  EXPECT(value == -2.5);
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
  EXPECT_OK(fsdp2_tensor_from_buffer(NULL, 0, FSDP2_DTYPE_I8, none, 2, &tensor));
  EXPECT_OK(fsdp2_tensor_read(tensor, NULL, 0));
  EXPECT_STATUS(fsdp2_tensor_get_value(tensor, &value), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
}

static void buffers_that_do_not_fit_are_refused(void) {
  const int64_t negative[1] = {-1}, overflowing[2] = {INT64_MAX / 2, 4}, two[1] = {2};
  const int64_t empty[3] = {0, INT64_MAX, INT64_MAX};
  int64_t many[17];
  const unsigned char not_booleans[2] = {1, 2};
  fsdp2_tensor out = {5};
  int i;
  for (i = 0; i < 17; ++i) {
    many[i] = 1;
  }
  EXPECT_STATUS(fsdp2_tensor_from_buffer(values, 7, FSDP2_DTYPE_F32, two, 1, &out),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("need 8 bytes, found 7");
  EXPECT_STATUS(fsdp2_tensor_from_buffer(values, 4, FSDP2_DTYPE_F32, negative, 1, &out),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_tensor_from_buffer(values, 4, FSDP2_DTYPE_F32, overflowing, 2, &out),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_tensor_from_buffer(NULL, 0, FSDP2_DTYPE_F32, empty, 3, &out),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("makes the tensor too large");
  EXPECT_STATUS(fsdp2_tensor_from_buffer(values, 4, FSDP2_DTYPE_F32, many, 17, &out),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_tensor_from_buffer(values, 4, FSDP2_DTYPE_KEEP, two, 1, &out),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_tensor_from_buffer(not_booleans, 2, FSDP2_DTYPE_BOOL, two, 1, &out),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT(out.id == 5);
}

static void an_import_shares_memory_until_its_handle_is_destroyed(void) {
  DLManagedTensorVersioned source = a_source();
  fsdp2_tensor tensor = {0};
  float back[6];
  EXPECT_OK(fsdp2_tensor_from_dlpack(&source, &tensor));
  values[0] = 10;
  EXPECT_OK(fsdp2_tensor_read(tensor, back, sizeof(back)));
  EXPECT(back[0] == 10 && back[5] == 6);
  values[0] = 1;
  EXPECT(deleted == 0);
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
  EXPECT(deleted == 1);
}

static void an_import_may_have_strides_and_no_deleter(void) {
  DLManagedTensorVersioned source = a_source();
  fsdp2_tensor tensor = {0};
  const float expected[6] = {1, 3, 5, 2, 4, 6};
  float back[6];
  source.dl_tensor.strides = strides_by_columns;
  source.deleter = NULL;
  EXPECT_OK(fsdp2_tensor_from_dlpack(&source, &tensor));
  EXPECT_OK(fsdp2_tensor_read(tensor, back, sizeof(back)));
  EXPECT(memcmp(back, expected, sizeof(back)) == 0);
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
}

static void an_export_shares_memory_until_its_deleter_is_called(void) {
  DLManagedTensorVersioned source = a_source();
  DLManagedTensorVersioned* copy = NULL;
  fsdp2_tensor tensor = {0};
  EXPECT_OK(fsdp2_tensor_from_dlpack(&source, &tensor));
  EXPECT_OK(fsdp2_tensor_to_dlpack(tensor, 0, &copy));
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
  EXPECT(copy->version.major == 1 && copy->dl_tensor.data == values);
  EXPECT(copy->dl_tensor.ndim == 2 && copy->dl_tensor.shape[1] == 3);
  EXPECT(deleted == 0);
  copy->deleter(copy);
  EXPECT(deleted == 0); /* outside of any call */
  EXPECT_OK(fsdp2_tensor_destroy((fsdp2_tensor){0}));
  EXPECT(deleted == 1);
}

static void refused(DLManagedTensorVersioned* source, fsdp2_status expected) {
  fsdp2_tensor out = {5};
  EXPECT_STATUS(fsdp2_tensor_from_dlpack(source, &out), expected);
  EXPECT(out.id == 5 && deleted == 0);
}

static void a_source_that_is_refused_stays_the_callers(void) {
  static int64_t negative[2] = {-1, 3}, huge[2] = {INT64_MAX, INT64_MAX};
  DLManagedTensorVersioned source = a_source();
  source.version.major = 2;
  refused(&source, FSDP2_E_UNSUPPORTED);
  EXPECT_MESSAGE("expected DLPack 1.x, found 2.0");
  source = a_source();
  source.flags = 1; /* read-only */
  refused(&source, FSDP2_E_UNSUPPORTED);
  source = a_source();
  source.dl_tensor.device.device_type = FSDP2_DEVICE_CUDA; /* the memory is the host's */
  refused(&source, test_device() != NULL ? FSDP2_E_INVALID_ARGUMENT : FSDP2_E_UNSUPPORTED);
  source = a_source();
  source.dl_tensor.dtype.lanes = 4;
  refused(&source, FSDP2_E_UNSUPPORTED);
  source = a_source();
  source.dl_tensor.dtype.bits = 0;
  refused(&source, FSDP2_E_UNSUPPORTED);
  source = a_source();
  source.dl_tensor.data = NULL;
  refused(&source, FSDP2_E_INVALID_ARGUMENT);
  source = a_source();
  source.dl_tensor.byte_offset = 2;
  refused(&source, FSDP2_E_INVALID_ARGUMENT);
  source = a_source();
  source.dl_tensor.shape = NULL;
  refused(&source, FSDP2_E_INVALID_ARGUMENT);
  source = a_source();
  source.dl_tensor.ndim = 17;
  refused(&source, FSDP2_E_INVALID_ARGUMENT);
  source = a_source();
  source.dl_tensor.shape = negative;
  refused(&source, FSDP2_E_INVALID_ARGUMENT);
  source = a_source();
  source.dl_tensor.shape = huge;
  refused(&source, FSDP2_E_INVALID_ARGUMENT);
  source = a_source();
  source.dl_tensor.strides = negative;
  refused(&source, FSDP2_E_INVALID_ARGUMENT);
}

static void a_tensor_with_a_graph_is_not_exported(void) {
  fsdp2_module module = tiny_llama();
  const int64_t token = 3, shape[2] = {1, 1};
  fsdp2_tensor input = int64_tensor(&token, shape, 2), logits = {0};
  DLManagedTensorVersioned* out = NULL;
  size_t n = 0;
  EXPECT_OK(fsdp2_module_forward(module, &input, 1, 0, &logits, 1, &n));
  EXPECT_STATUS(fsdp2_tensor_to_dlpack(logits, 0, &out), FSDP2_E_WRONG_STATE);
  EXPECT(out == NULL);
  EXPECT_STATUS(fsdp2_tensor_to_dlpack(input, 1, &out), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_OK(fsdp2_tensor_destroy(logits));
  EXPECT_OK(fsdp2_module_forward(module, &input, 1, FSDP2_FORWARD_NO_GRAD, &logits, 1, &n));
  EXPECT_OK(fsdp2_tensor_to_dlpack(logits, 0, &out));
  EXPECT(out->dl_tensor.ndim == 3 && out->dl_tensor.shape[2] == 384);
  EXPECT(isfinite(((float*)out->dl_tensor.data)[0]));
  EXPECT_OK(fsdp2_tensor_destroy(logits));
  out->deleter(out);
  EXPECT_OK(fsdp2_tensor_destroy(input));
  EXPECT_OK(fsdp2_module_destroy(module));
}

int main(void) {
  RUN(a_buffer_comes_back_as_it_went_in);
  RUN(scalars_and_empty_tensors_are_tensors);
  RUN(buffers_that_do_not_fit_are_refused);
  RUN(an_import_shares_memory_until_its_handle_is_destroyed);
  RUN(an_import_may_have_strides_and_no_deleter);
  RUN(an_export_shares_memory_until_its_deleter_is_called);
  RUN(a_source_that_is_refused_stays_the_callers);
  RUN(a_tensor_with_a_graph_is_not_exported);
  return harness_result();
}
