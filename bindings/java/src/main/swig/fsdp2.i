// libfsdp2's C ABI, one to one, as static methods of io.fsdp2.internal.Raw. The C headers document every function.
//
//   handles                     long
//   outputs and arrays          long[] (handles, int64_t, size_t), double[]; counts stay parameters of their own
//   memory (void *)             a direct java.nio.Buffer; so are arrays of fsdp2_value, in C's layout
//   text                        String in; out byte[], its length and the length needed, as in C
//   fsdp2_status                void: a failing call throws io.fsdp2.FsdpException, made of the record within the native call
//   options, infos, results     a class that C's struct lives in, with its size and defaults set; close() frees it
//   callbacks                   an object of AllReduceHook, GradientReady, AllGatherExtension, ForwardFunction, ShardDim or
//                               LogSink, kept for as long as the library may call it; what it throws is the cause of the call's
//                               FsdpException
%module Raw

%begin %{
#define _GNU_SOURCE  // for dladdr
%}

%{
#include <dlfcn.h>
#include <fsdp2/fsdp2.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(size_t) == sizeof(jlong) && sizeof(fsdp2_mesh) == sizeof(jlong), "size_t and handles are jlong in place");

enum { FEW_ELEMENTS = 16 };

static jbyteArray bytes_of(JNIEnv *env, const char *text) {
  const jsize n = (jsize)strlen(text);
  jbyteArray bytes = (*env)->NewByteArray(env, n);
  if (bytes != NULL) (*env)->SetByteArrayRegion(env, bytes, 0, n, (const jbyte *)text);
  return bytes;
}

// A Java exception that is pending already (no memory, no class) goes first.
static void throw_last_error(JNIEnv *env, fsdp2_status status) {
  fsdp2_error_info info = FSDP2_ERROR_INFO_INIT;
  fsdp2_error_last(&info);
  jbyteArray name = bytes_of(env, fsdp2_status_name(status));
  jbyteArray message = name == NULL ? NULL : bytes_of(env, info.message);
  jbyteArray function = message == NULL ? NULL : bytes_of(env, info.function);
  jbyteArray detail = function == NULL ? NULL : bytes_of(env, info.detail);
  jclass type = detail == NULL ? NULL : (*env)->FindClass(env, "io/fsdp2/FsdpException");
  jmethodID make = type == NULL ? NULL : (*env)->GetMethodID(env, type, "<init>", "(III[B[B[B[B)V");
  if (make == NULL) return;
  jobject exception = (*env)->NewObject(env, type, make, (jint)status, (jint)info.rank, (jint)info.native_code,
                                        name, message, function, detail);
  if (exception != NULL) (*env)->Throw(env, (jthrowable)exception);
}
%}

%pragma(java) moduleclassmodifiers="public final class"
%pragma(java) jniclasscode=%{
  static {
    NativeLibrary.load();
    fsdp2_check_version(Raw.FSDP2_HEADER_VERSION);
  }
%}

// --- Status: an exception ---

%typemap(jni) fsdp2_status "void"
%typemap(jtype) fsdp2_status "void"
%typemap(jstype) fsdp2_status "void"
%typemap(javaout) fsdp2_status { $jnicall; }
%typemap(out, null="") fsdp2_status ""
%typemap(ret) fsdp2_status %{ if ($1 != FSDP2_OK) throw_last_error(jenv, $1); %}  // what JNI allows while one is pending is little
%typemap(jni) fsdp2_status status "jint"
%typemap(jtype) fsdp2_status status "int"
%typemap(jstype) fsdp2_status status "int"
%typemap(javain) fsdp2_status status "$javainput"
%typemap(in) fsdp2_status status %{ $1 = $input; %}

// --- Numbers: SWIG would make BigInteger of uint64_t, and guess at the fixed-width types ---

