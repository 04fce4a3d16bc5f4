// What a loader gives a module at a time.
#pragma once

#include <vector>

#include "cli/library.h"
#include "cli/train/flags/options.h"

namespace fsdp2::cli {

class MicroBatch {
 public:
  // Takes the loader's next batch, with the positions of its tokens if the data are records, and
  // with where these begin and their images and videos if some have any.
  MicroBatch(const TrainOptions& options, const Loader& loader);

  // Tokens, labels and, for records, positions; or none of these, but boundaries, pixel_values and
  // image_grid_thw, and what the model takes of videos.
  std::vector<fsdp2_tensor> inputs() const;

 private:
  std::vector<Tensor> tensors_;
};

}  // namespace fsdp2::cli
