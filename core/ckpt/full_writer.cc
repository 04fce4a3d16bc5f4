#include "core/ckpt/full_writer.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <set>
#include <system_error>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/ckpt/checkpoint_directory.h"
#include "core/ckpt/pth_state_dict.h"

namespace fsdp2::ckpt {

namespace {

int64_t bytes_of(const TensorSpec& spec) {
  auto bytes = static_cast<int64_t>(c10::elementSize(spec.dtype));
  for (const int64_t size : spec.shape) {
    bytes *= size;
  }
  return bytes;
}

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
      : FullWriter(sorted_by_item_size(std::move(plan))), path_(path) {
    FSDP2_CHECK(!options.config_json.empty(), Code::kInvalidArgument,
                "{}: a model directory needs a config.json, none was given", path);
    split(options.max_file_bytes);
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
    if (++in_file_ == files_[file_].size()) {
      writer_->finish();
      ++file_;
      open_next();
    }
  }

  void finish() override {
    FSDP2_CHECK(!writer_, Code::kWrongState, "{}: finished with tensors missing", path_);
    if (files_.size() > 1) {
      write_text("model.safetensors.index.json", index_text());
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

  void split(int64_t max_bytes) {
    int64_t bytes = 0;
    files_.emplace_back();
    for (const TensorSpec& spec : plan()) {
      if (!files_.back().empty() && bytes_of(spec) > max_bytes - bytes) {
        files_.emplace_back();
        bytes = 0;
      }
      files_.back().push_back(spec);
      bytes += bytes_of(spec);
    }
  }

  std::string file_name(size_t index) const {
    return files_.size() == 1
               ? "model.safetensors"
               : fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, files_.size());
  }

  void open_next() {
    writer_.reset();
    in_file_ = 0;
    if (file_ < files_.size() && !files_[file_].empty()) {
      writer_.emplace(temporary_ + "/" + file_name(file_), files_[file_]);
    }
  }

  void write_text(const std::string& name, const std::string& text) const {
    AtomicFile file(temporary_ + "/" + name);
    file.write(text.data(), text.size());
    file.commit();
  }

  std::string index_text() const {
    int64_t total = 0;
    nlohmann::ordered_json weights = nlohmann::ordered_json::object();
    for (size_t i = 0; i < files_.size(); ++i) {
      for (const TensorSpec& spec : files_[i]) {
        weights[spec.name] = file_name(i);
        total += bytes_of(spec);
      }
    }
    return nlohmann::ordered_json{{"metadata", {{"total_size", total}}}, {"weight_map", weights}}
               .dump(2) +
           "\n";
  }

  std::string path_;
  std::string temporary_;
  std::vector<std::vector<TensorSpec>> files_;
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

std::unique_ptr<FullWriter> make_tree_writer(const std::string& path, const PickleValue& tree,
                                             std::vector<TensorSpec> plan) {
  return std::make_unique<OnePth>(path, tree, plan);
}

}  // namespace fsdp2::ckpt
