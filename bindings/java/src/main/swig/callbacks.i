// Java objects in the place of C's functions with user_data: a global reference, which release gives up. The interfaces are in
// io.fsdp2.internal; each method here hands its arguments to the method of the same name in Callbacks, which catches all that
// is thrown and returns it as text.

%{
static JavaVM *java_vm;
static jclass callbacks_class;

// Whether this thread is Java's already; a thread of the library's becomes one for the length of a callback.
typedef struct java_thread { JNIEnv *env; int attached; } java_thread;

static java_thread enter_java(void) {
  java_thread thread = {NULL, 0};
  if ((*java_vm)->GetEnv(java_vm, (void **)&thread.env, JNI_VERSION_1_8) == JNI_OK) return thread;
  thread.attached = (*java_vm)->AttachCurrentThreadAsDaemon(java_vm, (void **)&thread.env, NULL) == JNI_OK;
  return thread;
}

static void leave_java(java_thread thread) {
  if (thread.attached) (*java_vm)->DetachCurrentThread(java_vm);
}

static void release_callback(void *target) {
  if (target == NULL) return;
  java_thread thread = enter_java();
  if (thread.env != NULL) (*thread.env)->DeleteGlobalRef(thread.env, (jobject)target);
  leave_java(thread);
}

// A method of Callbacks, looked up once: its number stays, and whoever else looks it up writes the same one.
typedef struct java_method { const char *name, *signature; jmethodID id; } java_method;

static jmethodID find_method(JNIEnv *env, java_method *method) {
  jmethodID id = __atomic_load_n(&method->id, __ATOMIC_RELAXED);
  if (id == NULL) {
    id = (*env)->GetStaticMethodID(env, callbacks_class, method->name, method->signature);
    __atomic_store_n(&method->id, id, __ATOMIC_RELAXED);
  }
  return id;
}

// Calls the method with (target, ...), which returns what went wrong, a status of two bytes and a text with a NUL, or null.
static fsdp2_status call_java(JNIEnv *env, java_method *called, ...) {
  fsdp2_status status = FSDP2_OK;
  jmethodID method = find_method(env, called);
  jbyteArray wrong = NULL;
  if (method != NULL) {
    va_list arguments;
    va_start(arguments, called);
    wrong = (jbyteArray)(*env)->CallStaticObjectMethodV(env, callbacks_class, method, arguments);
    va_end(arguments);
  }
  if ((*env)->ExceptionCheck(env)) {  // no memory: Callbacks itself throws nothing
    (*env)->ExceptionClear(env);
    return fsdp2_callback_fail(FSDP2_E_CALLBACK, "Java could not run the callback");
  }
  if (wrong != NULL) {
    jbyte *told = (*env)->GetByteArrayElements(env, wrong, NULL);
    if (told == NULL) return fsdp2_callback_fail(FSDP2_E_CALLBACK, "a Java exception");
    status = fsdp2_callback_fail((uint8_t)told[0] << 8 | (uint8_t)told[1], (const char *)told + 2);
    (*env)->ReleaseByteArrayElements(env, wrong, told, JNI_ABORT);
  }
  return status;
}

static fsdp2_status not_java(void) { return fsdp2_callback_fail(FSDP2_E_CALLBACK, "the thread cannot enter Java"); }

static java_method all_reduce_method = {"allReduce", "(Lio/fsdp2/internal/AllReduceHook;[BIJ)[B", NULL};
static fsdp2_status java_all_reduce(const fsdp2_all_reduce_info *info, fsdp2_tensor gradients, void *hook) {
  java_thread thread = enter_java();
  if (thread.env == NULL) return not_java();
  jbyteArray unit = bytes_of(thread.env, info->unit);
  fsdp2_status status = call_java(thread.env, &all_reduce_method, (jobject)hook, unit,
                                  (jint)info->unit_index, (jlong)gradients.id);
  (*thread.env)->DeleteLocalRef(thread.env, unit);
  leave_java(thread);
  return status;
}

static java_method gradient_ready_method = {"gradientReady", "(Lio/fsdp2/internal/GradientReady;[BIIJ)[B", NULL};
static fsdp2_status java_gradient_ready(const fsdp2_gradient_info *info, fsdp2_tensor gradient, void *hook) {
  java_thread thread = enter_java();
  if (thread.env == NULL) return not_java();
  jbyteArray name = bytes_of(thread.env, info->parameter);
  fsdp2_status status = call_java(thread.env, &gradient_ready_method, (jobject)hook,
                                  name, (jint)info->parameter_index, (jint)info->unit_index, (jlong)gradient.id);
  (*thread.env)->DeleteLocalRef(thread.env, name);
  leave_java(thread);
  return status;
}

// Indices of the parameter and its unit, compute dtype, rank and ranks of the group.
static jintArray gather_numbers(JNIEnv *env, const fsdp2_gather_info *gather) {
  const jint values[5] = {gather->parameter_index, gather->unit_index, gather->compute_dtype, gather->shard_rank,
                          gather->shard_ranks};
  jintArray numbers = (*env)->NewIntArray(env, 5);
  if (numbers != NULL) (*env)->SetIntArrayRegion(env, numbers, 0, 5, values);
  return numbers;
}

static java_method pre_all_gather_method = {"preAllGather", "(Lio/fsdp2/internal/AllGatherExtension;[B[IJ[J)[B", NULL};
static fsdp2_status java_pre_all_gather(const fsdp2_gather_info *gather, fsdp2_tensor chunk, fsdp2_tensor *out, void *extension) {
  java_thread thread = enter_java();
  if (thread.env == NULL) return not_java();
  JNIEnv *env = thread.env;
  jbyteArray name = bytes_of(env, gather->parameter);
  jintArray numbers = gather_numbers(env, gather);
  jlongArray sent = (*env)->NewLongArray(env, 1);
  fsdp2_status status = call_java(env, &pre_all_gather_method, (jobject)extension,
                                  name, numbers, (jlong)chunk.id, sent);
  if (status == FSDP2_OK) {
    jlong id = 0;
    (*env)->GetLongArrayRegion(env, sent, 0, 1, &id);
    out->id = (uint64_t)id;
  }
  (*env)->DeleteLocalRef(env, sent);
  (*env)->DeleteLocalRef(env, numbers);
  (*env)->DeleteLocalRef(env, name);
  leave_java(thread);
  return status;
}

static java_method post_all_gather_method = {"postAllGather", "(Lio/fsdp2/internal/AllGatherExtension;[B[IJJ)[B", NULL};
static fsdp2_status java_post_all_gather(const fsdp2_gather_info *gather, fsdp2_tensor pieces, fsdp2_tensor chunks,
                                         void *extension) {
  java_thread thread = enter_java();
  if (thread.env == NULL) return not_java();
  jbyteArray name = bytes_of(thread.env, gather->parameter);
  jintArray numbers = gather_numbers(thread.env, gather);
  fsdp2_status status = call_java(thread.env, &post_all_gather_method,
                                  (jobject)extension, name, numbers, (jlong)pieces.id, (jlong)chunks.id);
  (*thread.env)->DeleteLocalRef(thread.env, numbers);
  (*thread.env)->DeleteLocalRef(thread.env, name);
  leave_java(thread);
  return status;
}

static java_method shard_dim_method = {"shardDim", "(Lio/fsdp2/internal/ShardDim;[B[JI[I)[B", NULL};
static fsdp2_status java_shard_dim(const fsdp2_shard_dim_info *info, int32_t *out, void *function) {
  java_thread thread = enter_java();
  if (thread.env == NULL) return not_java();
  JNIEnv *env = thread.env;
  jbyteArray name = bytes_of(env, info->parameter);
  jlongArray sizes = (*env)->NewLongArray(env, (jsize)info->n_dims);
  if (sizes != NULL) (*env)->SetLongArrayRegion(env, sizes, 0, (jsize)info->n_dims, (const jlong *)info->shape);
  jintArray dim = (*env)->NewIntArray(env, 1);
  fsdp2_status status = call_java(env, &shard_dim_method, (jobject)function, name, sizes,
                                  (jint)info->dtype, dim);
  if (status == FSDP2_OK) (*env)->GetIntArrayRegion(env, dim, 0, 1, (jint *)out);
  (*env)->DeleteLocalRef(env, dim);
  (*env)->DeleteLocalRef(env, sizes);
  (*env)->DeleteLocalRef(env, name);
  leave_java(thread);
  return status;
}

static jlongArray longs_of(JNIEnv *env, const fsdp2_tensor *handles, size_t n) {
  jlongArray longs = (*env)->NewLongArray(env, (jsize)n);
  if (longs != NULL && n > 0) (*env)->SetLongArrayRegion(env, longs, 0, (jsize)n, (const jlong *)handles);
  return longs;
}

// What a forward is called with and then what it has made, as ForwardFrame reads and writes it. The thread keeps it, because Java
// sees memory of C only through a buffer, and a buffer costs as much as the call; a call inside the forward may overwrite it.
enum { JAVA_FRAME_HANDLES = 2 * FSDP2_MAX_OUTPUTS };

typedef struct java_frame {
  jlong numbers[4];  // whether it is training, and how many parameters, buffers and inputs there are; then: how many outputs
  jlong handles[JAVA_FRAME_HANDLES];
} java_frame;

static __thread java_frame frame_of_thread;

static int copy_handles(jlong *to, const fsdp2_tensor *handles, size_t n) {
  if (n > 0) memcpy(to, handles, n * sizeof *handles);
  return (int)n;
}

static java_method forward_method = {"forward", "(Lio/fsdp2/internal/ForwardFunction;JI)[B", NULL};
static fsdp2_status java_forward(const fsdp2_forward_info *info, const fsdp2_tensor *inputs, size_t n_inputs,
                                 fsdp2_tensor *outputs, size_t cap, size_t *n_outputs, void *function) {
  const size_t given = info->n_parameters + info->n_buffers + n_inputs;
  java_thread thread = enter_java();
  if (thread.env == NULL) return not_java();
  java_frame *frame = &frame_of_thread;
  size_t room = JAVA_FRAME_HANDLES;
  fsdp2_status status = FSDP2_OK;
  if (given > room || cap > room) {
    room = given > cap ? given : cap;
    frame = malloc(sizeof frame->numbers + room * sizeof(jlong));
    if (frame == NULL) status = fsdp2_callback_fail(FSDP2_E_OUT_OF_MEMORY, "no memory for the handles of a forward");
  }
  if (status == FSDP2_OK) {
    frame->numbers[0] = info->is_training;
    frame->numbers[1] = (jlong)info->n_parameters;
    frame->numbers[2] = (jlong)info->n_buffers;
    frame->numbers[3] = (jlong)n_inputs;
    jlong *to = frame->handles;
    to += copy_handles(to, info->parameters, info->n_parameters);
    to += copy_handles(to, info->buffers, info->n_buffers);
    copy_handles(to, inputs, n_inputs);
    status = call_java(thread.env, &forward_method, (jobject)function, (jlong)(intptr_t)frame,
                       (jint)(sizeof frame->numbers + room * sizeof(jlong)));
  }
  if (status == FSDP2_OK) {
    const jlong count = frame->numbers[0];
    if ((size_t)count > cap) {
      status = fsdp2_callback_fail(FSDP2_E_INVALID_ARGUMENT, "too many outputs");
    } else {
      memcpy(outputs, frame->handles, (size_t)count * sizeof *outputs);
      *n_outputs = (size_t)count;
    }
  }
  if (frame != &frame_of_thread) free(frame);
  leave_java(thread);
  return status;
}

static jintArray needs_of(JNIEnv *env, const fsdp2_function_info *info) {
  jintArray needs = (*env)->NewIntArray(env, (jsize)info->n_inputs);
  if (needs != NULL) (*env)->SetIntArrayRegion(env, needs, 0, (jsize)info->n_inputs, (const jint *)info->needs_grad);
  return needs;
}

static java_method function_forward_method = {
    "functionForward", "(Lio/fsdp2/internal/DifferentiableFunction;[I[J[J)[B", NULL};

static fsdp2_status java_function_forward(const fsdp2_function_info *info, const fsdp2_tensor *inputs, size_t n_inputs,
                                          fsdp2_tensor *outputs, fsdp2_tensor *saved, size_t cap, size_t *n_outputs,
                                          size_t *n_saved, void *function) {
  java_thread thread = enter_java();
  if (thread.env == NULL) return not_java();
  JNIEnv *env = thread.env;
  jintArray needs = needs_of(env, info);
  jlongArray given = longs_of(env, inputs, n_inputs);
  jlongArray made = (*env)->NewLongArray(env, (jsize)(2 + 2 * cap));
  fsdp2_status status = call_java(env, &function_forward_method, (jobject)function, needs, given, made);
  if (status == FSDP2_OK) {
    jlong counts[2] = {0, 0};
    (*env)->GetLongArrayRegion(env, made, 0, 2, counts);
    if ((size_t)counts[0] > cap || (size_t)counts[1] > cap) {
      status = fsdp2_callback_fail(FSDP2_E_INVALID_ARGUMENT, "too many outputs or saved tensors");
    } else {
      (*env)->GetLongArrayRegion(env, made, 2, (jsize)counts[0], (jlong *)outputs);
      (*env)->GetLongArrayRegion(env, made, 2 + (jsize)counts[0], (jsize)counts[1], (jlong *)saved);
      *n_outputs = (size_t)counts[0];
      *n_saved = (size_t)counts[1];
    }
  }
  (*env)->DeleteLocalRef(env, made);
  (*env)->DeleteLocalRef(env, given);
  (*env)->DeleteLocalRef(env, needs);
  leave_java(thread);
  return status;
}

static java_method function_backward_method = {
    "functionBackward", "(Lio/fsdp2/internal/DifferentiableFunction;[I[J[J[J)[B", NULL};

static fsdp2_status java_function_backward(const fsdp2_function_info *info, const fsdp2_tensor *saved, size_t n_saved,
                                           const fsdp2_tensor *output_gradients, size_t n_outputs, fsdp2_tensor *gradients,
                                           void *function) {
  java_thread thread = enter_java();
  if (thread.env == NULL) return not_java();
  JNIEnv *env = thread.env;
  jintArray needs = needs_of(env, info);
  jlongArray kept = longs_of(env, saved, n_saved);
  jlongArray given = longs_of(env, output_gradients, n_outputs);
  jlongArray made = (*env)->NewLongArray(env, (jsize)info->n_inputs);
  fsdp2_status status = call_java(env, &function_backward_method, (jobject)function, needs, kept, given, made);
  if (status == FSDP2_OK) (*env)->GetLongArrayRegion(env, made, 0, (jsize)info->n_inputs, (jlong *)gradients);
  (*env)->DeleteLocalRef(env, made);
  (*env)->DeleteLocalRef(env, given);
  (*env)->DeleteLocalRef(env, kept);
  (*env)->DeleteLocalRef(env, needs);
  leave_java(thread);
  return status;
}

static java_method released_method = {"released", "(Lio/fsdp2/internal/ForwardFunction;)V", NULL};
static void release_forward(void *function) {
  java_thread thread = enter_java();
  if (thread.env != NULL) {
    jmethodID method = find_method(thread.env, &released_method);
    if (method != NULL) (*thread.env)->CallStaticVoidMethod(thread.env, callbacks_class, method, (jobject)function);
    if ((*thread.env)->ExceptionCheck(thread.env)) (*thread.env)->ExceptionClear(thread.env);
  }
  leave_java(thread);
  release_callback(function);
}

static java_method log_method = {"log", "(Lio/fsdp2/internal/LogSink;IIJ[B[B)V", NULL};
static void java_log(const fsdp2_log_record *record, void *sink) {
  java_thread thread = enter_java();
  if (thread.env == NULL) return;
  JNIEnv *env = thread.env;
  jthrowable pending = (*env)->ExceptionOccurred(env);  // a record may come while one is under way
  if (pending != NULL) (*env)->ExceptionClear(env);
  jbyteArray category = bytes_of(env, record->category);
  jbyteArray message = bytes_of(env, record->message);
  jmethodID method = find_method(env, &log_method);
  if (method != NULL) {
    (*env)->CallStaticVoidMethod(env, callbacks_class, method, (jobject)sink, (jint)record->level, (jint)record->rank,
                                 (jlong)record->time_ns, category, message);
  }
  if ((*env)->ExceptionCheck(env)) (*env)->ExceptionClear(env);
  (*env)->DeleteLocalRef(env, message);
  (*env)->DeleteLocalRef(env, category);
  if (pending != NULL) (*env)->Throw(env, pending);
  leave_java(thread);
}

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *reserved) {
  (void)reserved;
  JNIEnv *env = NULL;
  java_vm = vm;
  if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_1_8) != JNI_OK) return JNI_ERR;
  jclass found = (*env)->FindClass(env, "io/fsdp2/internal/Callbacks");
  callbacks_class = found == NULL ? NULL : (jclass)(*env)->NewGlobalRef(env, found);
  return callbacks_class == NULL ? JNI_ERR : JNI_VERSION_1_8;
}
%}

