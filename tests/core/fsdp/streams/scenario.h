// Steps of a small sharded model on recording devices, and the same steps on the host.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "core/comm/comm.h"
#include "core/fsdp/fully_shard.h"
#include "tests/support/recording_device/recorder.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::fsdp {

// The first may differ; the last one tells of what the one before has left behind.
constexpr int kSteps = 3;

struct Scenario {
  std::string name;
  int ranks = 2;
  int64_t fsdp_size = 0;  // 0: all ranks; fewer: HSDP
  Policy policy;
  TinyStackOptions model{8, 16, 3};
  int micro_batches = 1;
  bool forwards_first = false;           // all of a step's, before the backwards
  std::vector<int64_t> blocks{0, 1, 2};  // that run
  // Called once, and before each micro batch.
  std::function<void(Unit& root)> prepare;
  std::function<void(Unit& root, int micro)> before_micro_batch;
  bool optimizer_in_backward = false;   // one parameter at a time
  bool updates_units = false;           // in the last backward
  std::vector<std::string> host_waits;  // that each step must have
  // How many waits of a step order memory that nobody takes before another wait covers them: a
  // buffer that is kept goes to the next of its size, and one may be the last of its size.
  size_t spare_waits = 0;
  // Where an additional step fails, before the second one.
  enum class Fails { kNowhere, kInForward, kInBackward } fails = Fails::kNowhere;
};

inline void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

// Everything that FSDP does in a step, in its variants.
const std::vector<Scenario>& scenarios();

struct Recording {
  std::vector<double> losses;
  std::vector<std::string> problems;    // of rank 0, as the following
  std::vector<std::string> host_waits;  // during the steps
  std::vector<recording::StreamWait> waits;
  std::vector<size_t> waits_before;    // each step
  std::vector<int64_t> events_before;  // each step: how many have been made
  std::vector<int64_t> live_bytes;     // before each step, without the losses
  std::vector<int64_t> peak_bytes;     // of each step, above that
};

// ignored_wait: of rank 0, counted from the first step on. order: see run_ranks_on_devices.
Recording record(const Scenario& scenario, std::optional<size_t> ignored_wait = std::nullopt,
                 CollectiveOrder order = CollectiveOrder::kOnStream);
// The same steps, of which the second one's forwards and backwards are recorded and replayed; rank
// 0's, as above.
struct GraphRecording {
  std::vector<double> losses;
  std::vector<std::string> problems;
  std::string refused;  // why they could not be recorded
};
GraphRecording record_as_graph(const Scenario& scenario);
std::vector<double> losses_on_host(const Scenario& scenario);

}  // namespace fsdp2::fsdp
