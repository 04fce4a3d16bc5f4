// Shows how far a run is: on a terminal with one line that updates itself, elsewhere with a line
// now and then. Everything goes to standard error.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace fsdp2::cli {

// "1 h 02 m", "3 m 20 s", "45 s"
std::string duration_text(double seconds);
// "1.35 M", "88.1 k", "512"
std::string count_text(double n);

// What is shown of a step that is done.
struct StepShown {
  int64_t step;
  double loss;
  double grad_norm;
  double lr;
  double seconds;
  double tokens_per_second;
  int64_t memory_bytes;  // of this process, or of its device
};

class Progress {
 public:
  enum class Style {
    kNone,
    kLines,
    kTerminal,  // standard error is a terminal
    kStatus,    // the launcher shows text before a carriage return as a line that updates itself
  };

  // The style that standard error allows. Sets *columns, for kTerminal and kStatus, to the width of
  // the line.
  static Style find_style(bool quiet, int* columns);

  Progress(Style style, int columns, int64_t first_step, int64_t stop_step);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Writes a line that stays.
  void say(const std::string& line);
  // Says that a step is done. The line of the last step stays. A terminal too narrow for all
  // figures has those that tell most.
  void step(const StepShown& shown);
  // Removes the updating line, so that others can write to the terminal.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  bool is_due(bool last) const;
  std::string figures(const StepShown& shown, size_t room) const;
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
  size_t longest_ = 0;  // text beside the bar, which so keeps its width while numbers change theirs
};

}  // namespace fsdp2::cli
