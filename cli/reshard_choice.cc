#include "cli/reshard_choice.h"

#include <algorithm>

namespace fsdp2::cli {

namespace {

struct Candidate {
  std::string name;
  double received_share;  // of its gathered bytes, those that come from other ranks
};

int64_t item_bytes(int32_t dtype) {
  return dtype == FSDP2_DTYPE_F64 ? 8 : dtype == FSDP2_DTYPE_F32 ? 4 : 2;
}

// The rank's part of the whole unit, which is the same in any dtype; 1 where there is nothing to
// gather.
double own_share(const fsdp2_unit_info& info) {
  if (info.n_parameters == 0 || info.numel == 0) {
    return 1.0;
  }
  return static_cast<double>(info.sharded_bytes) /
         static_cast<double>(info.numel * item_bytes(info.dtype));
}

// In the order in which they are to be kept.
std::vector<Candidate> candidates_in(const Shard& shard) {
  size_t count = 0;
  check(fsdp2_shard_get_unit_count(shard.get(), &count));
  std::vector<Candidate> candidates;
  for (size_t i = count; i-- > 1;) {  // 0 is the root
    const auto info = info_of<fsdp2_unit_info>(fsdp2_shard_get_unit_info, shard.get(), i);
    const double own = own_share(info);
    if (own < 1.0) {
      candidates.push_back({text_of(fsdp2_shard_get_unit_name, shard.get(), i), 1.0 - own});
    }
  }
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.received_share > b.received_share; });
  return candidates;
}

void keep_first(const Shard& shard, const std::vector<Candidate>& candidates, size_t count) {
  for (size_t i = 0; i < candidates.size(); ++i) {
    check(fsdp2_shard_set_reshard_after_forward(shard.get(), candidates[i].name.c_str(),
                                                /*flag=*/i < count ? 0 : 1, /*recurse=*/0));
  }
}

}  // namespace

ReshardChoice choose_reshard(const Shard& shard, int64_t budget_bytes,
                             const std::function<int64_t()>& peak_bytes) {
  const std::vector<Candidate> candidates = candidates_in(shard);
  const auto peak_with = [&](size_t count) {
    keep_first(shard, candidates, count);
    return peak_bytes();
  };
  ReshardChoice choice;
  choice.candidates = candidates.size();
  choice.resharded_peak_bytes = choice.peak_bytes = peak_with(0);
  size_t fits = 0;
  size_t beyond = candidates.size() + 1;
  while (choice.resharded_peak_bytes <= budget_bytes && beyond - fits > 1) {
    const size_t middle = fits + (beyond - fits) / 2;
    const int64_t peak = peak_with(middle);
    if (peak <= budget_bytes) {
      fits = middle;
      choice.peak_bytes = peak;
    } else {
      beyond = middle;
    }
  }
  keep_first(shard, candidates, fits);
  for (size_t i = 0; i < fits; ++i) {
    choice.kept.push_back(candidates[i].name);
  }
  return choice;
}

}  // namespace fsdp2::cli
