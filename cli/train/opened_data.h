// The files of a run, opened by all of its ranks.
#pragma once

#include <cstdint>

#include "cli/library.h"
#include "core/config/train_options.h"

namespace fsdp2::cli {

// Data that is damaged, or does not go with the options. All ranks read the same files, and a rank
// that reads them well hears of the others' failure: so any one can tell it for all.
class UnfitData : public Failure {
 public:
  using Failure::Failure;
};

// Collective. Throws UnfitData, or Failure.
void open_loader(const config::TrainOptions& options, const Mesh& mesh, int64_t vocab_size,
                 Loader* out);

}  // namespace fsdp2::cli
