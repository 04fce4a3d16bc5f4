// Dims of meshes and their groups, and the meshes made of them.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "capi/argument.h"
#include "capi/nouns/mesh/mesh_argument.h"
#include "capi/object.h"
#include "capi/sized_struct.h"
#include "core/device/device_memory.h"
#include "include/fsdp2/mesh.h"

namespace fsdp2::capi {

namespace {

std::vector<std::string> read_names(const char* const* names, size_t n_names) {
  check_array(names, n_names, "names");
  FSDP2_CHECK(n_names <= FSDP2_MAX_DIMS, Code::kInvalidArgument,
              "n_names: expected at most {}, found {}", FSDP2_MAX_DIMS, n_names);
  std::vector<std::string> read;
  for (size_t i = 0; i < n_names; ++i) {
    read.push_back(read_text(names[i], kMaxName, "names"));
  }
  return read;
}

std::string read_optional_name(const char* name) {
  return name == nullptr ? "" : read_text(name, kMaxName, "name");
}

// A mesh made of another one, in the same job.
uint64_t give_mesh(const MeshObject& from, std::shared_ptr<Mesh> mesh) {
  auto object = std::make_shared<MeshObject>();
  object->busy = from.busy;
  object->mesh = std::move(mesh);
  return give(Kind::kMesh, std::move(object));
}

fsdp2_device_memory memory_info(const DeviceMemory& memory) {
  fsdp2_device_memory info{};
  info.allocated_bytes = memory.allocated;
  info.peak_allocated_bytes = memory.peak_allocated;
  info.reserved_bytes = memory.reserved;
  info.peak_reserved_bytes = memory.peak_reserved;
  info.free_bytes = memory.free;
  info.total_bytes = memory.total;
  return info;
}

fsdp2_group_info group_info(const Group& group) {
  fsdp2_group_info info{};
  info.size = group.size();
  info.rank = group.rank();
  info.id = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(&group));
  return info;
}

void get_root(const MeshObject& object, int32_t* dims, size_t cap, size_t* needed,
              fsdp2_mesh* out) {
  check_not_null(out, "out");
  const std::shared_ptr<const Mesh> root = object.mesh->root();
  FSDP2_CHECK(root != nullptr, Code::kNotFound, "{} is no slice of another mesh",
              object.mesh->to_string());
  write_numbers(object.mesh->root_dims(), "dims", dims, cap, needed);
  out->id = give_mesh(object, std::const_pointer_cast<Mesh>(root));
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_mesh_get_dim_name(fsdp2_mesh mesh, int32_t dim, char* buf, size_t cap,
                                     size_t* needed) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    call.about(object->mesh);
    capi::write_text(object->mesh->dim_name(capi::read_dim(*object->mesh, dim)), buf, cap, needed);
  });
}

fsdp2_status fsdp2_mesh_get_dim_index(fsdp2_mesh mesh, const char* name, int32_t* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    call.about(object->mesh);
    capi::check_not_null(out, "out");
    *out = object->mesh->dim_index(capi::read_text(name, capi::kMaxName, "name"));
  });
}

fsdp2_status fsdp2_mesh_get_ranks(fsdp2_mesh mesh, int32_t* ranks, size_t cap, size_t* needed) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    call.about(object->mesh);
    capi::write_numbers(object->mesh->ranks(), "ranks", ranks, cap, needed);
  });
}

fsdp2_status fsdp2_mesh_get_group(fsdp2_mesh mesh, int32_t dim, fsdp2_group_info* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    call.about(object->mesh);
    capi::check_out_struct(out, "out");
    const auto group = object->mesh->group(capi::read_dim(*object->mesh, dim));
    capi::fill_struct(out, capi::group_info(*group));
  });
}

fsdp2_status fsdp2_mesh_get_group_ranks(fsdp2_mesh mesh, int32_t dim, int32_t* ranks, size_t cap,
                                        size_t* needed) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    call.about(object->mesh);
    const auto group = object->mesh->group(capi::read_dim(*object->mesh, dim));
    capi::write_numbers(group->members, "ranks", ranks, cap, needed);
  });
}

fsdp2_status fsdp2_mesh_is_equal(fsdp2_mesh a, fsdp2_mesh b, int32_t* out) {
  return guard(__func__, [&](Call& call) {
    const auto first = pin(a);
    call.about(first->mesh);
    const auto second = pin(b);
    *capi::check_not_null(out, "out") = *first->mesh == *second->mesh ? 1 : 0;
  });
}

fsdp2_status fsdp2_mesh_get_hash(fsdp2_mesh mesh, uint64_t* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    call.about(object->mesh);
    *capi::check_not_null(out, "out") = object->mesh->hash();
  });
}

fsdp2_status fsdp2_mesh_get_device_memory(fsdp2_mesh mesh, fsdp2_device_memory* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    call.about(object->mesh);
    capi::check_out_struct(out, "out");
    capi::fill_struct(out, capi::memory_info(fsdp2::device_memory(object->mesh->device())));
  });
}

fsdp2_status fsdp2_mesh_describe(fsdp2_mesh mesh, char* buf, size_t cap, size_t* needed) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    call.about(object->mesh);
    capi::write_text(object->mesh->to_string(), buf, cap, needed);
  });
}

fsdp2_status fsdp2_mesh_from_group(fsdp2_mesh mesh, int32_t dim, const char* name,
                                   fsdp2_mesh* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    call.about(object->mesh);
    capi::check_not_null(out, "out");
    const fsdp2::Mesh& from = *object->mesh;
    auto made = fsdp2::Mesh::from_group(from.shared_team(), from.group(capi::read_dim(from, dim)),
                                        capi::read_optional_name(name));
    out->id = capi::give_mesh(*object, std::move(made));
  });
}

fsdp2_status fsdp2_mesh_get_submesh(fsdp2_mesh mesh, const char* const* names, size_t n_names,
                                    fsdp2_mesh* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    capi::enter(call, *object);  // flatten changes what names there are
    capi::check_not_null(out, "out");
    const auto dims = capi::read_names(names, n_names);
    out->id = capi::give_mesh(*object, object->mesh->submesh(dims));
  });
}

fsdp2_status fsdp2_mesh_flatten(fsdp2_mesh mesh, const char* const* names, size_t n_names,
                                const char* name, fsdp2_mesh* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    capi::enter(call, *object);
    std::vector<std::string> dims;
    std::string flat_name;
    fsdp2::agree(object->mesh->team(), call.function(), [&] {
      capi::check_not_null(out, "out");
      dims = capi::read_names(names, n_names);
      flat_name = capi::read_optional_name(name);
      return std::string();
    });
    out->id = capi::give_mesh(*object, object->mesh->flatten(dims, flat_name));
  });
}

fsdp2_status fsdp2_mesh_get_root(fsdp2_mesh mesh, int32_t* dims, size_t cap, size_t* needed,
                                 fsdp2_mesh* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(mesh);
    call.about(object->mesh);
    capi::get_root(*object, dims, cap, needed, out);
  });
}
