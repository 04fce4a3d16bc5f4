// What the thread sanitizer (--config=tsan) is not to report: LibTorch is not compiled for it, so
// it sees half of what LibTorch's reference counts, locks and transports order.

extern "C" const char* __tsan_default_suppressions();  // NOLINT: the sanitizer's name

extern "C" const char* __tsan_default_suppressions() {  // NOLINT
  return "race:libtorch_cpu.so\n"
         "race:libc10.so\n"
         "race:c10::intrusive_ptr\n"
         "race:c10d::\n"
         "race:gloo::\n";
}
