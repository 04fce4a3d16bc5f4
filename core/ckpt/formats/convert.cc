#include "core/ckpt/formats/convert.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/progress_log.h"
#include "core/ckpt/dcp/description.h"
#include "core/ckpt/dcp/item_file.h"
#include "core/ckpt/formats/full_writer.h"
#include "core/ckpt/formats/open_checkpoint.h"
#include "core/ckpt/state/state_source.h"
#include "core/ckpt/state/state_tree.h"
#include "core/ckpt/store/pending_directory.h"
#include "core/ckpt/torch/per_rank_files.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

constexpr char kModel[] = "model";
constexpr int64_t kMaxConfigBytes = int64_t{1} << 24;

// An entry of the source and where it goes.
struct Move {
  const StateEntry* from;
  StatePath path;
};

bool is_under_model(const StateEntry& entry) {
  return entry.path.size() >= 2 && entry.path[0] == PathPart(std::string(kModel));
}

class Conversion {
 public:
  Conversion(const std::string& from, const std::string& to, const ConvertOptions& options)
      : source_(open_checkpoint(from)), to_(to), options_(options) {}

  ConvertResult run();

 private:
  bool needs_flat() const {
    return options_.model_only || options_.format == CheckpointFormat::kSafetensors ||
           options_.format == CheckpointFormat::kHuggingFaceDirectory;
  }
  bool is_readable(const StateEntry& object) const;
  void choose();
  void count_written(const at::Tensor& tensor);
  void write_flat();
  void write_dcp();
  void write_pth_tree();
  void write_per_rank(int rank, const std::string& save_id);
  std::string config_json() const;
  double bytes_to_write() const;
  TensorSpec spec_of(const Move& move) const {
    return {name_of(move.path), *move.from->dtype, move.from->shape};
  }

  std::unique_ptr<StateSource> source_;
  const std::string& to_;
  const ConvertOptions& options_;
  std::vector<Move> moves_;
  ConvertResult result_;
  std::optional<ProgressLog> progress_;
};

// Objects that need more than plain data are of the program that wrote them; damage is an error.
bool Conversion::is_readable(const StateEntry& object) const {
  try {
    source_->read_object(object);
    return true;
  } catch (const Error& error) {
    if (error.code() != Code::kUnsupported) {
      throw;
    }
    log(LogLevel::kWarning, "checkpoint", "{} is left out: {}", printable_name(object.name),
        error.message());
    return false;
  }
}

// Which entries go, and where.
void Conversion::choose() {
  const std::vector<StateEntry>& entries = source_->entries();
  const bool has_model = std::any_of(entries.begin(), entries.end(), is_under_model);
  const bool is_flat = !has_model && std::all_of(entries.begin(), entries.end(),
                                                 [](const auto& e) { return e.path.size() == 1; });
  for (const StateEntry& entry : entries) {
    StatePath path = entry.path;
    if (needs_flat()) {
      const bool in_model = has_model ? is_under_model(entry) : entry.path.size() == 1;
      if (!entry.dtype || !in_model) {
        ++result_.left_out;
        continue;
      }
      path = {name_of(has_model ? StatePath(path.begin() + 1, path.end()) : path)};
    } else if (is_flat && entry.dtype) {
      path.insert(path.begin(), std::string(kModel));
    }
    if (!entry.dtype && !is_readable(entry)) {
      ++result_.left_out;
      continue;
    }
    moves_.push_back({&entry, std::move(path)});
    ++(entry.dtype ? result_.tensors : result_.objects);
  }
  FSDP2_CHECK(!needs_flat() || result_.tensors > 0, Code::kInvalidArgument,
              "{}: holds no model: nothing is under \"{}\"", source_->path(), kModel);
}

double Conversion::bytes_to_write() const {
  double bytes = 0;
  for (const Move& move : moves_) {
    if (move.from->dtype) {
      bytes += static_cast<double>(c10::multiply_integers(move.from->shape)) *
               static_cast<double>(c10::elementSize(*move.from->dtype));
    }
  }
  return bytes;
}

void Conversion::count_written(const at::Tensor& tensor) {
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  result_.bytes += bytes;
  progress_->add(bytes);
}

std::string Conversion::config_json() const {
  if (options_.format != CheckpointFormat::kHuggingFaceDirectory) {
    return "";
  }
  const bool has_own = options_.config_path.empty() &&
                       detect_format(source_->path()) == CheckpointFormat::kHuggingFaceDirectory;
  FSDP2_CHECK(
      has_own || !options_.config_path.empty(), Code::kInvalidArgument,
      "{}: a model directory needs the model's config.json, which {} does not have: name one "
      "(config_path, fsdp2 convert --config)",
      to_, source_->path());
  return read_text_file(has_own ? source_->path() + "/config.json" : options_.config_path,
                        kMaxConfigBytes);
}

void Conversion::write_flat() {
  std::vector<TensorSpec> plan;
  std::unordered_map<std::string, const StateEntry*> by_name;
  for (const Move& move : moves_) {
    plan.push_back(spec_of(move));
    by_name.emplace(plan.back().name, move.from);
  }
  FullWriterOptions options;
  options.config_json = config_json();
  options.max_file_bytes = options_.max_file_bytes;
  const auto writer = make_full_writer(to_, options_.format, std::move(plan), options);
  for (const TensorSpec& spec : writer->plan()) {
    const at::Tensor tensor = read_whole(*source_, *by_name.at(spec.name));
    writer->append(spec.name, tensor);
    count_written(tensor);
  }
  writer->finish();
}

