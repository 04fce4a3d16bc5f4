#include "cli/infer/prompts.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

namespace fsdp2::cli {

namespace {

// The lines of a file, with their numbers from 1, and without the carriage returns that end them on
// some systems.
template <typename Each>
void for_each_line(const std::string& flag, const std::string& path, const Each& each) {
  std::ifstream file(path, std::ios::binary);
  int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.back() == '\r') {
      line.pop_back();
    }
    each(std::move(line), ++number);
  }
  if (!file.eof()) {
    throw Failure(flag + " " + path + ": cannot be read: " + std::strerror(errno));
  }
}

template <typename T>
std::vector<T> values_of(const Tensor& tensor) {
  const auto info = info_of<fsdp2_tensor_info>(fsdp2_tensor_get_info, tensor.get());
  std::vector<T> values(static_cast<size_t>(info.n_bytes) / sizeof(T));
  check(fsdp2_tensor_read(tensor.get(), values.data(), static_cast<size_t>(info.n_bytes)));
  return values;
}

// Tensors one after the other along their first dim, of which the others are alike.
class Joined {
 public:
  // {0}: nothing is added.
  void add(const Tensor& tensor) {
    if (tensor.is_null()) {
      return;
    }
    const auto info = info_of<fsdp2_tensor_info>(fsdp2_tensor_get_info, tensor.get());
    const std::vector<char> more = values_of<char>(tensor);
    bytes_.insert(bytes_.end(), more.begin(), more.end());
    dtype_ = info.dtype;
    const int64_t rows = shape_.empty() ? 0 : shape_.front();
    shape_.assign(info.shape, info.shape + info.n_dims);
    shape_.front() += rows;
  }
  // {0} if nothing was added.
  Tensor take() const {
    Tensor tensor;
    if (!shape_.empty()) {
      check(fsdp2_tensor_from_buffer(bytes_.data(), bytes_.size(), dtype_, shape_.data(),
                                     shape_.size(), tensor.out()));
    }
    return tensor;
  }

 private:
  std::vector<char> bytes_;
  std::vector<int64_t> shape_;
  int32_t dtype_ = 0;
};

}  // namespace

std::vector<PromptLine> prompt_lines(const GenerateOptions& options) {
  std::vector<PromptLine> lines;
  const auto add_prompt = [&](std::string text) {
    lines.push_back({std::move(text), "prompt " + std::to_string(lines.size() + 1)});
  };
  if (!options.records.empty()) {
    for_each_line("--records", options.records, [&](std::string text, int64_t number) {
      if (text.find_first_not_of(" \t") != std::string::npos) {
        lines.push_back({std::move(text), options.records + ": line " + std::to_string(number)});
      }
    });
  } else if (!options.prompts_file.empty()) {
    for_each_line("--prompts", options.prompts_file,
                  [&](std::string text, int64_t /*number*/) { add_prompt(std::move(text)); });
  } else {
    for (const std::string& prompt : options.prompts) {
      add_prompt(prompt);
    }
  }
  if (lines.empty()) {
    throw Failure(options.records.empty() ? "--prompts " + options.prompts_file + ": has no line"
                                          : "--records " + options.records + ": has no record");
  }
  return lines;
}

RecordPrompts::RecordPrompts(std::vector<PromptLine> lines, const std::string& file,
                             const std::string& tokenizer, std::string vision_model)
    : lines_(std::move(lines)),
      folder_(std::filesystem::path(file).parent_path()),
      vision_model_(std::move(vision_model)) {
  check(fsdp2_tokenizer_open(tokenizer.empty() ? nullptr : tokenizer.c_str(), tokenizer_.out()));
}

// vision: null, or room for kVisionInputs.
Tensor RecordPrompts::encode(const PromptLine& line, fsdp2_tensor* vision) const {
  if (line.text.find('\0') != std::string::npos) {
    throw Failure(line.place + ": has a zero byte, which is no text");
  }
  const auto out = [&](size_t place) { return vision == nullptr ? nullptr : vision + place; };
  Tensor prompt;
  const fsdp2_status status = fsdp2_tokenizer_encode_prompt(
      tokenizer_.get(), line.text.c_str(), vision_model_.empty() ? nullptr : vision_model_.c_str(),
      folder_.empty() ? nullptr : folder_.c_str(), prompt.out(), out(0), out(1), out(2), out(3),
      out(4));
  if (status != FSDP2_OK) {
    throw Failure(line.place + ": " + fsdp2_error_message(), status);
  }
  return prompt;
}

std::vector<std::vector<int64_t>> RecordPrompts::tokens(int64_t vocab_size) const {
  std::vector<std::vector<int64_t>> all;
  for (const PromptLine& line : lines_) {
    all.push_back(values_of<int64_t>(encode(line, nullptr)));
    const int64_t largest = *std::max_element(all.back().begin(), all.back().end());
    if (largest >= vocab_size) {
      throw Failure(line.place + ": token " + std::to_string(largest) +
                    " is outside the vocabulary of " + std::to_string(vocab_size));
    }
  }
  return all;
}

std::vector<Tensor> RecordPrompts::vision_inputs(size_t first, size_t count) const {
  std::array<Joined, kVisionInputs> joined;
  for (size_t row = first; row < first + count; ++row) {
    std::array<fsdp2_tensor, kVisionInputs> raw{};
    encode(lines_[row], raw.data());
    std::array<Tensor, kVisionInputs> own;
    for (size_t i = 0; i < kVisionInputs; ++i) {
      *own[i].out() = raw[i];
    }
    for (size_t i = 0; i < kVisionInputs; ++i) {
      joined[i].add(own[i]);
    }
  }
  std::vector<Tensor> inputs;
  for (const Joined& each : joined) {
    inputs.push_back(each.take());
  }
  while (!inputs.empty() && inputs.back().is_null()) {
    inputs.pop_back();  // a model may take fewer
  }
  return inputs;
}

}  // namespace fsdp2::cli
