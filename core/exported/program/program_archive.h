// The .pt2 file of torch.export.save: a zip archive as torch.save writes it.
//
//   F/archive_format "pt2", F/archive_version "0", F/byteorder "little"
//   F/models/model.json                               the program (program_reader.h)
//   F/data/weights/model_weights_config.json          parameters and persistent buffers by name
//   F/data/weights/weight_0 ...                       the bytes of one storage each
//   F/data/constants/model_constants_config.json      other buffers and constants by name
//   F/data/constants/tensor_0 ...
//   F/extra/fsdp2.json                                what export_model.py knows beyond PyTorch
//
// Tensors that share a storage share its record; ties are the names with equal record, offset,
// shape and strides. A program that was exported without values has one record of 0 bytes for
// everything; then export_model.py's list tells the ties.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/accumulate.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/ckpt/torch/zip_records.h"
#include "core/ckpt/value/python_value.h"

namespace fsdp2::exported {

constexpr char kWeightsConfig[] = "data/weights/model_weights_config.json";
constexpr char kConstantsConfig[] = "data/constants/model_constants_config.json";

struct NamedValue {
  ckpt::StoredTensor tensor;  // its storage: the name of the record
  int64_t end = 0;            // one past its last element in the record; 0: it has no elements
  bool has_values = true;     // false: exported without

  // Whether it has all elements from its first to its last.
  bool is_dense() const {
    return c10::multiply_integers(tensor.shape) == end - tensor.storage_offset;
  }
  // Whether the range of its elements has some of the other's. REQUIRES: one record.
  bool overlaps(const NamedValue& other) const {
    return tensor.dtype == other.tensor.dtype && tensor.storage_offset < other.end &&
           other.tensor.storage_offset < end;
  }
  // Whether its first or its last element is in the other's range. REQUIRES: one record.
  bool begins_or_ends_in(const NamedValue& other) const {
    const auto is_in_other = [&](int64_t element) {
      return element >= other.tensor.storage_offset && element < other.end;
    };
    return tensor.dtype == other.tensor.dtype && end > 0 &&
           (is_in_other(tensor.storage_offset) || is_in_other(end - 1));
  }
};

// Any thread may read.
class ProgramArchive {
 public:
  // Errors: kNotFound, kIo; kCorruptData, kUnsupported, naming the file and the key.
  explicit ProgramArchive(const std::string& path);

  const std::string& path() const { return zip_.label(); }
  // The text of models/model.json.
  std::string program() const;
  // nullptr if there is none. Whether a buffer is persistent says where it is: in the weights, or
  // among the constants.
  const NamedValue* find_weight(const std::string& name) const;
  const NamedValue* find_constant(const std::string& name) const;
  // A text that is equal for names of one tensor: ties.
  std::string identity_of(const std::string& name, const NamedValue& value) const;

  // Fills `out` with the box at `begin`, of out's sizes. Floats are converted. Errors:
  // kCorruptData, kIo. REQUIRES: the value is one of this archive and has values.
  void read_box(const NamedValue& value, at::IntArrayRef begin, const at::Tensor& out) const;
  // In memory of its own, on the CPU. Error: kUnsupported for one that is larger than its record.
  at::Tensor read(const NamedValue& value, const std::string& name) const;
  void check_is_stored(const NamedValue& value, const std::string& name) const;  // read's error
  // See ParameterSource. REQUIRES: as read_box.
  std::string mark_of(const NamedValue& value) const {
    return zip_.mark_of(value.tensor.storage, value.tensor);
  }
  // Compares all checksums.
  void verify() const { zip_.verify(); }

 private:
  using Values = std::map<std::string, NamedValue>;

  std::string read_text(const std::string& name) const;
  void check_format() const;
  Values read_config(const std::string& name) const;
  void read_ties();

  const ckpt::ZipRecords zip_;
  Values weights_;
  Values constants_;
  std::map<std::string, std::string> listed_ties_;  // name -> the first of its names
};

}  // namespace fsdp2::exported
