// What a step would take of a rank's memory, and which options would make it fit.
#pragma once

#include <string>

#include "cli/plan/options.h"
#include "cli/plan/planned_model.h"

namespace fsdp2::cli {

// The memory of the model's step by kinds.
std::string step_report(const PlannedModel& model, const PlanOptions& options);

// The same in bytes, as a JSON object.
std::string step_json(const PlannedModel& model);

// The memory of a step with these options, and with others that take less of it or need less
// communication, beside options.memory_gb.
std::string fitting_report(const PlannedModel& model, const PlanOptions& options);

// The units that may stay gathered after forward within options.memory_gb, and what that saves.
std::string reshard_report(const PlanOptions& options);

}  // namespace fsdp2::cli
