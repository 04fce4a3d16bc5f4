#include "core/exported/program/shared_values.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace fsdp2::exported {

void SharedValues::add(const NamedValue& value) {
  if (!value.has_values || value.end == 0) {
    return;
  }
  Region whole = {value.tensor.storage_offset, value.end};
  Regions& regions = regions_of(value);
  const auto apart = std::partition(regions.begin(), regions.end(), [&](const Region& region) {
    return region.end <= whole.begin || whole.end <= region.begin;
  });
  for (auto region = apart; region != regions.end(); ++region) {
    whole = {std::min(whole.begin, region->begin), std::max(whole.end, region->end), true};
  }
  regions.erase(apart, regions.end());
  regions.push_back(whole);
}

at::Tensor SharedValues::read(const NamedValue& value, const std::string& name) {
  Regions& regions = regions_of(value);
  const auto region = std::find_if(regions.begin(), regions.end(), [&](const Region& each) {
    return each.begin <= value.tensor.storage_offset && value.end <= each.end;
  });
  if (region == regions.end() || !region->is_shared) {
    return archive_.read(value, name);
  }
  archive_.check_is_stored(value, name);
  if (!region->memory.defined()) {
    NamedValue all = value;
    all.tensor.storage_offset = region->begin;
    all.tensor.shape = {region->end - region->begin};
    all.tensor.stride = {1};
    region->memory = archive_.read(all, name);
  }
  // No view to autograd: each is a tensor of a module.
  return at::empty({0}, region->memory.options())
      .set_(region->memory.storage(), value.tensor.storage_offset - region->begin,
            value.tensor.shape, value.tensor.stride);
}

}  // namespace fsdp2::exported