%define FSDP2_NUMBER(TYPE, JNI, JAVA)
%typemap(jni) TYPE "JNI"
%typemap(jtype) TYPE "JAVA"
%typemap(jstype) TYPE "JAVA"
%typemap(javain) TYPE "$javainput"
%typemap(javaout) TYPE { return $jnicall; }
%typemap(in) TYPE %{ $1 = ($1_type)$input; %}
%typemap(out) TYPE %{ $result = (JNI)$1; %}
%enddef
FSDP2_NUMBER(int32_t, jint, int)
FSDP2_NUMBER(uint32_t, jint, int)
FSDP2_NUMBER(unsigned int, jint, int)
FSDP2_NUMBER(int64_t, jlong, long)
FSDP2_NUMBER(uint64_t, jlong, long)
FSDP2_NUMBER(size_t, jlong, long)
FSDP2_NUMBER(uintptr_t, jlong, long)
FSDP2_NUMBER(struct DLManagedTensorVersioned *, jlong, long)

// --- Arrays, in and out alike; null is NULL ---

// Few elements are copied to the stack, since what JNI allocates for them takes longer than many a call.
%define FSDP2_ARRAY(TYPE, JNI, JAVA, ELEMENT)
%typemap(jni) TYPE "JNI"
%typemap(jtype) TYPE "JAVA[]"
%typemap(jstype) TYPE "JAVA[]"
%typemap(javain, nopgcpp="1") TYPE "$javainput"
%typemap(in) TYPE (jsize n = 0, j##JAVA few[FEW_ELEMENTS]) %{
  n = $input ? (*jenv)->GetArrayLength(jenv, $input) : 0;
  if ($input && n <= FEW_ELEMENTS) {
    (*jenv)->Get##ELEMENT##ArrayRegion(jenv, $input, 0, n, few);
    $1 = ($1_ltype)few;
  } else {
    $1 = $input ? ($1_ltype)(*jenv)->Get##ELEMENT##ArrayElements(jenv, $input, NULL) : NULL;
    if ($input && !$1) return $null;
  } %}
