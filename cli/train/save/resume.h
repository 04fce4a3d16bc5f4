// The checkpoint that a run goes on from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/library.h"
#include "cli/train/flags/options.h"
#include "cli/train/save/checkpoints.h"
#include "cli/train/save/data_place.h"

namespace fsdp2::cli {

// Texts are lines for people.
struct Resumed {
  int64_t next_step = 0;
  std::string story;                  // "resuming from DIR at step 100"
  std::vector<std::string> warnings;  // checkpoints that were passed over
  std::optional<DataPlace> data = {};
};

// Collective. Does what --resume says, or nothing without it. If the checkpoint holds a model
// alone, the run takes its weights and begins at step 0.
//
// With --resume auto, the checkpoints of --save-dir are tried from the newest on until one is
// sound: a file that is missing, cut off or has another checksum only costs the steps since the
// checkpoint before it. Where there is none yet, the run begins at step 0. Throws Failure if there
// are some and none is sound: beginning anew is then for the user to decide.
Resumed resume(const TrainOptions& options, const Mesh& mesh, const RunState& state);

}  // namespace fsdp2::cli
