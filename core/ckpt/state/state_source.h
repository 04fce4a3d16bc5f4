// A checkpoint of any format, open for reading: names, shapes, and any box of any tensor. Each
// format has its own; formats/open_checkpoint.h finds the one for a path.
//
//   const auto source = open_checkpoint("out/step-00000100");
//   const StateEntry* entry = source->find("model.norm.weight");
//   source->read(*entry, {0}, out);
//
// Reading checks what it reads: against the checksums of our manifest, else against those of the
// format where it has any. Immutable: any thread may read.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/ckpt/state/state_dict.h"
#include "core/ckpt/value/python_value.h"

namespace fsdp2::ckpt {

struct StateEntry {
  std::string name;
  StatePath path;                       // may be just the name
  std::optional<at::ScalarType> dtype;  // none: a Python object
  std::vector<int64_t> shape;           // global
  size_t index = 0;                     // of the source's own
};

class StateSource {
 public:
  virtual ~StateSource() = default;

  const std::string& path() const { return path_; }
  const std::vector<StateEntry>& entries() const { return entries_; }
  // nullptr if there is none. Lives as long as the source.
  const StateEntry* find(std::string_view name) const;

  // Fills `out` (any device, strides and float dtype) with the box of the tensor that begins at
  // `begin` and has out's sizes. Errors: kCorruptData, also where no chunk holds a part of the box;
  // kInvalidArgument if box or dtype do not fit; kIo. They name file and tensor.
  virtual void read(const StateEntry& entry, at::IntArrayRef begin,
                    const at::Tensor& out) const = 0;
  // Whether all ranks must call read together, for the same entries in the same order, with empty
  // boxes too.
  virtual bool is_collective() const { return false; }
  virtual PythonValue read_object(const StateEntry& entry) const = 0;
  // Reads everything and compares all checksums there are.
  virtual void verify() const = 0;

 protected:
  explicit StateSource(std::string path) : path_(std::move(path)) {}
  // kCorruptData for a name twice.
  void set_entries(std::vector<StateEntry> entries);

 private:
  std::string path_;
  std::vector<StateEntry> entries_;
  std::unordered_map<std::string, size_t> index_;
};

// A tensor, or the box of `sizes` at `begin` in it, in memory of its own, on the CPU. Errors: those
// of StateSource::read; kOutOfMemory.
at::Tensor read_whole(const StateSource& source, const StateEntry& entry);
at::Tensor read_box(const StateSource& source, const StateEntry& entry, at::IntArrayRef begin,
                    at::IntArrayRef sizes);

}  // namespace fsdp2::ckpt
