// Memory that Java and the library share, by DLPack; and where a direct buffer lies.

%{
// DLPack 1.x, as any user of it declares it.
typedef struct java_dlpack_tensor {
  void *data;
  struct { int32_t device_type, device_id; } device;
  int32_t n_dims;
  struct { uint8_t code, bits; uint16_t lanes; } dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} java_dlpack_tensor;
typedef struct DLManagedTensorVersioned {
  struct { uint32_t major, minor; } version;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned *self);
  uint64_t flags;
  java_dlpack_tensor tensor;
} DLManagedTensorVersioned;

// A direct buffer that the library computes with; `memory` is a global reference to it.
typedef struct java_shared_buffer {
  DLManagedTensorVersioned managed;
  jobject memory;
  int64_t shape[FSDP2_MAX_DIMS];
} java_shared_buffer;

static void release_shared_buffer(DLManagedTensorVersioned *managed) {
  java_shared_buffer *shared = managed->manager_ctx;
  release_callback(shared->memory);
  free(shared);
}

JNIEXPORT jlong JNICALL Java_io_fsdp2_internal_RawJNI_java_1address(JNIEnv *env, jclass type, jobject buffer) {
  (void)type;
  return (jlong)(intptr_t)(*env)->GetDirectBufferAddress(env, buffer);
}

// fsdp2_op_call on memory of the thread's own, by address: no arrays to copy, in the call that programs make most.
JNIEXPORT void JNICALL Java_io_fsdp2_internal_RawJNI_java_1call_1operator(JNIEnv *env, jclass type, jlong name, jlong inputs,
                                                                         jlong n_inputs, jint flags, jlong scope, jlong outputs,
                                                                         jlong cap, jlong needed) {
  (void)type;
  const fsdp2_scope within = {(uint64_t)scope};
  const fsdp2_status status =
      fsdp2_op_call((const char *)(intptr_t)name, (const fsdp2_value *)(intptr_t)inputs, (size_t)n_inputs, (uint32_t)flags, within,
                    (fsdp2_value *)(intptr_t)outputs, (size_t)cap, (size_t *)(intptr_t)needed);
  if (status != FSDP2_OK) throw_last_error(env, status);
}

// A buffer over memory of C, which the caller knows to live long enough.
JNIEXPORT jobject JNICALL Java_io_fsdp2_internal_RawJNI_java_1memory(JNIEnv *env, jclass type, jlong address, jlong n_bytes) {
  (void)type;
  return (*env)->NewDirectByteBuffer(env, (void *)(intptr_t)address, n_bytes);
}

enum { JAVA_FEW_INPUTS = 4 };

// fsdp2_module_forward of a module with one output and few inputs, all by value: arrays would cost as much as the call. The output goes
// into the scope, if there is one. If there are fewer or more outputs, none is left, and the result is below 1.
JNIEXPORT jlong JNICALL Java_io_fsdp2_internal_RawJNI_java_1forward(JNIEnv *env, jclass type, jlong module, jlong n_inputs, jlong first,
                                                                  jlong second, jlong third, jlong fourth, jint flags, jlong scope) {
  (void)type;
  const fsdp2_module called = {(uint64_t)module};
  const fsdp2_scope within = {(uint64_t)scope};
  const fsdp2_tensor inputs[JAVA_FEW_INPUTS] = {{(uint64_t)first}, {(uint64_t)second}, {(uint64_t)third}, {(uint64_t)fourth}};
  fsdp2_tensor outputs[FSDP2_MAX_OUTPUTS];
  size_t n = 0;
  fsdp2_status status =
      fsdp2_module_forward(called, inputs, (size_t)n_inputs, (uint32_t)flags, outputs, FSDP2_MAX_OUTPUTS, &n);
  if (status == FSDP2_E_BUFFER_TOO_SMALL && n > FSDP2_MAX_OUTPUTS) return -(jlong)n;
  if (status != FSDP2_OK) {
    throw_last_error(env, status);
    return 0;
  }
  if (n == 1 && within.id != 0) status = fsdp2_scope_add(within, outputs, 1);
  if (n == 1 && status == FSDP2_OK) return (jlong)outputs[0].id;
  if (status != FSDP2_OK) throw_last_error(env, status);
  for (size_t i = 0; i < n; ++i) fsdp2_tensor_destroy(outputs[i]);
  return -(jlong)n;
}

