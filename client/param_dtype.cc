#include "client/param_dtype.h"

#include <cstdint>
#include <string>

#include "core/config/resolve.h"

namespace fsdp2::client {

namespace {

struct Choice {
  const char* name;
  const char* reason;
};

Choice choice_of(int32_t dtype) {
  switch (dtype) {
    case FSDP2_DTYPE_BF16:
      return {"bf16", "the devices of all ranks have products of bf16"};
    case FSDP2_DTYPE_F16:
      return {"fp16", "a GPU is below compute capability 8.0, where bf16 begins"};
    default:
      return {"fp32", "a CPU has no products of bf16 (AVX512_BF16 or AMX)"};
  }
}

}  // namespace

void settle_param_dtype(config::Plan* plan, fsdp2_mesh mesh) {
  if (plan->options.param_dtype != "auto") {
    return;
  }
  int32_t dtype = FSDP2_DTYPE_KEEP;
  check(fsdp2_mesh_choose_dtype(mesh, &dtype));
  const Choice choice = choice_of(dtype);
  const bool is_scaled = config::settle_param_dtype(plan, choice.name);
  plan->note("--param-dtype auto is " + std::string(choice.name) +
             (is_scaled ? ", with --loss-scale 65536" : "") + ": " + choice.reason);
}

}  // namespace fsdp2::client
