// The dtype that all ranks of a mesh are fast in.
#pragma once

#include <c10/core/ScalarType.h>

#include "core/comm/mesh.h"

namespace fsdp2 {

// Collective over the mesh. bf16 where every rank's device has products of bf16: a GPU from compute
// capability 8.0 on, a CPU with AVX512_BF16 or AMX. Otherwise fp16 if all are GPUs, otherwise fp32.
at::ScalarType choose_compute_dtype(const Mesh& mesh);

}  // namespace fsdp2
