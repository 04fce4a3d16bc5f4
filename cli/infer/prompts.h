// What `fsdp2 generate` goes on with: texts, token numbers, or records, which may have images and
// videos.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/infer/options.h"
#include "cli/library.h"

namespace fsdp2::cli {

struct PromptLine {
  std::string text;
  std::string place;  // "prompt 3", or "r.jsonl: line 3"
};

// The lines of --prompt, --prompts or --records. Throws Failure.
std::vector<PromptLine> prompt_lines(const GenerateOptions& options);

// The records of a file, for the model that answers them. Its files with images and videos are
// looked at when it is made, and their pixels read with the rows that need them.
class RecordPrompts {
 public:
  // tokenizer, vision_model: paths; "": bytes, and a model that no file describes.
  RecordPrompts(std::vector<PromptLine> lines, const std::string& file,
                const std::string& tokenizer, std::string vision_model);

  // All of them. Throws Failure with the place of what is wrong.
  std::vector<std::vector<int64_t>> tokens(int64_t vocab_size) const;
  // The images and videos of some rows, as fsdp2_generate_options.vision_inputs has them.
  std::vector<Tensor> vision_inputs(size_t first, size_t count) const;
  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  static constexpr size_t kVisionInputs = 5;
  Tensor encode(const PromptLine& line, fsdp2_tensor* vision) const;

  const std::vector<PromptLine> lines_;
  const std::string folder_;
  const std::string vision_model_;
  Tokenizer tokenizer_;
};

}  // namespace fsdp2::cli
