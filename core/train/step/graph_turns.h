// Which training steps run as they are, which one is recorded and which are replays of it
// (core/device/device_graphs.h): by their key, which tells steps apart whose work differs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>

namespace fsdp2::train {

using StepKey = std::array<int64_t, 3>;

class GraphTurns {
 public:
  // Steps of a key that run before one is recorded: they make what later ones find made, such as
  // connections, tables and libraries' memory.
  static constexpr int kWarmUps = 3;
  // Each keeps the memory of a step's results.
  static constexpr size_t kMostGraphs = 4;
  // After so many keys that could not be recorded, mostly for one reason, no other one is tried.
  static constexpr size_t kMostRefusals = 4;

  enum class Turn {
    kRun,
    kRecord,  // and replay it at once, as recorded work has not run
    kReplay,
  };

  // What to do with the next step, which has this key.
  Turn next(const StepKey& key);
  // After kRecord: it has been recorded. Otherwise refuse(), after which steps of this key run as
  // they are.
  void has_recorded(const StepKey& key) { recorded_.insert(key); }
  void refuse(const StepKey& key) { refused_.insert(key); }
  // The recordings are gone. What has been refused stays so.
  void forget();
  // Every step from here on runs as it is, whatever its key.
  bool has_given_up() const { return recorded_.empty() && refused_.size() >= kMostRefusals; }
  // Whether a key has been turned away since there are kMostGraphs. True once.
  bool is_newly_full();

 private:
  // A run whose shapes never come again would count them without end.
  static constexpr size_t kMostCounted = 64;

  std::map<StepKey, int> counts_;
  std::set<StepKey> recorded_;
  std::set<StepKey> refused_;
  enum class Full { kNo, kSeen, kTold } full_ = Full::kNo;
};

}  // namespace fsdp2::train
