#include "capi/nouns/mesh/mesh_create.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "capi/argument.h"
#include "capi/fields.h"
#include "capi/fork.h"
#include "capi/sized_struct.h"
#include "core/base/log.h"
#include "core/comm/agreement.h"
#include "core/comm/mesh_layout.h"

namespace fsdp2::capi {

namespace {

constexpr int32_t kMaxRanks = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxTimeout = int64_t{365} * 24 * 3600 * 1000;

BackendKind read_backend(int32_t backend) {
  return read_enum<BackendKind>(backend,
                                {{FSDP2_BACKEND_AUTO, BackendKind::kAuto},
                                 {FSDP2_BACKEND_GLOO, BackendKind::kGloo},
                                 {FSDP2_BACKEND_NCCL, BackendKind::kNccl},
                                 {FSDP2_BACKEND_THREAD, BackendKind::kThread},
                                 {FSDP2_BACKEND_FAKE, BackendKind::kFake}},
                                "options.backend: expected FSDP2_BACKEND_AUTO (0) to _FAKE (4)");
}

}  // namespace

// clang-format off
template <>
inline constexpr auto kFields<fsdp2_mesh_options> = std::tuple(
    Field("backend", &fsdp2_mesh_options::backend, ReadBy<read_backend>()),
    Field("rank", &fsdp2_mesh_options::rank, PerRank(Range{-1, kMaxRanks - 1})),
    Field("world_size", &fsdp2_mesh_options::world_size, Range{-1, kMaxRanks}),
    Field("local_rank", &fsdp2_mesh_options::local_rank, PerRank(Range{-1, kMaxRanks - 1})),
    Field("n_dims", &fsdp2_mesh_options::n_dims, Range{0, FSDP2_MAX_DIMS}),
    Field("shape", &fsdp2_mesh_options::shape, Elsewhere()),
    Field("names", &fsdp2_mesh_options::names, Elsewhere()),
    Field("rendezvous", &fsdp2_mesh_options::rendezvous, Elsewhere()),
    Field("timeout_ms", &fsdp2_mesh_options::timeout_ms, Range{1, kMaxTimeout}),
    Field("fsdp_size", &fsdp2_mesh_options::fsdp_size, Range{-1, kMaxRanks}),
    Field("ranks", &fsdp2_mesh_options::ranks, Elsewhere()),
    Field("n_ranks", &fsdp2_mesh_options::n_ranks, Elsewhere()),
    Field("device_type", &fsdp2_mesh_options::device_type, Elsewhere()),
    Field("ulysses_size", &fsdp2_mesh_options::ulysses_size, Range{0, kMaxRanks}));
// clang-format on

namespace {

WorldOptions world_options(const fsdp2_mesh_options& options) {
  WorldOptions out;
  out.backend = read_backend(options.backend);
  out.rank = options.rank;
  out.world_size = options.world_size;
  out.local_rank = options.local_rank;
  out.timeout = std::chrono::milliseconds(options.timeout_ms);
  if (options.rendezvous != nullptr) {
    out.rendezvous = read_text(options.rendezvous, kMaxPath, "options.rendezvous");
  }
  return out;
}

std::vector<int> read_ranks(const fsdp2_mesh_options& options) {
  check_array(options.ranks, options.n_ranks, "options.ranks");
  std::vector<int> ranks(options.ranks, options.ranks + options.n_ranks);
  for (const int rank : ranks) {
    check_integer(rank, 0, kMaxRanks - 1, "options.ranks");
  }
  return ranks;
}

MeshLayout read_layout(const fsdp2_mesh_options& options) {
  MeshLayout layout;
  layout.fsdp_size = options.fsdp_size;
  layout.sequence_size = std::max<int64_t>(1, options.ulysses_size);
  layout.ranks = read_ranks(options);
  if (options.device_type != nullptr) {
    layout.device_type = read_text(options.device_type, kMaxName, "options.device_type");
  }
  const int32_t n = options.n_dims;
  if (n == 0) {
    FSDP2_CHECK(options.shape == nullptr && options.names == nullptr && layout.ranks.empty(),
                Code::kInvalidArgument,
                "options.n_dims is 0, but shape, names or ranks is not NULL");
    return layout;
  }
  check_not_null(options.shape, "options.shape");
  FSDP2_CHECK(options.fsdp_size == 0, Code::kInvalidArgument,
              "options.fsdp_size: expected 0 beside a shape, found {}", options.fsdp_size);
  FSDP2_CHECK(options.ulysses_size <= 1, Code::kInvalidArgument,
              "options.ulysses_size: expected 0 beside a shape, whose last dim may be named \"cp\" "
              "instead, found {}",
              options.ulysses_size);
  layout.shape.assign(options.shape, options.shape + n);
  for (int32_t i = 0; options.names != nullptr && i < n; ++i) {
    layout.names.push_back(read_text(options.names[i], kMaxName, "options.names"));
  }
  return layout;
}

void check_says_not_how_to_join(const fsdp2_mesh_options& options) {
  const fsdp2_mesh_options& own = kMeshDefaults;
  FSDP2_CHECK(options.backend == own.backend && options.rank == own.rank &&
                  options.world_size == own.world_size && options.local_rank == own.local_rank &&
                  options.rendezvous == nullptr && options.timeout_ms == own.timeout_ms,
              Code::kInvalidArgument,
              "options: backend, rank, world_size, local_rank, rendezvous and timeout_ms are the "
              "job's: leave them at their defaults");
}

}  // namespace

std::shared_ptr<MeshObject> create_mesh(const fsdp2_mesh_options* given) {
  const fsdp2_mesh_options options = read_options(given, kMeshDefaults);
  const WorldOptions place = world_options(options);
  const MeshLayout layout = read_layout(options);
  note_use();
  auto object = std::make_shared<MeshObject>();
  object->busy = std::make_shared<Busy>("mesh");
  object->mesh = make_mesh(World::join(place), layout);
  log(LogLevel::kInfo, "comm", "joined {}", object->mesh->to_string());
  return object;
}

std::shared_ptr<MeshObject> create_mesh_in(const Call& call, const MeshObject& from,
                                           const fsdp2_mesh_options* given, const fsdp2_mesh* out) {
  MeshLayout layout;
  agree(from.mesh->team(), call.function(), [&] {
    check_not_null(given, "options");
    check_not_null(out, "out");
    const fsdp2_mesh_options options = read_options(given, kMeshDefaults);
    check_says_not_how_to_join(options);
    layout = read_layout(options);
    return std::string();
  });
  auto object = std::make_shared<MeshObject>();
  object->busy = from.busy;
  object->mesh = make_mesh(from.mesh->shared_team(), layout);
  return object;
}

}  // namespace fsdp2::capi
