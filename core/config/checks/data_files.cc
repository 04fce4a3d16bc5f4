#include "core/config/checks/data_files.h"

#include <filesystem>
#include <system_error>

#include "core/config/checks/require.h"
#include "core/config/locale_free.h"

namespace fsdp2::config {

namespace fs = std::filesystem;

std::vector<std::string> data_files(const TrainOptions& options) {
  const std::string& files = !options.tokens.empty() ? options.tokens
                             : !options.text.empty() ? options.text
                                                     : options.records;
  return options.data_weights.empty() ? std::vector<std::string>{files} : parts_of(files);
}

double read_data_weight(const std::string& text) {
  const double weight = decimal_in(text).value_or(0);
  require(weight > 0, "--data-weights: '" + text + "': expected a positive number");
  return weight;
}

std::string tokenizer_path(const TrainOptions& options) {
  if (options.tokenizer == "bytes") {
    return "";
  }
  if (options.tokenizer != "auto" && options.tokenizer != "model") {
    return options.tokenizer;
  }
  const fs::path own = fs::path(options.model) / "tokenizer.json";
  std::error_code error;
  const bool has_own = !options.model.empty() && fs::exists(own, error);
  require(has_own || options.tokenizer == "auto",
          "--tokenizer model: there is no " + own.string() +
              ": expected a --model with one, a directory, a tokenizer.json or bytes");
  return has_own ? own.string() : "";
}

}  // namespace fsdp2::config
