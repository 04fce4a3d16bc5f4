#include "core/ckpt/torch/pth_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

PythonValue flat_dict(const std::vector<TensorSpec>& plan, const std::string& file) {
  PythonDict dict;
  std::unordered_set<std::string> names;
  for (const TensorSpec& spec : plan) {
    FSDP2_CHECK(names.insert(spec.name).second, Code::kInvalidArgument, "{}: {} is planned twice",
                file, printable_name(spec.name));
    const auto index = static_cast<int64_t>(dict.items.size());
    dict.items.push_back({spec.name, describe_tensor(index, spec.dtype, spec.shape)});
  }
  return dict;
}

// Walks a tree and keeps the way to where it is.
class TensorLister {
 public:
  std::vector<PthTensor> list(const PythonValue& tree) {
    visit(tree);
    return std::move(tensors_);
  }

 private:
  void visit(const PythonValue& value) {
    if (const auto* tensor = value.as<StoredTensor>()) {
      tensors_.push_back({joined_path(), path_, tensor});
    } else if (const auto* dict = value.as<PythonDict>()) {
      for (const PythonItem& item : dict->items) {
        visit_under(item.key, item.value);
      }
    } else if (const auto* list = value.as<PythonList>()) {
      visit_items(list->items);
    } else if (const auto* tuple = value.as<PythonTuple>()) {
      visit_items(tuple->items);
    }
  }

  void visit_items(const std::vector<PythonValue>& items) {
    for (size_t i = 0; i < items.size(); ++i) {
      visit_under(static_cast<int64_t>(i), items[i]);
    }
  }

  void visit_under(const PythonValue& key, const PythonValue& value) {
    if (const auto* text = key.as<std::string>()) {
      path_.emplace_back(*text);
    } else if (const auto* number = key.as<int64_t>()) {
      path_.emplace_back(*number);
    } else {
      return;  // a tensor under a key that no name can be made of
    }
    visit(value);
    path_.pop_back();
  }

  std::string joined_path() const {
    std::string name;
    for (const PathPart& part : path_) {
      name += name.empty() ? "" : ".";
      const auto* text = std::get_if<std::string>(&part);
      name += text != nullptr ? *text : std::to_string(std::get<int64_t>(part));
    }
    return name;
  }

  std::vector<PathPart> path_;
  std::vector<PthTensor> tensors_;
};

}  // namespace

PthWriter::PthWriter(std::string path, std::vector<TensorSpec> plan)
    : PthWriter(path, flat_dict(plan, path), plan) {}

PthWriter::PthWriter(std::string path, const PythonValue& tree, std::vector<TensorSpec> plan)
    : file_(std::move(path)),
      plan_(std::move(plan)),
      archive_([this](const void* data, size_t count) { file_.write(data, count); }, tree) {
  FSDP2_CHECK(archive_.records() == plan_.size(), Code::kInvalidArgument,
              "{}: a tree with {} tensors and a plan for {}", file_.path(), archive_.records(),
              plan_.size());
}

void PthWriter::append(const std::string& name, const at::Tensor& tensor) {
  FSDP2_CHECK(next_ < plan_.size(), Code::kInvalidArgument,
              "{}: tensor {} comes after all {} planned tensors", file_.path(),
              printable_name(name), plan_.size());
  const TensorSpec& spec = plan_[next_];
  FSDP2_CHECK(name == spec.name, Code::kInvalidArgument,
              "{}: tensor {} was appended where the plan has {}", file_.path(),
              printable_name(name), printable_name(spec.name));
  FSDP2_CHECK(tensor.defined() && tensor.scalar_type() == spec.dtype &&
                  tensor.sizes() == at::IntArrayRef(spec.shape),
              Code::kInvalidArgument, "{}: tensor {}: the plan says {} [{}], the tensor is {} [{}]",
              file_.path(), printable_name(name), c10::toString(spec.dtype),
              fmt::join(spec.shape, ", "),
              tensor.defined() ? c10::toString(tensor.scalar_type()) : "undefined",
              fmt::join(tensor.defined() ? tensor.sizes() : at::IntArrayRef(), ", "));
  archive_.append(tensor);
  ++next_;
}

void PthWriter::finish() {
  FSDP2_CHECK(next_ == plan_.size(), Code::kWrongState,
              "{}: finished after {} of {} tensors; {} is missing", file_.path(), next_,
              plan_.size(), printable_name(plan_[next_].name));
  archive_.finish();
  file_.commit();
}

std::vector<PthTensor> list_tensors(const PythonValue& tree) { return TensorLister().list(tree); }

PthSource::PthSource(const std::string& path, const std::string& prefix) : archive_(path) {
  for (const PthTensor& found : list_tensors(archive_.root())) {
    if (found.name.compare(0, prefix.size(), prefix) != 0) {
      continue;
    }
    const std::string name = found.name.substr(prefix.size());
    FSDP2_CHECK(tensors_.emplace(name, found.tensor).second, Code::kCorruptData,
                "{}: two tensors are named {}", path, printable_name(name));
  }
}

std::vector<std::string> PthSource::names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, tensor] : tensors_) {
    names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

const StoredTensor* PthSource::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second;
}

void PthSource::read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
                     at::Tensor out) {
  const StoredTensor* tensor = find(name);
  FSDP2_CHECK(tensor != nullptr, Code::kNotFound, "{}: no tensor {} in this file", archive_.label(),
              printable_name(name));
  FSDP2_CHECK(shape == at::IntArrayRef(tensor->shape), Code::kCorruptData,
              "{}: the model says [{}], {} has [{}]", printable_name(name), fmt::join(shape, ", "),
              archive_.label(), fmt::join(tensor->shape, ", "));
  // A tensor without dims is one row, of which none may be asked for.
  const at::Tensor rows =
      shape.empty() && out.dim() == 1 && out.numel() == 1 ? out.squeeze(0) : out;
  if (rows.numel() == 0) {
    return;
  }
  std::vector<int64_t> begin(shape.size(), 0);
  if (!begin.empty()) {
    begin[0] = first_row;
  }
  FSDP2_CHECK(rows.dim() == static_cast<int64_t>(shape.size()) &&
                  (shape.empty() || rows.sizes().slice(1) == shape.slice(1)),
              Code::kInvalidArgument,
              "{}: cannot read rows from {} on of [{}] into a tensor of [{}]", printable_name(name),
              first_row, fmt::join(shape, ", "), fmt::join(out.sizes(), ", "));
  archive_.read_box(*tensor, begin, rows);
}

}  // namespace fsdp2::ckpt
