// What a loader gives a module at a time.
#pragma once

#include <vector>

#include "cli/library.h"
#include "cli/train/flags/options.h"

namespace fsdp2::cli {

class MicroBatch {
 public:
  // Takes the loader's next batch, with the positions of its tokens if the data are records.
  MicroBatch(const TrainOptions& options, const Loader& loader);

  // Tokens, labels and, for records, positions.
  std::vector<fsdp2_tensor> inputs() const;

 private:
  std::vector<Tensor> tensors_;
};

}  // namespace fsdp2::cli
