// A file of lines to which a run adds as it goes, each whole and at once, and which a resumed run
// goes on with.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace fsdp2::cli {

// The step that a line is of, or the one before which it is written; nothing if it is not of a
// training run.
using StepOfLine = std::function<std::optional<int64_t>(const std::string& line)>;

inline constexpr int64_t kBeforeAllSteps = -1;        // of a heading
inline constexpr int64_t kAfterAllSteps = INT64_MAX;  // of what is said at the end

class LineFile {
 public:
  // "" is standard output. `flag` named it. Holds the file for this run alone, which makes an empty
  // one if it is missing, and removes that again if no line comes. Lines of steps before
  // `next_step` stay, up to the first that is not; the others go when the first line is written.
  // Throws Failure.
  LineFile(std::string flag, std::string path, int64_t next_step, const StepOfLine& step_of);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  bool is_stdout() const { return path_.empty(); }
  // Whether nothing stays of the file, and nothing has been added to it.
  bool is_empty() const { return kept_bytes_ == 0 && !has_begun_; }
  // `line` is without its end. Throws Failure.
  void add(const std::string& line);

 private:
  LineFile(std::string flag, std::string path);

  [[noreturn]] void fail() const;
  void open_alone();
  bool is_regular() const;
  bool has_gone() const;
  int64_t bytes_of_earlier_steps(int64_t next_step, const StepOfLine& step_of) const;

  const std::string flag_;
  const std::string path_;
  int file_ = -1;
  int64_t kept_bytes_ = 0;  // of the file as it was found
  bool has_begun_ = false;  // to write
  bool is_new_ = false;     // made by this run
};

}  // namespace fsdp2::cli
