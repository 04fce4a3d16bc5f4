// What a run has beside its objects (client/objects.h): who this rank is, and what its model takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/library.h"
#include "cli/train/flags/options.h"
#include "client/objects.h"
#include "core/config/plan.h"

namespace fsdp2::cli {

using client::join_job;
using client::lay_out_mesh;
using client::make_model;
using client::make_optimizer;
using client::make_step;
using client::open_data;
using client::set_up_process;
using client::shard_model;

// This rank's number in the launcher's environment; "" if it has none.
std::string rank_in_environment();

// That number for messages, also before there is a mesh; "" if the launcher puts it before every
// line.
std::string rank_to_show();

// Whether this rank says what all ranks have found alike. Each does, since a launcher may keep
// their outputs apart, and whoever reads one of them must see why it ends; `fsdp2 run` puts them
// together, so that there the first rank of each node speaks for the others.
bool speaks_for_all();

// Tells people the notes of a plan, from this one on.
void tell_notes(const config::Plan& plan, size_t first,
                const std::function<void(const std::string&)>& tell);

// The root first, whose name is empty.
std::vector<std::string> unit_names(const Shard& shard);
// Whether the sharded model takes the batches of the run. Throws UsageError, the same on all ranks.
void check_batch(const TrainOptions& options, int64_t data_ranks, const Module& module);

}  // namespace fsdp2::cli
