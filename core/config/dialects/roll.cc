#include <algorithm>
#include <sstream>

#include "core/base/nearest.h"
#include "core/config/config_error.h"
#include "core/config/dialects/dialects.h"
#include "core/config/dialects/roll_strategy.h"
#include "core/config/dialects/shared_rows.h"

namespace fsdp2::config {

namespace {

constexpr char kDefault[] = "default of ROLL";

// ---- what a role is

const Node* find_path(const Node& map, const std::string& path) {
  const Node* node = &map;
  std::istringstream parts(path);
  for (std::string part; node != nullptr && std::getline(parts, part, '.');) {
    node = node->find(part);
  }
  return node == nullptr || node->kind == Node::Kind::kNull ? nullptr : node;
}

bool is_role(const Node& node) { return node.find("strategy_args") != nullptr; }

std::string strategy_for(Purpose purpose) {
  return purpose == Purpose::kTrain ? "fsdp2_train" : "fsdp2_infer";
}

bool is_for(const Node& role, Purpose purpose) {
  const Node* name = find_path(role, "strategy_args.strategy_name");
  return is_role(role) && (name == nullptr ? "fsdp2_train" : name->text) == strategy_for(purpose);
}

[[noreturn]] void refuse_role(const Node& root, const std::string& wanted, Purpose purpose,
                              const std::vector<std::string>& roles) {
  const std::string meant = nearest(wanted, roles);
  throw ConfigError(root.origin + ": " +
                    (wanted.empty()
                         ? "expected one role with strategy_name " + strategy_for(purpose)
                         : "there is no role " + wanted) +
                    "; the roles are " + with_commas(roles) +
                    (meant.empty() ? "; --role chooses one" : "; did you mean " + meant + "?"));
}

// A single role is taken whatever its strategy is: the table then says what is wrong with it.
const Node::Entry& choose_role(const Node& root, const std::string& wanted, Purpose purpose) {
  std::vector<std::string> roles;
  std::vector<const Node::Entry*> chosen;
  for (const Node::Entry& entry : root.entries) {
    if (is_role(entry.second)) {
      roles.push_back(entry.first);
      if (wanted.empty() ? is_for(entry.second, purpose) : entry.first == wanted) {
        chosen.push_back(&entry);
      }
    }
  }
  if (wanted.empty() && roles.size() == 1) {
    return *std::find_if(root.entries.begin(), root.entries.end(),
                         [&](const Node::Entry& entry) { return entry.first == roles.front(); });
  }
  if (chosen.size() != 1) {
    refuse_role(root, wanted, purpose, roles);
  }
  return *chosen.front();
}

// ---- keys that go together

class Finish {
 public:
  Finish(const Node& root, const std::string& role, Plan* plan)
      : root_(root), role_(*root.find(role)), prefix_(role + "."), plan_(*plan) {}

  void run() {
    set_saves();
    set_evaluation();
    set_length();
    set_steps();
    set_epochs();
    set_warmup();
    set_storage();
    set_source_behaviour();
    set_units();
    set_rows_of_forward();
    set_tiles();
  }

 private:
  // A key of the file, or of the role.
  Value in_file(const char* path, const Node* node) const { return {*node, path}; }
  Value in_role(const std::string& path, const Node* node) const { return {*node, prefix_ + path}; }

  void set_saves() {
    const Node* directory = find_path(root_, "output_dir");
    if (directory == nullptr) {
      plan_.set("save-only-model", false, kDefault);  // nothing is saved
      return;
    }
    plan_.read("save-dir", in_file("output_dir", directory));
    const Node* steps = find_path(root_, "save_steps");
    constexpr int64_t kUsual = 50;
    const int64_t every = steps == nullptr ? kUsual : in_file("save_steps", steps).as_whole();
    plan_.set("save-every", std::max<int64_t>(every, 0),
              steps == nullptr ? kDefault : origin_text(in_file("save_steps", steps)));
    if (const Node* keep = find_path(root_, "max_ckpt_to_keep")) {
      plan_.read("keep-last", in_file("max_ckpt_to_keep", keep));
    }
  }

  // Real files have it for their rollouts; without other data there is nothing to evaluate.
  void set_evaluation() {
    const Node* own = find_path(root_, kOwnSection);
    const Node* every = find_path(root_, "eval_steps");
    const bool has_data =
        own != nullptr && (own->find("eval_data") != nullptr || own->find("eval-data") != nullptr);
    if (has_data && every != nullptr) {
      plan_.read("eval-every", in_file("eval_steps", every));
    } else if (every != nullptr) {
      plan_.note("eval_steps is not used without libfsdp2.eval_data");
    }
  }

