#include "core/ckpt/safetensors_state.h"

#include <map>
#include <utility>

#include "core/base/error.h"
#include "core/ckpt/hugging_face_directory.h"
#include "core/ckpt/printable_name.h"
#include "core/ckpt/torch_archive_box.h"

namespace fsdp2::ckpt {

SafetensorsState::SafetensorsState(const std::string& path, CheckpointFormat format)
    : StateSource(path) {
  std::vector<StateEntry> entries;
  std::map<std::string, size_t> opened;
  const auto add = [&](const SafetensorsEntry& entry, const std::string& file) {
    const auto [found, is_new] = opened.emplace(file, files_.size());
    if (is_new) {
      files_.push_back(std::make_unique<MappedFile>(file));
    }
    entries.push_back({entry.name, {entry.name}, entry.dtype, entry.shape, places_.size()});
    places_.push_back({found->second, entry});
  };
  if (format == CheckpointFormat::kSafetensors) {
    const SafetensorsFile file(path);
    for (const SafetensorsEntry& entry : file.tensors()) {
      add(entry, path);
    }
  } else {
    const HuggingFaceDirectory directory(path);
    for (const std::string& name : directory.names()) {
      add(directory.entry(name), directory.file_of(name));
    }
  }
  set_entries(std::move(entries));
}

void SafetensorsState::read(const StateEntry& listed, at::IntArrayRef begin,
                            const at::Tensor& out) const {
  const Place& place = places_[listed.index];
  const MappedFile& file = *files_[place.file];
  const PickleTensor tensor = describe_tensor(0, place.entry.dtype, place.entry.shape);
  read_tensor_box(file, place.entry.offset, tensor, begin, out,
                  fmt::format("{}: {}", file.path(), printable_name(listed.name)));
}

PickleValue SafetensorsState::read_object(const StateEntry& entry) const {
  fail(Code::kInvalidArgument, "{}: {} is a tensor, expected an object", path(),
       printable_name(entry.name));
}

// Nothing to compare with; the headers were checked when the files were opened.
void SafetensorsState::verify() const {
  for (const auto& file : files_) {
    file->check_size();
  }
}

}  // namespace fsdp2::ckpt
