#include "core/ckpt/hugging_face/model_directory_writer.h"

#include <filesystem>
#include <optional>
#include <regex>
#include <utility>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/ckpt/hugging_face/config_dtype.h"
#include "core/ckpt/hugging_face/hugging_face_source.h"
#include "core/ckpt/safetensors/safetensors_file.h"
#include "core/ckpt/store/checkpoint_directory.h"
#include "core/ckpt/store/linked_copy.h"
#include "core/ckpt/store/pending_directory.h"

namespace fsdp2::ckpt {

namespace {

class ModelDirectory final : public FullWriter {
 public:
  ModelDirectory(const std::string& path, std::vector<TensorSpec> plan,
                 const FullWriterOptions& options)
      : ModelDirectory(path, plan_model_files(std::move(plan), options), options) {}
  ModelDirectory(const std::string& path, std::vector<ModelFile> files,
                 const FullWriterOptions& options)
      : FullWriter(tensors_of(files)), files_(std::move(files)) {
    FSDP2_CHECK(!options.config_json.empty(), Code::kInvalidArgument,
                "{}: a model directory needs a config.json, none was given", path);
    pending_.emplace(path, replaceable_by_model());
    write_text("config.json", config_for(options.config_json, plan()));
    if (has_index(files_, options)) {
      write_text(kModelIndex, model_index_text(files_));
    }
    open_next();
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
    FSDP2_CHECK(!writer_, Code::kWrongState, "{}: finished with tensors missing",
                pending_->target());
    keep_other_files();
    pending_->commit();
  }

 private:
  void keep_other_files() const {
    static const std::regex kReplaced(
        "config\\.json|model(-[0-9]{5}-of-[0-9]{5})?\\.safetensors(\\.index\\.json)?");
    const std::string old = resolve_checkpoint(pending_->target());
    if (std::filesystem::is_directory(old)) {
      link_copy(old, pending_->path(),
                [](const std::string& name) { return !std::regex_match(name, kReplaced); });
    }
  }

  void open_next() {
    writer_.reset();
    in_file_ = 0;
    if (file_ < files_.size() && !files_[file_].tensors.empty()) {
      writer_.emplace(pending_->path() + "/" + files_[file_].name, files_[file_].tensors);
    }
  }

  void write_text(const std::string& name, const std::string& text) const {
    AtomicFile file(pending_->path() + "/" + name);
    file.write(text.data(), text.size());
    file.commit();
  }

  std::vector<ModelFile> files_;
  size_t file_ = 0;     // being written
  size_t in_file_ = 0;  // tensors written to it
  std::optional<PendingDirectory> pending_;
  std::optional<SafetensorsWriter> writer_;  // goes before the directory that it writes in
};

}  // namespace

std::unique_ptr<FullWriter> make_model_directory_writer(const std::string& path,
                                                        std::vector<TensorSpec> plan,
                                                        const FullWriterOptions& options) {
  return std::make_unique<ModelDirectory>(path, std::move(plan), options);
}

}  // namespace fsdp2::ckpt
