#include "core/ckpt/hugging_face/hugging_face_source.h"

#include <string_view>
#include <utility>

#include "core/base/directory.h"
#include "core/base/text.h"
#include "core/ckpt/hugging_face/weight_files.h"
#include "core/ckpt/safetensors/safetensors_listing.h"
#include "core/ckpt/safetensors/safetensors_source.h"

namespace fsdp2::ckpt {

namespace {

constexpr std::string_view kEnding = ".safetensors";

}  // namespace

bool is_model_directory(const PathContent& content) {
  return content.has_name_ending(".safetensors") ||
         content.has_name_ending(".safetensors.index.json");
}

std::unique_ptr<StateSource> open_model_directory(const std::string& path) {
  const WeightFiles files(find_model_directory(path));
  std::vector<PlacedSafetensors> tensors;
  for (const std::string& name : files.names()) {
    tensors.push_back({files.file_of(name).path(), files.entry(name)});
  }
  return std::make_unique<SafetensorsSource>(path, tensors);
}

std::vector<ListedTensor> list_model_directory(const std::string& directory) {
  std::vector<ListedTensor> tensors;
  for (const std::string& name : names_in(directory)) {
    if (name.size() > kEnding.size() && ends_with(name, kEnding)) {
      for (ListedTensor& tensor : list_safetensors(directory + "/" + name)) {
        tensors.push_back(std::move(tensor));
      }
    }
  }
  return tensors;
}

Replaceable replaceable_by_model() { return {kModelDirectoryFormat, nullptr}; }

}  // namespace fsdp2::ckpt
