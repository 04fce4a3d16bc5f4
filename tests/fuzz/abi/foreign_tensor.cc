#include "tests/fuzz/abi/foreign_tensor.h"

#include <array>
#include <cstring>

#include "tests/capi/dlpack.h"
#include "tests/fuzz/abi/history.h"

namespace fsdp2::fuzz {

namespace {

struct Owned {
  DLManagedTensorVersioned managed{};
  std::array<int64_t, 64> shape{};
  std::array<int64_t, 64> strides{};
  alignas(64) std::array<float, 64> data{};
};

void delete_owned(DLManagedTensorVersioned* self) {
  auto* owned = static_cast<Owned*>(self->manager_ctx);
  if (!came_back(self)) {
    report("a DLPack tensor is deleted that was not lent");
  }
  delete owned;
}

void make_wrong(Owned& owned, Random& random) {
  DLTensor& tensor = owned.managed.dl_tensor;
  switch (random.below(10)) {
    case 0:
      owned.managed.version.major = 2;
      break;
    case 1:
      owned.managed.flags = 1;  // read-only
      break;
    case 2:
      tensor.data = nullptr;
      break;
    case 3:
      tensor.data = reinterpret_cast<char*>(tensor.data) + 1;
      break;
    case 4:
      tensor.ndim = random.one_in(2) ? -1 : 60;
      break;
    case 5:
      tensor.shape[0] = random.one_in(2) ? -2 : INT64_MAX;
      break;
    case 6:
      owned.strides[0] = -1;
      tensor.strides = owned.strides.data();
      break;
    case 7:
      tensor.dtype.code = static_cast<uint8_t>(random.below(20));
      tensor.dtype.bits = static_cast<uint8_t>(8 * random.below(20));
      break;
    case 8:
      tensor.device.device_type = static_cast<int32_t>(random.below(20));
      break;
    default:
      tensor.shape = nullptr;
      break;
  }
}

}  // namespace

void* make_foreign_tensor(Source source, bool wrong) {
  if (source.random.one_in(3)) {
    if (void* loan = source.holdings.take_loan(source.random)) {
      return loan;
    }
  }
  auto* owned = new Owned();
  owned->shape = {2, 4};
  owned->managed = floats_of(owned->data.data(), owned->shape.data());
  owned->managed.dl_tensor.ndim = 2;
  owned->managed.manager_ctx = owned;
  owned->managed.deleter = delete_owned;
  if (wrong) {
    make_wrong(*owned, source.random);
  }
  lend(&owned->managed);
  return &owned->managed;
}

void delete_foreign_tensor(void* managed) {
  auto* tensor = static_cast<DLManagedTensorVersioned*>(managed);
  tensor->deleter(tensor);
}

}  // namespace fsdp2::fuzz
