#include "core/ckpt/torch/pth_file.h"

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
      tensors_.push_back({name_of(path_), path_, tensor});
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

  StatePath path_;
  std::vector<PthTensor> tensors_;
};

}  // namespace

PthWriter::PthWriter(std::string path, std::vector<TensorSpec> plan)
    : PthWriter(path, flat_dict(plan, path), plan) {}

PthWriter::PthWriter(std::string path, const PythonValue& tree, std::vector<TensorSpec> plan)
    : file_(std::move(path)),
      planned_(std::move(plan), file_.path()),
      archive_([this](const void* data, size_t count) { file_.write(data, count); }, tree) {
  FSDP2_CHECK(archive_.records() == planned_.plan().size(), Code::kInvalidArgument,
              "{}: a tree with {} tensors and a plan for {}", file_.path(), archive_.records(),
              planned_.plan().size());
}

void PthWriter::append(const std::string& name, const at::Tensor& tensor) {
  planned_.check_next(name, tensor);
  archive_.append(tensor);
  planned_.advance();
}

void PthWriter::finish() {
  planned_.check_complete();
  archive_.finish();
  file_.commit();
}

std::vector<PthTensor> list_tensors(const PythonValue& tree) { return TensorLister().list(tree); }

}  // namespace fsdp2::ckpt
