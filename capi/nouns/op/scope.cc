#include "capi/nouns/op/scope.h"

#include "capi/argument.h"
#include "capi/guard.h"
#include "capi/object.h"
#include "include/fsdp2/scope.h"

namespace fsdp2::capi {

namespace {

// Handles that are in order.
std::vector<fsdp2_tensor> read_handles(const fsdp2_tensor* tensors, size_t count) {
  check_array(tensors, count, "tensors");
  std::vector<fsdp2_tensor> handles(tensors, tensors + count);
  for (const fsdp2_tensor handle : handles) {
    pin(handle);
  }
  return handles;
}

}  // namespace

ScopeObject::~ScopeObject() {
  for (const uint64_t id : tensors_) {
    HandleTable::global().remove_if_there(id, Kind::kTensor);
  }
}

void ScopeObject::add(const std::vector<fsdp2_tensor>& tensors) {
  const std::lock_guard lock(mutex_);
  tensors_.reserve(tensors_.size() + tensors.size());
  std::unordered_set<uint64_t> added;
  for (const fsdp2_tensor tensor : tensors) {
    added.insert(tensor.id);
  }
  tensors_.merge(added);
}

void ScopeObject::keep(const std::vector<fsdp2_tensor>& tensors) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < tensors.size(); ++i) {
    FSDP2_CHECK(tensors_.count(tensors[i].id) == 1, Code::kNotFound,
                "tensors[{}]: expected a tensor of this scope, found another", i);
  }
  for (const fsdp2_tensor tensor : tensors) {
    tensors_.erase(tensor.id);
  }
}

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_scope_create(fsdp2_scope* out) {
  return guard(__func__, [&](Call&) {
    capi::check_not_null(out, "out");
    out->id = capi::give(capi::Kind::kScope, std::make_shared<capi::ScopeObject>());
  });
}

fsdp2_status fsdp2_scope_add(fsdp2_scope scope, const fsdp2_tensor* tensors, size_t n_tensors) {
  return guard(__func__, [&](Call&) {
    const auto object = pin(scope);
    object->add(capi::read_handles(tensors, n_tensors));
  });
}

fsdp2_status fsdp2_scope_keep(fsdp2_scope scope, const fsdp2_tensor* tensors, size_t n_tensors) {
  return guard(__func__, [&](Call&) {
    const auto object = pin(scope);
    object->keep(capi::read_handles(tensors, n_tensors));
  });
}

fsdp2_status fsdp2_scope_destroy(fsdp2_scope scope) {
  return capi::destroy(__func__, capi::Kind::kScope, scope.id);
}

fsdp2_status fsdp2_scope_duplicate(fsdp2_scope scope, fsdp2_scope* out) {
  return capi::duplicate(__func__, capi::Kind::kScope, scope, out);
}