%typemap(freearg) TYPE %{
  if ($input && (void *)$1 == few$argnum) (*jenv)->Set##ELEMENT##ArrayRegion(jenv, $input, 0, n$argnum, few$argnum);
  else if ($input) (*jenv)->Release##ELEMENT##ArrayElements(jenv, $input, (void *)$1, 0); %}
%enddef
FSDP2_ARRAY(int64_t *, jlongArray, long, Long)
FSDP2_ARRAY(const int64_t *, jlongArray, long, Long)
FSDP2_ARRAY(size_t *, jlongArray, long, Long)
FSDP2_ARRAY(uint64_t *, jlongArray, long, Long)
FSDP2_ARRAY(int32_t *, jintArray, int, Int)
FSDP2_ARRAY(const int32_t *, jintArray, int, Int)
FSDP2_ARRAY(double *, jdoubleArray, double, Double)
FSDP2_ARRAY(const double *, jdoubleArray, double, Double)
FSDP2_ARRAY(char *buf, jbyteArray, byte, Byte)
FSDP2_ARRAY(struct DLManagedTensorVersioned **, jlongArray, long, Long)

// Arrays inside a struct are copies.
%typemap(jni) int64_t [ANY] "jlongArray"
%typemap(jtype) int64_t [ANY] "long[]"
%typemap(jstype) int64_t [ANY] "long[]"
%typemap(javaout) int64_t [ANY] { return $jnicall; }
%typemap(out) int64_t [ANY] %{
  $result = (*jenv)->NewLongArray(jenv, $1_dim0);
  if ($result) (*jenv)->SetLongArrayRegion(jenv, $result, 0, $1_dim0, (const jlong *)$1); %}

// --- Text: real UTF-8, where JNI's own would be Java's dialect of it ---

%typemap(jni) const char * "jbyteArray"
%typemap(jtype) const char * "byte[]"
%typemap(jstype) const char * "String"
%typemap(javain) const char * "Text.toC($javainput)"
%typemap(in) const char * %{
  $1 = $input ? (char *)(*jenv)->GetByteArrayElements(jenv, $input, NULL) : NULL;
  if ($input && !$1) return $null; %}
%typemap(freearg) const char * %{ if ($input) (*jenv)->ReleaseByteArrayElements(jenv, $input, (jbyte *)$1, JNI_ABORT); %}
%typemap(out) const char * %{ $result = bytes_of(jenv, $1); %}
%typemap(javaout) const char * { return Text.fromC($jnicall); }

// Several texts: one block of them, each with its NUL, behind their addresses.
%typemap(jni) const char *const * "jbyteArray"
%typemap(jtype) const char *const * "byte[]"
%typemap(jstype) const char *const * "String[]"
%typemap(javain) const char *const * "Text.toC($javainput)"
%typemap(in) const char *const * %{
  $1 = NULL;
  if ($input) {
    const jsize n = (*jenv)->GetArrayLength(jenv, $input);  /* each text has a byte at least */
    $1 = malloc((size_t)n * (sizeof(char *) + 1) + 1);
    char *text = $1 ? (char *)($1 + n) : NULL;
    if ($1) (*jenv)->GetByteArrayRegion(jenv, $input, 0, n, (jbyte *)text);
    for (jsize i = 0, start = 0, count = 0; $1 && i < n; ++i) {
      if (text[i] == 0) ((const char **)$1)[count++] = text + start, start = i + 1;
    }
  } %}
%typemap(freearg) const char *const * %{ free((void *)$1); %}

// --- Memory ---

%define FSDP2_MEMORY(TYPE)
%typemap(jni) TYPE "jobject"
%typemap(jtype) TYPE "java.nio.Buffer"
%typemap(jstype) TYPE "java.nio.Buffer"
%typemap(javain) TYPE "$javainput"
%typemap(in) TYPE %{ $1 = $input ? (*jenv)->GetDirectBufferAddress(jenv, $input) : NULL; %}
%enddef
FSDP2_MEMORY(void *)
FSDP2_MEMORY(const void *)

// --- Handles and structs; headers.i lists them ---

// A struct of which there are arrays.
%define FSDP2_ELEMENT(TYPE)
%ignore TYPE;
FSDP2_MEMORY(TYPE *)
FSDP2_MEMORY(const TYPE *)
%enddef

%define FSDP2_HANDLE(TYPE)
%ignore TYPE;
%typemap(jni) TYPE "jlong"
%typemap(jtype) TYPE "long"
%typemap(jstype) TYPE "long"
%typemap(javain, nopgcpp="1") TYPE "$javainput"
%typemap(in) TYPE %{ $1.id = (uint64_t)$input; %}
FSDP2_ARRAY(TYPE *, jlongArray, long, Long)
FSDP2_ARRAY(const TYPE *, jlongArray, long, Long)
%enddef

// What the addresses in an options struct point to is a copy of its own.
%define FSDP2_STRUCT(TYPE, FREE_FIELDS, INIT...)
%extend TYPE {
  TYPE() {
    static const TYPE init = INIT;
    TYPE *self = malloc(sizeof *self);
    if (self != NULL) *self = init;
    return self;
  }
  ~TYPE() {
    FREE_FIELDS
    free($self);
  }
}
%enddef

%typemap(javabody) SWIGTYPE %{
  private transient long swigCPtr;
  private transient boolean swigCMemOwn;

  $javaclassname(long cPtr, boolean cMemoryOwn) {
    swigCMemOwn = cMemoryOwn;
    swigCPtr = cPtr;
  }

  static long getCPtr($javaclassname obj) {
    return obj == null ? 0 : obj.swigCPtr;
  }
%}
%typemap(javainterfaces) SWIGTYPE "AutoCloseable"
%typemap(javafinalize) SWIGTYPE ""
%typemap(javadestruct, methodname="close", methodmodifiers="public synchronized", parameters="") SWIGTYPE {
    if (swigCPtr != 0) {
      if (swigCMemOwn) {
        swigCMemOwn = false;
        $jnicall;
      }
      swigCPtr = 0;
    }
  }

// Read within every failing call; by itself it would be read too late.
%ignore fsdp2_error_info;
%ignore fsdp2_error_last;
%ignore fsdp2_error_take;
%ignore fsdp2_error_message;
%ignore fsdp2_log_record;  // LogSink gets its fields
%ignore fsdp2_all_reduce_info;  // AllReduceInfo has its fields, and so on
%ignore fsdp2_gradient_info;
%ignore fsdp2_gather_info;
%ignore fsdp2_shard_dim_info;
%ignore fsdp2_forward_info;
%ignore fsdp2_function_info;
// Called for a callback that has thrown; by itself there is no callback of Java's that a status could be returned from.
%ignore fsdp2_callback_fail;

%include "callbacks.i"
%include "memory.i"

%typemap(freearg) const char *const *kept_names ""
%extend fsdp2_mesh_options {
  void setRendezvous(const char *rendezvous) {
    free((void *)$self->rendezvous);
    $self->rendezvous = rendezvous == NULL ? NULL : strdup(rendezvous);
  }
  void setDims(int32_t n_dims, const int64_t *shape, const char *const *kept_names) {
    const size_t size = (size_t)n_dims * sizeof *shape;
    free((void *)$self->shape);
    free((void *)$self->names);
    $self->n_dims = n_dims;
    $self->shape = shape == NULL ? NULL : memcpy(malloc(size), shape, size);
    $self->names = kept_names;
  }
  void setRanks(size_t n_ranks, const int32_t *ranks) {
    const size_t size = n_ranks * sizeof *ranks;
    free((void *)$self->ranks);
    $self->n_ranks = n_ranks;
    $self->ranks = ranks == NULL ? NULL : memcpy(malloc(size), ranks, size);
  }
  void setDeviceType(const char *device_type) {
    free((void *)$self->device_type);
    $self->device_type = device_type == NULL ? NULL : strdup(device_type);
  }
}

// The names stay with the struct, which frees them.
%extend fsdp2_shard_options {
  void setWrapKinds(size_t n, const char *const *kept_names) {
    free((void *)$self->wrap_kinds);
    $self->n_wrap_kinds = n;
    $self->wrap_kinds = kept_names;
  }
  void setWrapNames(size_t n, const char *const *kept_names) {
    free((void *)$self->wrap_names);
    $self->n_wrap_names = n;
    $self->wrap_names = kept_names;
  }
  void setShardDim(void *shard_dim) {
    release_callback($self->shard_dim_user_data);
    $self->shard_dim = shard_dim == NULL ? NULL : java_shard_dim;
    $self->shard_dim_user_data = shard_dim;
  }
  void setIgnoredNames(size_t n, const char *const *kept_names) {
    free((void *)$self->ignored_names);
    $self->n_ignored_names = n;
    $self->ignored_names = kept_names;
  }
}

%extend fsdp2_generate_options {
  void setStopTokens(size_t n, const int64_t *stop_tokens) {
    const size_t size = n * sizeof *stop_tokens;
    free((void *)$self->stop_tokens);
    $self->n_stop_tokens = n;
    $self->stop_tokens = n == 0 ? NULL : memcpy(malloc(size), stop_tokens, size);
  }
  void setVisionInputs(size_t n, const int64_t *handles) {
    const size_t size = n * sizeof *handles;
    free((void *)$self->vision_inputs);
    $self->n_vision_inputs = n;
    $self->vision_inputs = n == 0 ? NULL : memcpy(malloc(size), handles, size);
  }
}

%extend fsdp2_convert_options {
  void setConfigPath(const char *config_path) {
    free((void *)$self->config_path);
    $self->config_path = config_path == NULL ? NULL : strdup(config_path);
  }
}

%extend fsdp2_loader_options {
  void setTokenizer(const char *tokenizer) {
    free((void *)$self->tokenizer);
    $self->tokenizer = tokenizer == NULL ? NULL : strdup(tokenizer);
  }
  void setVisionModel(const char *vision_model) {
    free((void *)$self->vision_model);
    $self->vision_model = vision_model == NULL ? NULL : strdup(vision_model);
  }
}

%extend fsdp2_module_options {
  void setConfigOverrides(const char *config_overrides) {
    free((void *)$self->config_overrides);
    $self->config_overrides = config_overrides == NULL ? NULL : strdup(config_overrides);
  }
}

// The file of the libfsdp2 that these methods call.
%inline %{
static const char *library_file(void) {
  Dl_info info = {0};
  return dladdr((void *)fsdp2_check_version, &info) != 0 ? info.dli_fname : "";
}
%}

%include "headers.i"
