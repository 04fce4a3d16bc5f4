#include "tests/fuzz/readers.h"

#include <ATen/Functions.h>
#include <c10/util/accumulate.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/ckpt/bytes/checksum.h"
#include "core/ckpt/bytes/manifest.h"
#include "core/ckpt/dcp/dcp_source.h"
#include "core/ckpt/dcp/metadata.h"
#include "core/ckpt/hugging_face/hugging_face_index.h"
#include "core/ckpt/pickle/reader.h"
#include "core/ckpt/pickle/writer.h"
#include "core/ckpt/safetensors/safetensors_file.h"
#include "core/ckpt/safetensors/safetensors_source.h"
#include "core/ckpt/safetensors/sharding.h"
#include "core/ckpt/torch/archive.h"
#include "core/ckpt/torch/pth_file.h"
#include "core/ckpt/torch/pth_source.h"
#include "core/config/config_error.h"
#include "core/config/dialects/read_plan.h"
#include "core/config/resolve.h"
#include "core/exported/exported_program.h"
#include "core/images/decode.h"
#include "core/images/processor.h"
#include "core/models/registry.h"
#include "core/nn/module.h"
#include "core/train/data/record_file.h"

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

// A directory of a checkpoint's few files, which every input writes anew.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string pattern = std::filesystem::temp_directory_path() / "fsdp2-fuzz-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) {
      throw std::runtime_error("cannot make a directory like " + pattern);
    }
    path_ = pattern;
  }
  ~ScratchDirectory() { std::filesystem::remove_all(path_); }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::string& path() const { return path_; }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << bytes;
  }

 private:
  std::string path_;
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

// A shape may say anything; who reads a tensor has memory for it.
constexpr int64_t kMaxNumel = 1 << 20;

void read_all(const ckpt::StateSource& source) {
  for (const ckpt::StateEntry& entry : source.entries()) {
    if (!entry.dtype) {
      source.read_object(entry);
    } else if (c10::multiply_integers(entry.shape) <= kMaxNumel) {
      const std::vector<int64_t> begin(entry.shape.size(), 0);
      source.read(entry, begin, at::empty(entry.shape, *entry.dtype));
    }
  }
  source.verify();
}

// What a plan comes to on two ranks is a plan for two ranks.
void settle_twice(config::Plan plan) {
  try {
    config::resolve_for_world(&plan, 2);
  } catch (const config::ConfigError&) {
    return;
  }
  config::resolve_for_world(&plan, 2);
}

// The two files that the bytes hold.
std::pair<std::string, std::string> two_files(const std::string& bytes) {
  constexpr size_t kLengthBytes = 4;
  uint32_t length = 0;
  std::memcpy(&length, bytes.data(), std::min(bytes.size(), kLengthBytes));
  const std::string files = bytes.substr(std::min(bytes.size(), kLengthBytes));
  const size_t first = std::min<size_t>(length, files.size());
  return {files.substr(0, first), files.substr(first)};
}

}  // namespace

