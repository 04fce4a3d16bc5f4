#include "tests/cli/training.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <utility>

namespace fsdp2::test {

namespace {

constexpr char kGolden[] = "tests/parity/golden/";

const std::set<std::string> kNotOurs = {"attn", "optimizer_impl", "plain", "matmul_precision"};

double difference(double found, double expected) {
  return std::abs(found - expected) / std::max(std::abs(expected), 1e-12);
}

}  // namespace

Training train(int ranks, const std::vector<std::string>& arguments, RunIn how) {
  how.environment.emplace_back("OMP_NUM_THREADS", "1");
  const auto command = joined({fsdp2_program(), "train"}, arguments);
  return read_training(run(ranks == 1 ? command : launched(ranks, command), how));
}

Training read_training(Outcome outcome) {
  Training training;
  training.outcome = std::move(outcome);
  training.steps = events_of(training, "step");
  for (const Json& summary : events_of(training, "summary")) {
    training.summary = summary;
  }
  return training;
}

std::vector<Json> events_of(const Training& training, const std::string& name) {
  std::vector<Json> events;
  for (const std::string& line : lines_of(training.outcome.out)) {
    const Json json = Json::parse(line, nullptr, false);
    if (json.is_object() && json.value("event", "") == name) {
      events.push_back(json);
    }
  }
  return events;
}

Json event_of(const Training& training, const std::string& name) {
  const std::vector<Json> events = events_of(training, name);
  if (events.empty()) {
    ADD_FAILURE() << "no event " << name << ": " << training.outcome.out << training.outcome.err;
    return Json::object();
  }
  return events.front();
}

std::string small_llama() {
  const std::string file = empty_directory() + "/config.json";
  write_file(file, R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
      "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 128,
      "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "hidden_act": "silu",
      "initializer_range": 0.02, "tie_word_embeddings": false, "attention_bias": false,
      "mlp_bias": false})");
  return file;
}

std::string config_of_width(int layers, int hidden, int intermediate, int vocabulary) {
  const std::string path = empty_directory() + "/config.json";
  write_file(path, R"({"model_type": "llama", "num_attention_heads": 8, "num_key_value_heads": 8,
    "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false,
    "initializer_range": 0.02, "num_hidden_layers": )" +
                       std::to_string(layers) + ", \"hidden_size\": " + std::to_string(hidden) +
                       ", \"intermediate_size\": " + std::to_string(intermediate) +
                       ", \"vocab_size\": " + std::to_string(vocabulary) + "}");
  return path;
}

std::vector<std::string> golden_inputs(const std::string& model) {
  return {"--model", repository_file(kGolden + ("models/" + model)), "--tokens",
          repository_file(kGolden + ("tokens/" + model + ".bin"))};
}

Json golden(const std::string& model) {
  return Json::parse(read_file(repository_file(kGolden + model + ".json")));
}

std::vector<std::string> flags_of(const Json& golden_run) {
  std::vector<std::string> flags;
  for (const auto& [key, value] : golden_run.at("options").items()) {
    if (kNotOurs.count(key) > 0) {
      continue;
    }
    std::string name = "--" + key;
    std::replace(name.begin(), name.end(), '_', '-');
    if (!value.is_boolean()) {
      flags.push_back(name);
      flags.push_back(value.is_string() ? value.get<std::string>() : value.dump());
    } else if (value.get<bool>()) {
      flags.push_back(name);
    }
  }
  return flags;
}

void expect_same_steps(const std::vector<Json>& steps, const Json& expected,
                       const Tolerance& tolerance) {
  ASSERT_EQ(steps.size(), expected.at("loss").size());
  double worst_loss = 0, worst_norm = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].at("step"), i);
    EXPECT_LE(difference(steps[i].at("lr"), expected.at("lr").at(i)), 1e-12) << "step " << i;
    worst_loss = std::max(worst_loss, difference(steps[i].at("loss"), expected.at("loss").at(i)));
    double norm = difference(steps[i].at("grad_norm"), expected.at("grad_norm").at(i));
    if (expected.contains("grad_norm_fp64")) {
      norm =
          std::min(norm, difference(steps[i].at("grad_norm"), expected.at("grad_norm_fp64").at(i)));
    }
    worst_norm = std::max(worst_norm, norm);
  }
  EXPECT_LE(worst_loss, tolerance.loss);
  EXPECT_LE(worst_norm, tolerance.grad_norm);
  std::printf("largest relative difference: loss %.1e, gradient norm %.1e\n", worst_loss,
              worst_norm);
}

Json as_lists(const std::vector<Json>& steps) {
  Json lists;
  for (const Json& step : steps) {
    for (const char* key : {"loss", "grad_norm", "lr"}) {
      lists[key].push_back(step.at(key));
    }
  }
  return lists;
}

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace fsdp2::test
