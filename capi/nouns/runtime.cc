#include "include/fsdp2/runtime.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <thread>

#include "capi/argument.h"
#include "capi/fork.h"
#include "capi/guard.h"
#include "capi/handle.h"
#include "core/base/error.h"
#include "core/base/spare_threads.h"
#include "core/memory/kept_memory.h"
#include "core/nn/kernels/linear_product.h"
#include "core/nn/kernels/matmul_precision.h"
#include "core/nn/kernels/widened_product.h"

// LibTorch's own answer to which version it is; null in versions older than the question.
extern "C" __attribute__((weak)) uint64_t aoti_torch_abi_version();

namespace fsdp2::capi {

namespace {

// "2.11.0", of a number as TORCH_ABI_VERSION.
std::string libtorch_version(uint64_t number) {
  return fmt::format("{}.{}.{}", number >> 56, number >> 48 & 0xff, number >> 40 & 0xff);
}

std::string libtorch_found() {
  return aoti_torch_abi_version == nullptr ? "an older one"
                                           : libtorch_version(aoti_torch_abi_version());
}

std::string version_text(uint32_t version) {
  return fmt::format("{}.{}", version >> 16, version & 0xffff);
}

void check_version(uint32_t header) {
  constexpr uint32_t kOwn = FSDP2_HEADER_VERSION;
  static_assert(kOwn >> 16 == 0, "from 1.0 on, a header's minor may be below the library's");
  FSDP2_CHECK(header == kOwn, Code::kAbiMismatch,
              "this libfsdp2 has version {}: expected a header of the same version (until 1.0, a "
              "minor may change anything), found {}",
              version_text(kOwn), version_text(header));
  const std::string built = libtorch_version(TORCH_ABI_VERSION);
  const std::string found = libtorch_found();
  FSDP2_CHECK(built == found, Code::kAbiMismatch,
              "libfsdp2 was built for LibTorch {}, but this process has loaded {}", built, found);
}

std::string describe_kept_memory() {
  const memory::KeptMemory found = memory::kept_memory();
  return found.is_on ? fmt::format("{} bytes, beside {} in use", found.kept, found.in_use) : "off";
}

std::string describe_runtime() {
  return fmt::format(
      "version: {}\n"
      "libtorch: {}\n"
      "cpu: {}\n"
      "threads: {}\n"
      "product_engine: {}; bf16 products: {}\n"
      "matmul_precision: {}\n"
      "kept_memory: {}\n",
      version_text(FSDP2_HEADER_VERSION), libtorch_found(), at::get_cpu_capability(),
      at::get_num_threads(), nn::describe_product_engine(), nn::describe_bf16_products(),
      nn::describe_matmul_precision(), describe_kept_memory());
}

void keep_memory(int32_t flag) {
  const bool is_on = read_flag(flag, "flag");
  note_use();
  memory::keep_memory(is_on);
}

nn::ProductEngine read_engine(int32_t engine) {
  return read_enum<nn::ProductEngine>(
      engine,
      {{FSDP2_PRODUCT_ENGINE_AUTO, nn::ProductEngine::kAuto},
       {FSDP2_PRODUCT_ENGINE_MKL, nn::ProductEngine::kMkl},
       {FSDP2_PRODUCT_ENGINE_ONEDNN, nn::ProductEngine::kOneDnn}},
      "engine: expected FSDP2_PRODUCT_ENGINE_AUTO (0), _MKL (1) or _ONEDNN (2)");
}

nn::MatmulPrecision read_precision(int32_t precision) {
  return read_enum<nn::MatmulPrecision>(
      precision,
      {{FSDP2_MATMUL_HIGHEST, nn::MatmulPrecision::kHighest},
       {FSDP2_MATMUL_HIGH, nn::MatmulPrecision::kHigh},
       {FSDP2_MATMUL_MEDIUM, nn::MatmulPrecision::kMedium},
       {FSDP2_MATMUL_HIGH_ALWAYS, nn::MatmulPrecision::kHighAlways},
       {FSDP2_MATMUL_MEDIUM_ALWAYS, nn::MatmulPrecision::kMediumAlways}},
      "precision: expected FSDP2_MATMUL_HIGHEST (0), _HIGH (1), _MEDIUM (2), _HIGH_ALWAYS (3) or "
      "_MEDIUM_ALWAYS (4)");
}

// More than the machine has are of no use; 64 in any case, so that a program may count on some.
size_t most_threads() { return std::max(size_t{64}, size_t{std::thread::hardware_concurrency()}); }

// LibTorch has two pools of this size, one of which it fills now: it waits without end, or ends the
// process, where a thread cannot be had.
void set_threads(size_t n) {
  const auto threads = static_cast<int>(check_count(n, 1, most_threads(), "n"));
  check_spare_threads(2 * (threads - 1));
  note_use();
  at::set_num_threads(threads);
}

void set_deterministic(int32_t flag) {
  const bool is_on = read_flag(flag, "flag");
  note_use();
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(is_on, /*warn_only=*/false);
  context.setDeterministicCuDNN(is_on);
  // What is not written before it is read would be a mistake, which NaN there would show: at the
  // price of writing all memory twice.
  context.setDeterministicFillUninitializedMemory(!is_on);
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;

uint32_t fsdp2_version(void) { return FSDP2_HEADER_VERSION; }

fsdp2_status fsdp2_check_version(uint32_t header_version) {
  return guard(__func__, [&](Call&) { fsdp2::capi::check_version(header_version); });
}

int64_t fsdp2_live_handles(void) { return fsdp2::capi::HandleTable::global().live(); }

fsdp2_status fsdp2_runtime_describe(char* buf, size_t cap, size_t* needed) {
  return guard(__func__, [&](Call&) {
    fsdp2::capi::check_not_null(needed, "needed");
    fsdp2::capi::note_use();
    fsdp2::capi::write_text(fsdp2::capi::describe_runtime(), buf, cap, needed);
  });
}

fsdp2_status fsdp2_runtime_set_threads(size_t n) {
  return guard(__func__, [&](Call&) { fsdp2::capi::set_threads(n); });
}

fsdp2_status fsdp2_runtime_set_product_engine(int32_t engine) {
  return guard(__func__,
               [&](Call&) { fsdp2::nn::set_product_engine(fsdp2::capi::read_engine(engine)); });
}

fsdp2_status fsdp2_runtime_set_deterministic(int32_t flag) {
  return guard(__func__, [&](Call&) { fsdp2::capi::set_deterministic(flag); });
}

fsdp2_status fsdp2_runtime_keep_memory(int32_t flag) {
  return guard(__func__, [&](Call&) { fsdp2::capi::keep_memory(flag); });
}

fsdp2_status fsdp2_runtime_set_matmul_precision(int32_t precision) {
  return guard(__func__, [&](Call&) {
    fsdp2::nn::set_matmul_precision(fsdp2::capi::read_precision(precision));
  });
}