bool read_pickle_of_torch_save(const std::string& bytes) {
  return accepted([&] {
    const ckpt::PythonValue value =
        ckpt::read_pickle(bytes, ckpt::PickleNames::kAnyTorchSave, "x.pth");
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

bool read_dcp_directory(const std::string& bytes) {
  static const ScratchDirectory directory;
  const size_t data = std::min(bytes.find("PK\x03\x04"), bytes.size());
  directory.write(".metadata", bytes.substr(0, data));
  directory.write("__0_0.distcp", bytes.substr(data));
  return accepted([&] { read_all(ckpt::DcpSource(directory.path())); });
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

bool read_exported_program(const std::string& bytes) {
  const MemoryFile file(bytes);
  return accepted([&] {
    const exported::ExportedModel model = exported::load_exported(file.path());
    for (const nn::NamedParameter& parameter : nn::named_unique_parameters(*model.module)) {
      const std::string& name = parameter.names.front();
      if (model.values->contains(name) && parameter.tensor.dim() > 0 &&
          parameter.tensor.numel() <= kMaxNumel) {
        model.values->read(name, parameter.tensor.sizes(), 0,
                           at::empty(parameter.tensor.sizes(), parameter.tensor.scalar_type()));
      }
    }
  });
}

bool read_model_config(const std::string& bytes) {
  return accepted([&] { models::build(bytes); });
}

bool read_hugging_face_index(const std::string& bytes) {
  return accepted([&] { ckpt::parse_hugging_face_index(bytes, "x.json"); });
}

bool read_manifest(const std::string& bytes) {
  static const ScratchDirectory directory;
  const auto read = [&](const std::string& text) {
    directory.write(ckpt::kManifestFile, text);
    return accepted([&] {
      const auto manifest = ckpt::read_manifest(directory.path());
      for (const ckpt::ManifestItem& item : manifest->items) {
        manifest->find(item.file, item.offset);
      }
      ckpt::encode_manifest(*manifest);
    });
  };
  const std::string sum = ckpt::checksum_text(ckpt::checksum(bytes.data(), bytes.size()));
  const bool as_it_is = read(bytes);
  return read("fsdp2-manifest 1 " + sum + "\n" + bytes) || as_it_is;
}

bool read_sharded_safetensors(const std::string& bytes) {
  static const ScratchDirectory directory;
  const auto [first, second] = two_files(bytes);
  directory.write(ckpt::shard_file_name(0, 1, 1), first);
  directory.write(ckpt::shard_file_name(1, 1, 1), second);
  return accepted([&] {
    read_all(ckpt::SafetensorsSource(directory.path(), ckpt::SafetensorsFiles::kOnePerRank));
  });
}

bool read_per_rank_pth(const std::string& bytes) {
  static const ScratchDirectory directory;
  const auto [first, second] = two_files(bytes);
  directory.write(ckpt::per_rank_file_name(1, 0), first);
  directory.write(ckpt::per_rank_file_name(1, 1), second);
  return accepted(
      [&] { read_all(ckpt::PthSource(directory.path(), ckpt::PthFiles::kOnePerRank)); });
}

bool read_records(const std::string& bytes) {
  constexpr int64_t kVocabulary = 256;
  constexpr int64_t kLength = 32;
  const MemoryFile file(bytes);
  const auto read = [&](train::RecordRules rules) {
    return accepted([&] {
      const train::RecordFile records(file.path(), kVocabulary, kLength, rules);
      for (int64_t window = 0; window < records.window_count(kLength); ++window) {
        records.windows({window}, kLength);
      }
    });
  };
  read({/*cut_long=*/true, /*skip_bad=*/true});
  return read({});
}

bool read_image(const std::string& bytes) {
  // Larger ones take memory and time in proportion.
  constexpr int64_t kMostPixels = 1 << 20;
  const ByteSpan file(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  return accepted([&] {
    const images::ImageSize size = images::read_size(file);
    if (size.height * size.width <= kMostPixels) {
      images::make_patches(images::decode(file), images::Processor());
    }
  });
}

bool read_run_configuration(const std::string& bytes) {
  config::Plan plan;
  try {
    plan = config::plan_of(config::read_yaml(bytes, "run.yaml"), "");
  } catch (const config::ConfigError& error) {
    if (std::string(error.what()).find('\n') != std::string::npos) {
      throw std::runtime_error(std::string("a message of several lines: ") + error.what());
    }
    return false;
  }
  const std::string printed = plan.text();
  const config::Plan again = config::plan_of(config::read_yaml(printed, "printed.yaml"), "");
  if (config::shared_text(again.options) != config::shared_text(plan.options)) {
    throw std::runtime_error("another plan from what was printed: " + printed);
  }
  settle_twice(plan);
  return true;
}

}  // namespace fsdp2::fuzz
