// LibTorch's profiler for the thread that starts it: its operators, the ranges that anyone names
// with at::RecordFunction, what autograd runs for it, and what a GPU does at its request.
#pragma once

#include <memory>
#include <string>

namespace torch::autograd::profiler {
struct ProfilerResult;
}  // namespace torch::autograd::profiler

namespace fsdp2::profile {

// What was recorded from a start to a stop.
class Profile {
 public:
  explicit Profile(std::unique_ptr<torch::autograd::profiler::ProfilerResult> result);
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  // Writes a trace in Chrome's format (JSON), once. Error: kIo.
  void save_trace(const std::string& path);
  // operator_table.h
  const std::string& table() const { return table_; }

 private:
  std::unique_ptr<torch::autograd::profiler::ProfilerResult> result_;
  std::string table_;
};

// Error: kWrongState if a profiler runs in this process that this thread or anyone else, such as
// Python's torch, has started. A thread that ends stops what it has started.
void start();
// Error: kWrongState unless this thread has started one.
std::unique_ptr<Profile> stop();

}  // namespace fsdp2::profile
