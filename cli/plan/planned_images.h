// Images in the windows of a step that a plan works out.
#pragma once

#include "cli/plan/options.h"
#include "client/reshard_choice.h"

namespace fsdp2::cli {

// Puts options.images of options.image_size into each window of the step: the tokens that they
// stand in for, and patches without content. Throws UsageError for a model that sees no images, and
// for images that a window has no room for. REQUIRES: options.images > 0.
void add_images(const PlanOptions& options, client::PlannedStep* step);

}  // namespace fsdp2::cli
