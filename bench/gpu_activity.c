/* Writes down what a program does on GPUs: its kernels, copies and fills, and when its host waits.
 *
 * CUDA loads this library into a program that has its path in CUDA_INJECTION64_PATH. Each line of
 * the file that GPU_ACTIVITY names is one activity, tab-separated: kind ("kernel", "copy", "fill",
 * "wait"), start and end in ns since the epoch, stream, and name. gpu_trace.py builds this file,
 * and reads that one. */
#include <cupti.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kBufferBytes = 4 << 20, kAlignment = 8, kFlushEveryMs = 100 };

static FILE* activities;

static void must(CUptiResult result, const char* what) {
  if (result != CUPTI_SUCCESS) {
    const char* why = "";
    cuptiGetResultString(result, &why);
    fprintf(stderr, "gpu_activity: %s: %s\n", what, why);
    exit(1);
  }
}

static uint64_t CUPTIAPI now(void) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void write_line(const char* kind, uint64_t start, uint64_t end, uint32_t stream,
                       const char* name) {
  fprintf(activities, "%s\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu32 "\t%s\n", kind, start, end, stream,
          name);
}

static const char* copy_name(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "host to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "device to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "device to device";
    default:
      return "other";
  }
}

static const char* wait_name(CUpti_ActivitySynchronizationType type) {
  switch (type) {
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE:
      return "for an event";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE:
      return "for a stream";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE:
      return "for the device";
    default:
      return NULL; /* a stream waits, not the host */
  }
}

static void write_record(const CUpti_Activity* record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const CUpti_ActivityKernel10* kernel = (const CUpti_ActivityKernel10*)record;
      write_line("kernel", kernel->start, kernel->end, kernel->streamId, kernel->name);
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const CUpti_ActivityMemcpy6* copy = (const CUpti_ActivityMemcpy6*)record;
      write_line("copy", copy->start, copy->end, copy->streamId, copy_name(copy->copyKind));
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const CUpti_ActivityMemset4* fill = (const CUpti_ActivityMemset4*)record;
      write_line("fill", fill->start, fill->end, fill->streamId, "fill");
      break;
    }
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: {
      const CUpti_ActivitySynchronization2* wait = (const CUpti_ActivitySynchronization2*)record;
      const char* name = wait_name(wait->type);
      if (name != NULL) {
        write_line("wait", wait->start, wait->end, wait->streamId, name);
      }
      break;
    }
    default:
      break;
  }
}

static void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* max_records) {
  *size = kBufferBytes;
  *max_records = 0; /* as many as fit */
  *buffer = (uint8_t*)aligned_alloc(kAlignment, kBufferBytes);
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t* buffer, size_t size,
                                 size_t used) {
  CUpti_Activity* record = NULL;
  (void)context;
  (void)stream;
  (void)size;
  while (cuptiActivityGetNextRecord(buffer, used, &record) == CUPTI_SUCCESS) {
    write_record(record);
  }
  fflush(activities); /* a program may end without its exit handlers */
  free(buffer);
}

static void flush_all(void) { cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED); }

/* What CUDA calls when the program first uses it. */
int InitializeInjection(void) {
  const char* path = getenv("GPU_ACTIVITY");
  activities = path == NULL ? NULL : fopen(path, "w");
  if (activities == NULL) {
    fprintf(stderr, "gpu_activity: GPU_ACTIVITY names no file that can be written\n");
    return 0;
  }
  if (cuptiActivityRegisterTimestampCallback(now) != CUPTI_SUCCESS) {
    fprintf(stderr, "gpu_activity: CUPTI keeps its own clock, which should be the same\n");
  }
  must(cuptiActivityRegisterCallbacks(give_buffer, take_buffer), "callbacks");
  must(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "kernels");
  must(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY), "copies");
  must(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET), "fills");
  must(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION), "waits");
  must(cuptiActivityFlushPeriod(kFlushEveryMs), "flush period");
  atexit(flush_all);
  return 1;
}