  void set_length() {
    const Node* prompt = find_path(root_, "prompt_length");
    const Node* response = find_path(root_, "response_length");
    if (find_path(root_, "sequence_length") == nullptr && response != nullptr) {
      constexpr int64_t kUsualPrompt = 1024;
      const int64_t before =
          prompt == nullptr ? kUsualPrompt : length(in_file("prompt_length", prompt));
      const Value after = in_file("response_length", response);
      plan_.set("seq-len", before + length(after), origin_text(after));
    }
  }

  // In tokens; two of them can be added.
  static int64_t length(const Value& value) {
    constexpr uint64_t kMostTokens = 1ULL << 31;
    const uint64_t tokens = value.as_natural();
    if (tokens > kMostTokens) {
      value.refuse(value.node.text + " is above " + std::to_string(kMostTokens) + " tokens");
    }
    return static_cast<int64_t>(tokens);
  }

  void set_steps() {
    const std::string path = "training_args.max_steps";
    if (const Node* steps = find_path(role_, path)) {
      const Value value = in_role(path, steps);
      if (value.as_whole() > 0) {
        plan_.read("steps", value);
      }
    }
  }

  // A max_steps above 0, of the role or of the file, goes before it, as in transformers.
  void set_epochs() {
    const std::string path = "training_args.num_train_epochs";
    const Node* epochs = find_path(role_, path);
    if (epochs == nullptr || plan_.purpose == Purpose::kInfer) {
      return;
    }
    const Value value = in_role(path, epochs);
    const std::string steps = plan_.origin_of("steps");
    if (steps == kDefault) {
      plan_.set("epochs", epochs_in(value), origin_text(value));
    } else {
      plan_.note(value.path + " is not used beside max_steps (" + steps + ")");
    }
  }

  // warmup_steps goes before warmup_ratio, and the schedule `constant` has neither.
  void set_warmup() {
    const Node* schedule = find_path(role_, "training_args.lr_scheduler_type");
    if (schedule != nullptr && schedule->text == "constant") {
      return;
    }
    const std::string steps_path = "training_args.warmup_steps";
    const std::string ratio_path = "training_args.warmup_ratio";
    const Node* steps = find_path(role_, steps_path);
    const Node* ratio = find_path(role_, ratio_path);
    if (steps != nullptr && in_role(steps_path, steps).as_whole() != 0) {
      plan_.read("warmup", in_role(steps_path, steps));
    } else if (ratio != nullptr) {
      plan_.read("warmup-ratio", in_role(ratio_path, ratio));
    }
  }

  // What `storage` stores parameters in, before any device is asked.
  const std::string& known_param_dtype(const Value& storage) const {
    if (plan_.options.param_dtype == "auto") {
      storage.refuse("parameters are stored in param_dtype, which is auto (" +
                     plan_.origin_of("param-dtype") + "): expected a dtype there");
    }
    return plan_.options.param_dtype;
  }

  void set_storage() {
    const std::string path = roll_strategy("storage_dtype");
    const Node* storage = find_path(role_, path);
    if (storage != nullptr && storage->text == "param") {
      const Value value = in_role(path, storage);
      plan_.set("dtype", known_param_dtype(value), origin_text(value));
    } else if (storage == nullptr && plan_.purpose == Purpose::kInfer &&
               plan_.options.param_dtype != "auto") {
      plan_.set("dtype", plan_.options.param_dtype, kDefault);
    }
  }

  // Where ROLL differs, its own behaviour: storage in param_dtype; a shard dim by divisibility, but
  // dim 0 where fsdp_size means all ranks; loads that skip what does not match.
  void set_source_behaviour() {
    const std::string path = roll_strategy("compat");
    const Node* compat = find_path(role_, path);
    if (compat == nullptr) {
      return;
    }
    const Value value = in_role(path, compat);
    set_as_source("dtype", "storage_dtype", known_param_dtype(value), plan_.options.dtype, value);
    set_as_source("shard-dim", "shard_dim", plan_.options.fsdp_size <= 1 ? "0" : "auto",
                  plan_.options.shard_dim, value);
    if (!plan_.options.resume.empty()) {
      plan_.set("resume-partial", true, origin_text(value));
    }
  }

  // The role's own key beside `compat` must not say something else.
  void set_as_source(const std::string& key, const std::string& own, const std::string& source,
                     const std::string& known, const Value& compat) {
    if (find_path(role_, roll_strategy(own)) != nullptr && known != source) {
      compat.refuse("strict-source (" + own + ": " + source + ") contradicts " +
                    plan_.origin_of(key));
    }
    plan_.set(key, source, origin_text(compat));
  }

  // What trains is not looked at where nothing does.
  void set_rows_of_forward() {
    if (plan_.purpose != Purpose::kInfer) {
      return;
    }
    constexpr int64_t kUsual = 16;
    plan_.set("micro-batch", kUsual, kDefault);
    plan_.set("grad-accum", int64_t{1}, "by fsdp2 score");
    if (const Node* rows = find_path(role_, "infer_batch_size")) {
      plan_.read("micro-batch", in_role("infer_batch_size", rows));
    }
  }

