#include "cli/infer/options.h"

#include <algorithm>
#include <set>
#include <utility>

#include "cli/arguments.h"
#include "cli/train/flags/key_flag.h"
#include "core/config/checks/exported_file.h"
#include "core/config/checks/option_checks.h"
#include "core/config/dialects/read_plan.h"
#include "core/config/resolve.h"

namespace fsdp2::cli {

namespace {

const std::set<std::string> kModelKeys = {"model",       "model-config",    "seed",
                                          "strategy",    "fsdp-size",       "reshard-after-forward",
                                          "wrap",        "wrap-names",      "dtype",
                                          "param-dtype", "load-from-rank0", "temperature",
                                          "world-size",  "device",          "backend",
                                          "tokenizer",   "threads",         "product-engine",
                                          "timeout-s",   "ulysses-size",    "matmul-precision"};
const std::set<std::string> kDataKeys = {"tokens", "text", "seq-len", "global-batch"};

constexpr int64_t kMostRows = int64_t{1} << 31;
constexpr int64_t kMostTokens = 1 << 24;

constexpr char kJob[] =
    "On all ranks of a job the model is sharded, and each rank works on a part of the rows:\n\n";

// Adds --checkpoint, and the flags of the training keys with these names.
void add_model(CLI::App* app, const std::set<std::string>& names, ModelOptions* model) {
  as_path(as_utf8(app->add_option("--checkpoint", model->checkpoint,
                                  "Take the weights from this checkpoint, of any format, or from "
                                  "the newest of a series")))
      ->option_text("TEXT")
      ->group("Model");
  for (const config::Key& key : config::train_keys(&model->plan.options)) {
    if (names.count(key.name) > 0) {
      add_flag(app, key);
    }
  }
  app->get_option("--model")->description("Directory with config.json and safetensors");
}

std::set<std::string> both(std::set<std::string> names, const std::set<std::string>& more) {
  names.insert(more.begin(), more.end());
  return names;
}

void check_model(const ModelOptions& model) {
  require(!model.run().model.empty() || !model.run().model_config.empty(),
          "--model (a directory) or --model-config (a config.json) is needed");
  check_model_options(model.run());
  require(!config::is_exported_file(model.run().model),
          "--model " + model.run().model +
              " gives its loss alone, and no probabilities of tokens: expected the directory of a "
              "language model");
}

void check_generate(const GenerateOptions& o) {
  check_model(o.model);
  const int given =
      (o.prompts.empty() ? 0 : 1) + (o.prompts_file.empty() ? 0 : 1) + (o.records.empty() ? 0 : 1);
  require(given > 0, "no prompt given: --prompt, --prompts or --records");
  require(given == 1, "--prompt, --prompts and --records exclude each other");
  require(o.records.empty() || !o.numbers, "--numbers is for prompts: --records has texts");
  require_within("--max-new-tokens", o.max_new_tokens, 1, kMostTokens);
  require_within("--top-k", o.top_k, 0, kMostRows - 1);
  require_within("--batch-size", o.batch_size, 1, kMostRows);
  require(o.top_p >= 0 && o.top_p <= 1, "--top-p must lie in [0, 1]");
}

void check_score(const ScoreOptions& o) {
  const config::TrainOptions& run = o.model.run();
  check_model(o.model);
  require(!run.tokens.empty() || !run.text.empty(),
          "--tokens or --text (a file to score) is needed");
  require(run.tokens.empty() || run.text.empty(), "--tokens and --text exclude each other");
  require(run.temperature > 0, "--temperature must be more than 0");
  require_within("--batches", o.batches, 1, kMostRows);
}

}  // namespace

bool parse_generate_options(const std::vector<std::string>& arguments, GenerateOptions* out) {
  GenerateOptions o;
  CLI::App app("Continues prompts with a language model.", "fsdp2 generate");
  set_style(app, "--model DIR (--prompt TEXT ... | --prompts FILE | --records FILE) [OPTIONS]");
  const std::string group = "Text";
  app.add_option("--prompt", o.prompts, "Text to go on with; may be given several times")
      ->option_text("TEXT ...")
      ->type_size(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group);
  as_path(app.add_option("--prompts", o.prompts_file, "File with a prompt on each line"))
      ->option_text("FILE")
      ->group(group);
  as_path(app.add_option("--records", o.records,
                         "File of JSON lines, whose records are answered: their messages, or their "
                         "prompt or text, with the images and videos that they name"))
      ->option_text("FILE")
      ->group(group);
  app.add_flag(
         "--numbers", o.numbers,
         "Prompts are token numbers with spaces between them (otherwise text, by --tokenizer)")
      ->group(group);
  app.add_flag("--json", o.json, "Write a JSON line for each prompt")->group(group);
  const auto add_count = [&](const char* name, int64_t* value, const char* help) {
    add_number(app, name, value, help)
        ->option_text("N (" + std::to_string(*value) + ")")
        ->group(group);
  };
  add_count("--max-new-tokens", &o.max_new_tokens, "Tokens to write at most, for each prompt");
  add_count("--top-k", &o.top_k, "Draw among the N most likely tokens alone (0: all)");
  add_number(app, "--top-p", &o.top_p,
             "Draw among the fewest tokens that are together as likely as this (0: all)")
      ->option_text("X (0)")
      ->group(group);
  app.add_option(
         "--stop-tokens", o.stop_tokens,
         "Tokens that end a text, as in 0,10, or none, for texts as long as --max-new-tokens; "
         "without this flag those of the model's generation_config.json, or of config.json or the "
         "model's class, and, for the answer to a record, the tokenizer's end of a text and of a "
         "turn")
      ->option_text("N,N|none")
      ->group(group);
  add_count("--batch-size", &o.batch_size, "Prompts that a rank continues at a time");
  add_model(&app, kModelKeys, &o.model);
  app.footer(std::string(kJob) +
             "  fsdp2 run --nproc-per-node 2 -- fsdp2 generate --model DIR --prompt 'Once '");
  if (!parse_arguments(app, arguments)) {
    return false;
  }
  note_given_flags(app, &o.model.plan);
  check_generate(o);
  *out = std::move(o);
  return true;
}

namespace {

void add_file(CLI::App* app, config::PlanRequest* request) {
  const std::string group = "Configuration";
  as_path(as_utf8(app->add_option("FILE", request->file, "YAML file with the configuration")))
      ->option_text("YAML file with the configuration, .yaml or .yml, as fsdp2 train reads it")
      ->group("");
  app->add_option("--role", request->role, "Role of the file, if it has several of fsdp2_infer")
      ->option_text("NAME")
      ->group(group);
  app->add_option("--set", request->sets, "Value of a key of the file, as path.to.key=VALUE")
      ->option_text("KEY=VALUE ...")
      ->type_size(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group);
}

// What is given by flags goes into `o`, and what names a file into `request`. False: help has been
// printed.
bool parse_score_flags(const std::vector<std::string>& arguments, ScoreOptions* o,
                       config::PlanRequest* request) {
  *request = config::PlanRequest();
  CLI::App app("Says how likely a language model finds the tokens of a file.", "fsdp2 score");
  set_style(app, "[FILE.yaml] --model DIR (--tokens FILE | --text FILE) [OPTIONS]");
  add_file(&app, request);
  add_number(
      app, "--batches", &o->batches,
      "Batches of --global-batch windows to score, from the beginning of the file, and from there "
      "again at its end")
      ->option_text("N (1)")
      ->group("Data");
  app.add_flag("--per-token", o->per_token,
               "Also write a JSON line for each window, with the log-probability of each token and "
               "the entropy in its place, in nats")
      ->group("Output");
  add_model(&app, both(kModelKeys, kDataKeys), &o->model);
  app.get_option("--temperature")->description("Number above 0 that logits are divided by");
  app.footer(std::string(kJob) +
             "  fsdp2 run --nproc-per-node 2 -- fsdp2 score --model DIR --text book.txt");
  if (!parse_arguments(app, arguments)) {
    return false;
  }
  note_given_flags(app, &o->model.plan);
  return true;
}

// The plan of the file, whose keys that only training has do not count.
config::Plan plan_to_score(config::PlanRequest request) {
  request.purpose = config::Purpose::kInfer;
  const bool is_named = request.file.empty() || request.file.find(".y") != std::string::npos;
  require(is_named, "unexpected argument '" + request.file + "' (see --help)");
  require(!request.file.empty() || request.role.empty(), "--role needs a FILE.yaml");
  config::Plan plan = config::read_plan(request);
  if (plan.origins.count("temperature") == 0) {
    plan.options.temperature = 1.0;
  }
  return plan;
}

}  // namespace

bool parse_score_options(const std::vector<std::string>& arguments, ScoreOptions* out) {
  ScoreOptions flags;
  config::PlanRequest request;
  flags.model.plan.options.temperature = 1.0;  // for --help
  if (!parse_score_flags(arguments, &flags, &request)) {
    return false;
  }
  ScoreOptions o;
  o.model.plan = plan_to_score(request);
  parse_score_flags(arguments, &o, &request);
  if (o.model.plan.origin_of("global-batch").rfind("override", 0) == 0) {
    o.model.plan.options.micro_batch = 0;  // a flag goes before the file
  }
  config::leave_batch_to_ranks(&o.model.plan);
  check_score(o);
  *out = std::move(o);
  return true;
}

}  // namespace fsdp2::cli
