#include "core/ckpt/ranks/full_state_dict.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/ckpt/formats/open_checkpoint.h"
#include "core/ckpt/formats/replaced_file.h"
#include "core/ckpt/ranks/rank_exchange.h"
#include "core/ckpt/state/state_names.h"
#include "core/ckpt/state/state_source.h"
#include "core/ckpt/store/steady_path.h"
#include "core/ckpt/torch/per_rank_files.h"
#include "core/ckpt/torch/pth_tree.h"
#include "core/comm/agreement.h"
#include "core/fsdp/model_tensors.h"
#include "core/fsdp/parameter_values.h"
#include "core/nn/parameter_source.h"

namespace fsdp2::ckpt {

namespace {

using Dtype = std::optional<at::ScalarType>;  // of floating-point tensors in the file, if another

using fsdp::ModelTensor;

// Collective for a sharded parameter.
at::Tensor full(fsdp::Unit& root, const ModelTensor& tensor) {
  return tensor.param == nullptr ? tensor.local : fsdp::full_parameter(root, *tensor.param);
}

std::vector<TensorSpec> full_plan(const std::vector<ModelTensor>& tensors, Dtype dtype) {
  std::vector<TensorSpec> plan;
  for (const ModelTensor& tensor : tensors) {
    const at::ScalarType own = tensor.local.scalar_type();
    plan.push_back({tensor.name(), dtype && at::isFloatingType(own) ? *dtype : own, tensor.shape});
  }
  return plan;
}

std::unique_ptr<FullWriter> make_writer(const std::string& path, CheckpointFormat format,
                                        const std::vector<ModelTensor>& tensors,
                                        std::vector<TensorSpec> plan,
                                        const FullWriterOptions& options) {
  check_may_replace_file(path);
  if (format != CheckpointFormat::kPth) {
    return make_full_writer(path, format, std::move(plan), options);
  }
  PythonDict dict;
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (const std::string& name : tensors[i].names) {
      dict.items.push_back(
          {name, describe_tensor(static_cast<int64_t>(i), plan[i].dtype, plan[i].shape)});
    }
  }
  return make_tree_writer(path, std::move(dict), std::move(plan));
}

const ModelTensor& find_by_name(const std::vector<ModelTensor>& tensors, const std::string& name) {
  for (const ModelTensor& tensor : tensors) {
    if (tensor.name() == name) {
      return tensor;
    }
  }
  fail(Code::kInternal, "no parameter or buffer {}", name);
}

void make_directory(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  FSDP2_CHECK(!error, Code::kIo, "{}: cannot make the directory: {}", path, error.message());
}

// All but its end, with which the file appears.
std::unique_ptr<FullWriter> write_own_file(fsdp::Unit& root, const std::string& directory,
                                           int64_t step, const std::string& save_id) {
  const Team& team = root.mesh().team();
  std::vector<TensorSpec> plan;
  PythonDict model;
  PythonDict shards;
  const std::vector<ModelTensor> tensors = fsdp::model_tensors(root);
  for (const ModelTensor& tensor : tensors) {
    const at::Tensor& local = tensor.local;
    for (const std::string& name : tensor.names) {
      model.items.push_back({name, describe_tensor(static_cast<int64_t>(plan.size()),
                                                   local.scalar_type(), local.sizes())});
      shards.items.push_back({"model." + name, describe_shard(tensor.shape, tensor.offsets)});
    }
    plan.push_back({tensor.name(), local.scalar_type(), local.sizes().vec()});
  }
  const PythonValue tree =
      PythonDict{{{"model", std::move(model)},
                  {"fsdp2", describe_rank(team.rank(), team.size(), std::move(shards), save_id)}}};
  auto writer =
      make_tree_writer(directory + "/" + per_rank_file_name(step, team.rank()), tree, plan);
  for (const ModelTensor& tensor : tensors) {
    writer->append(tensor.name(), tensor.local);
  }
  return writer;
}

}  // namespace

