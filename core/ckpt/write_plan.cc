#include "core/ckpt/write_plan.h"

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <map>

#include "core/base/error.h"
#include "core/ckpt/checksum.h"

namespace fsdp2::ckpt {

namespace {

// Two chunks of one tensor are the same if they begin at the same place. 0: no elements.
int64_t chunk_id(const StateTensor& tensor) {
  if (tensor.local.numel() == 0) {
    return 0;
  }
  const uint64_t sum =
      checksum(tensor.offsets.data(), tensor.offsets.size() * sizeof(tensor.offsets[0]));
  return static_cast<int64_t>(sum | 1);
}

// [rank][tensor]
at::Tensor gather_chunk_ids(World& world, const StateDict& state) {
  const auto count = static_cast<int64_t>(state.tensors.size());
  const at::Tensor own = at::empty({count}, at::kLong);
  std::transform(state.tensors.begin(), state.tensors.end(), own.mutable_data_ptr<int64_t>(),
                 chunk_id);
  const at::Tensor all = at::empty({world.size() * count}, at::kLong);
  if (count > 0) {
    world.control().all_gather(all, own).wait();
  }
  return all;
}

// Of the whole tensor, so that all ranks count alike.
int64_t global_bytes(const StateTensor& tensor) {
  int64_t bytes = static_cast<int64_t>(tensor.local.element_size());
  for (const int64_t size : tensor.shape) {
    bytes *= size;
  }
  return bytes;
}

}  // namespace

std::string plan_text(const StateDict& state) {
  std::string plan;
  for (const StateTensor& tensor : state.tensors) {
    plan += fmt::format("{} {} [{}]\n", tensor.name, c10::toString(tensor.local.scalar_type()),
                        fmt::join(tensor.shape, ", "));
  }
  for (const StateObject& object : state.objects) {
    plan += object.name + "\n";
  }
  return fmt::format("tensors={}\nobjects={}\nnames, shapes and dtypes={}\n", state.tensors.size(),
                     state.objects.size(), checksum_text(checksum(plan.data(), plan.size())));
}

std::vector<size_t> tensors_to_write(World& world, const StateDict& state) {
  const at::Tensor all = gather_chunk_ids(world, state);
  const int64_t* ids = all.const_data_ptr<int64_t>();
  const size_t count = state.tensors.size();
  const auto ranks = static_cast<size_t>(world.size());
  std::vector<int64_t> load(ranks, 0);
  std::vector<size_t> own;
  for (size_t i = 0; i < count; ++i) {
    std::map<int64_t, size_t> writers;  // chunk -> rank
    for (size_t rank = 0; rank < ranks; ++rank) {
      const int64_t id = ids[rank * count + i];
      if (id != 0) {
        const auto [writer, is_first] = writers.emplace(id, rank);
        if (!is_first && load[rank] < load[writer->second]) {
          writer->second = rank;
        }
      }
    }
    for (const auto& [id, rank] : writers) {
      load[rank] += 1 + global_bytes(state.tensors[i]) / static_cast<int64_t>(writers.size());
      if (rank == static_cast<size_t>(world.rank())) {
        own.push_back(i);
      }
    }
  }
  return own;
}

}  // namespace fsdp2::ckpt
