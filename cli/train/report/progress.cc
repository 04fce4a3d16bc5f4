#include "cli/train/report/progress.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "cli/machine/size_text.h"
#include "cli/terminal.h"
#include "cli/train/metrics/metrics.h"

namespace fsdp2::cli {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kUpdate{100};
constexpr seconds kLineEvery{10};
constexpr seconds kLineEveryLater{60};  // once ten minutes have passed
constexpr seconds kLater{600};
constexpr double kSmoothing = 0.1;  // weight of the newest step
constexpr size_t kBarFrame = 3;     // its brackets and the blank behind
constexpr size_t kNarrowestBar = 8;
constexpr size_t kWidestBar = 30;

template <typename... Values>
std::string format(const char* pattern, Values... values) {
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(), pattern, values...);
  return text.data();
}

// Writes at once, so that lines of several processes on one terminal stay whole.
void write_stderr(const std::string& text) {
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) {
    return;  // nobody is watching any more
  }
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double smooth(double before, double now) {
  return before == 0 ? now : before + kSmoothing * (now - before);
}

}  // namespace

std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(std::llround(std::min(seconds, 1e9)));
  if (whole >= 3600) {
    return format("%lld h %02lld m", whole / 3600, whole / 60 % 60);
  }
  return whole >= 60 ? format("%lld m %02lld s", whole / 60, whole % 60) : format("%lld s", whole);
}

std::string count_text(double n) {
  constexpr std::array<const char*, 4> kUnits = {"", " k", " M", " G"};
  size_t unit = 0;
  while (std::abs(n) >= 999.5 && unit + 1 < kUnits.size()) {
    n /= 1000;
    ++unit;
  }
  const int digits = unit == 0 || n >= 100 ? 0 : (n >= 10 ? 1 : 2);
  return format("%.*f%s", digits, n, kUnits[unit]);
}

Progress::Style Progress::find_style(bool quiet, int* columns) {
  if (quiet) {
    return Style::kNone;
  }
  *columns = terminal_columns(STDERR_FILENO);
  if (*columns > 0) {
    return Style::kTerminal;
  }
  const char* status = std::getenv(kStatusColumns);
  *columns = status == nullptr ? 0 : static_cast<int>(std::strtol(status, nullptr, 10));
  return *columns > 0 ? Style::kStatus : Style::kLines;
}

Progress::Progress(Style style, int columns, int64_t first_step, int64_t stop_step)
    : style_(style), columns_(columns), first_(first_step), stop_(stop_step) {}

Progress::~Progress() { clear(); }

void Progress::say(const std::string& line) {
  if (style_ != Style::kNone) {
    clear();
    write_stderr(line + "\n");
  }
}

void Progress::step(const StepShown& shown) {
  // The first step fills caches and tells little about those to come.
  const bool second = shown.step == first_ + 1;
  step_seconds_ = second ? shown.seconds : smooth(step_seconds_, shown.seconds);
  tokens_per_second_ =
      second ? shown.tokens_per_second : smooth(tokens_per_second_, shown.tokens_per_second);
  const int64_t done = shown.step + 1;
  if (style_ == Style::kNone || !(shown.step == first_ || is_due(done == stop_))) {
    return;
  }
  shown_at_ = Clock::now();
  const size_t room = style_ == Style::kLines ? std::numeric_limits<size_t>::max()
                                              : static_cast<size_t>(std::max(columns_ - 1, 0));
  const std::string text = figures(shown, room);
  if (style_ == Style::kLines || done == stop_) {
    say(text);
  } else {
    longest_ = std::max(longest_, text.size());
    show((bar(done, room - std::min(room, longest_)) + text).substr(0, room));
  }
}

bool Progress::is_due(bool last) const {
  const auto now = Clock::now();
  if (style_ != Style::kLines) {
    return last || now - shown_at_ >= kUpdate;
  }
  return last || now - shown_at_ >= (now - start_ < kLater ? kLineEvery : kLineEveryLater);
}

// The figures in the order in which people read them. Where there is no room for all, those with
// the highest rank are left out first; the bar counts for more than norm and learning rate.
std::string Progress::figures(const StepShown& shown, size_t room) const {
  struct Figure {
    int rank;
    std::string text;
  };
  const int64_t done = shown.step + 1;
  const int width = static_cast<int>(std::to_string(stop_).size());
  const auto left = static_cast<double>(stop_ - done);
  const std::array<Figure, 7> all = {{
      {0, format("step %*lld/%lld", width, static_cast<long long>(done),
                 static_cast<long long>(stop_))},
      {0, format("loss %.4f", printable(shown.loss))},
      {3, format("norm %.3g", printable(shown.grad_norm))},
      {4, format("lr %.2e", shown.lr)},
      {1, count_text(tokens_per_second_) + " tokens/s"},
      {2, size_text(static_cast<double>(shown.memory_bytes))},
      {0, left > 0 ? "ETA " + duration_text(left * step_seconds_)
                   : "done in " + duration_text(seconds_since(start_))},
  }};
  std::string text;
  for (int highest = 4; highest >= 0; --highest) {
    text.clear();
    for (const Figure& figure : all) {
      if (figure.rank <= highest) {
        text += (text.empty() ? "" : "  ") + figure.text;
      }
    }
    constexpr int kMemory = 2;
    if (text.size() + (highest > kMemory ? kBarFrame + kNarrowestBar : 0) <= room) {
      break;
    }
  }
  return text;
}

// "[=====>    ] ", or nothing if there is no room.
std::string Progress::bar(int64_t done, size_t room) const {
  if (room < kBarFrame + kNarrowestBar || stop_ <= first_) {
    return "";
  }
  const size_t width = std::min(room - kBarFrame, kWidestBar);
  const double part = static_cast<double>(done - first_) / static_cast<double>(stop_ - first_);
  const auto full = static_cast<size_t>(part * static_cast<double>(width));
  std::string inside(full, '=');
  if (full < width) {
    inside += '>';
  }
  inside.resize(width, ' ');
  return "[" + inside + "] ";
}

void Progress::show(const std::string& text) {
  write_stderr(style_ == Style::kTerminal ? "\r" + text + kClearToEnd : text + "\r");
  is_shown_ = true;
}

void Progress::clear() {
  if (is_shown_) {
    write_stderr(style_ == Style::kTerminal ? std::string("\r") + kClearToEnd : "\r");
    is_shown_ = false;
  }
}

}  // namespace fsdp2::cli
