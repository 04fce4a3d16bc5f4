#include <sstream>

#include "core/config/dialects/dialects.h"
#include "core/config/dialects/shared_rows.h"

namespace fsdp2::config {

namespace {

constexpr char kLegacyDefault[] = "default of MindSpeed-MM";

// "l.{0-20,22,25-40}" as "l.{0-20}", "l.{22}" and "l.{25-40}".
void add_patterns(const std::string& text, std::vector<std::string>* patterns) {
  const size_t open = text.find('{');
  const size_t close = text.find('}', open);
  if (close == std::string::npos) {
    patterns->push_back(text);
    return;
  }
  // With a comma at its end, so that {} and {1,} keep their empty range, which nothing matches.
  std::istringstream ranges(text.substr(open + 1, close - open - 1) + ",");
  for (std::string range; std::getline(ranges, range, ',');) {
    patterns->push_back(text.substr(0, open + 1) + range + text.substr(close));
  }
}

// A class as older files name it, by where Python imports it from: its last part begins with a
// capital letter. "" if it is none.
std::string class_in(const std::string& text) {
  const std::string last = text.substr(text.rfind('.') + 1);
  const bool is_class = !last.empty() && last.front() >= 'A' && last.front() <= 'Z';
  return is_class ? last : "";
}

struct ClassesAndPaths {
  std::vector<std::string> classes, patterns;
};

ClassesAndPaths classes_and_paths(const Value& value) {
  ClassesAndPaths both;
  for (const std::string& text : value.as_texts()) {
    const std::string kind = class_in(text);
    if (kind.empty()) {
      add_patterns(text, &both.patterns);
    } else {
      both.classes.push_back(kind);
    }
  }
  return both;
}

void read_wrap(const Value& value, Plan* plan) {
  const auto [classes, patterns] = classes_and_paths(value);
  plan->set("wrap", classes.empty() ? std::string("none") : with_commas(classes),
            origin_text(value));
  plan->set("wrap-names", with_commas(patterns), origin_text(value));
}

void read_recompute_modules(const Value& value, Plan* plan) {
  const auto [classes, patterns] = classes_and_paths(value);
  plan->set("activation-checkpointing", !(classes.empty() && patterns.empty()), origin_text(value));
  plan->set("recompute-names", with_commas(patterns), origin_text(value));
  if (!classes.empty()) {
    plan->set("recompute", with_commas(classes), origin_text(value));
  }
}

void read_ignored(const Value& value, Plan* plan) {
  std::vector<std::string> patterns;
  for (const std::string& text : value.as_texts()) {
    add_patterns(text, &patterns);
  }
  plan->set("ignored-modules", with_commas(patterns), origin_text(value));
}

}  // namespace

std::vector<Row> mm_legacy_rows() {
  return {
      reads_shard_size("sharding_size"),
      reads("sub_modules_to_wrap", "wrap-names, or wrap for classes", read_wrap),
      reads_reshard("reshard_after_forward"),
      sets("param_dtype", "param-dtype"),
      sets("reduce_dtype", "reduce-dtype"),
      sets("output_dtype", "output-dtype"),
      reads_flag("cast_forward_inputs", "cast-forward-inputs"),
      sets("offload_to_cpu", "cpu-offload"),
      ignored("pin_memory", "memory is pinned where there is an accelerator"),
      reads_prefetch("num_to_forward_prefetch"),
      reads_prefetch("num_to_backward_prefetch"),
      reads("ignored_modules", "ignored-modules", read_ignored),
      reads("recompute_modules", "recompute-names, or recompute for classes",
            read_recompute_modules),
      ignored("use_reentrant", "recomputation is of the other kind, with the same results"),
      not_provided("align_fsdp_param_groups", {"false"}, "a unit of all norms and gates"),
      not_provided("expert_parallel_size", {"1"}, "expert parallelism"),
      ignored("reshard_local_experts", "there is no expert parallelism"),
      ignored("moe_modules", "there is no expert parallelism"),
  };
}

bool is_mm_legacy(const Node& root) { return root.find("sharding_size") != nullptr; }

void apply_mm_legacy(const Node& root, Plan* plan) {
  const Node* size = root.find("sharding_size");
  if (size->kind == Node::Kind::kNull) {
    Value{*size, "sharding_size"}.refuse("expected auto or a number of ranks, got nothing");
  }
  plan->set("wrap", "none", kLegacyDefault);
  plan->set("reshard-after-forward", "true", kLegacyDefault);
  apply(mm_legacy_rows(), root.without({kOwnSection}), "", plan);
}

}  // namespace fsdp2::config
