#include "core/ckpt/torch/per_rank_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <regex>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/ckpt/torch/archive.h"

namespace fsdp2::ckpt {

namespace {

constexpr char kRank[] = "rank";
constexpr char kWorldSize[] = "world_size";
constexpr char kSaveId[] = "save_id";

using RankFiles = std::map<int64_t, std::string>;  // paths by rank

std::map<int64_t, RankFiles> files_by_step(const std::string& directory) {
  static const std::regex pattern("fsdp_sharded_cpt([0-9]{1,18})_rank([0-9]{1,9})\\.pth");
  std::map<int64_t, RankFiles> by_step;
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error)) {
    std::smatch match;
    const std::string name = at->path().filename().string();
    if (std::regex_match(name, match, pattern)) {
      by_step[std::stoll(match[1])][std::stoll(match[2])] = directory + "/" + name;
    }
  }
  FSDP2_CHECK(!error, Code::kIo, "{}: cannot list the directory: {}", directory, error.message());
  return by_step;
}

// The save that a file belongs to.
struct Origin {
  std::string save_id;     // "" if it does not say
  int64_t world_size = 0;  // 0 likewise
};

Origin origin_of(const std::string& file) {
  const TorchArchive archive(file);
  const PythonValue* own = find(archive.root(), kPerRankKey);
  const PythonValue* id = own != nullptr ? find(*own, kSaveId) : nullptr;
  const PythonValue* size = own != nullptr ? find(*own, kWorldSize) : nullptr;
  Origin origin;
  if (id != nullptr && id->as<std::string>() != nullptr) {
    origin.save_id = *id->as<std::string>();
  }
  if (size != nullptr && size->as<int64_t>() != nullptr) {
    origin.world_size = *size->as<int64_t>();
  }
  return origin;
}

// The files of one save of a step; none, and what is wrong, if they are not all there.
std::vector<std::string> complete_files(int64_t step, const RankFiles& files, std::string* fault) {
  const auto missing = [&](int64_t rank) {
    *fault =
        per_rank_file_name(step, static_cast<int>(rank)) + ": the file of this rank is missing";
    return std::vector<std::string>();
  };
  if (files.count(0) == 0) {
    return missing(0);
  }
  const Origin first = origin_of(files.at(0));
  const int64_t count =
      first.save_id.empty() ? static_cast<int64_t>(files.size()) : first.world_size;
  std::vector<std::string> chosen;
  for (int64_t rank = 0; rank < count; ++rank) {
    const auto file = files.find(rank);
    if (file == files.end()) {
      return missing(rank);
    }
    const Origin origin = origin_of(file->second);
    if (origin.save_id != first.save_id ||
        (!first.save_id.empty() && origin.world_size != first.world_size)) {
      *fault = per_rank_file_name(step, static_cast<int>(rank)) +
               ": is of another save than the file of rank 0, which was interrupted or is not over";
      return {};
    }
    chosen.push_back(file->second);
  }
  if (chosen.empty()) {
    *fault = per_rank_file_name(step, 0) + ": says that it is one of no files";
  }
  return chosen;
}

}  // namespace

PerRankShard shard_of(at::IntArrayRef shape, int rank, int world_size) {
  const int64_t chunk = (shape[0] + world_size - 1) / world_size;
  PerRankShard shard{std::vector<int64_t>(shape.size(), 0), shape.vec()};
  shard.offsets[0] = std::min(rank * chunk, shape[0]);
  shard.sizes[0] = std::min(chunk, shape[0] - shard.offsets[0]);
  return shard;
}

PythonValue describe_shard(at::IntArrayRef shape, at::IntArrayRef offsets) {
  const auto list = [](at::IntArrayRef numbers) {
    return PythonList{std::vector<PythonValue>(numbers.begin(), numbers.end())};
  };
  return PythonDict{{{"shape", list(shape)}, {"offsets", list(offsets)}}};
}

bool describes_rank(const StatePath& path) {
  if (path.empty() || path[0] != PathPart(std::string(kPerRankKey))) {
    return false;
  }
  const auto* key = path.size() > 1 ? std::get_if<std::string>(&path[1]) : nullptr;
  return key != nullptr &&
         (*key == kRank || *key == kWorldSize || *key == kSaveId || *key == kPerRankShards);
}

std::string make_save_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

PythonValue describe_rank(int rank, int world_size, PythonDict shards, const std::string& save_id) {
  PythonDict own{{{kRank, rank}, {kWorldSize, world_size}}};
  if (!save_id.empty()) {
    own.items.push_back({kSaveId, save_id});
  }
  own.items.push_back({kPerRankShards, std::move(shards)});
  return own;
}

std::string per_rank_file_name(int64_t step, int rank) {
  return fmt::format("fsdp_sharded_cpt{}_rank{}.pth", step, rank);
}

std::vector<std::string> per_rank_files(const std::string& directory) {
  const auto by_step = files_by_step(directory);
  FSDP2_CHECK(!by_step.empty(), Code::kNotFound, "{}: has no {}", directory,
              "fsdp_sharded_cpt{step}_rank{r}.pth");
  std::string first_fault;
  for (auto step = by_step.rbegin(); step != by_step.rend(); ++step) {
    std::string fault;
    std::vector<std::string> files = complete_files(step->first, step->second, &fault);
    if (!files.empty()) {
      if (!first_fault.empty()) {
        log(LogLevel::kWarning, "checkpoint", "{}/{}; step {} is taken", directory, first_fault,
            step->first);
      }
      return files;
    }
    first_fault = first_fault.empty() ? fault : first_fault;
  }
  fail(Code::kCorruptData, "{}/{}", directory, first_fault);
}

void remove_further_ranks(const std::string& directory, int64_t step, int world_size) {
  try {
    const auto by_step = files_by_step(directory);
    const auto files = by_step.find(step);
    if (files == by_step.end()) {
      return;
    }
    for (const auto& [rank, file] : files->second) {
      if (rank >= world_size) {
        std::filesystem::remove(file);
      }
    }
  } catch (const std::exception& error) {  // readers leave them out
    log(LogLevel::kWarning, "checkpoint", "{}: cannot remove the files of further ranks: {}",
        directory, error.what());
  }
}

}  // namespace fsdp2::ckpt
