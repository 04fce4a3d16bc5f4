#include "capi/nouns/mesh/mesh_argument.h"

#include "capi/argument.h"
#include "include/fsdp2/mesh.h"

namespace fsdp2::capi {

int read_dim(const Mesh& mesh, int32_t dim) {
  return static_cast<int>(check_integer(dim, 0, mesh.ndim() - 1, "dim"));
}

ReduceOp read_reduce_op(int32_t op) {
  return read_enum<ReduceOp>(op,
                             {{FSDP2_REDUCE_SUM, ReduceOp::kSum},
                              {FSDP2_REDUCE_AVERAGE, ReduceOp::kAverage},
                              {FSDP2_REDUCE_MAX, ReduceOp::kMax}},
                             "op: expected FSDP2_REDUCE_SUM (0), _AVERAGE (1) or _MAX (2)");
}

}  // namespace fsdp2::capi
