#include "capi/mesh_create.h"

#include <fmt/format.h>

#include <chrono>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "capi/argument.h"
#include "core/base/log.h"

namespace fsdp2::capi {

namespace {

constexpr int32_t kMaxRanks = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxTimeout = int64_t{365} * 24 * 3600 * 1000;

BackendKind read_backend(int32_t backend) {
  switch (backend) {
    case FSDP2_BACKEND_AUTO:
      return BackendKind::kAuto;
    case FSDP2_BACKEND_GLOO:
      return BackendKind::kGloo;
    case FSDP2_BACKEND_NCCL:
      return BackendKind::kNccl;
    case FSDP2_BACKEND_THREAD:
      return BackendKind::kThread;
    case FSDP2_BACKEND_FAKE:
      return BackendKind::kFake;
    default:
      fail(Code::kInvalidArgument,
           "options.backend: expected FSDP2_BACKEND_AUTO (0) to _FAKE (4), "
           "found {}",
           backend);
  }
}

WorldOptions world_options(const fsdp2_mesh_options& options) {
  WorldOptions out;
  out.backend = read_backend(options.backend);
  out.rank = static_cast<int>(check_integer(options.rank, -1, kMaxRanks - 1, "options.rank"));
  out.world_size =
      static_cast<int>(check_integer(options.world_size, -1, kMaxRanks, "options.world_size"));
  out.local_rank =
      static_cast<int>(check_integer(options.local_rank, -1, kMaxRanks - 1, "options.local_rank"));
  out.timeout = std::chrono::milliseconds(
      check_integer(options.timeout_ms, 1, kMaxTimeout, "options.timeout_ms"));
  if (options.rendezvous != nullptr) {
    out.rendezvous = read_text(options.rendezvous, kMaxPath, "options.rendezvous");
  }
  return out;
}

struct Dims {
  std::vector<int64_t> shape;  // empty: by fsdp_size
  std::vector<std::string> names;
};

Dims read_dims(const fsdp2_mesh_options& options) {
  Dims dims;
  const int64_t n = check_integer(options.n_dims, 0, FSDP2_MAX_DIMS, "options.n_dims");
  if (n == 0) {
    FSDP2_CHECK(options.shape == nullptr && options.names == nullptr, Code::kInvalidArgument,
                "options.n_dims is 0, but shape or names is not NULL");
    return dims;
  }
  check_not_null(options.shape, "options.shape");
  FSDP2_CHECK(options.fsdp_size == 0, Code::kInvalidArgument,
              "options.fsdp_size: expected 0 beside a shape, found {}", options.fsdp_size);
  dims.shape.assign(options.shape, options.shape + n);
  if (options.names == nullptr) {
    FSDP2_CHECK(n <= 2, Code::kNullArgument, "options.names is NULL: {} dims have no default names",
                n);
    dims.names =
        n == 1 ? std::vector<std::string>{"fsdp"} : std::vector<std::string>{"ddp", "fsdp"};
    return dims;
  }
  for (int64_t i = 0; i < n; ++i) {
    dims.names.push_back(read_text(options.names[i], kMaxName, "options.names"));
  }
  return dims;
}

}  // namespace

std::shared_ptr<MeshObject> create_mesh(const fsdp2_mesh_options& options) {
  const WorldOptions place = world_options(options);
  const Dims dims = read_dims(options);
  check_integer(options.fsdp_size, 0, kMaxRanks, "options.fsdp_size");
  note_use();
  std::shared_ptr<World> world = World::join(place);
  std::shared_ptr<Mesh> mesh = dims.shape.empty()
                                   ? Mesh::for_fsdp(std::move(world), options.fsdp_size)
                                   : Mesh::create(std::move(world), dims.shape, dims.names);
  log(LogLevel::kInfo, "comm", "joined {}", mesh->to_string());
  auto object = std::make_shared<MeshObject>();
  object->busy = std::make_shared<Busy>("mesh");
  object->mesh = std::move(mesh);
  return object;
}

}  // namespace fsdp2::capi
