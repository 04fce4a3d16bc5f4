// The dialects, each a table in a file of its own.
#pragma once

#include <string>
#include <vector>

#include "core/config/dialect.h"
#include "core/config/plan.h"

namespace fsdp2::config {

// A section that a file of any dialect may have: our own keys, which go before the others.
inline constexpr char kOwnSection[] = "libfsdp2";

// Our own: the keys are the flags of fsdp2 train, written with _ or -.
std::vector<Row> plain_rows();
void apply_plain(const Node& root, const std::string& prefix, Plan* plan);

// ROLL's, for its strategies fsdp2_train and fsdp2_infer. A file has settings of all roles, and of
// each role.
std::vector<Row> roll_rows();
std::vector<Row> roll_role_rows();
bool is_roll(const Node& root);
// role "": the only one with the strategy of the plan's purpose.
void apply_roll(const Node& root, const std::string& role, Plan* plan);

// MindSpeed-MM's, with six sections.
std::vector<Row> mm_rows();
bool is_mm(const Node& root);
void apply_mm(const Node& root, Plan* plan);

// MindSpeed-MM's older fsdp2_config.yaml, which is flat.
std::vector<Row> mm_legacy_rows();
bool is_mm_legacy(const Node& root);
void apply_mm_legacy(const Node& root, Plan* plan);

// The simple file of the GPT presets, which is flat too.
std::vector<Row> simple_rows();
bool is_simple(const Node& root);
void apply_simple(const Node& root, Plan* plan);

}  // namespace fsdp2::config
