// Every option of a training run, and its value where nobody gives one. key_table.h says what each
// is called and means.
#pragma once

#include <cstdint>
#include <string>

#include "core/config/sharding.h"

namespace fsdp2::config {

struct TrainOptions {
  std::string model, model_config;
  std::string config_overrides;
  bool untie_embeddings_and_output_weights = false;
  bool plain_operators = false;
  bool no_initialization = false;
  bool init_model_with_meta_device = false;
  std::string freeze;
  std::string tokens, text, records;
  std::string data_weights;
  bool cut_long_records = false;
  bool skip_bad_records = false;
  std::string tokenizer = "auto";
  int64_t vocab_size = 0;
  int64_t seq_len = 32;
  bool shuffle = false;
  bool drop_last = false;
  int64_t read_ahead = 2;
  uint64_t seed = 0;
  std::string eval_data;
  int64_t eval_every = 0;
  int64_t eval_size = 8;

  int64_t steps = 10;
  int64_t epochs = 0;
  int64_t stop_step = 0;
  int64_t global_batch = 8;
  int64_t micro_batch = 0;
  int64_t grad_accum = 1;
  std::string accum_sync = "every";
  std::string loss_mean = "micro-batches";
  int64_t chunked_loss = 0;
  bool update_in_backward = false;

  std::string strategy = "full_shard";
  int64_t fsdp_size = 0;
  int64_t ulysses_size = 1;
  std::string shard_dim = "0";
  std::string reshard_after_forward = "default";
  double reshard_budget_gb = 0.0;
  std::string wrap = "default";
  std::string wrap_names;
  std::string dtype = "fp32";
  std::string param_dtype = "none";
  std::string reduce_dtype = "none";
  std::string output_dtype = "none";
  std::string cast_forward_inputs = "true";
  std::string wrap_embeddings = "no";
  bool wrap_head = false;
  std::string ignored_modules;
  int64_t prefetch = 1;
  bool pregather = false;
  bool keep_buffers = false;
  bool cuda_graph = false;
  bool one_communicator = false;
  bool load_from_rank0 = false;
  bool activation_checkpointing = false;
  std::string recompute = "default";
  std::string recompute_names;
  int64_t recompute_every = 1;
  int64_t mlp_tiles = 0;
  bool cpu_offload = false;

  std::string optimizer = "adamw";
  std::string optimizer_states = "default";
  double lr = 3e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double momentum = 0.9;
  double muon_momentum = 0.95;
  int64_t ns_steps = 5;
  double matched_adamw_rms = 0.2;
  double weight_decay = 0.1;
  std::string no_decay;
  std::string no_decay_names;
  std::string no_decay_classes;
  std::string lr_scale;
  std::string lr_plan;
  double clip = 0.0;
  double loss_scale = 0.0;
  int64_t loss_scale_interval = 2000;
  std::string not_finite = "error";
  int64_t max_skips_in_row = 100;
  int64_t warmup = 0;
  double warmup_ratio = 0.0;
  std::string lr_schedule = "constant";
  double min_lr_ratio = 0.0;
  double start_lr_ratio = 0.0;
  double lr_decay_ratio = 1.0;

  std::string resume;
  bool resume_partial = false;
  bool resume_without_optimizer = false;
  bool resume_without_rng = false;
  std::string ckpt_format = "torch_dist";
  std::string save_dir;
  int64_t save_every = 0;
  int64_t keep_last = 0;
  std::string save_best;
  std::string save_weights = "no";
  bool save_only_model = false;
  bool save_without_optimizer = false;
  bool save_without_rng = false;
  bool sync_save = false;
  std::string full_state_dict;
  std::string save_pretrained;
  std::string export_dtype = "none";

  std::string metrics;
  std::string metrics_csv;
  std::string tensorboard;
  std::string trace;
  std::string trace_steps = "1:2";
  int64_t memory_step = -1;
  int64_t log_every = 1;
  double peak_tflops = 0.0;
  bool exact_grad_norm = false;
  bool quiet = false;
  std::string log;
  int64_t sample = 0;
  std::string prompt;
  double temperature = 0.8;

  int64_t world_size = 0;
  std::string device = "auto";
  std::string backend = "auto";
  int64_t threads = 0;
  std::string product_engine = "auto";
  bool deterministic = false;
  std::string matmul_precision = "highest";
  std::string keep_memory = "true";
  std::string comm_path = "auto";
  double timeout_s = 600.0;
  double grace_s = 30.0;

  bool keeps_memory() const { return keep_memory == "true"; }
  bool resumes_from_save_dir() const { return resume == "auto"; }
  bool resumes_partially() const { return resume_partial || ckpt_format == "torch_dcp"; }
  // Whether parameters have no values until the checkpoint gives them, which holds all of them.
  bool leaves_values_to_checkpoint() const {
    return no_initialization && !resume.empty() && !resumes_from_save_dir() && !resumes_partially();
  }
  Sharding sharding() const {
    return {strategy, fsdp_size, reshard_after_forward, wrap, wrap_names, ulysses_size, shard_dim};
  }
};

}  // namespace fsdp2::config
