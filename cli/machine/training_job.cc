#include "cli/machine/training_job.h"

#include <sstream>

namespace fsdp2::cli {

namespace {

using nlohmann::json;

void read_metrics(JobEnd* job) {
  std::istringstream lines(job->end.out);
  for (std::string text; std::getline(lines, text);) {
    const json line = json::parse(text, nullptr, false);
    const std::string event = line.is_object() ? line.value("event", "") : "";
    if (event == "step") {
      job->steps.push_back(line);
    } else if (event == "summary") {
      job->summary = line;
    }
  }
}

}  // namespace

std::string JobEnd::cause() const {
  const size_t at = end.err.find("fsdp2 train: ");
  if (at == std::string::npos || end.timed_out) {
    return end.last_words();
  }
  return end.err.substr(at, end.err.find('\n', at) - at);
}

JobEnd run_job(const TrainingJob& job) {
  std::vector<std::string> command = {job.program, "run", "--nproc-per-node",
                                      std::to_string(job.ranks), "--"};
  const std::vector<std::string> own = {job.program, "train"};
  const std::vector<std::string>& trainer = job.trainer.empty() ? own : job.trainer;
  command.insert(command.end(), trainer.begin(), trainer.end());
  command.insert(command.end(), job.arguments.begin(), job.arguments.end());
  JobEnd result;
  result.end = run_child(command, job.variables, job.timeout_s, job.data_bytes);
  read_metrics(&result);
  return result;
}

}  // namespace fsdp2::cli
