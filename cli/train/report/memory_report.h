// What each unit and kind of this rank holds in one step, beside the plan: --memory-step.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/library.h"

namespace fsdp2::cli {

// Bytes on this rank.
struct UnitMemory {
  std::string name;  // "" for the root
  int64_t parameters = 0;
  int64_t gradients = 0;  // of the shards, once all of its have come in the step
  int64_t optimizer = 0;
  int64_t gathered = 0;  // in full
};

class MemoryReport {
 public:
  // How the run has set the library up.
  struct Settings {
    bool keeps_memory = false;  // fsdp2_runtime_keep_memory
    // A unit's gradients go before the next unit's come.
    bool frees_gradients = false;
  };

  MemoryReport(const Mesh& mesh, const Shard& shard, const Optimizer& optimizer,
               const Settings& settings)
      : mesh_(mesh), shard_(shard), optimizer_(optimizer), settings_(settings) {}
  MemoryReport(const MemoryReport&) = delete;
  MemoryReport& operator=(const MemoryReport&) = delete;

  // Around the step. What it counts, it counts on each rank; the callbacks cost no copies.
  void before_step();
  void after_step(int64_t step);

  // {"event": "memory", "step", "rank", "units": [...], "live": {...}, "plan": {...}}
  nlohmann::ordered_json line() const;
  // The same as a table.
  std::string table() const;

 private:
  static fsdp2_status count_gradient(const fsdp2_gradient_info* info, fsdp2_tensor gradient,
                                     void* user_data);
  void give_back_kept_memory() const;
  void count_units();
  void count_optimizer();
  int64_t sum(int64_t UnitMemory::* kind) const;
  int64_t gradients_at_once() const;

  const Mesh& mesh_;
  const Shard& shard_;
  const Optimizer& optimizer_;
  const Settings settings_;
  int64_t step_ = -1;
  std::vector<UnitMemory> units_;
  std::vector<bool> has_come_;  // a gradient, by parameter
  int64_t held_before_ = 0;     // by the process, or on its GPU, between steps
  int64_t peak_ = 0;            // in the step; on a GPU, since the run began
  int64_t peak_gathered_ = 0;   // in the step
  fsdp2_plan_info plan_{};
};

}  // namespace fsdp2::cli
