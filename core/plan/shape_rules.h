// What shapes operators give, where LibTorch's libraries leave it to Python's to say.
#pragma once

namespace fsdp2::plan {

// From now on these operators run on tensors of meta, in the whole process. The first call counts.
// Operators that have a rule already, as Python's torch gives them, keep it. Thread-safe.
void install_shape_rules();

}  // namespace fsdp2::plan
