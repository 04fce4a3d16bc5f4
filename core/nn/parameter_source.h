// Where the values of a module's parameters come from, read by rows, so that a rank that holds a
// shard of a parameter never needs the whole of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp2::nn {

class ParameterSource {
 public:
  virtual ~ParameterSource() = default;

  // Whether read would find the name. A tied parameter is looked up under each of its names.
  virtual bool contains(const std::string& /*name*/) const { return true; }

  // What tells the named parameter's values from others, at the price of a few bytes: a seed, a
  // checksum that a file has, or one of its first bytes. Ranks that read their own rows compare it.
  // Empty if that is not known. REQUIRES: contains.
  virtual std::string mark_of(const std::string& /*name*/) const { return {}; }

  // Tensors that it holds and that a module whose parameters have these names does not take. Empty
  // for a source that makes values of any name.
  virtual std::vector<std::string> unused(const std::vector<std::string>& /*parameters*/) const {
    return {};
  }

  // Writes rows [first_row, first_row + out.size(0)) of dim 0 of the named parameter, whose full
  // shape is `shape`, into `out` (contiguous, any float dtype: values are converted). A 0-dim
  // parameter is one row. Reading no rows is fine. Thread-compatible.
  // Errors: kNotFound, kCorruptData, kIo, naming the parameter and the file.
  virtual void read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
                    at::Tensor out) = 0;
};

// The first of a tied parameter's names that the source has; if it has none, the first of them.
const std::string& name_in(const ParameterSource& source, const std::vector<std::string>& names);

// The rows that read() is asked for, as a box of the parameter.
struct ParameterRows {
  std::vector<int64_t> begin;  // in each dim
  at::Tensor into;             // `out`, without dims where the parameter has none
};
ParameterRows rows_of(at::IntArrayRef shape, int64_t first_row, const at::Tensor& out);

}  // namespace fsdp2::nn