  // Experts are units of their own where all of them run on every rank.
  void set_units() {
    const std::string path = roll_strategy("wrap_policy.moe_experts");
    const Node* experts = find_path(role_, path);
    if (experts == nullptr) {
      return;
    }
    const std::string patch_path = roll_strategy("apply_expert_patch");
    const Node* patch = find_path(role_, patch_path);
    const Value value = in_role(path, experts);
    if (patch == nullptr || !in_role(patch_path, patch).as_bool()) {
      plan_.note(value.path +
                 " is not used without apply_expert_patch: experts are no units of their own");
      return;
    }
    std::string kinds = plan_.options.wrap;
    if (kinds == TrainOptions().wrap) {
      value.refuse("needs wrap_policy.transformer_layer_cls_to_wrap beside it");
    }
    for (const std::string& kind : value.as_texts()) {
      kinds += "," + kind;
    }
    plan_.set("wrap", kinds, plan_.origin_of("wrap") + " and " + origin_text(value));
  }

  // Whether at all and how many stand in two places.
  void set_tiles() {
    constexpr int64_t kUsual = 4;
    const std::string path = roll_strategy("apply_tiled_mlp");
    const std::string tiles_path = roll_strategy("tiled_num_shards");
    const Node* flag = find_path(role_, path);
    if (flag == nullptr || !in_role(path, flag).as_bool()) {
      return;
    }
    if (const Node* tiles = find_path(role_, tiles_path)) {
      plan_.read("mlp-tiles", in_role(tiles_path, tiles));
    } else {
      plan_.set("mlp-tiles", kUsual, origin_text(in_role(path, flag)));
    }
  }

  const Node& root_;
  const Node& role_;
  const std::string prefix_;
  Plan& plan_;
};

// "${model.name}" is the value of that key, where it is a scalar; other interpolations stay.
void fill_in(const Node& root, Node* node) {
  constexpr int kMostHops = 8;
  for (int hop = 0; hop < kMostHops && node->kind == Node::Kind::kText; ++hop) {
    const std::string& text = node->text;
    const bool is_reference =
        text.size() > 3 && text.rfind("${", 0) == 0 && text.find('}') == text.size() - 1;
    const Node* named = is_reference ? find_path(root, text.substr(2, text.size() - 3)) : nullptr;
    if (named == nullptr || !named->is_scalar()) {
      break;
    }
    const std::string origin = node->origin;
    *node = *named;
    node->origin = origin;
  }
  for (Node& item : node->items) {
    fill_in(root, &item);
  }
  for (Node::Entry& entry : node->entries) {
    fill_in(root, &entry.second);
  }
}

void set_defaults(Plan* plan) {
  plan->set("seed", uint64_t{42}, kDefault);
  plan->set("clip", 1.0, kDefault);
  plan->set("steps", int64_t{500}, kDefault);
  plan->set("micro-batch", int64_t{8}, kDefault);
  plan->set("lr", 5e-5, kDefault);
  plan->set("weight-decay", 0.0, kDefault);
  plan->set("beta1", 0.9, kDefault);
  plan->set("beta2", 0.999, kDefault);
  plan->set("lr-schedule", "linear", kDefault);
  plan->set("loss-mean", "labels", kDefault);
  plan->set("not-finite", "skip", kDefault);
  plan->set("max-skips-in-row", int64_t{10}, kDefault);
  plan->set("activation-checkpointing", true, kDefault);
  plan->set("param-dtype", "bf16", kDefault);
  plan->set("reduce-dtype", "fp32", kDefault);
  // By unit in ROLL: true for embeddings and head, false for layers. Embeddings take whole numbers,
  // and the head what the norm before it gives in param_dtype, so that nothing is left to cast.
  plan->set("cast-forward-inputs", "false", kDefault);
  plan->set("wrap-embeddings", "untied", kDefault);
  plan->set("timeout-s", 1800.0, kDefault);
}

// What `root` says outside of roles; those it has become keys that are ignored.
std::vector<Row> rows_for(const Node& root) {
  std::vector<Row> rows = roll_rows();
  for (const Node::Entry& entry : root.entries) {
    if (is_role(entry.second)) {
      rows.push_back(ignored(entry.first, "another role"));
    }
  }
  return rows;
}

}  // namespace

bool is_roll(const Node& root) {
  return std::any_of(root.entries.begin(), root.entries.end(),
                     [](const Node::Entry& entry) { return is_role(entry.second); });
}

void apply_roll(const Node& file, const std::string& role, Plan* plan) {
  Node root = file;
  fill_in(file, &root);
  const Node::Entry& chosen = choose_role(root, role, plan->purpose);
  set_defaults(plan);
  apply(rows_for(root), root.without({chosen.first, kOwnSection}), "", plan);
  apply(roll_role_rows(), chosen.second, chosen.first + ".", plan);
  Finish(root, chosen.first, plan).run();
}

}  // namespace fsdp2::config
