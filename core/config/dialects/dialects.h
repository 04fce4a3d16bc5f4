// The dialects, each a table in a file of its own.
#pragma once

#include <string>
#include <vector>

#include "core/config/dialect.h"
#include "core/config/plan.h"

namespace fsdp2::config {

// Our own: the keys are the flags of fsdp2 train, written with _ or -.
std::vector<Row> plain_rows();
void apply_plain(const Node& root, const std::string& prefix, Plan* plan);

}  // namespace fsdp2::config
