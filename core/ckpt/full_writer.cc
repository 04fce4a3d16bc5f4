#include "core/ckpt/full_writer.h"

#include <filesystem>
#include <optional>
#include <regex>
#include <set>
#include <system_error>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/ckpt/checkpoint_directory.h"
#include "core/ckpt/model_files.h"
#include "core/ckpt/pth_state_dict.h"

namespace fsdp2::ckpt {

namespace {

std::vector<TensorSpec> sorted_by_item_size(std::vector<TensorSpec> plan) {
  sort_by_item_size(plan);
  return plan;
}

class OneSafetensors final : public FullWriter {
 public:
  OneSafetensors(const std::string& path, std::vector<TensorSpec> plan)
      : FullWriter(sorted_by_item_size(std::move(plan))), writer_(path, this->plan()) {}

  void append(const std::string& name, const at::Tensor& tensor) override {
    writer_.append(name, tensor);
  }
  void finish() override { writer_.finish(); }

 private:
  SafetensorsWriter writer_;
};

class OnePth final : public FullWriter {
 public:
  OnePth(const std::string& path, const std::vector<TensorSpec>& plan)
      : FullWriter(plan), writer_(path, plan) {}
  OnePth(const std::string& path, const PickleValue& tree, const std::vector<TensorSpec>& plan)
      : FullWriter(plan), writer_(path, tree, plan) {}

  void append(const std::string& name, const at::Tensor& tensor) override {
    writer_.append(name, tensor);
  }
  void finish() override { writer_.finish(); }

 private:
  PthWriter writer_;
};

// config.json, and model.safetensors or an index and its shards. Everything is written into a
// temporary directory first.
class ModelDirectory final : public FullWriter {
 public:
  ModelDirectory(const std::string& path, std::vector<TensorSpec> plan,
                 const FullWriterOptions& options)
      : ModelDirectory(path, plan_model_files(std::move(plan), options), options) {}
  ModelDirectory(const std::string& path, std::vector<ModelFile> files,
                 const FullWriterOptions& options)
      : FullWriter(tensors_of(files)),
        path_(path),
        files_(std::move(files)),
        has_index_(has_index(files_, options)) {
    FSDP2_CHECK(!options.config_json.empty(), Code::kInvalidArgument,
                "{}: a model directory needs a config.json, none was given", path);
    temporary_ = make_temporary_directory(path);
    try {
      write_text("config.json", options.config_json);
      open_next();
    } catch (...) {
      discard_directory(temporary_);
      throw;
    }
  }
  ~ModelDirectory() override {
    writer_.reset();
    if (!temporary_.empty()) {
      discard_directory(temporary_);
    }
  }

  void append(const std::string& name, const at::Tensor& tensor) override {
    writer_->append(name, tensor);
    if (++in_file_ == files_[file_].tensors.size()) {
      writer_->finish();
      ++file_;
      open_next();
    }
  }

  void finish() override {
    FSDP2_CHECK(!writer_, Code::kWrongState, "{}: finished with tensors missing", path_);
    if (has_index_) {
      write_text(kModelIndex, model_index_text(files_));
    }
    if (std::filesystem::is_directory(path_)) {
      move_in();
    } else {
      commit_directory(temporary_, path_);
    }
    temporary_.clear();
  }

 private:
  // Into a directory that is there and may hold a tokenizer and more: file by file, then without
  // the weights that were there before under other names.
  void move_in() {
    namespace fs = std::filesystem;
    std::set<std::string> moved;
    for (const fs::directory_entry& file : fs::directory_iterator(temporary_)) {
      const std::string name = file.path().filename().string();
      std::error_code error;
      fs::rename(file.path(), path_ + "/" + name, error);
      FSDP2_CHECK(!error, Code::kIo, "{}/{}: cannot move the finished file to it: {}", path_, name,
                  error.message());
      moved.insert(name);
    }
    static const std::regex kWeights(
        "model(-[0-9]{5}-of-[0-9]{5})?\\.safetensors(\\.index\\.json)?");
    for (const fs::directory_entry& file : fs::directory_iterator(path_)) {
      const std::string name = file.path().filename().string();
      if (moved.count(name) == 0 && std::regex_match(name, kWeights)) {
        std::error_code error;
        fs::remove(file.path(), error);
        FSDP2_CHECK(!error, Code::kIo, "{}/{}: cannot remove: {}", path_, name, error.message());
      }
    }
    sync_directory(path_);
    discard_directory(temporary_);
  }

  void open_next() {
    writer_.reset();
    in_file_ = 0;
    if (file_ < files_.size() && !files_[file_].tensors.empty()) {
      writer_.emplace(temporary_ + "/" + files_[file_].name, files_[file_].tensors);
    }
  }

  void write_text(const std::string& name, const std::string& text) const {
    AtomicFile file(temporary_ + "/" + name);
    file.write(text.data(), text.size());
    file.commit();
  }

  std::string path_;
  std::string temporary_;
  std::vector<ModelFile> files_;
  bool has_index_;
  size_t file_ = 0;     // being written
  size_t in_file_ = 0;  // tensors written to it
  std::optional<SafetensorsWriter> writer_;
};

}  // namespace

std::unique_ptr<FullWriter> make_full_writer(const std::string& path, CheckpointFormat format,
                                             std::vector<TensorSpec> plan,
                                             const FullWriterOptions& options) {
  switch (format) {
    case CheckpointFormat::kSafetensors:
      return std::make_unique<OneSafetensors>(path, std::move(plan));
    case CheckpointFormat::kPth:
      return std::make_unique<OnePth>(path, plan);
    case CheckpointFormat::kHuggingFaceDirectory:
      return std::make_unique<ModelDirectory>(path, std::move(plan), options);
    default:
      fail(Code::kUnsupported, "{}: {} does not hold whole tensors", path, format_name(format));
  }
}

std::vector<TensorSpec> order_of_writing(std::vector<TensorSpec> plan, CheckpointFormat format,
                                         const FullWriterOptions& options) {
  switch (format) {
    case CheckpointFormat::kPth:
      return plan;
    case CheckpointFormat::kHuggingFaceDirectory:
      return tensors_of(plan_model_files(std::move(plan), options));
    default:
      return sorted_by_item_size(std::move(plan));
  }
}

std::unique_ptr<FullWriter> make_tree_writer(const std::string& path, const PickleValue& tree,
                                             std::vector<TensorSpec> plan) {
  return std::make_unique<OnePth>(path, tree, plan);
}

}  // namespace fsdp2::ckpt
