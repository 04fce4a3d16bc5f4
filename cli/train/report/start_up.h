// Where the time before a run's first step goes.
#pragma once

#include <nlohmann/json.hpp>

namespace fsdp2::cli {

// Phases that follow each other; the first one begins with the process.
class StartUp {
 public:
  StartUp();
  void ended(const char* phase);
  // By phase, in their order.
  const nlohmann::ordered_json& seconds() const { return seconds_; }

 private:
  double begin_;  // of the phase under way, in seconds since the system started
  nlohmann::ordered_json seconds_ = nlohmann::ordered_json::object();
};

}  // namespace fsdp2::cli
