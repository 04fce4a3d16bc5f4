#include "include/fsdp2/mesh.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "capi/argument.h"
#include "capi/nouns/mesh_create.h"
#include "capi/nouns/mesh_rank.h"
#include "capi/object.h"
#include "capi/sized_struct.h"
#include "core/comm/agreement.h"

namespace fsdp2::capi {

namespace {

constexpr size_t kMaxReduced = size_t{1} << 24;

int32_t backend_number(BackendKind backend) {
  switch (backend) {
    case BackendKind::kAuto:
      return FSDP2_BACKEND_AUTO;
    case BackendKind::kGloo:
      return FSDP2_BACKEND_GLOO;
    case BackendKind::kNccl:
      return FSDP2_BACKEND_NCCL;
    case BackendKind::kThread:
      return FSDP2_BACKEND_THREAD;
    case BackendKind::kFake:
      return FSDP2_BACKEND_FAKE;
  }
  fail(Code::kInternal, "backend {}", static_cast<int>(backend));
}

fsdp2_mesh_info mesh_info(const Mesh& mesh) {
  fsdp2_mesh_info info{};
  info.backend = backend_number(mesh.world().backend());
  info.rank = mesh.world().rank();
  info.world_size = mesh.world().size();
  info.local_rank = mesh.world().local_rank();
  info.n_dims = mesh.ndim();
  for (int dim = 0; dim < mesh.ndim(); ++dim) {
    info.shape[dim] = mesh.size(dim);
    info.coordinate[dim] = mesh.coordinate(dim);
  }
  return info;
}

bool is_whole(const Mesh& mesh) { return mesh_size(mesh) == mesh.world().size(); }

// The groups whose collectives, one after the other, reach all ranks of the mesh.
std::vector<Comm*> groups_of(const Mesh& mesh) {
  if (is_whole(mesh)) {
    return {&mesh.world().control()};
  }
  std::vector<Comm*> groups;
  for (int dim = 0; dim < mesh.ndim(); ++dim) {
    groups.push_back(&mesh.comm(dim, Lane::kGather));
  }
  return groups;
}

void reduce_over(const std::vector<Comm*>& groups, const at::Tensor& values, ReduceOp op) {
  for (Comm* group : groups) {
    group->all_reduce(values, op).wait();
  }
}

// Ranks that disagree on the size would corrupt each other's memory, so it is exchanged first.
void check_equal_everywhere(const std::vector<Comm*>& groups, int64_t value, const char* name) {
  const at::Tensor bounds = at::empty({2}, at::kDouble);
  double* data = bounds.mutable_data_ptr<double>();
  data[0] = static_cast<double>(value);
  data[1] = -data[0];
  reduce_over(groups, bounds, ReduceOp::kMax);
  FSDP2_CHECK(data[0] == -data[1], Code::kInvalidArgument, "{}: the ranks pass {} to {}", name,
              static_cast<int64_t>(-data[1]), static_cast<int64_t>(data[0]));
}

void check_reduction(const double* values, size_t n) {
  FSDP2_CHECK(n <= kMaxReduced, Code::kInvalidArgument, "n: expected at most {}, found {}",
              kMaxReduced, n);
  check_array(values, n, "values");
}

void all_reduce(Call& call, const Mesh& mesh, double* values, size_t n, int32_t op_number) {
  const std::vector<Comm*> groups = groups_of(mesh);
  const auto count = static_cast<int64_t>(n);
  if (is_whole(mesh)) {
    agree(mesh.world(), "all_reduce", [&] {
      check_reduction(values, n);
      read_reduce_op(op_number);
      return fmt::format("n={}\nop={}", n, op_number);
    });
    call.share_failure();
  } else {
    call.share_failure();
    check_reduction(values, n);
    read_reduce_op(op_number);
    check_equal_everywhere(groups, count, "n");
    check_equal_everywhere(groups, op_number, "op");
  }
  const at::Tensor buffer = at::empty({count}, at::kDouble);
  std::copy(values, values + n, buffer.mutable_data_ptr<double>());
  reduce_over(groups, buffer, read_reduce_op(op_number));
  std::copy_n(buffer.const_data_ptr<double>(), n, values);
}

void agree_on_text(const Mesh& mesh, const char* what, const char* text) {
  FSDP2_CHECK(is_whole(mesh), Code::kUnsupported, "expected a mesh of all {} ranks, found {}",
              mesh.world().size(), mesh.to_string());
  // Ranks may differ in `what` too, and must not then wait for each other.
  agree(mesh.world(), "fsdp2_mesh_agree", [&] {
    return fmt::format("what={}\n{}", read_text(what, kMaxName, "what"),
                       read_text(text, kMaxText, "text"));
  });
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_mesh_options_init(fsdp2_mesh_options* options, size_t struct_size) {
  return guard(__func__, [&](Call&) {
    capi::init_struct(options, struct_size, capi::kMeshDefaults, "options");
  });
}

fsdp2_status fsdp2_mesh_create(const fsdp2_mesh_options* options, fsdp2_mesh* out) {
  return guard(__func__, [&](Call&) {
    capi::check_not_null(out, "out");
    out->id = capi::give(capi::Kind::kMesh, capi::create_mesh(options));
  });
}

fsdp2_status fsdp2_mesh_create_in(fsdp2_mesh mesh, const fsdp2_mesh_options* options,
                                  fsdp2_mesh* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    capi::enter(call, *object);
    out->id = capi::give(capi::Kind::kMesh, capi::create_mesh_in(call, *object, options, out));
  });
}

fsdp2_status fsdp2_mesh_destroy(fsdp2_mesh mesh) {
  return capi::destroy(__func__, capi::Kind::kMesh, mesh.id);
}

fsdp2_status fsdp2_mesh_get_info(fsdp2_mesh mesh, fsdp2_mesh_info* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    call.about(object->mesh);
    capi::check_out_struct(out, "out");
    capi::fill_struct(out, capi::mesh_info(*object->mesh));
  });
}

fsdp2_status fsdp2_mesh_barrier(fsdp2_mesh mesh) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    capi::enter(call, *object);
    call.share_failure();
    for (fsdp2::Comm* group : capi::groups_of(*object->mesh)) {
      group->barrier();
    }
  });
}

fsdp2_status fsdp2_mesh_all_reduce(fsdp2_mesh mesh, double* values, size_t n, int32_t op) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    capi::enter(call, *object);
    capi::all_reduce(call, *object->mesh, values, n, op);
  });
}

fsdp2_status fsdp2_mesh_agree(fsdp2_mesh mesh, const char* what, const char* text) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    capi::enter(call, *object);
    capi::agree_on_text(*object->mesh, what, text);
  });
}

fsdp2_status fsdp2_mesh_fail(fsdp2_mesh mesh, const char* message) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    call.about(object->mesh);  // not busy: another thread may be waiting inside a collective
    object->mesh->world().publish_failure(capi::read_text(message, capi::kMaxText, "message"));
  });
}
