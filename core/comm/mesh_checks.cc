#include "core/comm/mesh_checks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/text_hash.h"
#include "core/comm/all_gather_numbers.h"
#include "core/comm/world.h"
#include "core/device/plugin.h"

namespace fsdp2 {

namespace {

// "4" for all ranks of a job, "(2, 3)" for others.
std::string name_of(const Team& team) {
  return team.is_whole_job() ? std::to_string(team.size())
                             : fmt::format("({})", fmt::join(team.members(), ", "));
}

// On this machine. That this rank has none of its own is no reason to compute elsewhere than the
// others do.
bool has_gpu() {
  try {
    return open_device_plugin(at::kCUDA).device_count() > 0;
  } catch (const Error& error) {
    log(LogLevel::kInfo, "comm", "device type auto: cpu ({})", error.message());
    return false;
  }
}

}  // namespace

at::Device device_of(World& world, const std::string& type) {
  FSDP2_CHECK(type.find(':') == std::string::npos, Code::kInvalidArgument,
              "mesh: device type '{}' with an index: expected '{}', since each rank has a device "
              "of its own",
              type, type.substr(0, type.find(':')));
  const bool is_known =
      type == "cpu" || type == "cuda" || type == "auto" || world.has_transport(type);
  FSDP2_CHECK(is_known, Code::kInvalidArgument,
              "mesh: device type '{}': expected cpu, cuda or auto", type);
  return in_context("mesh", [&] {
    return world.device(type != "auto" ? at::Device(type).type()
                        : has_gpu()    ? at::kCUDA
                                       : at::kCPU);
  });
}

void check_names(size_t n_dims, const std::vector<std::string>& names) {
  FSDP2_CHECK(
      n_dims > 0 && (names.empty() || names.size() == n_dims), Code::kInvalidArgument,
      "mesh: {} dims with {} names, expected at least one dim, and one name per dim or none",
      n_dims, names.size());
  std::set<std::string> seen;
  for (const std::string& name : names) {
    FSDP2_CHECK(!name.empty() && seen.insert(name).second, Code::kInvalidArgument,
                "mesh: dim names ({}): each must be unique and not empty", fmt::join(names, ", "));
  }
}

std::vector<int64_t> complete_shape(std::vector<int64_t> shape, int64_t n_ranks,
                                    const char* whose) {
  const std::string given = fmt::format("{}", fmt::join(shape, ", "));
  auto rest = std::find(shape.begin(), shape.end(), -1);
  int64_t ranks = 1;
  for (auto size = shape.begin(); size != shape.end(); ++size) {
    if (size == rest) {
      continue;
    }
    // Divides before it multiplies, so that no shape overflows.
    FSDP2_CHECK(*size >= 1 && *size <= n_ranks / ranks, Code::kInvalidArgument,
                "mesh: shape ({}) does not make {} ranks", given, n_ranks);
    ranks *= *size;
  }
  if (rest != shape.end()) {
    FSDP2_CHECK(n_ranks % ranks == 0, Code::kInvalidArgument,
                "mesh: shape ({}): {} ranks do not divide by {}", given, n_ranks, ranks);
    *rest = n_ranks / ranks;
    return shape;
  }
  FSDP2_CHECK(ranks == n_ranks, Code::kInvalidArgument,
              "mesh: shape ({}) makes {} ranks, {} has {}", given, ranks, whose, n_ranks);
  return shape;
}

void check_ranks(const std::vector<int>& ranks, const Team& team) {
  const std::vector<int>& all = team.members();
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  const bool different = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  FSDP2_CHECK(!sorted.empty() && different &&
                  std::includes(all.begin(), all.end(), sorted.begin(), sorted.end()),
              Code::kInvalidArgument, "mesh: ranks ({}): expected different ranks of {}",
              fmt::join(ranks, ", "), name_of(team));
  const int own = team.own_rank_in_job();
  FSDP2_CHECK(std::binary_search(sorted.begin(), sorted.end(), own), Code::kInvalidArgument,
              "mesh: ranks ({}) lack this one, {}: each rank passes the table that it is in",
              fmt::join(ranks, ", "), own);
}

void check_same_table(const Team& team, const std::vector<int>& ranks, const std::string& table,
                      const std::vector<int64_t>& hashes) {
  const std::vector<int>& all = team.members();
  const auto hash_of = [&](int rank) {
    return hashes[std::lower_bound(all.begin(), all.end(), rank) - all.begin()];
  };
  for (const int rank : ranks) {
    FSDP2_CHECK(hash_of(rank) == hash_of(ranks.front()), Code::kInvalidArgument,
                "mesh: ranks {} and {} are in one table, but pass different ones: {} here",
                ranks.front(), rank, table);
  }
}

std::vector<int64_t> exchange_hashes(Team& team, const std::string& table) {
  return all_gather_numbers(team.control(), {static_cast<int64_t>(hash_of_text(table))});
}

}  // namespace fsdp2
