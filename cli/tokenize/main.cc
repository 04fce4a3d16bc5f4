// fsdp2-tokenize, which `fsdp2 tokenize` becomes.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "cli/arguments.h"
#include "cli/end_process.h"
#include "cli/interruption.h"
#include "cli/library.h"
#include "cli/token_text.h"
#include "cli/tokenize/advance.h"
#include "cli/tokenize/options.h"
#include "cli/tokenize/token_writer.h"

namespace fsdp2::cli {
namespace {

namespace fs = std::filesystem;

// As the loader cuts texts that it reads by itself: a piece ends with the line in which it is long
// enough.
constexpr size_t kPieceBytes = size_t{1} << 20;

// That of the model whose directory has the tokenizer; 0 if there is no such model.
int64_t models_vocab_size(const std::string& tokenizer) {
  const fs::path given = tokenizer;
  const fs::path config = (fs::is_directory(given) ? given : given.parent_path()) / "config.json";
  std::ifstream file(config);
  if (!file) {
    return 0;
  }
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  const auto size = json.find("vocab_size");  // not copied: it may be nested too deeply for that
  if (json.is_object() && size == json.end()) {
    return 0;
  }
  if (!json.is_object() || !size->is_number_integer() || *size < 0) {
    throw Failure(config.string() +
                  ": expected a JSON object whose vocab_size is a number: name "
                  "the model's vocabulary by --vocab-size");
  }
  return size->get<int64_t>();
}

class Tokenization {
 public:
  explicit Tokenization(const TokenizeOptions& options);
  void run();

 private:
  bool reads_text() const { return !options_.text.empty(); }
  int64_t find_vocab_size() const;
  bool next_row(std::string* row);
  std::vector<int64_t> tokens_of(const std::string& row) const;
  void add(const std::string& row);
  [[noreturn]] void refuse(const std::string& what) const;
  void summarize(double seconds) const;

  const TokenizeOptions& options_;
  const bool has_file_;
  Tokenizer tokenizer_;
  std::ifstream input_;
  int64_t vocab_size_ = 0;
  int64_t bytes_ = 0;  // read
  int64_t lines_ = 0;  // read
  int64_t rows_ = 0;   // written
  int64_t skipped_ = 0;
  std::optional<TokenWriter> out_;
};

Tokenization::Tokenization(const TokenizeOptions& options)
    : options_(options),
      has_file_(options.tokenizer != "bytes"),
      input_(options.input(), std::ios::binary) {
  if (!input_ || fs::is_directory(options.input())) {
    throw Failure(options.input() + ": cannot be read: " + std::strerror(input_ ? EISDIR : errno));
  }
  check(fsdp2_tokenizer_open(has_file_ ? options.tokenizer.c_str() : nullptr, tokenizer_.out()));
  vocab_size_ = find_vocab_size();
  out_.emplace(options.out, vocab_size_);
}

int64_t Tokenization::find_vocab_size() const {
  const auto info = info_of<fsdp2_tokenizer_info>(fsdp2_tokenizer_get_info, tokenizer_.get());
  const int64_t beside =
      options_.vocab_size == 0 && has_file_ ? models_vocab_size(options_.tokenizer) : 0;
  const int64_t given = options_.vocab_size > 0 ? options_.vocab_size : beside;
  if (given > 0 && given < info.vocab_size) {
    throw Failure("--tokenizer " + options_.tokenizer + " has " + std::to_string(info.vocab_size) +
                  " tokens, more than the model's vocabulary of " + std::to_string(given));
  }
  return given > 0 ? given : info.vocab_size;
}

// The next line with its end, or of a text as many as make a piece. False: there is none.
bool Tokenization::next_row(std::string* row) {
  row->clear();
  for (std::string line;
       (row->empty() || reads_text()) && row->size() < kPieceBytes && std::getline(input_, line);) {
    ++lines_;
    *row += line + (input_.eof() ? "" : "\n");
  }
  end_if_interrupted();
  if (input_.bad()) {
    throw Failure(options_.input() + ": cannot be read: " + std::strerror(errno));
  }
  return !row->empty();
}

void Tokenization::refuse(const std::string& what) const {
  const std::string place = reads_text() ? "its text from byte " + std::to_string(bytes_) + " on"
                                         : "line " + std::to_string(lines_);
  throw Failure(options_.input() + ": " + place + ": " + what);
}

std::vector<int64_t> Tokenization::tokens_of(const std::string& row) const {
  return encoded(row.size(), [&](int64_t* tokens, size_t cap, size_t* needed) {
    constexpr int32_t kSurround = 0;
    return reads_text()
               ? fsdp2_tokenizer_encode(tokenizer_.get(), row.c_str(), kSurround, tokens, cap,
                                        needed)
               : fsdp2_tokenizer_encode_record(tokenizer_.get(), row.c_str(), tokens, cap, needed);
  });
}

void Tokenization::add(const std::string& row) {
  if (row.find('\0') != std::string::npos) {
    refuse("has a zero byte, which is no text");
  }
  if (!reads_text() && row.find_first_not_of(" \t\r\n") == std::string::npos) {
    return;
  }
  try {
    out_->add(tokens_of(row));
    ++rows_;
  } catch (const Failure& failure) {
    const bool is_bad_row =
        failure.status() == FSDP2_E_CORRUPT_DATA || failure.status() == FSDP2_E_INVALID_ARGUMENT;
    if (!is_bad_row) {
      throw;
    }
    if (!options_.skip_bad_records || failure.status() != FSDP2_E_CORRUPT_DATA) {
      refuse(failure.what());
    }
    if (skipped_++ == 0) {
      std::cerr << "fsdp2 tokenize: skipped line " << lines_ << ": " << failure.what() << "\n";
    }
  }
}

void Tokenization::run() {
  std::error_code error;
  const auto total = fs::file_size(options_.input(), error);
  double seconds = 0;
  {
    Advance advance(options_.quiet, error ? 0 : static_cast<int64_t>(total));
    for (std::string row; next_row(&row);) {
      add(row);
      bytes_ += static_cast<int64_t>(row.size());
      advance.show(bytes_, reads_text() ? lines_ : rows_, out_->count());
    }
    seconds = advance.seconds();
  }
  if (out_->count() == 0) {
    throw Failure(
        options_.input() + ": has no tokens" +
        (skipped_ > 0 ? ": all " + std::to_string(skipped_) + " lines were skipped" : ""));
  }
  out_->commit();
  summarize(seconds);
}

void Tokenization::summarize(double seconds) const {
  const nlohmann::ordered_json line = {
      {"event", "tokenized"},
      {"out", options_.out},
      {"rows", reads_text() ? lines_ : rows_},
      {"skipped", skipped_},
      {"tokens", out_->count()},
      {"vocab_size", vocab_size_},
      {"dtype", out_->bytes_per_token() == 2 ? "uint16" : "uint32"},
      {"seconds", seconds}};
  const auto replace = nlohmann::ordered_json::error_handler_t::replace;
  std::cout << line.dump(-1, ' ', false, replace) << std::endl;
}

}  // namespace
}  // namespace fsdp2::cli

int main(int argc, char** argv) {
  fsdp2::cli::end_process(fsdp2::cli::exit_code_of("fsdp2 tokenize", [&] {
    fsdp2::cli::check(fsdp2_check_version(FSDP2_HEADER_VERSION));
    fsdp2::cli::TokenizeOptions options;
    if (fsdp2::cli::parse_tokenize_options({argv + 1, argv + argc}, &options)) {
      fsdp2::cli::note_interruptions();
      fsdp2::cli::Tokenization(options).run();
    }
    return 0;
  }));
}
