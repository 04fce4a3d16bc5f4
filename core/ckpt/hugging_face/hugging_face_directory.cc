#include "core/ckpt/hugging_face/hugging_face_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>

#include "core/base/file.h"
#include "core/base/text.h"
#include "core/base/text_hash.h"
#include "core/ckpt/safetensors/rows.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

constexpr char kConfig[] = "config.json";
constexpr int64_t kMaxConfigBytes = int64_t{1} << 24;

// What transformers calls a parameter of a vision-language model whose files have this name for it.
std::string name_in_memory(const std::string& name, const std::string& without_first_part) {
  if (starts_with(name, "visual.")) {
    return "model." + name;
  }
  return starts_with(name, "model.") ? "model.language_model." + without_first_part : name;
}

// Masks of GPT-2's attention and angles of rotary embeddings.
bool is_saved_buffer(const std::string& name) {
  return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias") ||
         ends_with(name, ".rotary_emb.inv_freq");
}

}  // namespace

HuggingFaceDirectory::HuggingFaceDirectory(const std::string& path)
    : path_(find_model_directory(path)),
      config_json_(read_text_file(path_ + "/" + kConfig, kMaxConfigBytes)),
      weights_(path_) {}

std::string HuggingFaceDirectory::stored_name(const std::string& name) const {
  if (weights_.contains(name)) {
    return name;
  }
  const std::string without_body = name.substr(name.find('.') + 1);
  for (const std::string& other : {without_body, name_in_memory(name, without_body)}) {
    if (weights_.contains(other)) {
      return other;
    }
  }
  return name;
}

void HuggingFaceDirectory::read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
                                at::Tensor out) {
  const std::string stored = stored_name(name);
  read_rows(weights_.file_of(stored), weights_.entry(stored), shape, kConfig, first_row, out);
}

std::string HuggingFaceDirectory::mark_of(const std::string& name) const {
  constexpr int64_t kFewBytes = 64;
  SafetensorsEntry entry = this->entry(name);
  entry.checksums.clear();  // or a whole block would be read, to be compared with one
  std::string bytes(static_cast<size_t>(std::min(kFewBytes, entry.bytes)), '\0');
  weights_.file_of(stored_name(name))
      .read(entry, 0, static_cast<int64_t>(bytes.size()), bytes.data());
  return fmt::format("{} that begins with {:016x}", c10::toString(entry.dtype),
                     hash_of_text(bytes));
}

std::vector<std::string> HuggingFaceDirectory::unused(
    const std::vector<std::string>& parameters) const {
  std::set<std::string> taken;
  for (const std::string& name : parameters) {
    taken.insert(stored_name(name));
  }
  std::vector<std::string> unused;
  for (const std::string& name : names()) {
    if (taken.count(name) == 0 && !is_saved_buffer(name)) {
      unused.push_back(printable_name(name));
    }
  }
  return unused;
}

}  // namespace fsdp2::ckpt
