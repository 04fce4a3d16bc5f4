// What TensorBoard shows of a run: the numbers of its JSON lines, by step.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace fsdp2::cli {

class EventFile {
 public:
  // Begins a new file in `directory`, which is made if it is missing, beside those of earlier runs:
  // TensorBoard shows them as one run, without what the earlier ones have of `next_step` and later
  // steps. Changes nothing until the first line is written.
  EventFile(std::string directory, int64_t next_step)
      : directory_(std::move(directory)), next_step_(next_step) {}
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Adds each number of a line of a step or an evaluation, as train/loss or eval/loss, and nothing
  // of other lines. An evaluation is shown at the number of steps done, as people are told it, and
  // a step at its own number, which counts from 0. Each call writes one record, whole and at once.
  // Throws Failure.
  void write(const nlohmann::ordered_json& line);

 private:
  void open_file();
  void add(const std::string& event);

  const std::string directory_;
  const int64_t next_step_;
  std::string path_;
  int file_ = -1;  // not opened yet
};

}  // namespace fsdp2::cli
