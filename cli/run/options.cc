#include "cli/run/options.h"

#include <algorithm>
#include <utility>

#include "cli/arguments.h"

namespace fsdp2::cli {

namespace {

constexpr int kDefaultPort = 29500;  // torchrun's
constexpr int kMostRanks = 1 << 20;
constexpr char kCommandPlace[] =
    "the command goes after --, as in: fsdp2 run --nproc-per-node 2 -- fsdp2 train";

void check(const RunOptions& options) {
  require_within("--nnodes", options.nnodes, 1, kMostRanks);
  require_within("--nproc-per-node", options.nproc_per_node, 1, kMostRanks / options.nnodes);
  if (options.node_rank < 0 || options.node_rank >= options.nnodes) {
    throw UsageError("--node-rank " + std::to_string(options.node_rank) +
                     " is not one of 0 to --nnodes - 1 = " + std::to_string(options.nnodes - 1));
  }
  if (options.master_port < 0 || options.master_port > 65535) {
    throw UsageError("--master-port " + std::to_string(options.master_port) +
                     " is not a port number");
  }
  if (options.nnodes > 1 && options.master_addr.empty()) {
    throw UsageError("--nnodes " + std::to_string(options.nnodes) +
                     " needs --master-addr, the address of node 0 that all nodes reach");
  }
  if (options.command.empty()) {
    throw UsageError(std::string("no command given; ") + kCommandPlace);
  }
}

}  // namespace

bool parse_run_options(std::vector<std::string> arguments, RunOptions* out) {
  RunOptions options;
  const auto separator = std::find(arguments.begin(), arguments.end(), "--");
  const bool separated = separator != arguments.end();
  if (separated) {
    options.command.assign(separator + 1, arguments.end());
    arguments.erase(separator, arguments.end());
  }

  CLI::App app("Starts one process per rank on this node and looks after them.", "fsdp2 run");
  set_style(app, "[OPTIONS] -- COMMAND [ARGUMENTS...]");
  add_number(app, "--nproc-per-node", &options.nproc_per_node, "Ranks on each node")
      ->option_text("N (1)");
  add_number(app, "--nnodes", &options.nnodes, "Nodes of the job")->option_text("N (1)");
  add_number(app, "--node-rank", &options.node_rank, "Number of this node")->option_text("K (0)");
  app.add_option("--master-addr", options.master_addr, "Address of node 0")
      ->option_text("ADDRESS (127.0.0.1)");
  add_number(
      app, "--master-port", &options.master_port,
      "Port on node 0 where the ranks meet (default: a free one, or 29500 with several nodes)")
      ->option_text("PORT");
  app.add_flag("--bind-cores", options.bind_cores, "Bind each rank to cores of its own");
  app.footer(
      "Each rank finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK, MASTER_ADDR,\n"
      "MASTER_PORT and OMP_NUM_THREADS (cores / ranks of this node, unless set) in its\n"
      "environment. On a terminal, every line is prefixed with its rank. If output is redirected,\n"
      "rank 0's standard output passes unchanged; everything else goes to standard error,\n"
      "prefixed. Signals are passed on to all ranks. If a rank fails, the others are ended, and\n"
      "the exit code is that of the failed rank (128 + signal).\n\n"
      "  fsdp2 run --nproc-per-node 2 -- fsdp2 train --model DIR --text book.txt\n"
      "  fsdp2 run --nnodes 2 --node-rank 0 --nproc-per-node 8 --master-addr node0 -- "
      "./my_trainer");
  try {
    if (!parse_arguments(app, std::move(arguments))) {
      return false;
    }
  } catch (const UsageError& error) {
    const std::string message = error.what();
    const bool is_command = !separated && message.rfind("unexpected argument", 0) == 0;
    throw UsageError(is_command ? message + "; " + kCommandPlace : message);
  }
  check(options);
  if (options.master_addr.empty()) {
    options.master_addr = "127.0.0.1";
  }
  if (options.master_port == 0 && options.nnodes > 1) {
    options.master_port = kDefaultPort;
  }
  *out = std::move(options);
  return true;
}

}  // namespace fsdp2::cli
