#include "core/config/key_table.h"

#include <nlohmann/json.hpp>
#include <set>

#include "core/config/config_error.h"

namespace fsdp2::config {

namespace {

constexpr char kNoDecayHelp[] = "Parameters without weight decay: norm, bias, or norm,bias";
constexpr char kLrScaleHelp[] =
    "Learning rates by name: PATTERN=FACTOR[,PATTERN=FACTOR...], such as lm_head.*=0.1; factors "
    "multiply where several patterns match";
constexpr char kNoDecayNamesHelp[] =
    "Parameters without weight decay, by names or patterns of the shell, as in *.bias,*norm*";
constexpr char kNoDecayClassesHelp[] =
    "Classes of modules whose parameters, at and below them, have no weight decay, as in Embedding";
constexpr char kLrPlanHelp[] =
    "Learning rates by regular expressions, which match from the beginning of a name: "
    "EXPRESSION=FACTOR[;EXPRESSION=FACTOR...]; the first that matches counts";
constexpr char kMatchedRmsHelp[] =
    "Factor of --lr for Muon's matrices [m,n], times sqrt(max(m,n)), by which their updates are as "
    "large as AdamW's (0: sqrt(max(1,m/n)) alone)";

constexpr char kDataWeightsHelp[] =
    "Weights of a mixture, as in 0.7,0.3, whose --tokens, --text or --records is then "
    "FILE,FILE,...; only their proportions count";
constexpr char kTokenizerHelp[] =
    "Tokenizer of --text, --records and prompts: a tokenizer.json, a directory with one, or bytes; "
    "model: that of --model; auto: that of --model if it has one, otherwise bytes";
constexpr char kOverridesHelp[] =
    "Fields to change in the config.json of --model or --model-config, as JSON: {\"rope_theta\": "
    "1e6}; weights that are read must still fit";
constexpr char kUntieHelp[] =
    "Give the head weights of its own; a --model must have them, and a --model-config gets them";
constexpr char kPlainOperatorsHelp[] =
    "Run a program of torch.export as the operators in its file, none replaced by faster ones that "
    "differ by rounding";
constexpr char kNoInitializationHelp[] =
    "Draw no initial values: --model or a checkpoint, --resume PATH, gives all of them";
constexpr char kRecomputeHelp[] =
    "Classes that --activation-checkpointing is for, as in A,B (default: the model's own layers, "
    "or none beside --recompute-names)";
constexpr char kRecomputeNamesHelp[] =
    "Modules that --activation-checkpointing is for, by paths or patterns, as in "
    "model.layers.{0-7},lm_head";
constexpr char kMatmulPrecisionHelp[] =
    "Precision of fp32 products on CPUs, in PyTorch's words; high and medium use bf16 units where "
    "they are measured to be faster (AMX), and with -always however slow they are";
constexpr char kFreezeHelp[] =
    "Parameters to freeze, by names or patterns of theirs or of modules above them, such as "
    "model.layers.{0-3},*.bias";
constexpr char kIgnoredHelp[] =
    "Modules whose parameters are neither sharded nor reduced nor trained, by paths or patterns";

// Keys in which ranks may differ.
const std::set<std::string> kOwn = {"log",   "metrics",     "metrics-csv", "product-engine",
                                    "quiet", "tensorboard", "threads"};

const std::set<std::string> kPaths = {
    "model",     "model-config", "tokens",      "text",           "records", "tokenizer",
    "eval-data", "metrics",      "metrics-csv", "tensorboard",    "trace",   "save-pretrained",
    "save-dir",  "save-best",    "resume",      "full-state-dict"};

template <typename... Visitors>
struct Overload : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overload(Visitors...) -> Overload<Visitors...>;

std::vector<Key> run_keys(TrainOptions* o) {
  const std::string model = "Model", data = "Data", steps = "Steps", sharding = "Sharding";
  return {
      {model, "model", &o->model,
       "Directory with config.json and safetensors, or a program: FILE.pt2 of torch.export, "
       "FILE.pt of TorchScript"},
      {model, "model-config", &o->model_config,
       "config.json, or gpt-90m, gpt-300m or encoder-45m, instead of --model; --seed draws the "
       "initial weights"},
      {model, "config-overrides", &o->config_overrides, kOverridesHelp, {}, Form::kObject},
      {model, "untie-embeddings-and-output-weights", &o->untie_embeddings_and_output_weights,
       kUntieHelp},
      {model, "plain-operators", &o->plain_operators, kPlainOperatorsHelp},
      {model, "no-initialization", &o->no_initialization, kNoInitializationHelp},
      {model, "init-model-with-meta-device", &o->init_model_with_meta_device,
       "Build the model without memory, and give each rank its shards: what happens anyway"},
      {model, "freeze", &o->freeze, kFreezeHelp, {}, Form::kList},
      {data,
       "tokens",
       &o->tokens,
       "Flat little-endian token file (uint16, or uint32 for a vocabulary > 65536); fsdp2 tokenize "
       "writes one",
       {},
       Form::kList},
      {data,
       "text",
       &o->text,
       "Any text, instead of --tokens, with the tokens of --tokenizer",
       {},
       Form::kList},
      {data,
       "records",
       &o->records,
       "JSON lines, instead of --tokens: text, prompt and response, or messages; answers are "
       "learned",
       {},
       Form::kList},
      {data, "data-weights", &o->data_weights, kDataWeightsHelp, {}, Form::kList},
      {data, "cut-long-records", &o->cut_long_records,
       "Leave out the end of records that are longer than a window, instead of refusing them"},
      {data, "skip-bad-records", &o->skip_bad_records,
       "Leave out lines that are not JSON, no record, or without an answer, and say how many"},
      {data, "tokenizer", &o->tokenizer, kTokenizerHelp},
      {data, "vocab-size", &o->vocab_size,
       "Vocabulary of the token file (0: the model's; a program, .pt2 or .pt, does not tell its "
       "own)"},
      {data, "seq-len", &o->seq_len, "Tokens per window"},
      {data, "shuffle", &o->shuffle, "Shuffle the windows of each epoch, by --seed"},
      {data, "drop-last", &o->drop_last,
       "Leave out the windows of a shuffled epoch that do not fill a step, instead of filling it "
       "with the epoch's first"},
      {data, "read-ahead", &o->read_ahead,
       "Micro batches that a thread prepares while a step runs (0: none)"},
      {data, "seed", &o->seed, "Random seed"},
      {data, "eval-data", &o->eval_data,
       "File like that of --tokens, --text or --records, whose loss is computed without training "
       "on it"},
      {data, "eval-every", &o->eval_every,
       "Steps from one evaluation to the next; the last step has one anyway (0: only that)"},
      {data, "eval-size", &o->eval_size,
       "Batches of --global-batch windows that an evaluation takes, from the beginning of "
       "--eval-data"},
      {steps, "steps", &o->steps, "Total number of steps, and length of the schedule"},
      {steps, "epochs", &o->epochs,
       "Number of times to go through the data, instead of --steps; a mixture's epoch is as many "
       "windows as its files have (0: by --steps)"},
      {steps, "stop-step", &o->stop_step, "Stop before this step (0: run to --steps)"},
      {steps, "global-batch", &o->global_batch,
       "Windows per step, over all ranks and micro batches"},
      {steps, "micro-batch", &o->micro_batch,
       "Windows per micro batch and rank, instead of --global-batch (0: by that)"},
      {steps, "grad-accum", &o->grad_accum, "Micro batches per step"},
      {steps,
       "accum-sync",
       &o->accum_sync,
       "Reduce gradients after each micro batch, after the last one, or (vocabulary) after the "
       "last one only in units that hold an embedding table or the head",
       {"every", "last", "vocabulary"}},
      {steps,
       "loss-mean",
       &o->loss_mean,
       "Mean that the loss is: of all micro batches alike, or of all labels that count",
       {"micro-batches", "labels"}},
      {steps, "chunked-loss", &o->chunked_loss,
       "Tokens whose logits exist at a time in the loss; 1024 is usual (0: by the vocabulary)"},
      {steps, "update-in-backward", &o->update_in_backward,
       "Update each unit inside backward and free its gradients at once, which saves the memory of "
       "one copy of them; without --clip, --loss-scale, --not-finite skip, --cuda-graph and Muon"},
      {sharding, "strategy", &o->strategy, "Sharding strategy", strategy_names()},
      {sharding, "fsdp-size", &o->fsdp_size, kFsdpSizeHelp},
      {sharding, "ulysses-size", &o->ulysses_size, kUlyssesHelp},
      {sharding, "shard-dim", &o->shard_dim, kShardDimHelp, shard_dim_names(), Form::kWord},
      {sharding, "reshard-after-forward", &o->reshard_after_forward, kReshardHelp, {}, Form::kWord},
      {sharding, "reshard-budget-gb", &o->reshard_budget_gb,
       "Memory in GB that a step may take; as many units as fit stay gathered after forward, as "
       "fsdp2 plan --memory-gb shows (0: --reshard-after-forward alone decides)"},
      {sharding, "wrap", &o->wrap, kWrapHelp, {}, Form::kList},
      {sharding, "wrap-names", &o->wrap_names, kWrapNamesHelp, {}, Form::kList},
      {sharding,
       "wrap-embeddings",
       &o->wrap_embeddings,
       "Whether each embedding table is a unit",
       {"no", "yes", "untied"}},
      {sharding, "wrap-head", &o->wrap_head, "Make the language-model head (lm_head) a unit"},
      {sharding, "ignored-modules", &o->ignored_modules, kIgnoredHelp, {}, Form::kList},
      {sharding, "dtype", &o->dtype, "Dtype of the sharded parameters", dtype_names(),
       Form::kDtype},
      {sharding, "param-dtype", &o->param_dtype, kParamDtypeHelp, param_dtype_names(),
       Form::kDtype},
      {sharding, "reduce-dtype", &o->reduce_dtype, "Dtype for reducing gradients",
       dtype_names_or_none(), Form::kDtype},
      {sharding, "output-dtype", &o->output_dtype, "Dtype of the model's outputs",
       dtype_names_or_none(), Form::kDtype},
      {sharding,
       "cast-forward-inputs",
       &o->cast_forward_inputs,
       "Whether units cast their floating-point inputs to --param-dtype",
       {"true", "false"},
       Form::kWord},
      {sharding, "prefetch", &o->prefetch, "Number of units gathered ahead of use"},
      {sharding, "pregather", &o->pregather,
       "Begin to gather all units before each step's forward, which then holds the whole model"},
      {sharding, "keep-buffers", &o->keep_buffers,
       "Keep the memory of gathered parameters and of what travels from step to step"},
      {sharding, "cuda-graph", &o->cuda_graph,
       "Replay forward and backward of steps of one shape as a CUDA graph (not yet run on a GPU)"},
      {sharding, "one-communicator", &o->one_communicator,
       "Gather and reduce over the same connections, in one order on all ranks"},
      {sharding, "load-from-rank0", &o->load_from_rank0,
       "Have rank 0 alone read the weights, and broadcast them"},
      {sharding, "activation-checkpointing", &o->activation_checkpointing,
       "Recompute modules in backward instead of keeping what they compute"},
      {sharding, "recompute", &o->recompute, kRecomputeHelp, {}, Form::kList},
      {sharding, "recompute-names", &o->recompute_names, kRecomputeNamesHelp, {}, Form::kList},
      {sharding, "recompute-every", &o->recompute_every,
       "Recompute the last of each N of these modules"},
      {sharding, "mlp-tiles", &o->mlp_tiles,
       "Tiles of tokens in which gated MLPs run, each computed again in backward; 4 is usual (0: "
       "all tokens at once)"},
      {sharding, "cpu-offload", &o->cpu_offload,
       "Keep shards in host memory (on a CPU they are there anyway)"},
      {sharding, "comm-path", &o->comm_path, "Communication path of parameters", comm_path_names()},
  };
}

std::vector<Key> outcome_keys(TrainOptions* o) {
  const std::string optimizer = "Optimizer", output = "Output", process = "Process",
                    checkpoint = "Checkpoints";
  return {
      {optimizer, "optimizer", &o->optimizer, "Optimizer", {"adamw", "adam", "sgd", "muon"}},
      {optimizer,
       "optimizer-states",
       &o->optimizer_states,
       "Dtype of the two moments of AdamW and Adam; default: the parameters'; bf16 takes half the "
       "memory, and needs parameters in fp32",
       {"default", "fp32", "bf16"}},
      {optimizer, "lr", &o->lr, "Peak learning rate"},
      {optimizer, "beta1", &o->beta1, "AdamW and Adam beta1, and of what Muon leaves to AdamW"},
      {optimizer, "beta2", &o->beta2, "AdamW and Adam beta2, likewise"},
      {optimizer, "eps", &o->eps, "AdamW and Adam epsilon, likewise"},
      {optimizer, "momentum", &o->momentum, "SGD momentum"},
      {optimizer, "muon-momentum", &o->muon_momentum, "Muon momentum of matrices"},
      {optimizer, "ns-steps", &o->ns_steps,
       "Newton-Schulz steps, by which Muon makes a matrix orthogonal"},
      {optimizer, "matched-adamw-rms", &o->matched_adamw_rms, kMatchedRmsHelp},
      {optimizer, "weight-decay", &o->weight_decay,
       "Weight decay, applied to every parameter but those of --no-decay, --no-decay-names and "
       "--no-decay-classes"},
      {optimizer, "no-decay", &o->no_decay, kNoDecayHelp, {}, Form::kList},
      {optimizer, "no-decay-names", &o->no_decay_names, kNoDecayNamesHelp, {}, Form::kList},
      {optimizer, "no-decay-classes", &o->no_decay_classes, kNoDecayClassesHelp, {}, Form::kList},
      {optimizer, "lr-scale", &o->lr_scale, kLrScaleHelp, {}, Form::kList},
      {optimizer, "lr-plan", &o->lr_plan, kLrPlanHelp},
      {optimizer, "clip", &o->clip, "Clip the global gradient norm to this (0: off)"},
      {optimizer, "loss-scale", &o->loss_scale,
       "Initial scale of dynamic loss scaling, for fp16; 65536 is usual (0: off)"},
      {optimizer, "loss-scale-interval", &o->loss_scale_interval,
       "Steps without overflow after which the loss scale doubles"},
      {optimizer,
       "not-finite",
       &o->not_finite,
       "Fate of a step whose loss or gradient norm is infinite or NaN",
       {"error", "skip", "apply"}},
      {optimizer, "max-skips-in-row", &o->max_skips_in_row,
       "End the run after more skipped steps in a row, for whatever reason (0: no limit)"},
      {optimizer, "warmup", &o->warmup, "Steps of linear warm-up"},
      {optimizer, "warmup-ratio", &o->warmup_ratio,
       "Length of the warm-up as a fraction of all steps, if --warmup is 0"},
      {optimizer,
       "lr-schedule",
       &o->lr_schedule,
       "Learning rate after the warm-up",
       {"constant", "linear", "cosine"}},
      {optimizer, "min-lr-ratio", &o->min_lr_ratio, "Final learning rate, as a fraction of --lr"},
      {optimizer, "start-lr-ratio", &o->start_lr_ratio,
       "Learning rate from which the warm-up rises, as a fraction of --lr"},
      {optimizer, "lr-decay-ratio", &o->lr_decay_ratio,
       "Part of all steps, the warm-up included, after which a linear or cosine schedule is at its "
       "final learning rate, and stays there"},
      {output, "metrics", &o->metrics,
       "File for the JSON lines, which a resumed run goes on with (default: standard output)"},
      {output, "metrics-csv", &o->metrics_csv,
       "File for the numbers of steps and evaluations as a table, which a resumed run goes on "
       "with"},
      {output, "tensorboard", &o->tensorboard,
       "Directory for an event file with the same numbers, which TensorBoard shows; a resumed run "
       "adds a file"},
      {output, "trace", &o->trace,
       "Directory for a trace of some steps in Chrome's format, trace.json over all ranks, and a "
       "table of operators by time"},
      {output,
       "trace-steps",
       &o->trace_steps,
       "First and last step of the trace, as FIRST:LAST; steps count from 0",
       {},
       Form::kWord},
      {output, "memory-step", &o->memory_step,
       "Step in which to count what each unit holds on rank 0, by kind, beside the plan; steps "
       "count from 0 (-1: none)"},
      {output, "peak-tflops", &o->peak_tflops,
       "Peak of a rank's device in TFLOP/s, to emit mfu, the part of it that the model uses: 6 x "
       "parameters x tokens_per_s / (ranks x peak) (0: none)"},
      {output, "exact-grad-norm", &o->exact_grad_norm,
       "Also emit grad_norm_fp64, accumulated in double"},
      {output, "log-every", &o->log_every, "Report every N steps, and the last"},
      {output, "quiet", &o->quiet, "Show no progress"},
      {output, "log", &o->log,
       "Lowest levels of the library's messages that are shown, for all categories or for single "
       "ones, as in info or comm=debug,checkpoint=off (default: FSDP2_LOG, or "
       "warning,checkpoint=info)"},
      {output, "sample", &o->sample, "Print a sample of this many tokens at the end"},
      {output, "prompt", &o->prompt,
       "Beginning of the sample: token numbers with --tokens, otherwise text"},
      {output, "temperature", &o->temperature,
       "Temperature of the sample (0: always the most likely token)"},
      {output, "save-pretrained", &o->save_pretrained,
       "Write config.json and model.safetensors to this directory"},
      {output, "full-state-dict", &o->full_state_dict,
       "Write the full weights to FILE.pth or FILE.safetensors"},
      {output, "export-dtype", &o->export_dtype,
       "Dtype of the weights in these two (none: that of training)", dtype_names_or_none(),
       Form::kDtype},
      {checkpoint, "save-dir", &o->save_dir,
       "Write a DCP checkpoint here at the end (replaces only another one); with --save-every, a "
       "series of them in it"},
      {checkpoint, "save-every", &o->save_every,
       "Write a checkpoint every N steps and after the last, DIR/step-00000100 after step 100 (0: "
       "only at the end)"},
      {checkpoint, "keep-last", &o->keep_last,
       "Keep the newest N checkpoints of the series; later steps of an older run stay (0: keep "
       "all)"},
      {checkpoint, "save-best", &o->save_best,
       "Directory for the checkpoint with the lowest loss of --eval-data: DIR/checkpoint, and "
       "DIR/best.json with its step and loss"},
      {checkpoint,
       "save-weights",
       &o->save_weights,
       "Weights alone, beside each checkpoint of the series: DIR/fsdp_cpt100.pth after step 100 "
       "(full), or DIR/fsdp_sharded_cpt100_rank0.pth and so on (per-rank)",
       {"no", "full", "per-rank"}},
      {checkpoint, "save-only-model", &o->save_only_model,
       "Save the model alone; a run that resumes from it takes its weights, and begins at step 0"},
      {checkpoint, "save-without-optimizer", &o->save_without_optimizer,
       "Leave the optimizer out of checkpoints; a run resumes from these with "
       "--resume-without-optimizer"},
      {checkpoint, "save-without-rng", &o->save_without_rng,
       "Leave the state of the random generators out of checkpoints"},
      {checkpoint, "sync-save", &o->sync_save,
       "Wait until each checkpoint is written (otherwise only until it is copied)"},
      {checkpoint, "resume", &o->resume,
       "Continue from this checkpoint, of any format, or from the newest of a series; auto: from "
       "the newest sound one of --save-dir, or from the start where there is none yet"},
      {checkpoint, "resume-partial", &o->resume_partial,
       "Skip names that only the run or only the checkpoint has"},
      {checkpoint, "resume-without-optimizer", &o->resume_without_optimizer,
       "Resume with the checkpoint's model, step and place in the data, but a new optimizer"},
      {checkpoint, "resume-without-rng", &o->resume_without_rng,
       "Resume with random generators as --seed makes them"},
      {checkpoint,
       "ckpt-format",
       &o->ckpt_format,
       "Checkpoints are DCP directories in either; torch_dcp also resumes as --resume-partial does",
       {"torch_dist", "torch_dcp"}},
      {process, "world-size", &o->world_size, "Number of ranks that the job must have (0: any)"},
      {process,
       "device",
       &o->device,
       "Device to compute on; auto: the GPU of the local rank where there is one",
       {"auto", "cpu", "cuda"}},
      {process,
       "backend",
       &o->backend,
       "Transport between ranks; gloo: through the host, also from GPUs, which ranks then may "
       "share; "
       "auto: NCCL between GPUs",
       {"auto", "gloo", "nccl"}},
      {process, "threads", &o->threads,
       "CPU threads per rank (0: OMP_NUM_THREADS, else all cores)"},
      {process,
       "product-engine",
       &o->product_engine,
       "CPU engine for fp32 products; name one where runs must be equal to the bit",
       {"auto", "mkl", "onednn"}},
      {process, "deterministic", &o->deterministic,
       "Compute the same bits in every run on the same machines, with as many ranks and threads; a "
       "--product-engine auto is then mkl, and GPUs use the algorithms that LibTorch has for that"},
      {process,
       "matmul-precision",
       &o->matmul_precision,
       kMatmulPrecisionHelp,
       {"highest", "high", "medium", "high-always", "medium-always"}},
      {process,
       "keep-memory",
       &o->keep_memory,
       "Keep the memory of large CPU tensors that a step frees for the next step; what is kept and "
       "what is in use are together never more than was in use at once",
       {"true", "false"}},
      {process, "timeout-s", &o->timeout_s, "Seconds that a rank waits for the others"},
      {process, "grace-s", &o->grace_s,
       "Seconds after SIGTERM or SIGINT in which the run ends its step and saves; a second signal "
       "ends it at once (0: no limit)"},
  };
}

}  // namespace

std::string Key::value_text() const {
  return std::visit(Overload{[](const std::string* text) { return *text; },
                             [](const auto* number) { return nlohmann::json(*number).dump(); }},
                    value);
}

std::vector<Key> train_keys(TrainOptions* options) {
  std::vector<Key> keys = run_keys(options);
  const std::vector<Key> more = outcome_keys(options);
  keys.insert(keys.end(), more.begin(), more.end());
  for (Key& key : keys) {
    key.same_on_all_ranks = kOwn.count(key.name) == 0;
    key.is_path = kPaths.count(key.name) > 0;
  }
  return keys;
}

std::string shared_text(const TrainOptions& options,
                        const std::function<std::string(const std::string&)>& note_of) {
  constexpr char kNoteMark = '\x1f';
  TrainOptions copy = options;
  std::string text;
  for (const Key& key : train_keys(&copy)) {
    if (key.same_on_all_ranks) {
      const std::string note = note_of ? kNoteMark + in_one_line(note_of(key.name)) : "";
      text += key.flag() + "=" + key.value_text() + note + "\n";
    }
  }
  return text;
}

}  // namespace fsdp2::config
