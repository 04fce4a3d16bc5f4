// The files of torch.save, reader and writer: .pth files, and the items in .distcp files.
//
// An archive is a zip whose entries are stored as they are, all under one folder:
//
//   F/data.pkl               pickle (protocol 2) of the value; its tensors refer to records by key
//   F/.format_version        1
//   F/.storage_alignment     64
//   F/byteorder              little
//   F/data/0, F/data/1 ...   records: the tensors' bytes, from a multiple of 64 on
//   F/version                3
//   F/.data/serialization_id
//
// torch.load(weights_only=True) reads what is written here. The reader takes what torch.save of
// torch 1.6 or newer writes; it refuses compressed entries, the older format that is no zip, and
// big-endian files.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/ckpt/bytes/byte_source.h"
#include "core/ckpt/torch/zip_records.h"
#include "core/ckpt/value/python_value.h"

namespace caffe2::serialize {
class PyTorchStreamWriter;
}

namespace fsdp2::ckpt {

// Takes the next `count` bytes of a file; throws if it cannot.
using ByteSink = std::function<void(const void* data, size_t count)>;

// Writes an archive front to back, one tensor at a time, holding none of them.
//
//   PythonValue tree = PythonDict{{{"a", describe_tensor(0, at::kFloat, {2, 3})},
//                                  {"b", describe_tensor(1, at::kLong, {4})}}};
//   TorchArchiveWriter writer([&](const void* data, size_t count) { file.write(data, count); },
//                             tree);
//   writer.append(a);
//   writer.append(b);
//   writer.finish();
class TorchArchiveWriter {
 public:
  // The tree's tensors have the keys "0", "1", ... in the order of their first use; a key may be
  // used again (tied weights) by a tensor of the same dtype and storage size.
  // Errors: kInvalidArgument otherwise; kUnsupported for a dtype that torch.save lacks; those of
  // the sink, here and in all calls below.
  // with_checksums: CRC-32 of each record, which costs more time than the writing; without, the
  // fields are 0 (as after torch.serialization.set_crc32_options(False)), for who keeps his own.
  TorchArchiveWriter(ByteSink sink, const PythonValue& tree, bool with_checksums = true);
  ~TorchArchiveWriter();
  TorchArchiveWriter(const TorchArchiveWriter&) = delete;
  TorchArchiveWriter& operator=(const TorchArchiveWriter&) = delete;

  // How many tensors append is to be called with.
  size_t records() const { return records_.size(); }
  // The memory of the next key: a tensor on any device, of that dtype and number of elements.
  // Strides do not matter: elements are written row-major, as describe_tensor says they are.
  void append(const at::Tensor& tensor);
  // kWrongState if tensors are missing.
  void finish();
  int64_t bytes_written() const { return bytes_written_; }

 private:
  struct Record {
    at::ScalarType dtype;
    int64_t numel;
  };

  void plan_records(const PythonValue& value);
  size_t pass_on(const void* data, size_t count);
  void write_record(const std::string& name, const void* data, size_t count);
  void check_sink();

  ByteSink sink_;
  std::exception_ptr sink_error_;
  bool abandoned_ = false;
  int64_t bytes_written_ = 0;
  std::vector<Record> records_;
  size_t next_ = 0;
  struct EndAndDelete {
    void operator()(caffe2::serialize::PyTorchStreamWriter* zip) const noexcept;
  };
  std::unique_ptr<caffe2::serialize::PyTorchStreamWriter, EndAndDelete> zip_;
};

// An archive that is open for reading. Any thread may read from it if any may from its bytes.
class TorchArchive {
 public:
  // A whole file. Errors, here and below: kNotFound, kIo; kCorruptData; kUnsupported; naming the
  // file.
  explicit TorchArchive(const std::string& path);
  explicit TorchArchive(std::shared_ptr<const ByteSource> file);
  // `length` bytes of a file from `offset` on. `item` names them in messages.
  TorchArchive(std::shared_ptr<const ByteSource> file, int64_t offset, int64_t length,
               const std::string& item);

  // What was saved; values inside it may be unread (PickleNames::kAnyTorchSave), but it is not one
  // itself. Its tensors were checked against the records that they refer to; their bytes
  // are still in the file.
  const PythonValue& root() const { return root_; }

  // A tensor of this archive's tree, read into memory and compared with the checksum in the file.
  // Contiguous, on the CPU.
  at::Tensor read(const StoredTensor& tensor) const;

  // Fills `out`, on any device and with any strides, with the box of the tensor that begins at
  // `begin` and has out's sizes, straight where its memory allows. Floats are converted to another
  // float dtype; otherwise dtypes must be equal. The record's checksum is compared: of what was
  // just read if that is all of the record, else once for all boxes, reading the whole record for
  // it. Only the bytes needed are read if there is no checksum, or they were compared already.
  // Errors: kInvalidArgument if the box or dtype does not fit, kWrongState if `out` has no memory;
  // kCorruptData, after which `out` may have been written to.
  void read_box(const StoredTensor& tensor, at::IntArrayRef begin, const at::Tensor& out) const;

  // Reads every record and compares checksums; a file written without has none to compare.
  void verify() const { zip_.verify(); }

  // CRC-32 of the record that a tensor is in; nullopt if the file was written without.
  std::optional<uint32_t> checksum(const StoredTensor& tensor) const;
  // The same of the values that are no tensors.
  std::optional<uint32_t> checksum_of_objects() const;
  // Whether what read_box gives has been compared with a checksum.
  bool has_checksum(const StoredTensor& tensor) const {
    return zip_.file().is_checked() || checksum(tensor).has_value();
  }
  // Where a tensor's first element lies in the file.
  int64_t file_offset(const StoredTensor& tensor) const;
  // For messages: the path, and the item's name if it is one.
  const std::string& label() const { return zip_.label(); }

 private:
  void read_root();
  const ZipRecord& record_of(const StoredTensor& tensor) const;
  void check_is_readable() const;
  void check_tensors(const PythonValue& value) const;

  const ZipRecords zip_;
  PythonValue root_;
};

// As TorchArchive::verify, of an archive in bytes [offset, offset + length), whatever its values
// are: also those that are not read. Whether the values that are no tensors had a checksum.
bool verify_torch_archive(std::shared_ptr<const ByteSource> file, int64_t offset, int64_t length,
                          const std::string& label);

// The tree with its tensors' bytes as one block: for objects and small values.
std::string write_torch_archive(const PythonValue& tree, const std::vector<at::Tensor>& tensors);

}  // namespace fsdp2::ckpt
