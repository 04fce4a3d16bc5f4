#include "cli/tokenize/advance.h"

#include <algorithm>
#include <iostream>
#include <string>

#include "cli/terminal.h"

namespace fsdp2::cli {

namespace {

constexpr std::chrono::milliseconds kUpdate{200};
constexpr std::chrono::milliseconds kLineEvery{10000};

}  // namespace

Advance::Advance(bool quiet, int64_t total)
    : total_(total), style_(Progress::find_style(quiet, &columns_)) {}

Advance::~Advance() {
  if (is_shown_) {
    std::cerr << "\r" << kClearToEnd << std::flush;
  }
}

double Advance::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

void Advance::show(int64_t bytes, int64_t rows, int64_t tokens) {
  const bool updates = style_ == Progress::Style::kTerminal;
  const auto now = Clock::now();
  if (style_ == Progress::Style::kNone || now - shown_at_ < (updates ? kUpdate : kLineEvery)) {
    return;
  }
  shown_at_ = now;
  const double spent = seconds();
  const double part =
      total_ > 0 ? std::min(1.0, static_cast<double>(bytes) / static_cast<double>(total_)) : 0;
  std::string line = count_text(static_cast<double>(rows)) + " rows, " +
                     count_text(static_cast<double>(rows) / spent) + " rows/s, " +
                     count_text(static_cast<double>(tokens)) + " tokens";
  if (part > 0) {
    line = std::to_string(static_cast<int>(100 * part)) + " %, " + line + ", " +
           duration_text(spent / part - spent) + " left";
  }
  if (updates) {
    line = "\r" + line.substr(0, static_cast<size_t>(std::max(1, columns_ - 1))) + kClearToEnd;
  }
  std::cerr << line << (updates ? "" : "\n") << std::flush;
  is_shown_ = updates;
}

}  // namespace fsdp2::cli
