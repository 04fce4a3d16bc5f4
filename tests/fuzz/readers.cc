#include "tests/fuzz/readers.h"

#include <ATen/Functions.h>
#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/ckpt/dcp_metadata.h"
#include "core/ckpt/pickle_reader.h"
#include "core/ckpt/pickle_writer.h"
#include "core/ckpt/pth_state_dict.h"
#include "core/ckpt/safetensors.h"
#include "core/ckpt/torch_archive.h"
#include "core/models/registry.h"

namespace fsdp2::fuzz {

namespace {

// Bytes as a file, without a disk.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& bytes) : file_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    const ssize_t put = ::write(file_, bytes.data(), bytes.size());
    if (put != static_cast<ssize_t>(bytes.size())) {
      throw std::runtime_error("cannot write to a file in memory");
    }
  }
  ~MemoryFile() { ::close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

// Whether the action ends well; an error must be one of those that a file's content causes.
template <typename Action>
bool accepted(const Action& action) {
  try {
    action();
    return true;
  } catch (const Error& error) {
    const bool blames_file = error.code() == Code::kCorruptData ||
                             error.code() == Code::kUnsupported ||
                             error.code() == Code::kInvalidArgument;
    if (!blames_file || error.message().find('\n') != std::string::npos) {
      throw std::runtime_error("unexpected error: " + error.message());
    }
    return false;
  }
}

}  // namespace

bool read_pickle_of_torch_save(const std::string& bytes) {
  return accepted([&] {
    const ckpt::PickleValue value =
        ckpt::read_pickle(bytes, ckpt::PickleNames::kTorchSave, "x.pth");
    ckpt::write_pickle(value);
  });
}

bool read_dcp_metadata(const std::string& bytes) {
  return accepted([&] {
    const ckpt::DcpMetadata metadata = ckpt::decode_dcp_metadata(bytes, ".metadata");
    for (const ckpt::DcpEntry& entry : metadata.entries()) {
      if (entry.tensor) {
        ckpt::covers(*entry.tensor);
      }
    }
    ckpt::encode_dcp_metadata(metadata);
  });
}

bool read_torch_archive(const std::string& bytes) {
  const MemoryFile file(bytes);
  return accepted([&] {
    const ckpt::TorchArchive archive(file.path());
    for (const ckpt::PthTensor& found : ckpt::list_tensors(archive.root())) {
      archive.read(*found.tensor);
    }
    archive.verify();
  });
}

bool read_safetensors(const std::string& bytes) {
  const MemoryFile file(bytes);
  return accepted([&] {
    const ckpt::SafetensorsFile safetensors(file.path());
    std::vector<char> data;
    for (const ckpt::SafetensorsEntry& entry : safetensors.tensors()) {
      data.resize(static_cast<size_t>(entry.bytes));
      safetensors.read(entry, 0, entry.bytes, data.data());
    }
  });
}

bool read_model_config(const std::string& bytes) {
  return accepted([&] { models::build(bytes); });
}

}  // namespace fsdp2::fuzz
