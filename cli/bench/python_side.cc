#include "cli/bench/python_side.h"

#include <cstddef>
#include <sstream>

#include "cli/bench/reference_sources.h"

namespace fsdp2::cli {

namespace {

constexpr char kProgram[] = "train_fsdp2.py";
constexpr double kImportSeconds = 120;  // importing torch may take that long the first time

// Whatever the program misses, importing it tells.
constexpr char kImport[] =
    "import sys; sys.path.insert(0, sys.argv[1]); import torch, train_fsdp2; "
    "print(torch.__version__)";

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// "ValueError: what is wrong" of a line "[rank 1] ValueError: what is wrong", or nothing.
std::string exception_in(const std::string& line) {
  const bool has_rank = line.rfind("[rank ", 0) == 0 && line.find("] ") != std::string::npos;
  const std::string text = has_rank ? line.substr(line.find("] ") + 2) : line;
  const std::string name = text.substr(0, text.find(": "));
  const bool is_name = name.size() < text.size() && name.find(' ') == std::string::npos;
  return is_name && (ends_with(name, "Error") || ends_with(name, "Exception")) ? text : "";
}

}  // namespace

PythonSide::PythonSide(const std::string& python)
    : python_(python), scratch_("fsdp2-bench-python"), program_(scratch_.path(kProgram)) {
  for (const auto& [name, text] : kReferenceSources) {
    scratch_.write(name, text);
  }
  const ChildEnd end = run_child({python_, "-c", kImport, scratch_.path("")}, {}, kImportSeconds);
  if (end.exit_code == 0 && !end.timed_out) {
    torch_version_ = end.out.substr(0, end.out.find('\n'));
    if (torch_version_.empty() || torch_version_[0] < '0' || torch_version_[0] > '9') {
      obstacle_ = python_ + ": is no Python";
    }
    return;
  }
  const std::string cause = python_cause(end);
  const bool names_it = cause.rfind(python_ + ": ", 0) == 0;
  obstacle_ = names_it ? cause : python_ + ": " + cause;
}

std::vector<std::string> PythonSide::trainer() const {
  return {python_, program_, "--optimizer-impl", "fused"};
}

std::string python_cause(const ChildEnd& end) {
  std::istringstream lines(end.err);
  for (std::string line; std::getline(lines, line);) {
    const std::string exception = exception_in(line);
    if (!exception.empty()) {
      return exception;
    }
  }
  return end.last_words();
}

}  // namespace fsdp2::cli
