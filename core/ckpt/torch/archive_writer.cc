#include <ATen/Functions.h>
#include <caffe2/serialize/inline_container.h>
#include <fmt/ranges.h>

#include <charconv>
#include <utility>

#include "core/base/error.h"
#include "core/ckpt/pickle/writer.h"
#include "core/ckpt/torch/archive.h"

namespace fsdp2::ckpt {

namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "records are written as they are");

// What torch.save of 2.11 puts beside the pickle.
constexpr std::pair<const char*, std::string_view> kSmallRecords[] = {
    {".format_version", "1"},
    {".storage_alignment", "64"},
    {"byteorder", "little"},
};

}  // namespace

TorchArchiveWriter::TorchArchiveWriter(ByteSink sink, const PythonValue& tree, bool with_checksums)
    : sink_(std::move(sink)) {
  plan_records(tree);
  const std::string pickle = write_pickle(tree);
  zip_.reset(new caffe2::serialize::PyTorchStreamWriter(
      [this](const void* data, size_t count) { return pass_on(data, count); }, with_checksums));
  write_record("data.pkl", pickle.data(), pickle.size());
  for (const auto& [name, text] : kSmallRecords) {
    write_record(name, text.data(), text.size());
  }
}

// LibTorch's writer ends an archive that was not ended, here and when a constructor fails; nobody
// wants those bytes.
TorchArchiveWriter::~TorchArchiveWriter() { abandoned_ = true; }

// Left to its destructor, that would end the process where there is no memory for it.
void TorchArchiveWriter::EndAndDelete::operator()(
    caffe2::serialize::PyTorchStreamWriter* zip) const noexcept {
  try {
    if (!zip->finalized()) {
      zip->writeEndOfFile();
    }
  } catch (const std::exception&) {
    // It counts as ended all the same.
  }
  delete zip;
}

// Claims success even if there was none: on a short write LibTorch's writer throws in its
// destructor, which would end the process on a full disk.
size_t TorchArchiveWriter::pass_on(const void* data, size_t count) {
  if (!abandoned_ && !sink_error_) {
    try {
      sink_(data, count);
      bytes_written_ += static_cast<int64_t>(count);
    } catch (...) {
      sink_error_ = std::current_exception();
    }
  }
  return count;
}

void TorchArchiveWriter::check_sink() {
  if (sink_error_) {
    std::rethrow_exception(sink_error_);
  }
}

void TorchArchiveWriter::write_record(const std::string& name, const void* data, size_t count) {
  zip_->writeRecord(name, data, count);
  check_sink();
}

void TorchArchiveWriter::plan_records(const PythonValue& value) {
  if (const auto* tensor = value.as<StoredTensor>()) {
    const std::string next = std::to_string(records_.size());
    if (tensor->storage == next) {
      records_.push_back({tensor->dtype, tensor->storage_numel});
      return;
    }
    size_t index = records_.size();
    const std::string& key = tensor->storage;
    std::from_chars(key.data(), key.data() + key.size(), index);
    FSDP2_CHECK(index < records_.size() && key == std::to_string(index) &&
                    tensor->dtype == records_[index].dtype &&
                    tensor->storage_numel == records_[index].numel,
                Code::kInvalidArgument,
                "a tensor's record is {}, expected {} or an earlier one of the same dtype and size",
                key, next);
  }
  for_each_child(value, [this](const PythonValue& child) { plan_records(child); });
}

void TorchArchiveWriter::append(const at::Tensor& tensor) {
  FSDP2_CHECK(next_ < records_.size(), Code::kInvalidArgument,
              "a tensor comes after all {} of the archive", records_.size());
  const Record& record = records_[next_];
  FSDP2_CHECK(tensor.defined() && tensor.layout() == c10::kStrided, Code::kInvalidArgument,
              "record {} of an archive: expected a strided tensor", next_);
  FSDP2_CHECK(tensor.scalar_type() == record.dtype && tensor.numel() == record.numel,
              Code::kInvalidArgument,
              "record {} of an archive: expected {} elements of {}, found {} [{}]", next_,
              record.numel, c10::toString(record.dtype), c10::toString(tensor.scalar_type()),
              fmt::join(tensor.sizes(), ", "));
  FSDP2_CHECK(tensor.numel() == 0 || tensor.storage().nbytes() > 0, Code::kWrongState,
              "record {} of an archive: the tensor has no memory (deferred, or freed after use)",
              next_);
  const at::Tensor values = tensor.detach().to(at::kCPU).contiguous().resolve_conj().resolve_neg();
  const char nothing = 0;
  const void* data = values.numel() == 0 ? &nothing : values.const_data_ptr();
  write_record(fmt::format("data/{}", next_), data, values.nbytes());
  ++next_;
}

void TorchArchiveWriter::finish() {
  FSDP2_CHECK(next_ == records_.size(), Code::kWrongState,
              "an archive is finished after {} of {} tensors", next_, records_.size());
  zip_->writeEndOfFile();
  check_sink();
}

std::string write_torch_archive(const PythonValue& tree, const std::vector<at::Tensor>& tensors) {
  std::string bytes;
  TorchArchiveWriter writer(
      [&](const void* data, size_t count) { bytes.append(static_cast<const char*>(data), count); },
      tree);
  for (const at::Tensor& tensor : tensors) {
    writer.append(tensor);
  }
  writer.finish();
  return bytes;
}

}  // namespace fsdp2::ckpt
