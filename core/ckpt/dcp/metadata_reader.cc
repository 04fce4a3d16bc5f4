#include <charconv>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "core/base/error.h"
#include "core/ckpt/dcp/metadata.h"
#include "core/ckpt/dcp/metadata_checks.h"
#include "core/ckpt/dcp/metadata_names.h"
#include "core/ckpt/pickle/dtype.h"
#include "core/ckpt/pickle/graph.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

using Id = PickleGraph::Id;
using Kind = PickleGraph::Kind;

constexpr int64_t kNewestMajorVersion = 1;
constexpr size_t kMaxFields = 16;
constexpr size_t kFreeCopies = size_t{1} << 16;

class MetadataDecoder {
 public:
  MetadataDecoder(std::string_view bytes, const std::string& file)
      : graph_(bytes, PickleNames::kDcpMetadata, file), file_(file) {}

  DcpMetadata decode() {
    const Id root = graph_.root();
    FSDP2_CHECK(graph_.is_of(root, kMetadata), Code::kCorruptData,
                "{}: expected the metadata of a DCP checkpoint, found {}", file_,
                graph_.kind_name(root));
    DcpMetadata metadata;
    metadata.version = version(root);
    read_storage(required_field(root, kStorageData, Kind::kDict));
    read_paths(root);
    const std::vector<Id>& items =
        graph_.children(required_field(root, kStateDictMetadata, Kind::kDict));
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      name_ = text(items[i], "a name");
      FSDP2_CHECK(metadata.find(name_) == nullptr, Code::kCorruptData, "{}: holds {} twice", file_,
                  printable_name(name_));
      metadata.add(entry(items[i + 1]));
    }
    name_.clear();
    check_paths(metadata);
    return metadata;
  }

 private:
  // A name, and where the chunk begins; an object has none, which is not the same as no dims.
  struct Place {
    std::string name;
    bool is_chunk;
    std::vector<int64_t> offsets;

    bool operator<(const Place& other) const {
      return std::tie(name, is_chunk, offsets) <
             std::tie(other.name, other.is_chunk, other.offsets);
    }
  };

  [[noreturn]] void refuse(const std::string& why) const {
    fail(Code::kCorruptData, "{}: {} {}", file_,
         name_.empty() ? "the metadata" : printable_name(name_), why);
  }

  void expect(Id id, Kind kind, const char* what) const {
    if (graph_.kind(id) != kind) {
      refuse(fmt::format("has {} as {}", graph_.kind_name(id), what));
    }
  }

  // A field of an object's state; nullptr if there is none.
  const Id* field(Id object, std::string_view name) const {
    const std::vector<Id>& parts = graph_.children(object);
    if (parts.size() < 2) {
      return nullptr;
    }
    expect(parts[1], Kind::kDict, "the state of an object");
    const std::vector<Id>& items = graph_.children(parts[1]);
    if (items.size() > 2 * kMaxFields) {
      refuse(fmt::format("is an object of {} fields", items.size() / 2));
    }
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      if (graph_.is_text(items[i], name)) {
        return &items[i + 1];
      }
    }
    return nullptr;
  }

  Id required_field(Id object, const char* name) const {
    const Id* found = field(object, name);
    if (found == nullptr) {
      refuse(fmt::format("lacks the field {}", name));
    }
    return *found;
  }

  Id required_field(Id object, const char* name, Kind kind) const {
    const Id found = required_field(object, name);
    expect(found, kind, name);
    return found;
  }

  std::string text(Id id, const char* what) const {
    expect(id, Kind::kText, what);
    return std::string(graph_.text(id));
  }

  // Counts what is copied out of the graph: its nodes may be used again and again.
  void spend(size_t count) {
    copied_ += count;
    if (copied_ > 4 * graph_.input_bytes() + kFreeCopies) {
      refuse("uses the same values over and over, to a size that is not plausible");
    }
  }

  std::vector<int64_t> sizes(Id id, const char* what) {
    expect(id, Kind::kTuple, what);
    std::vector<int64_t> numbers;
    spend(graph_.children(id).size() + 1);
    for (const Id number : graph_.children(id)) {
      expect(number, Kind::kInt, what);
      numbers.push_back(graph_.integer(number));
    }
    return numbers;
  }

  // Files of old versions of torch have no version.
  std::string version(Id root) const {
    const Id* found = field(root, kVersion);
    if (found == nullptr || graph_.kind(*found) == Kind::kNone) {
      return "";
    }
    std::string version = text(*found, kVersion);
    int64_t major = 0;
    const auto parsed = std::from_chars(version.data(), version.data() + version.size(), major);
    const bool is_version = parsed.ec == std::errc() &&
                            (parsed.ptr == version.data() + version.size() || *parsed.ptr == '.');
    FSDP2_CHECK(is_version, Code::kCorruptData, "{}: the metadata has the version {}", file_,
                printable_name(version));
    FSDP2_CHECK(major <= kNewestMajorVersion, Code::kUnsupported,
                "{}: the checkpoint's format has version {}, the newest known is {}.x: read it "
                "with a newer libfsdp2",
                file_, printable_name(version), kNewestMajorVersion);
    return version;
  }

  void read_storage(Id dict) {
    const std::vector<Id>& items = graph_.children(dict);
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      if (!graph_.is_of(items[i], kMetadataIndex) || !graph_.is_of(items[i + 1], kStorageInfo)) {
        refuse(fmt::format("has {} of {} among its storage data", graph_.kind_name(items[i + 1]),
                           graph_.kind_name(items[i])));
      }
      const std::string name = text(required_field(items[i], kFqn), kFqn);
      spend(name.size());
      const Id* offset = field(items[i], kOffset);
      const bool is_chunk = offset != nullptr && graph_.kind(*offset) != Kind::kNone;
      Place place{name, is_chunk, {}};
      if (is_chunk) {
        place.offsets = sizes(*offset, kOffset);
      }
      name_ = name;
      storage_[std::move(place)] = storage(items[i + 1]);
    }
    name_.clear();
  }

  DcpStorage storage(Id id) {
    DcpStorage storage;
    storage.relative_path = text(required_field(id, kRelativePath), kRelativePath);
    spend(storage.relative_path.size());
    storage.offset = graph_.integer(required_field(id, kOffset, Kind::kInt));
    storage.length = graph_.integer(required_field(id, kLength, Kind::kInt));
    const Id* transforms = field(id, kTransforms);
    if (transforms != nullptr && graph_.kind(*transforms) != Kind::kNone) {
      expect(*transforms, Kind::kList, kTransforms);
      for (const Id transform : graph_.children(*transforms)) {
        storage.transforms.push_back(text(transform, kTransforms));
        spend(storage.transforms.back().size() + 1);
      }
    }
    return storage;
  }

  void read_paths(Id root) {
    const Id* found = field(root, kPlannerData);
    if (found == nullptr || graph_.kind(*found) == Kind::kNone) {
      return;
    }
    expect(*found, Kind::kDict, kPlannerData);
    const std::vector<Id>& items = graph_.children(*found);
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      const std::string name = text(items[i], kPlannerData);
      expect(items[i + 1], Kind::kTuple, kPlannerData);
      std::vector<PathPart> path;
      for (const Id part : graph_.children(items[i + 1])) {
        if (graph_.kind(part) == Kind::kInt) {
          path.emplace_back(graph_.integer(part));
        } else {
          path.emplace_back(text(part, "a part of a path"));
          spend(graph_.text(part).size());
        }
        spend(1);
      }
      paths_[name] = std::move(path);
    }
  }

  // Planners give a path to every name or to none, and make the name of it; another one is damage
  // that no checksum of Python's tells.
  void check_paths(const DcpMetadata& metadata) const {
    for (const auto& [name, path] : paths_) {
      FSDP2_CHECK(name_of(path) == name, Code::kCorruptData,
                  "{}: the path of {} leads to {}: it is damaged", file_, printable_name(name),
                  printable_name(name_of(path)));
      FSDP2_CHECK(metadata.find(name) != nullptr, Code::kCorruptData,
                  "{}: has a path of {} and nothing of that name: it is damaged", file_,
                  printable_name(name));
    }
    for (const DcpEntry& entry : metadata.entries()) {
      FSDP2_CHECK(paths_.empty() || paths_.count(entry.name) != 0, Code::kCorruptData,
                  "{}: has paths of {} names, but none of {}: it is damaged", file_, paths_.size(),
                  printable_name(entry.name));
    }
  }

  DcpEntry entry(Id id) {
    DcpEntry entry;
    entry.name = name_;
    if (const auto path = paths_.find(name_); path != paths_.end()) {
      entry.path = path->second;
    }
    if (graph_.is_of(id, kTensorStorageMetadata)) {
      entry.tensor = tensor(id);
      for (const Box& chunk : entry.tensor->chunks) {
        entry.storage.push_back(place({name_, true, chunk.offsets}));
      }
    } else if (graph_.is_of(id, kBytesStorageMetadata)) {
      entry.storage.push_back(place({name_, false, {}}));
    } else {
      refuse(fmt::format("is described by {}", graph_.kind_name(id)));
    }
    const std::string fault = find_fault(entry);
    FSDP2_CHECK(fault.empty(), Code::kCorruptData, "{}: {} {}", file_, printable_name(name_),
                fault);
    return entry;
  }

  DcpStorage place(const Place& wanted) {
    const auto found = storage_.find(wanted);
    if (found == storage_.end()) {
      refuse(wanted.is_chunk ? "has a chunk without a place in any file"
                             : "has no place in any file");
    }
    return found->second;
  }

  ChunkedTensor tensor(Id id) {
    ChunkedTensor tensor;
    tensor.dtype = dtype(required_field(id, kProperties));
    tensor.shape = sizes(required_field(id, kSize), kSize);
    const Id chunks = required_field(id, kChunks, Kind::kList);
    for (const Id chunk : graph_.children(chunks)) {
      if (!graph_.is_of(chunk, kChunkStorageMetadata)) {
        refuse(fmt::format("has {} among its chunks", graph_.kind_name(chunk)));
      }
      tensor.chunks.push_back({sizes(required_field(chunk, kOffsets), kOffsets),
                               sizes(required_field(chunk, kSizes), kSizes)});
    }
    return tensor;
  }

  // (dtype, layout, requires_grad, memory format, pin_memory) and, by newer torch, strides; all
  // but the first two are of no meaning in a file.
  at::ScalarType dtype(Id properties) const {
    if (!graph_.is_of(properties, kTensorProperties) || graph_.children(properties).size() != 2) {
      refuse("has no tensor properties");
    }
    const Id state = graph_.children(properties)[1];
    expect(state, Kind::kTuple, kProperties);
    const std::vector<Id>& parts = graph_.children(state);
    const bool has_all = parts.size() == 5 || parts.size() == 6;
    if (!has_all || graph_.kind(parts[0]) != Kind::kName) {
      refuse("has tensor properties without a dtype");
    }
    const bool is_strided = graph_.is_of(parts[1], kGetLayout) &&
                            graph_.is_text(graph_.children(parts[1])[1], kStridedLayout);
    FSDP2_CHECK(is_strided, Code::kUnsupported, "{}: {} is not a dense tensor", file_,
                printable_name(name_));
    const std::string_view name = graph_.text(parts[0]);
    const auto dtype = torch_dtype(name.substr(name.rfind('.') + 1));
    FSDP2_CHECK(dtype.has_value(), Code::kUnsupported, "{}: {} has the dtype {}", file_,
                printable_name(name_), name);
    return *dtype;
  }

  const PickleGraph graph_;
  const std::string& file_;
  std::string name_;  // of the entry at hand, for messages
  size_t copied_ = 0;
  std::map<Place, DcpStorage> storage_;
  std::map<std::string, std::vector<PathPart>> paths_;
};

}  // namespace

DcpMetadata decode_dcp_metadata(std::string_view bytes, const std::string& file_name) {
  return MetadataDecoder(bytes, file_name).decode();
}

}  // namespace fsdp2::ckpt
