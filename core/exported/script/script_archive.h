// A TorchScript file (torch.jit.save): a zip archive, whose code is compressed.
//
//   F/code/__torch__/a/b.py     source of the classes and functions of a namespace
//   F/data.pkl                  pickle of the module: an object of a class in the code
//   F/constants.pkl             pickle of a tuple: tensors that the code calls CONSTANTS.c0 ...
//   F/data/0 ... F/constants/0 ...      the bytes of one storage each
//   F/version or F/.data/version        of the operators that the code calls
//
// The pickles are read as data by our own reader, and the tensors stay in the file.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/ckpt/torch/zip_records.h"
#include "core/ckpt/value/python_value.h"

namespace fsdp2::exported {

// Any thread may read.
class ScriptArchive {
 public:
  // Errors: kNotFound, kIo; kCorruptData, kUnsupported, naming the file.
  explicit ScriptArchive(const std::string& path);

  const std::string& path() const { return zip_.label(); }
  uint64_t version() const { return version_; }

  // The module. Its tensors were checked against the records that they refer to.
  const ckpt::PythonValue& root() const { return root_; }
  // What the code calls CONSTANTS.c0, CONSTANTS.c1 ...
  std::vector<at::Tensor> read_constants() const;

  // The sources by namespace ("__torch__.a.b"). Errors: kCorruptData; kUnsupported for code that is
  // nested too deeply (script_source.h, script_calls.h).
  std::map<std::string, std::string> read_sources() const;

  // Fills `out` with the box at `begin`, of out's sizes. Floats are converted. Errors:
  // kCorruptData, kIo. REQUIRES: the tensor is one of the root's.
  void read_box(const ckpt::StoredTensor& tensor, at::IntArrayRef begin,
                const at::Tensor& out) const;
  // See ParameterSource. REQUIRES: as read_box.
  std::string mark_of(const ckpt::StoredTensor& tensor) const;
  // In memory of its own, on the CPU. Error: kUnsupported for one that is larger than its record.
  at::Tensor read(const ckpt::StoredTensor& tensor) const;

 private:
  uint64_t read_version() const;
  // The value of NAME.pkl, whose tensors are in the folder NAME.
  ckpt::PythonValue read_pickled(const std::string& name) const;
  void check_tensors(const std::string& folder, const ckpt::PythonValue& value) const;
  at::Tensor read_from(const std::string& folder, const ckpt::StoredTensor& tensor) const;

  const ckpt::ZipRecords zip_;
  const uint64_t version_;
  const ckpt::PythonValue root_;
};

// Whether the file is a zip archive with the records of TorchScript. Errors: kNotFound, kIo,
// kCorruptData (no zip archive).
bool is_script_file(const std::string& path);

}  // namespace fsdp2::exported