// TAKE: assigns a call's parameters; a call that fails does not take them. null takes a callback away.
%define FSDP2_CALLBACK(JAVA, USER_DATA, TAKE, PARAMETERS...)
%typemap(jni) PARAMETERS "jobject"
%typemap(jtype) PARAMETERS "JAVA"
%typemap(jstype) PARAMETERS "JAVA"
%typemap(javain) PARAMETERS "$javainput"
%typemap(in, numinputs=1) PARAMETERS %{
  jobject target$argnum = $input ? (*jenv)->NewGlobalRef(jenv, $input) : NULL;
  if ($input && !target$argnum) return $null;
  TAKE %}
%typemap(freearg) PARAMETERS %{ if (USER_DATA && result != FSDP2_OK) release_callback(USER_DATA); %}
%enddef

%define FSDP2_ONE_CALLBACK(TYPE, JAVA, FUNCTION)
FSDP2_CALLBACK(JAVA, $2,
  $1 = $input ? FUNCTION : NULL; $2 = target$argnum; $3 = $input ? release_callback : NULL;,
  (TYPE fn, void *user_data, fsdp2_release_fn release))
%enddef
FSDP2_ONE_CALLBACK(fsdp2_all_reduce_hook_fn, AllReduceHook, java_all_reduce)
FSDP2_ONE_CALLBACK(fsdp2_gradient_ready_fn, GradientReady, java_gradient_ready)
FSDP2_CALLBACK(ForwardFunction, $2,
  $1 = $input ? java_forward : NULL; $2 = target$argnum; $3 = $input ? release_forward : NULL;,
  (fsdp2_forward_fn fn, void *user_data, fsdp2_release_fn release))
