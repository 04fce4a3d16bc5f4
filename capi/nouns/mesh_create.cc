#include "capi/nouns/mesh_create.h"

#include <fmt/format.h>

#include <chrono>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "capi/argument.h"
#include "capi/sized_struct.h"
#include "core/base/log.h"
#include "core/comm/agreement.h"

namespace fsdp2::capi {

namespace {

constexpr fsdp2_mesh_options kDefaults = FSDP2_MESH_OPTIONS_INIT;
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

// What kind of mesh, apart from how to join.
struct Layout {
  std::vector<int64_t> shape;  // empty: by fsdp_size
  std::vector<std::string> names;
  std::vector<int> ranks;  // empty: all
  int64_t fsdp_size = 0;
  std::string device_type = "cpu";
};

std::vector<int> read_ranks(const fsdp2_mesh_options& options) {
  const auto count =
      static_cast<size_t>(check_integer(options.n_ranks, 0, kMaxRanks, "options.n_ranks"));
  check_array(options.ranks, count, "options.ranks");
  std::vector<int> ranks;
  for (size_t i = 0; i < count; ++i) {
    ranks.push_back(
        static_cast<int>(check_integer(options.ranks[i], 0, kMaxRanks - 1, "options.ranks")));
  }
  return ranks;
}

Layout read_layout(const fsdp2_mesh_options& options) {
  Layout layout;
  layout.fsdp_size = check_integer(options.fsdp_size, -1, kMaxRanks, "options.fsdp_size");
  layout.ranks = read_ranks(options);
  if (options.device_type != nullptr) {
    layout.device_type = read_text(options.device_type, kMaxName, "options.device_type");
  }
  const int64_t n = check_integer(options.n_dims, 0, FSDP2_MAX_DIMS, "options.n_dims");
  if (n == 0) {
    FSDP2_CHECK(options.shape == nullptr && options.names == nullptr && layout.ranks.empty(),
                Code::kInvalidArgument,
                "options.n_dims is 0, but shape, names or ranks is not NULL");
    return layout;
  }
  check_not_null(options.shape, "options.shape");
  FSDP2_CHECK(options.fsdp_size == 0, Code::kInvalidArgument,
              "options.fsdp_size: expected 0 beside a shape, found {}", options.fsdp_size);
  layout.shape.assign(options.shape, options.shape + n);
  for (int64_t i = 0; options.names != nullptr && i < n; ++i) {
    layout.names.push_back(read_text(options.names[i], kMaxName, "options.names"));
  }
  return layout;
}

std::shared_ptr<Mesh> make_mesh(std::shared_ptr<World> world, const Layout& layout) {
  if (layout.fsdp_size == -1) {
    return Mesh::create(std::move(world), {-1, 1}, {"ddp", "fsdp"}, layout.device_type);
  }
  if (layout.shape.empty()) {
    return Mesh::for_fsdp(std::move(world), layout.fsdp_size, layout.device_type);
  }
  if (layout.ranks.empty()) {
    return Mesh::create(std::move(world), layout.shape, layout.names, layout.device_type);
  }
  return Mesh::create_from_ranks(std::move(world), layout.ranks, layout.shape, layout.names,
                                 layout.device_type);
}

void check_says_not_how_to_join(const fsdp2_mesh_options& options) {
  FSDP2_CHECK(options.backend == kDefaults.backend && options.rank == kDefaults.rank &&
                  options.world_size == kDefaults.world_size &&
                  options.local_rank == kDefaults.local_rank && options.rendezvous == nullptr &&
                  options.timeout_ms == kDefaults.timeout_ms,
              Code::kInvalidArgument,
              "options: backend, rank, world_size, local_rank, rendezvous and timeout_ms are the "
              "job's: leave them at their defaults");
}

}  // namespace

std::shared_ptr<MeshObject> create_mesh(const fsdp2_mesh_options& options) {
  const WorldOptions place = world_options(options);
  const Layout layout = read_layout(options);
  note_use();
  auto object = std::make_shared<MeshObject>();
  object->busy = std::make_shared<Busy>("mesh");
  object->mesh = make_mesh(World::join(place), layout);
  log(LogLevel::kInfo, "comm", "joined {}", object->mesh->to_string());
  return object;
}

std::shared_ptr<MeshObject> create_mesh_in(const Call& call, const MeshObject& job,
                                           const fsdp2_mesh_options* given, const fsdp2_mesh* out) {
  Layout layout;
  agree(job.mesh->world(), call.function(), [&] {
    check_not_null(given, "options");
    check_not_null(out, "out");
    const fsdp2_mesh_options options = read_struct(given, kDefaults, "options");
    check_says_not_how_to_join(options);
    layout = read_layout(options);
    return std::string();
  });
  auto object = std::make_shared<MeshObject>();
  object->busy = job.busy;
  object->mesh = make_mesh(job.mesh->shared_world(), layout);
  return object;
}

}  // namespace fsdp2::capi
