#include <algorithm>
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "cli/infer/commands.h"
#include "cli/infer/options.h"
#include "cli/infer/prompts.h"
#include "cli/infer/sharded_model.h"
#include "cli/infer/stop_tokens.h"
#include "cli/infer/unapplied_settings.h"
#include "cli/library.h"
#include "cli/token_text.h"
#include "client/objects.h"
#include "core/config/checks/data_files.h"

namespace fsdp2::cli {

namespace {

using Tokens = std::vector<int64_t>;

constexpr char kNoStopTokens[] = "none";

class Generation {
 public:
  Generation(const GenerateOptions& options, const std::vector<PromptLine>& lines,
             const ShardedModel& model);

  // Collective. Rank 0 writes each text as soon as all before it are written.
  void run();

 private:
  Tokens continue_rows(size_t first, size_t count, Tokens* counts) const;
  void read_texts(const std::vector<PromptLine>& lines);
  Tokens given_stop_tokens() const;
  Tokens usual_stop_tokens() const;
  void write(size_t row, const Tokens& tokens) const;

  const GenerateOptions& options_;
  const TokenText form_;
  const ShardedModel& model_;
  std::optional<RecordPrompts> records_;
  std::vector<Tokens> prompts_;
  Tokens stop_tokens_;
};

Generation::Generation(const GenerateOptions& options, const std::vector<PromptLine>& lines,
                       const ShardedModel& model)
    : options_(options),
      form_(options.numbers ? TokenText::numbers()
                            : TokenText::by_tokenizer(tokenizer_path(options.model.run()))),
      model_(model) {
  if (options.records.empty()) {
    read_texts(lines);
  } else {
    const config::TrainOptions& run = options.model.run();
    records_.emplace(lines, options.records, tokenizer_path(run), client::config_path(run));
    prompts_ = records_->tokens(model.vocab_size());
  }
  const std::string unapplied = unapplied_settings(options.model.run());
  if (model.rank() == 0 && !unapplied.empty()) {
    std::cerr << "fsdp2 generate: " + unapplied + "\n" << std::flush;
  }
  if (options.stop_tokens != kNoStopTokens) {
    stop_tokens_ = options.stop_tokens.empty() ? usual_stop_tokens() : given_stop_tokens();
  }
}

Tokens Generation::given_stop_tokens() const {
  std::string numbers = options_.stop_tokens;
  std::replace(numbers.begin(), numbers.end(), ',', ' ');
  return TokenText::numbers().tokens_in(numbers, model_.vocab_size(), "--stop-tokens");
}

// Without those that the model does not have, which it cannot write either. The files may differ
// from machine to machine, and then some ranks would end a text and others go on with it.
Tokens Generation::usual_stop_tokens() const {
  Tokens tokens = stop_tokens_of_model(options_.model.run());
  if (records_) {
    const Tokens more = stop_tokens_of_answers(records_->tokenizer());
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  tokens.erase(std::lower_bound(tokens.begin(), tokens.end(), model_.vocab_size()), tokens.end());
  check(fsdp2_mesh_agree(model_.mesh().get(), "stop tokens",
                         ("tokens=" + TokenText::numbers().text_of(tokens) + "\n").c_str()));
  return tokens;
}

void Generation::read_texts(const std::vector<PromptLine>& lines) {
  for (const PromptLine& line : lines) {
    prompts_.push_back(form_.tokens_in(line.text, model_.vocab_size(), line.place));
    if (prompts_.back().empty()) {
      throw Failure(line.place + " is empty: expected at least one token");
    }
  }
}

void Generation::run() {
  const auto ranks = static_cast<size_t>(model_.data_ranks());
  const auto rank = static_cast<size_t>(model_.data_rank());
  const auto width = static_cast<size_t>(options_.max_new_tokens);
  size_t n_rows = 0;  // of all ranks at a time
  for (size_t first = 0; first < prompts_.size(); first += n_rows) {
    n_rows = std::min(prompts_.size() - first, ranks * static_cast<size_t>(options_.batch_size));
    const size_t begin = n_rows * rank / ranks;
    const size_t end = n_rows * (rank + 1) / ranks;
    Tokens counts;
    const Tokens tokens = continue_rows(first + begin, end - begin, &counts);
    for (size_t row = 0; model_.rank() == 0 && row < n_rows; ++row) {
      const auto from = tokens.begin() + static_cast<std::ptrdiff_t>(row * width);
      write(first + row, {from, from + counts[row]});
    }
  }
}

// Collective. This rank's rows; the tokens [rows,max_new_tokens] and their counts of all ranks.
Tokens Generation::continue_rows(size_t first, size_t count, Tokens* counts) const {
  std::vector<int64_t> lengths;
  for (size_t row = first; row < first + count; ++row) {
    lengths.push_back(static_cast<int64_t>(prompts_[row].size()));
  }
  const int64_t longest = lengths.empty() ? 1 : *std::max_element(lengths.begin(), lengths.end());
  Tokens padded;
  for (size_t row = first; row < first + count; ++row) {
    padded.insert(padded.end(), prompts_[row].begin(), prompts_[row].end());
    padded.resize((row - first + 1) * static_cast<size_t>(longest));
  }
  const int64_t shape[] = {static_cast<int64_t>(count), longest};
  Tensor prompts;
  check(fsdp2_tensor_from_buffer(padded.data(), padded.size() * sizeof(int64_t), FSDP2_DTYPE_I64,
                                 shape, 2, prompts.out()));
  fsdp2_generate_options generate = FSDP2_GENERATE_OPTIONS_INIT;
  generate.max_new_tokens = static_cast<int32_t>(options_.max_new_tokens);
  generate.top_k = static_cast<int32_t>(options_.top_k);
  generate.top_p = options_.top_p;
  generate.temperature = options_.model.run().temperature;
  generate.seed = options_.model.run().seed;
  generate.first_row = static_cast<int64_t>(first);
  generate.stop_tokens = stop_tokens_.data();
  generate.n_stop_tokens = stop_tokens_.size();
  std::vector<Tensor> seen;
  if (records_) {
    seen = records_->vision_inputs(first, count);
  }
  std::vector<fsdp2_tensor> handles;
  for (const Tensor& each : seen) {
    handles.push_back(each.get());
  }
  generate.vision_inputs = handles.data();
  generate.n_vision_inputs = handles.size();
  Tensor tokens;
  Tensor own_counts;
  check(fsdp2_module_generate_batch(model_.module().get(), prompts.get(), lengths.data(),
                                    lengths.size(), &generate, tokens.out(), own_counts.out()));
  *counts = model_.gather<int64_t>(own_counts);
  return model_.gather<int64_t>(tokens);
}

void Generation::write(size_t row, const Tokens& tokens) const {
  const Tokens& prompt = prompts_[row];
  if (options_.json) {
    const nlohmann::ordered_json line = {{"row", row},
                                         {"prompt", form_.text_of(prompt)},
                                         {"text", form_.text_of(tokens)},
                                         {"tokens", tokens}};
    const auto replace = nlohmann::ordered_json::error_handler_t::replace;
    std::cout << line.dump(-1, ' ', false, replace) << std::endl;
    return;
  }
  Tokens whole = records_ ? Tokens() : prompt;
  whole.insert(whole.end(), tokens.begin(), tokens.end());
  std::cout << form_.text_of(whole) << std::endl;
}

// As it is in a line of text: bytes that are no printable ASCII as \xHH.
std::string in_one_line(const std::string& text) {
  std::ostringstream line;
  line << std::hex << std::setfill('0');
  for (const char c : text) {
    if (c >= ' ' && c <= '~' && c != '\\') {
      line << c;
    } else {
      line << "\\x" << std::setw(2) << static_cast<int>(static_cast<uint8_t>(c));
    }
  }
  return line.str();
}

std::string shared_text(const GenerateOptions& options, const std::vector<PromptLine>& lines) {
  std::string shared = "--max-new-tokens=" + std::to_string(options.max_new_tokens) +
                       "\n--top-k=" + std::to_string(options.top_k) +
                       "\n--top-p=" + std::to_string(options.top_p) +
                       "\n--stop-tokens=" + options.stop_tokens +
                       "\n--batch-size=" + std::to_string(options.batch_size) +
                       "\n--numbers=" + std::to_string(static_cast<int>(options.numbers)) + "\n";
  for (size_t i = 0; i < lines.size(); ++i) {  // ranks may know the file by other names
    shared += "prompt " + std::to_string(i + 1) + "=" + in_one_line(lines[i].text) + "\n";
  }
  return shared;
}

}  // namespace

void generate(const std::vector<std::string>& arguments) {
  GenerateOptions options;
  if (!parse_generate_options(arguments, &options)) {
    return;
  }
  const std::vector<PromptLine> lines = prompt_lines(options);
  ShardedModel::use(options.model, shared_text(options, lines),
                    [&](const ShardedModel& model) { Generation(options, lines, model).run(); });
}

}  // namespace fsdp2::cli
