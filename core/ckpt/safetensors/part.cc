#include "core/ckpt/safetensors/part.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>

#include "core/base/error.h"
#include "core/ckpt/safetensors/safetensors_file.h"
#include "core/ckpt/safetensors/sharding.h"

namespace fsdp2::ckpt {

namespace {

struct ShardFile {
  std::vector<TensorSpec> plan;
  std::map<std::string, at::Tensor> tensors;
  SafetensorsShards shards;

  void add(const TensorSpec& whole, const std::vector<int64_t>& offsets, const at::Tensor& local) {
    plan.push_back({whole.name, local.scalar_type(), local.sizes().vec()});
    tensors.emplace(whole.name, local);
    shards[whole.name] = {offsets, whole.shape};
  }
};

int64_t number_of(const FileNumbers& numbers, const std::string& name) {
  return numbers.empty() ? 1 : numbers.at(name);
}

bool is_empty(const TensorSpec& tensor) {
  return std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
}

}  // namespace

void check_fits_safetensors(const StateDict& state, const FileNumbers& numbers) {
  FSDP2_CHECK(state.objects.empty(), Code::kUnsupported,
              "{}: safetensors files hold tensors only: leave it out, or save a DCP directory",
              state.objects.front().name);
  for (size_t i = 0; i < state.tensors.size(); ++i) {
    const std::string& name = state.tensors[i].name;
    FSDP2_CHECK(i == 0 || state.tensors[i - 1].name != name, Code::kUnsupported,
                "{}: a safetensors file holds one chunk of a tensor: save a DCP directory", name);
    const auto number = numbers.find(name);
    FSDP2_CHECK(numbers.empty() || (number != numbers.end() && number->second >= 1),
                Code::kInvalidArgument, "{}: has no file number, expected one from 1 on", name);
  }
}

void write_safetensors_part(const std::string& directory, int rank,
                            const std::vector<TensorSpec>& tensors,
                            const std::vector<PartItem>& items, const FileNumbers& numbers,
                            const std::function<void(int64_t bytes)>& progress) {
  std::map<int64_t, ShardFile> files;
  int64_t count = 1;
  for (const auto& [name, number] : numbers) {
    count = std::max(count, number);
  }
  for (const PartItem& item : items) {
    const TensorSpec& tensor = tensors[item.entry];
    files[number_of(numbers, tensor.name)].add(tensor, item.offsets, item.local);
  }
  if (rank == 0) {
    files[1];
    for (const TensorSpec& tensor : tensors) {
      if (is_empty(tensor)) {  // of which no rank holds a chunk
        files[number_of(numbers, tensor.name)].add(
            tensor, std::vector<int64_t>(tensor.shape.size(), 0),
            at::empty(tensor.shape, at::device(at::kCPU).dtype(tensor.dtype)));
      }
    }
  }
  for (auto& [number, file] : files) {
    sort_by_item_size(file.plan);
    SafetensorsWriter writer(directory + "/" + shard_file_name(rank, number, count), file.plan,
                             shard_metadata(file.shards));
    for (const TensorSpec& spec : file.plan) {
      const at::Tensor& tensor = file.tensors.at(spec.name);
      writer.append(spec.name, tensor);
      progress(static_cast<int64_t>(tensor.nbytes()));
    }
    writer.finish();
    progress(0);
  }
}

}  // namespace fsdp2::ckpt
