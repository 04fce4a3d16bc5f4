#include "core/ckpt/ranks/write_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include "core/base/error.h"
#include "core/ckpt/bytes/checksum.h"
#include "core/ckpt/value/tensor_spec.h"
#include "core/comm/all_gather_numbers.h"

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

struct Writer {
  size_t rank;
  size_t index;  // of the chunk in its state
};

// [rank][tensor]
std::vector<int64_t> gather_chunk_ids(Team& team, const StateDict& state) {
  std::vector<int64_t> own;
  for (const StateTensor& tensor : state.tensors) {
    own.push_back(chunk_id(tensor));
  }
  return all_gather_numbers(team.control(), own);
}

// The bytes of the whole tensor, so that all ranks count alike.
int64_t global_bytes(const StateTensor& tensor) {
  return tensor_bytes(tensor.local.scalar_type(), tensor.shape);
}

void check_chunk(const StateTensor& tensor) {
  if (tensor.local.numel() == 0) {
    return;
  }
  bool fits = tensor.offsets.size() == tensor.shape.size() &&
              tensor.local.dim() == static_cast<int64_t>(tensor.shape.size());
  for (size_t dim = 0; fits && dim < tensor.shape.size(); ++dim) {
    const int64_t size = tensor.local.size(static_cast<int64_t>(dim));
    fits = tensor.offsets[dim] >= 0 && tensor.offsets[dim] <= tensor.shape[dim] - size;
  }
  FSDP2_CHECK(fits, Code::kInvalidArgument, "{}: the chunk [{}] at [{}] lies outside [{}]",
              tensor.name, fmt::join(tensor.local.sizes(), ", "), fmt::join(tensor.offsets, ", "),
              fmt::join(tensor.shape, ", "));
}

void check_plan(const StateDict& state) {
  int64_t total = 0;
  std::set<std::string> names;
  const auto check_new = [&](const std::string& name) {
    FSDP2_CHECK(names.insert(name).second, Code::kInvalidArgument,
                "{}: is in the state twice (chunks of one tensor stand one after the other)", name);
  };
  for (size_t i = 0; i < state.tensors.size(); ++i) {
    const StateTensor& tensor = state.tensors[i];
    check_chunk(tensor);
    if (i == 0 || state.tensors[i - 1].name != tensor.name) {
      check_new(tensor.name);
      const int64_t bytes = global_bytes(tensor);
      FSDP2_CHECK(
          bytes >= 0 && !__builtin_add_overflow(total, bytes, &total), Code::kInvalidArgument,
          "{}: the bytes of [{}] {} and of the tensors before it do not fit 63 bits", tensor.name,
          fmt::join(tensor.shape, ", "), c10::toString(tensor.local.scalar_type()));
      continue;
    }
    const StateTensor& first = state.tensors[i - 1];
    FSDP2_CHECK(
        first.shape == tensor.shape && first.local.scalar_type() == tensor.local.scalar_type(),
        Code::kInvalidArgument, "{}: has chunks of [{}] {} and of [{}] {}", tensor.name,
        fmt::join(first.shape, ", "), c10::toString(first.local.scalar_type()),
        fmt::join(tensor.shape, ", "), c10::toString(tensor.local.scalar_type()));
  }
  for (const StateObject& object : state.objects) {
    check_new(object.name);
  }
}

}  // namespace

std::string plan_text(const StateDict& state) {
  check_plan(state);
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

std::vector<size_t> tensors_to_write(Team& team, const StateDict& state) {
  const std::vector<int64_t> ids = gather_chunk_ids(team, state);
  const size_t count = state.tensors.size();
  const auto ranks = static_cast<size_t>(team.size());
  std::vector<int64_t> load(ranks, 0);
  std::vector<size_t> own;
  size_t end = 0;
  for (size_t first = 0; first < count; first = end) {
    const StateTensor& tensor = state.tensors[first];
    for (end = first + 1; end < count && state.tensors[end].name == tensor.name; ++end) {
    }
    std::map<int64_t, Writer> writers;  // by chunk
    for (size_t rank = 0; rank < ranks; ++rank) {
      for (size_t i = first; i < end; ++i) {
        const int64_t id = ids[rank * count + i];
        if (id != 0) {
          const auto [writer, is_first] = writers.emplace(id, Writer{rank, i});
          if (!is_first && load[rank] < load[writer->second.rank]) {
            writer->second = {rank, i};
          }
        }
      }
    }
    for (const auto& [id, writer] : writers) {
      load[writer.rank] += 1 + global_bytes(tensor) / static_cast<int64_t>(writers.size());
      if (writer.rank == static_cast<size_t>(team.rank())) {
        own.push_back(writer.index);
      }
    }
  }
  std::sort(own.begin(), own.end());
  return own;
}

int64_t expected_bytes_to_write(const Team& team, const StateDict& state) {
  int64_t expected = 0;
  for (const StateTensor& tensor : state.tensors) {
    const auto bytes = static_cast<int64_t>(tensor.local.nbytes());
    if (bytes > 0) {
      const int64_t whole = std::max(bytes, global_bytes(tensor));
      expected += bytes / std::max<int64_t>(team.size() * bytes / whole, 1);
    }
  }
  return expected;
}

}  // namespace fsdp2::ckpt