// fsdp2_tensor_from_buffer of memory by its address, which costs less than a buffer.
JNIEXPORT jlong JNICALL Java_io_fsdp2_internal_RawJNI_java_1create_1tensor(JNIEnv *env, jclass type, jlong data, jlong n_bytes,
                                                                         jint dtype, jlongArray shape) {
  (void)type;
  fsdp2_tensor out = {0};
  int64_t sizes[FSDP2_MAX_DIMS + 1];  // one too many are for the library to refuse
  const jsize given = (*env)->GetArrayLength(env, shape);
  const jsize n_dims = given > FSDP2_MAX_DIMS ? FSDP2_MAX_DIMS + 1 : given;
  (*env)->GetLongArrayRegion(env, shape, 0, n_dims, (jlong *)sizes);
  const fsdp2_status status =
      fsdp2_tensor_from_buffer((const void *)(intptr_t)data, (size_t)n_bytes, dtype, sizes, (size_t)n_dims, &out);
  if (status != FSDP2_OK) throw_last_error(env, status);
  return (jlong)out.id;
}

// A tensor in the buffer's memory. code and bits: DLPack's names of the element type. The caller has checked the sizes.
JNIEXPORT jlong JNICALL Java_io_fsdp2_internal_RawJNI_java_1share_1buffer(JNIEnv *env, jclass type, jobject buffer, jint code,
                                                                        jint bits, jlongArray shape) {
  (void)type;
  fsdp2_tensor out = {0};
  const jsize n_dims = (*env)->GetArrayLength(env, shape);
  java_shared_buffer *shared = n_dims > FSDP2_MAX_DIMS ? NULL : calloc(1, sizeof *shared);
  if (shared == NULL) return 0;
  shared->memory = (*env)->NewGlobalRef(env, buffer);
  shared->managed.version.major = 1;
  shared->managed.manager_ctx = shared;
  shared->managed.deleter = release_shared_buffer;
  shared->managed.tensor.data = (*env)->GetDirectBufferAddress(env, buffer);
  shared->managed.tensor.device.device_type = FSDP2_DEVICE_CPU;
  shared->managed.tensor.n_dims = n_dims;
  shared->managed.tensor.dtype.code = (uint8_t)code;
  shared->managed.tensor.dtype.bits = (uint8_t)bits;
  shared->managed.tensor.dtype.lanes = 1;
  shared->managed.tensor.shape = shared->shape;
  (*env)->GetLongArrayRegion(env, shape, 0, n_dims, (jlong *)shared->shape);
  const fsdp2_status status = fsdp2_tensor_from_dlpack(&shared->managed, &out);
  if (status != FSDP2_OK) {
    release_shared_buffer(&shared->managed);
    throw_last_error(env, status);
  }
  return (jlong)out.id;
}

// A buffer over the memory of a row-major tensor. owner[0] is what java_free_shared takes in the end.
JNIEXPORT jobject JNICALL Java_io_fsdp2_internal_RawJNI_java_1share_1tensor(JNIEnv *env, jclass type, jlong tensor, jlong n_bytes,
                                                                          jlongArray owner) {
  (void)type;
  DLManagedTensorVersioned *managed = NULL;
  const fsdp2_tensor handle = {(uint64_t)tensor};
  const fsdp2_status status = fsdp2_tensor_to_dlpack(handle, 0, &managed);
  if (status != FSDP2_OK) {
    throw_last_error(env, status);
    return NULL;
  }
  const jlong address = (jlong)(intptr_t)managed;
  jobject buffer = (*env)->NewDirectByteBuffer(env, (char *)managed->tensor.data + managed->tensor.byte_offset, n_bytes);
  if (buffer == NULL) {
    managed->deleter(managed);
  } else {
    (*env)->SetLongArrayRegion(env, owner, 0, 1, &address);
  }
  return buffer;
}

JNIEXPORT void JNICALL Java_io_fsdp2_internal_RawJNI_java_1free_1shared(JNIEnv *env, jclass type, jlong owner) {
  DLManagedTensorVersioned *managed = (DLManagedTensorVersioned *)(intptr_t)owner;
  (void)env, (void)type;
  managed->deleter(managed);
}
%}

%typemap(jni) jobject java_share_tensor, jobject java_memory "jobject"
%typemap(jtype) jobject java_share_tensor, jobject java_memory "java.nio.ByteBuffer"
%native(java_address) jlong java_address(void *buffer);
%native(java_memory) jobject java_memory(int64_t address, int64_t n_bytes);
%native(java_forward) jlong java_forward(int64_t module, int64_t n_inputs, int64_t first, int64_t second, int64_t third, int64_t fourth,
                                       int32_t flags, int64_t scope);
%native(java_call_operator) void java_call_operator(int64_t name, int64_t inputs, int64_t n_inputs, int32_t flags, int64_t scope,
                                                   int64_t outputs, int64_t cap, int64_t needed);
%native(java_create_tensor) jlong java_create_tensor(int64_t data, int64_t n_bytes, int32_t dtype, const int64_t *shape);
%native(java_share_buffer) jlong java_share_buffer(void *buffer, int32_t code, int32_t bits, const int64_t *shape);
%native(java_share_tensor) jobject java_share_tensor(int64_t tensor, int64_t n_bytes, int64_t *owner);
%native(java_free_shared) void java_free_shared(int64_t owner);
