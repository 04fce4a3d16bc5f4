#include "core/ckpt/torch/pth_tree.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/base/error.h"
#include "core/ckpt/state/state_tree.h"
#include "core/ckpt/torch/pending_rank_files.h"
#include "core/ckpt/torch/per_rank_files.h"
#include "core/ckpt/torch/pth_file.h"

namespace fsdp2::ckpt {

namespace {

class OnePth final : public FullWriter {
 public:
  OnePth(const std::string& path, const std::vector<TensorSpec>& plan)
      : FullWriter(plan), writer_(path, plan) {}
  OnePth(const std::string& path, const PythonValue& tree, const std::vector<TensorSpec>& plan)
      : FullWriter(plan), writer_(path, tree, plan) {}

  void append(const std::string& name, const at::Tensor& tensor) override {
    writer_.append(name, tensor);
  }
  void finish() override { writer_.finish(); }

 private:
  PthWriter writer_;
};

using Values = std::vector<std::pair<StatePath, PythonValue>>;

// Beside what a run keeps under the same key.
void add_description(const PythonValue& description, Values* values) {
  for (const PythonItem& item : description.as<PythonDict>()->items) {
    values->emplace_back(StatePath{kPerRankKey, *item.key.as<std::string>()}, item.value);
  }
}

// `moves` are in the tree's order, in which torch.save numbers its records.
void write_rank(const TreeCopy& copy, const std::vector<TreeMove>& moves, int rank,
                const std::string& save_id, const std::string& path) {
  Values values;
  std::vector<TensorSpec> plan;
  std::vector<std::pair<const StateEntry*, std::vector<int64_t>>> boxes;
  PythonDict shards;
  for (const TreeMove& move : moves) {
    if (!move.from->dtype) {
      values.emplace_back(move.path, copy.source.read_object(*move.from));
      continue;
    }
    TensorSpec spec = spec_of(move);
    std::vector<int64_t> offsets(spec.shape.size(), 0);
    if (!spec.shape.empty()) {
      PerRankShard shard = shard_of(spec.shape, rank, copy.ranks);
      shards.items.push_back({spec.name, describe_shard(spec.shape, shard.offsets)});
      offsets = shard.offsets;
      spec.shape = shard.sizes;
    }
    values.emplace_back(move.path,
                        describe_tensor(static_cast<int64_t>(plan.size()), spec.dtype, spec.shape));
    boxes.emplace_back(move.from, offsets);
    plan.push_back(std::move(spec));
  }
  add_description(describe_rank(rank, copy.ranks, std::move(shards), save_id), &values);
  const auto writer = make_tree_writer(path, make_tree(values), plan);
  for (size_t i = 0; i < plan.size(); ++i) {
    const at::Tensor tensor =
        read_box(copy.source, *boxes[i].first, boxes[i].second, plan[i].shape);
    writer->append(plan[i].name, tensor);
    copy.note_written(tensor);
  }
  writer->finish();
}

}  // namespace

std::unique_ptr<FullWriter> make_pth_writer(const std::string& path, std::vector<TensorSpec> plan) {
  return std::make_unique<OnePth>(path, plan);
}

std::unique_ptr<FullWriter> make_tree_writer(const std::string& path, const PythonValue& tree,
                                             std::vector<TensorSpec> plan) {
  return std::make_unique<OnePth>(path, tree, plan);
}

void copy_to_pth(const TreeCopy& copy) {
  Values values;
  std::vector<TensorSpec> plan;
  std::vector<const StateEntry*> tensors;
  for (const TreeMove& move : in_tree_order(copy.moves)) {
    if (move.from->dtype) {
      values.emplace_back(move.path, describe_tensor(static_cast<int64_t>(plan.size()),
                                                     *move.from->dtype, move.from->shape));
      plan.push_back(spec_of(move));
      tensors.push_back(move.from);
    } else {
      values.emplace_back(move.path, copy.source.read_object(*move.from));
    }
  }
  const auto writer = make_tree_writer(copy.to, make_tree(values), plan);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor tensor = read_whole(copy.source, *tensors[i]);
    writer->append(plan[i].name, tensor);
    copy.note_written(tensor);
  }
  copy.check_source();
  writer->finish();
}

void copy_to_per_rank_pth(const TreeCopy& copy) {
  FSDP2_CHECK(copy.ranks >= 1, Code::kInvalidArgument, "expected at least 1 rank, got {}",
              copy.ranks);
  std::vector<TreeMove> moves = copy.moves;
  moves.erase(std::remove_if(moves.begin(), moves.end(),
                             [](const TreeMove& move) { return describes_rank(move.path); }),
              moves.end());
  moves = in_tree_order(std::move(moves));
  const std::string save_id = make_save_id();
  PendingRankFiles pending(copy.to, copy.step, copy.ranks);
  for (int rank = 0; rank < copy.ranks; ++rank) {
    write_rank(copy, moves, rank, save_id, pending.file(rank));
  }
  copy.check_source();
  pending.commit();
}

}  // namespace fsdp2::ckpt
