#include "core/ckpt/formats/origin.h"

#include <algorithm>
#include <regex>

#include "core/base/error.h"

namespace fsdp2::ckpt {

namespace {

// Names of files that their rank is in; of the last form the step too. Safetensors count from 1.
constexpr char kDcpFile[] = "__([0-9]{1,9})_[0-9]+\\.distcp";
constexpr char kShardFile[] = "shard-([0-9]{1,9})-model-.*\\.safetensors";
constexpr char kRankFile[] = ".*rank[_-]?([0-9]{1,9})\\.(?:pt|pth|bin)";
constexpr char kPthFile[] = "fsdp_sharded_cpt([0-9]{1,18})_rank([0-9]{1,9})\\.pth";

// The value of an object that is a whole number.
std::optional<int64_t> integer(const StateSource& source, const char* name) {
  const StateEntry* entry = source.find(name);
  if (entry == nullptr || entry->dtype) {
    return std::nullopt;
  }
  try {
    const PythonValue value = source.read_object(*entry);
    const int64_t* number = value.as<int64_t>();
    return number != nullptr ? std::optional<int64_t>(*number) : std::nullopt;
  } catch (const Error&) {  // it is listed as one that is not read
    return std::nullopt;
  }
}

// The largest number in the names that are of this form.
std::optional<int64_t> largest(const std::vector<std::string>& files, const char* form,
                               size_t group) {
  const std::regex pattern(form);
  std::optional<int64_t> most;
  for (const std::string& file : files) {
    std::smatch match;
    if (std::regex_match(file, match, pattern)) {
      most = std::max<int64_t>(most.value_or(0), std::stoll(match[group]));
    }
  }
  return most;
}

}  // namespace

std::optional<int64_t> step_of(const StateSource& source, const std::vector<std::string>& files) {
  for (const char* name :
       {"step", "train_state.step", "scheduler.last_epoch", "lr_scheduler.last_epoch"}) {
    if (const auto step = integer(source, name)) {
      return step;
    }
  }
  return largest(files, kPthFile, 1);
}

std::optional<int64_t> world_size_of(const StateSource& source,
                                     const std::vector<std::string>& files) {
  if (const auto own = integer(source, "fsdp2.world_size")) {
    return own;
  }
  for (const auto& [form, group] :
       {std::pair(kDcpFile, 1), std::pair(kPthFile, 2), std::pair(kRankFile, 1)}) {
    if (const auto last = largest(files, form, static_cast<size_t>(group))) {
      return *last + 1;
    }
  }
  return largest(files, kShardFile, 1);
}

}  // namespace fsdp2::ckpt
