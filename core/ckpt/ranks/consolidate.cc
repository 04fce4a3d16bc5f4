#include "core/ckpt/ranks/consolidate.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/ckpt/formats/open_checkpoint.h"
#include "core/ckpt/hugging_face/config_dtype.h"
#include "core/ckpt/hugging_face/hugging_face_source.h"
#include "core/ckpt/hugging_face/model_files.h"
#include "core/ckpt/ranks/rank_exchange.h"
#include "core/ckpt/safetensors/safetensors_file.h"
#include "core/ckpt/state/state_source.h"
#include "core/ckpt/store/pending_directory.h"
#include "core/ckpt/store/steady_path.h"
#include "core/comm/agreement.h"

namespace fsdp2::ckpt {

namespace {

constexpr char kPendingModel[] = "directory";

std::vector<TensorSpec> tensors_in(const StateSource& source) {
  std::vector<TensorSpec> plan;
  for (const StateEntry& entry : source.entries()) {
    if (entry.dtype) {
      plan.push_back({entry.name, *entry.dtype, entry.shape});
    }
  }
  return plan;
}

void write_model_file(const StateSource& source, const std::string& directory,
                      const ModelFile& file) {
  SafetensorsWriter writer(directory + "/" + file.name, file.tensors);
  for (const TensorSpec& spec : file.tensors) {
    writer.append(spec.name, read_whole(source, *source.find(spec.name)));
  }
  writer.finish();
}

void write_text(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace

void consolidate_safetensors(Team& team, const std::string& from, const std::string& to,
                             const FullWriterOptions& options) {
  const std::string what = fmt::format("consolidating {} into {}", from, to);
  RankExchange exchange(team);
  const SteadyPath steady(from);  // a save may replace it while it is read
  std::unique_ptr<StateSource> source;
  std::string config_json;
  std::vector<ModelFile> files;
  std::optional<PendingDirectory> pending;  // rank 0
  agree(team, what, [&] {
    FSDP2_CHECK(!options.config_json.empty(), Code::kInvalidArgument,
                "{}: a model directory needs a config.json, none was given", to);
    FSDP2_CHECK(!std::filesystem::exists(to), Code::kIo, "{}: already exists", to);
    source = steady.explain([&] { return open_checkpoint(from); });
    const std::vector<TensorSpec> tensors = tensors_in(*source);
    config_json = config_for(options.config_json, tensors);
    files = plan_model_files(tensors, options);
    if (team.rank() == 0) {
      pending.emplace(to, replaceable_by_model());
      exchange.put(kPendingModel, pending->path());
    }
    return model_index_text(files);
  });
  const std::string directory = exchange.get(kPendingModel, 0, "to make the directory");
  agree(team, what, [&] {
    for (size_t i = 0; i < files.size(); ++i) {
      if (static_cast<int>(i % static_cast<size_t>(team.size())) == team.rank()) {
        steady.explain([&] { write_model_file(*source, directory, files[i]); });
      }
    }
    steady.check();
    return std::string();
  });
  agree(team, what, [&] {
    if (pending) {
      write_text(directory + "/config.json", config_json);
      if (has_index(files, options)) {
        write_text(directory + "/" + kModelIndex, model_index_text(files));
      }
      pending->commit();
    }
    return std::string();
  });
}

}  // namespace fsdp2::ckpt
