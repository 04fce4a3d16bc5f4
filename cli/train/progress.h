// How far a run is, for whoever watches: on a terminal one line that updates itself, elsewhere a
// line now and then. Everything goes to standard error.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace fsdp2::cli {

// "1 h 02 m", "3 m 20 s", "45 s"
std::string duration_text(double seconds);
// "1.35 M", "88.1 k", "512"
std::string count_text(double n);

class Progress {
 public:
  enum class Style {
    kNone,
    kLines,
    kTerminal,  // standard error is one
    kStatus,    // of the launcher, which shows text before a carriage return as a line that updates
  };

  // What standard error allows. `columns`: of the line, set for kTerminal and kStatus.
  static Style find_style(bool quiet, int* columns);

  Progress(Style style, int columns, int64_t first_step, int64_t stop_step);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // A line of its own that stays.
  void say(const std::string& line);
  // A step has been done. The last one stays as a line.
  void step(int64_t step, double loss, double seconds, double tokens_per_second);
  // Takes the updating line away, so that others may write to the terminal.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  bool is_due(bool last) const;
  std::string figures(int64_t done, double loss) const;
  std::string bar(int64_t done, size_t room) const;
  void show(const std::string& text);

  Style style_;
  int columns_;
  int64_t first_;
  int64_t stop_;
  double step_seconds_ = 0;       // smoothed
  double tokens_per_second_ = 0;  // smoothed
  Clock::time_point start_ = Clock::now();
  Clock::time_point shown_at_;
  bool is_shown_ = false;
};

}  // namespace fsdp2::cli
