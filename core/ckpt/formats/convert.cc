#include "core/ckpt/formats/convert.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/progress_log.h"
#include "core/base/text.h"
#include "core/ckpt/formats/format_table.h"
#include "core/ckpt/formats/make_full_writer.h"
#include "core/ckpt/formats/open_checkpoint.h"
#include "core/ckpt/formats/place_of_model.h"
#include "core/ckpt/formats/replaced_file.h"
#include "core/ckpt/state/state_source.h"
#include "core/ckpt/state/tree_copy.h"
#include "core/ckpt/store/steady_path.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

constexpr int64_t kMaxConfigBytes = int64_t{1} << 24;

class Conversion {
 public:
  Conversion(const std::string& from, const std::string& to, const ConvertOptions& options)
      : steady_(from),
        source_(steady_.explain([&] { return open_checkpoint(from); })),
        to_(to),
        options_(options),
        row_(row_of(options.format)) {}

  ConvertResult run() {
    return steady_.explain([&] { return convert(); });
  }

 private:
  // Names of parameters, not a tree: where the format has nothing else, and a .pth file for
  // load_state_dict.
  bool needs_flat() const {
    return row_.make_writer != nullptr && (options_.model_only || row_.copy_tree == nullptr);
  }
  bool wants_model_alone() const { return options_.model_only || needs_flat(); }
  bool is_plain(const StateEntry& object) const;
  void choose();
  void count_written(const at::Tensor& tensor);
  void write_flat();
  void write_tree();
  ConvertResult convert();
  std::string config_json() const;
  double bytes_to_write() const;

  const SteadyPath steady_;  // a save may replace the source while it is read
  std::unique_ptr<StateSource> source_;
  const std::string& to_;
  const ConvertOptions& options_;
  const FormatRow& row_;
  std::vector<TreeMove> moves_;
  ConvertResult result_;
  std::optional<ProgressLog> progress_;
};

bool holds_tensor(const PythonValue& value) {
  bool found = value.as<StoredTensor>() != nullptr;
  for_each_child(value, [&](const PythonValue& child) { found = found || holds_tensor(child); });
  return found;
}

// Objects that need more than plain data are of the program that wrote them; damage is an error.
bool Conversion::is_plain(const StateEntry& object) const {
  try {
    FSDP2_CHECK(
        !holds_tensor(source_->read_object(object)), Code::kUnsupported,
        "tensors are inside it, for example in a tuple, where no format has a place for them");
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

// Which entries go, and where. Loaders look for a run's model under "model", but for that of a
// .pth file, which may be a state_dict: what has the names of one remains one there, as in
// PyTorch's dcp_to_torch_save.
void Conversion::choose() {
  const std::vector<StateEntry>& entries = source_->entries();
  const PlaceOfModel model = wants_model_alone() ? place_of_model(*source_) : PlaceOfModel();
  const bool has_model = !model.dict.empty();
  const bool is_flat = !has_model && std::all_of(entries.begin(), entries.end(),
                                                 [](const auto& e) { return e.path.size() == 1; });
  for (const StateEntry& entry : entries) {
    StatePath path = entry.path;
    const bool in_model = has_model ? model.has(entry) : entry.path.size() == 1;
    if (wants_model_alone() && (!entry.dtype || !in_model)) {
      ++result_.left_out;
      continue;
    }
    if (has_model) {
      path = model.path_in_model(entry);
    }
    if (needs_flat()) {
      path = {name_of(path)};
    } else if (has_model) {
      path.insert(path.begin(), std::string(kModel));
    } else if (entry.dtype && (is_flat || options_.model_only) &&
               options_.format != CheckpointFormat::kPth) {
      path.insert(path.begin(), std::string(kModel));
    }
    if (!entry.dtype && !is_plain(entry)) {
      ++result_.left_out;
      continue;
    }
    moves_.push_back({&entry, std::move(path)});
    ++(entry.dtype ? result_.tensors : result_.objects);
  }
  FSDP2_CHECK(!wants_model_alone() || result_.tensors > 0, Code::kInvalidArgument,
              "{}: holds no model: nothing is under \"{}\"", source_->path(), kModel);
}

double Conversion::bytes_to_write() const {
  double bytes = 0;
  for (const TreeMove& move : moves_) {
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
  std::error_code error;
  const bool has_own = options_.config_path.empty() &&
                       std::filesystem::exists(source_->path() + "/config.json", error);
  FSDP2_CHECK(
      has_own || !options_.config_path.empty(), Code::kInvalidArgument,
      "{}: a model directory needs the model's config.json, which {} does not have: name one "
      "(config_path, fsdp2 convert --model-config)",
      to_, source_->path());
  return read_text_file(has_own ? source_->path() + "/config.json" : options_.config_path,
                        kMaxConfigBytes);
}

void Conversion::write_flat() {
  std::vector<TensorSpec> plan;
  std::unordered_map<std::string, const StateEntry*> by_name;
  for (const TreeMove& move : moves_) {
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
  steady_.check();
  writer->finish();
}

void Conversion::write_tree() {
  row_.copy_tree({*source_, std::move(moves_), to_,
                  [this](const at::Tensor& tensor) { count_written(tensor); },
                  [this] { steady_.check(); }, options_.ranks, options_.step});
}

ConvertResult Conversion::convert() {
  check_may_replace_file(to_);
  choose();
  progress_.emplace("checkpoint", "writing " + to_, bytes_to_write());
  if (needs_flat()) {
    write_flat();
    return result_;
  }
  FSDP2_CHECK(row_.copy_tree != nullptr, Code::kUnsupported, "{}: {} is not written", to_,
              row_.name);
  write_tree();
  return result_;
}

}  // namespace

ConvertResult convert_checkpoint(const std::string& from, const std::string& to,
                                 const ConvertOptions& options) {
  return Conversion(from, to, options).run();
}

}  // namespace fsdp2::ckpt
