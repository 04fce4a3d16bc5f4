#include "core/fsdp/held_bytes.h"

#include <ATen/core/Tensor.h>

#include <unordered_set>

#include "core/fsdp/tree.h"
#include "core/fsdp/unit.h"

namespace fsdp2::fsdp {

namespace {

class Storages {
 public:
  void add(const at::Tensor& tensor) {
    if (tensor.defined() && seen_.insert(tensor.storage().unsafeGetStorageImpl()).second) {
      bytes_ += tensor.storage().nbytes();
    }
  }
  size_t bytes() const { return bytes_; }

 private:
  std::unordered_set<const c10::StorageImpl*> seen_;
  size_t bytes_ = 0;
};

}  // namespace

size_t held_bytes(const nn::Module& module) {
  Storages storages;
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(module)) {
    storages.add(parameter.tensor);
    storages.add(parameter.tensor.grad());
  }
  for (const at::Tensor& buffer : module.buffers()) {
    storages.add(buffer);
  }
  for (const Tree::Found& found : Tree::units_below(module)) {
    if (found.unit->group() == nullptr) {
      continue;
    }
    for (const ShardedParam* param : found.unit->group()->params()) {
      for (const at::Tensor& tensor : param->held()) {
        storages.add(tensor);
      }
    }
  }
  return storages.bytes();
}

}  // namespace fsdp2::fsdp