void Conversion::write_dcp() {
  constexpr char kFile[] = "__0_0.distcp";
  PendingDirectory pending(to_, replaceable_by(CheckpointFormat::kDcpDirectory));
  std::vector<DcpEntry> entries;
  DcpPart part{kFile, 0, {}};
  ItemWriter file(pending.path() + "/" + kFile);
  for (const Move& move : moves_) {
    DcpEntry entry{name_of(move.path), move.path, std::nullopt, {}};
    Box chunk;
    WrittenItem written;
    if (move.from->dtype) {
      entry.tensor = ChunkedTensor{*move.from->dtype, move.from->shape, {}};
      chunk = {std::vector<int64_t>(move.from->shape.size(), 0), move.from->shape};
      const at::Tensor tensor = read_whole(*source_, *move.from);
      written = file.append_tensor(tensor);
      count_written(tensor);
    } else {
      const PythonValue value = source_->read_object(*move.from);
      written = file.append([&](const ByteSink& sink) { write_object_item(sink, value); });
    }
    part.items.push_back({entries.size(), std::move(chunk), std::move(written)});
    entries.push_back(std::move(entry));
  }
  file.finish();
  part.bytes = file.bytes_written();
  write_dcp_description(pending.path(), std::move(entries), {part});
  pending.commit();
}

void Conversion::write_pth_tree() {
  std::vector<std::pair<StatePath, PythonValue>> values;
  std::vector<TensorSpec> plan;
  std::vector<const StateEntry*> tensors;
  for (const Move& move : moves_) {
    if (move.from->dtype) {
      values.emplace_back(move.path, describe_tensor(static_cast<int64_t>(plan.size()),
                                                     *move.from->dtype, move.from->shape));
      plan.push_back(spec_of(move));
      tensors.push_back(move.from);
    } else {
      values.emplace_back(move.path, source_->read_object(*move.from));
    }
  }
  const auto writer = make_tree_writer(to_, make_tree(values), plan);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor tensor = read_whole(*source_, *tensors[i]);
    writer->append(plan[i].name, tensor);
    count_written(tensor);
  }
  writer->finish();
}

void Conversion::write_per_rank(int rank, const std::string& save_id) {
  std::vector<std::pair<StatePath, PythonValue>> values;
  std::vector<TensorSpec> plan;
  std::vector<std::pair<const StateEntry*, std::vector<int64_t>>> boxes;
  PythonDict shards;
  for (const Move& move : moves_) {
    if (!move.from->dtype) {
      values.emplace_back(move.path, source_->read_object(*move.from));
      continue;
    }
    TensorSpec spec = spec_of(move);
    std::vector<int64_t> offsets(spec.shape.size(), 0);
    if (!spec.shape.empty()) {
      PerRankShard shard = shard_of(spec.shape, rank, options_.ranks);
      shards.items.push_back({spec.name, describe_shard(spec.shape, shard.offsets)});
      offsets = shard.offsets;
      spec.shape = shard.sizes;
    }
    values.emplace_back(move.path,
                        describe_tensor(static_cast<int64_t>(plan.size()), spec.dtype, spec.shape));
    boxes.emplace_back(move.from, offsets);
    plan.push_back(std::move(spec));
  }
  values.emplace_back(StatePath{"fsdp2"},
                      describe_rank(rank, options_.ranks, std::move(shards), save_id));
  const auto writer = make_tree_writer(to_ + "/" + per_rank_file_name(options_.step, rank),
                                       make_tree(values), plan);
  for (size_t i = 0; i < plan.size(); ++i) {
    at::Tensor tensor = at::empty(plan[i].shape, plan[i].dtype);
    if (tensor.numel() > 0) {
      source_->read(*boxes[i].first, boxes[i].second, tensor);
    }
    writer->append(plan[i].name, tensor);
    count_written(tensor);
  }
  writer->finish();
}

ConvertResult Conversion::run() {
  choose();
  progress_.emplace("checkpoint", "writing " + to_, bytes_to_write());
  if (needs_flat() && options_.format != CheckpointFormat::kDcpDirectory &&
      options_.format != CheckpointFormat::kPthPerRankDirectory) {
    write_flat();
    return result_;
  }
  switch (options_.format) {
    case CheckpointFormat::kDcpDirectory:
      write_dcp();
      break;
    case CheckpointFormat::kPth:
      write_pth_tree();
      break;
    case CheckpointFormat::kPthPerRankDirectory: {
      FSDP2_CHECK(options_.ranks >= 1, Code::kInvalidArgument, "expected at least 1 rank, got {}",
                  options_.ranks);
      std::error_code error;
      std::filesystem::create_directories(to_, error);
      FSDP2_CHECK(!error, Code::kIo, "{}: cannot make the directory: {}", to_, error.message());
      const std::string save_id = make_save_id();
      for (int rank = 0; rank < options_.ranks; ++rank) {
        write_per_rank(rank, save_id);
      }
      remove_further_ranks(to_, options_.step, options_.ranks);
      break;
    }
    default:
      fail(Code::kUnsupported, "{}: {} is not written", to_, format_name(options_.format));
  }
  return result_;
}

}  // namespace

ConvertResult convert_checkpoint(const std::string& from, const std::string& to,
                                 const ConvertOptions& options) {
  return Conversion(from, to, options).run();
}

}  // namespace fsdp2::ckpt
