#include "cli/tokenize/options.h"

#include <filesystem>
#include <system_error>

#include "cli/arguments.h"
#include "core/config/checks/kept_files.h"

namespace fsdp2::cli {

namespace {

void check_tokenize(const TokenizeOptions& o) {
  constexpr int64_t kMostTokens = int64_t{1} << 32;
  require(!o.text.empty() || !o.records.empty(), "--text or --records (a file to read) is needed");
  require(o.text.empty() || o.records.empty(), "--text and --records exclude each other");
  require(!o.skip_bad_records || o.text.empty(), "--skip-bad-records needs --records");
  require_within("--vocab-size", o.vocab_size, 0, kMostTokens);
  std::error_code error;
  const bool reads = std::filesystem::equivalent(o.input(), o.out, error) ||
                     (o.tokenizer != "bytes" && config::is_file_of_tokenizer(o.out, o.tokenizer));
  require(!reads, "--out " + o.out + " is the file to read");
}

}  // namespace

bool parse_tokenize_options(const std::vector<std::string>& arguments, TokenizeOptions* out) {
  TokenizeOptions o;
  CLI::App app("Writes the token file of a text, or of records, for fsdp2 train --tokens.",
               "fsdp2 tokenize");
  set_style(app, "--tokenizer DIR|FILE|bytes (--text FILE | --records FILE) --out FILE [OPTIONS]");
  as_path(as_utf8(app.add_option("--tokenizer", o.tokenizer,
                                 "A tokenizer.json, a model's directory with one, or bytes")))
      ->required()
      ->option_text("TEXT");
  as_path(app.add_option("--text", o.text, "Text to read, as one sequence of tokens"))
      ->option_text("FILE");
  as_path(app.add_option("--records", o.records,
                         "JSON lines to read: text, prompt and response, or messages. Each ends "
                         "with the token that ends a text; which tokens are answers is not kept"))
      ->option_text("FILE");
  as_path(
      app.add_option("--out", o.out, "Token file to write, which appears as a whole or not at all"))
      ->required()
      ->option_text("FILE");
  add_number(app, "--vocab-size", &o.vocab_size,
             "Vocabulary of the model: tokens are uint16 up to 65536, and uint32 above (0: that of "
             "the config.json beside the tokenizer, or the tokenizer's own)")
      ->option_text("N (0)");
  app.add_flag("--skip-bad-records", o.skip_bad_records,
               "Leave out lines that are no record, and say how many");
  app.add_flag("--quiet", o.quiet, "Show no progress");
  app.footer("  fsdp2 tokenize --tokenizer MODEL --records data.jsonl --out data.bin");
  if (!parse_arguments(app, arguments)) {
    return false;
  }
  check_tokenize(o);
  *out = std::move(o);
  return true;
}

}  // namespace fsdp2::cli