void save_full_state_dict(fsdp::Unit& root, const std::string& path, CheckpointFormat format,
                          const FullWriterOptions& options, std::optional<at::ScalarType> dtype) {
  Team& team = root.mesh().team();
  const std::vector<ModelTensor> tensors = fsdp::model_tensors(root);
  std::vector<TensorSpec> plan = full_plan(tensors, dtype);
  std::unique_ptr<FullWriter> writer;
  const std::string what = "saving " + path;
  // Whether the file can be made is known to all before the first gather. What goes wrong later is
  // kept until all gathers are done, so that no rank waits for one that has left.
  agree(team, what, [&] {
    if (team.rank() == 0) {
      writer = make_writer(path, format, tensors, plan, options);
    }
    return fmt::format("format={}\n", format_name(format));
  });
  plan = order_of_writing(std::move(plan), format, options);  // only rank 0 has the writer
  std::optional<Error> failed;
  for (const TensorSpec& spec : plan) {
    const at::Tensor whole = full(root, find_by_name(tensors, spec.name));
    if (writer && !failed) {
      try {
        writer->append(spec.name, whole.to(spec.dtype));
      } catch (...) {
        failed = current_exception_as_error();
      }
    }
  }
  agree(team, what, [&] {
    if (failed) {
      throw Error(*failed);
    }
    if (writer) {
      writer->finish();
    }
    return std::string();
  });
}

// What most likely goes wrong does so before any rank's file has appeared.
void save_per_rank(fsdp::Unit& root, const std::string& directory, int64_t step) {
  constexpr char kSaveId[] = "save id";
  Team& team = root.mesh().team();
  const std::string what = "saving to " + directory;
  RankExchange exchange(team);
  agree(team, what, [&] {
    if (team.rank() == 0 || team.is_fake()) {
      make_directory(directory);
      exchange.put(kSaveId, make_save_id());
    }
    return fmt::format("step={}\n", step);
  });
  root.parameters();
  std::unique_ptr<FullWriter> writer;
  agree(team, what, [&] {
    const std::string save_id = exchange.get(kSaveId, 0, "to begin the save");
    writer = write_own_file(root, directory, step, save_id);
    return std::string();
  });
  agree(team, what, [&] {
    writer->finish();
    return std::string();
  });
  if (team.rank() == 0) {
    exchange.remove(kSaveId);
    remove_further_ranks(directory, step, team.size());
  }
}

namespace {

// A checkpoint's model by the names of the tree's parameters.
class ModelSource final : public nn::ParameterSource {
 public:
  ModelSource(const std::string& path, const std::vector<ModelTensor>& tensors)
      : source_(open_checkpoint(path)) {
    std::vector<ParameterNames> names;
    for (const ModelTensor& tensor : tensors) {
      for (const std::string& name : tensor.names) {
        index_.emplace(name, names.size());
      }
      names.push_back({tensor.names, tensor.is_trainable(), tensor.is_buffer});
    }
    names_.emplace(*source_, std::move(names));
  }

  bool contains(const std::string& name) const override { return find(name) != nullptr; }

  void read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
            at::Tensor out) override {
    const StateEntry* entry = find(name);
    FSDP2_CHECK(entry != nullptr, Code::kNotFound, "{}: no tensor of this name is in {}", name,
                source_->path());
    FSDP2_CHECK(shape == at::IntArrayRef(entry->shape), Code::kCorruptData,
                "{}: the model and {} disagree about its shape", name, source_->path());
    const auto [begin, rows] = nn::rows_of(shape, first_row, out);
    if (rows.numel() > 0) {
      source_->read(*entry, begin, rows);
    }
  }

 private:
  const StateEntry* find(const std::string& name) const {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : names_->parameter(found->second);
  }

  std::unique_ptr<StateSource> source_;
  std::unordered_map<std::string, size_t> index_;
  std::optional<StateNames> names_;
};

}  // namespace

void load_full_state_dict(fsdp::Unit& root, const std::string& path) {
  std::optional<ModelSource> source;
  const std::string what = "loading " + path;
  const std::vector<ModelTensor> tensors = fsdp::model_tensors(root);
  const SteadyPath steady(path);
  agree(root.mesh().team(), what, [&] {
    steady.explain([&] { source.emplace(path, tensors); });
    return std::string();
  });
  steady.explain([&] { fsdp::load_parameters(root, *source); });
  agree(root.mesh().team(), what, [&] {
    for (const ModelTensor& tensor : tensors) {
      if (tensor.param == nullptr) {
        steady.explain([&] { source->read(tensor.name(), tensor.shape, 0, tensor.local); });
      }
    }
    steady.check();
    return std::string();
  });
}

}  // namespace fsdp2::ckpt
