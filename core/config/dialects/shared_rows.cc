#include "core/config/dialects/shared_rows.h"

#include <algorithm>
#include <cmath>

namespace fsdp2::config {

namespace {

void read_reshard(const Value& value, Plan* plan) {
  const std::string word = value.as_word();
  if (value.node.kind != Node::Kind::kBool && value.node.kind != Node::Kind::kWhole) {
    value.refuse_type("true, false or a number of ranks");
  }
  plan->set("reshard-after-forward", word == "1" ? std::string("false") : word, origin_text(value));
}

void read_prefetch(const Value& value, Plan* plan) {
  const int64_t units = std::max<int64_t>(value.as_whole(), 1);
  if (plan->origins.count("prefetch") > 0 && plan->options.prefetch != units) {
    value.refuse(value.node.text + ": not provided (both passes gather equally far ahead, and " +
                 plan->origin_of("prefetch") + " says " + std::to_string(plan->options.prefetch) +
                 ")");
  }
  plan->set("prefetch", units, origin_text(value));
}

// 1 means copies on all ranks, as it says; ROLL alone means all ranks by it.
void read_shard_size(const Value& value, Plan* plan) {
  const bool is_auto = value.node.kind == Node::Kind::kText && value.node.text == "auto";
  if (!is_auto && value.node.kind != Node::Kind::kWhole) {
    value.refuse_type("auto or a number of ranks");
  }
  const int64_t size = is_auto ? 0 : value.as_whole();
  if (!is_auto && size < 1) {
    value.refuse(value.node.text + " is below 1");
  }
  plan->set("fsdp-size", size, origin_text(value));
  if (size == 1) {
    plan->set("strategy", "no_shard", origin_text(value));
  }
}

}  // namespace

Row reads_reshard(const std::string& path) {
  return reads(path, "reshard-after-forward", read_reshard);
}

Row reads_shard_size(const std::string& path) {
  return reads(path, "fsdp-size; 1: strategy no_shard", read_shard_size);
}

Row reads_flag(const std::string& path, const std::string& key) {
  return reads(path, key, [key](const Value& value, Plan* plan) {
    plan->set(key, value.as_bool() ? "true" : "false", origin_text(value));
  });
}

Row reads_opposite(const std::string& path, const std::string& key) {
  return reads(path, "not " + key, [key](const Value& value, Plan* plan) {
    plan->set(key, !value.as_bool(), origin_text(value));
  });
}

Row reads_choice(const std::string& path, const std::string& key, const char* if_true,
                 const char* if_false) {
  return reads(path, key, [=](const Value& value, Plan* plan) {
    plan->set(key, value.as_bool() ? if_true : if_false, origin_text(value));
  });
}

Row reads_prefetch(const std::string& path) { return reads(path, "prefetch", read_prefetch); }

int64_t epochs_in(const Value& value) {
  constexpr double kMostEpochs = 1LL << 31;
  const double epochs = value.as_number();
  if (epochs < 1 || epochs > kMostEpochs || epochs != std::floor(epochs)) {
    value.refuse(value.node.text + ": expected a whole number of epochs from 1 to 2147483648");
  }
  return static_cast<int64_t>(epochs);
}

}  // namespace fsdp2::config
