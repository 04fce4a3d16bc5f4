#include "core/ckpt/torch/rank_files.h"

#include <cstdint>
#include <map>
#include <regex>
#include <utility>

#include "core/base/directory.h"
#include "core/base/error.h"
#include "core/ckpt/torch/detect.h"

namespace fsdp2::ckpt {

namespace {

constexpr char kRankFileName[] = "(.*)rank[_-]?([0-9]{1,9})\\.(?:pt|pth|bin)";
constexpr char kWorldSizeInStem[] = ".*world_size_([0-9]{1,9})_";

using FilesByRank = std::map<int64_t, std::string>;

// How many ranks the names tell of.
int64_t count_of(const std::string& stem, const FilesByRank& files) {
  static const std::regex pattern(kWorldSizeInStem);
  std::smatch match;
  return std::regex_match(stem, match, pattern) ? std::stoll(match[1]) : files.rbegin()->first + 1;
}

}  // namespace

bool is_rank_file(const std::string& name) {
  static const std::regex pattern(kRankFileName);
  return !is_per_rank_pth(name) && std::regex_match(name, pattern);
}

std::vector<RankFileSet> find_rank_files(const std::string& directory) {
  static const std::regex pattern(kRankFileName);
  std::map<std::string, FilesByRank> by_stem;
  for (const std::string& name : names_in(directory)) {
    std::smatch match;
    if (!is_per_rank_pth(name) && std::regex_match(name, match, pattern)) {
      const auto [file, is_new] =
          by_stem[match[1]].emplace(std::stoll(match[2]), directory + "/" + name);
      FSDP2_CHECK(is_new, Code::kInvalidArgument,
                  "{}: expected one file of rank {}, found {} and {}: move one away", directory,
                  file->first, file->second, name);
    }
  }
  std::vector<RankFileSet> found;
  for (const auto& [stem, files] : by_stem) {
    RankFileSet ranks{stem, {}};
    const int64_t count = count_of(stem, files);
    for (int64_t rank = 0; rank < count; ++rank) {
      const auto file = files.find(rank);
      FSDP2_CHECK(file != files.end(), Code::kCorruptData,
                  "{}/{}rank: expected the files of {} ranks, that of rank {} is missing",
                  directory, stem, count, rank);
      ranks.files.push_back(file->second);
    }
    FSDP2_CHECK(files.size() == ranks.files.size(), Code::kCorruptData,
                "{}/{}rank: expected the files of {} ranks, found {}", directory, stem, count,
                files.size());
    found.push_back(std::move(ranks));
  }
  return found;
}

}  // namespace fsdp2::ckpt
