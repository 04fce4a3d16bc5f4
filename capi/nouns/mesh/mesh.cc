#include "include/fsdp2/mesh.h"

#include <fmt/format.h>

#include <exception>
#include <string>

#include "capi/argument.h"
#include "capi/dtype.h"
#include "capi/nouns/mesh/mesh_argument.h"
#include "capi/nouns/mesh/mesh_create.h"
#include "capi/object.h"
#include "capi/sized_struct.h"
#include "core/comm/agreement.h"
#include "core/comm/compute_dtype.h"
#include "core/comm/mesh_numbers.h"

namespace fsdp2::capi {

namespace {

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
  info.backend = backend_number(mesh.world().backend(mesh.device()));
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

void check_reduction(const double* values, size_t n) {
  check_count(n, 0, FSDP2_MAX_REDUCED, "n");
  check_array(values, n, "values");
}

// Ranks that disagree on the size would corrupt each other's memory, so it is compared first.
void all_reduce(Call& call, const Mesh& mesh, double* values, size_t n, int32_t op_number) {
  ReduceOp op = ReduceOp::kSum;
  const auto check = [&] {
    check_reduction(values, n);
    op = read_reduce_op(op_number);
    return fmt::format("n={}\nop={}", n, op_number);
  };
  agree(mesh.team(), "all_reduce", check);
  call.share_failure();
  mesh_reduce_numbers(mesh, values, n, op);
}

void agree_on_text(const Mesh& mesh, const char* what, const char* text) {
  std::string title = "fsdp2_mesh_agree";
  const std::exception_ptr refusal = caught_in([&] { title = read_text(what, kMaxName, "what"); });
  // A rank whose `what` is refused or another one agrees with the others that this is so.
  agree(mesh.team(), title, [&] {
    if (refusal != nullptr) {
      std::rethrow_exception(refusal);
    }
    return read_text(text, kMaxText, "text");
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

fsdp2_status fsdp2_mesh_duplicate(fsdp2_mesh mesh, fsdp2_mesh* out) {
  return capi::duplicate(__func__, capi::Kind::kMesh, mesh, out);
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
    capi::enter_collective(call, *object);
    call.share_failure();
    fsdp2::mesh_barrier(*object->mesh);
  });
}

fsdp2_status fsdp2_mesh_all_reduce(fsdp2_mesh mesh, double* values, size_t n, int32_t op) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    capi::enter_collective(call, *object);
    capi::all_reduce(call, *object->mesh, values, n, op);
  });
}

fsdp2_status fsdp2_mesh_choose_dtype(fsdp2_mesh mesh, int32_t* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    capi::enter_collective(call, *object);
    fsdp2::agree(object->mesh->team(), call.function(), [&] {
      capi::check_not_null(out, "out");
      return std::string();
    });
    call.share_failure();
    *out = capi::dtype_number(fsdp2::choose_compute_dtype(*object->mesh));
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
    object->mesh->team().publish_failure(capi::read_text(message, capi::kMaxText, "message"));
  });
}
