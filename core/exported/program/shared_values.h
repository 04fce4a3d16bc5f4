// The values of a program's buffers and constants. Where the elements of some overlap in the file,
// as those of a tensor and of a view of it do, they share their memory here as well: what a program
// writes into one of them is in the others.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/exported/program/program_archive.h"

namespace fsdp2::exported {

class SharedValues {
 public:
  explicit SharedValues(const ProgramArchive& archive) : archive_(archive) {}

  // All of them, before the first is read.
  void add(const NamedValue& value);
  // Error: that of ProgramArchive::read. REQUIRES: it was added.
  at::Tensor read(const NamedValue& value, const std::string& name);

 private:
  // Elements of a record that belong together.
  struct Region {
    int64_t begin;
    int64_t end;
    bool is_shared = false;
    at::Tensor memory = {};  // of a shared one, [end - begin], once it is read
  };
  using Regions = std::vector<Region>;  // apart from one another

  Regions& regions_of(const NamedValue& value) {
    return regions_[{value.tensor.storage, value.tensor.dtype}];
  }

  const ProgramArchive& archive_;
  std::map<std::pair<std::string, at::ScalarType>, Regions> regions_;
};

}  // namespace fsdp2::exported