FSDP2_ONE_CALLBACK(fsdp2_log_fn, LogSink, java_log)
FSDP2_CALLBACK(AllGatherExtension, $3,
  $1 = $input ? java_pre_all_gather : NULL; $2 = $input ? java_post_all_gather : NULL;
  $3 = target$argnum; $4 = $input ? release_callback : NULL;,
  (fsdp2_pre_all_gather_fn pre, fsdp2_post_all_gather_fn post, void *user_data, fsdp2_release_fn release))

FSDP2_CALLBACK(DifferentiableFunction, $3,
  $1 = $input ? java_function_forward : NULL; $2 = $input ? java_function_backward : NULL;
  $3 = target$argnum; $4 = $input ? release_callback : NULL;,
  (fsdp2_function_forward_fn forward, fsdp2_function_backward_fn backward, void *user_data, fsdp2_release_fn release))

// The options keep the reference, and give it up with close().
%typemap(jni) void *shard_dim "jobject"
%typemap(jtype) void *shard_dim "ShardDim"
%typemap(jstype) void *shard_dim "ShardDim"
%typemap(javain) void *shard_dim "$javainput"
%typemap(in) void *shard_dim %{
  $1 = $input ? (*jenv)->NewGlobalRef(jenv, $input) : NULL;
  if ($input && !$1) return $null; %}
%typemap(freearg) void *shard_dim ""
