// `fsdp2 train --resume` over every kind of data: a run that was stopped makes the steps of one
// that was not, to the bit on as many ranks, and nearly so on others, which sum in another order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

using Arguments = std::vector<std::string>;

constexpr int kSteps = 6;
constexpr int kStop = 3;

std::string number(int i) { return std::to_string(i * i * 37); }

std::string words(int i) {
  return std::string(static_cast<size_t>(1 + i % 9), static_cast<char>('a' + i % 26));
}

std::string text_record(int i) { return R"({"text": ")" + words(i) + number(i) + "\"}\n"; }

std::string pair_record(int i) {
  return R"({"prompt": ")" + words(i) + R"(", "response": ")" + number(i) + "\"}\n";
}

std::string messages_record(int i) {
  return R"({"messages": [{"role": "user", "content": ")" + words(i) +
         R"("}, {"role": "assistant", "content": ")" + number(i) + "\"}]}\n";
}

std::string image_record(int i) {
  return R"({"images": [")" + std::to_string(i % 5) + R"(.safetensors"], "prompt": "<image>)" +
         words(i) + R"(", "response": ")" + number(i) + "\"}\n";
}

std::string records(std::string (*record)(int), int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    lines += record(i);
  }
  return lines;
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// An image of patches as processors leave it, in a safetensors file, whose format is a length, a
// header and the bytes.
void write_image(const std::string& path, int64_t rows, int64_t columns, double seed) {
  constexpr int64_t kPatchNumel = 3 * 2 * 4 * 4;
  std::vector<float> pixels;
  for (int64_t i = 0; i < rows * columns * kPatchNumel; ++i) {
    pixels.push_back(static_cast<float>(std::sin(static_cast<double>(i) * (0.3 + 0.1 * seed))));
  }
  const std::string grid = bytes_of<int64_t>({1, rows, columns});
  const std::string values = bytes_of(pixels);
  const Json header = {
      {"image_grid_thw", {{"dtype", "I64"}, {"shape", {1, 3}}, {"data_offsets", {0, grid.size()}}}},
      {"pixel_values",
       {{"dtype", "F32"},
        {"shape", {rows * columns, kPatchNumel}},
        {"data_offsets", {grid.size(), grid.size() + values.size()}}}}};
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  write_file(path, bytes_of<uint64_t>({text.size()}) + text + grid + values);
}

// A model that sees images and reads bytes.
Arguments vision_model(const std::string& folder) {
  Json config = Json::parse(
      read_file(repository_file("tests/parity/vision_language/tiny-qwen3-vl/config.json")));
  config["vision_start_token_id"] = 256;
  config["image_token_id"] = 257;
  config["vision_end_token_id"] = 258;
  config["video_token_id"] = 259;
  config["vocab_size"] = config["text_config"]["vocab_size"] = 272;
  write_file(folder + "/config.json", config.dump());
  for (int i = 0; i < 5; ++i) {
    write_image(folder + "/" + std::to_string(i) + ".safetensors", 4 + 2 * (i % 2), 4 + 2 * (i % 3),
                i);
  }
  return {"--model-config", folder + "/config.json"};
}

// A kind of data: model and data of a run in `folder`.
struct Kind {
  const char* name;
  Arguments (*run)(const std::string& folder);
};

Arguments llama_and(const Arguments& more) {
  return joined({"--model", golden_inputs("tiny-llama").at(1)}, more);
}

Arguments llama_and_records(const std::string& folder, const std::string& lines,
                            const char* length) {
  write_file(folder + "/r.jsonl", lines);
  return llama_and(
      {"--records", folder + "/r.jsonl", "--loss-mean", "labels", "--seq-len", length});
}

Arguments llama_and_mixture(const std::string& folder) {
  write_file(folder + "/a.jsonl", records(pair_record, 70));
  write_file(folder + "/b.jsonl", records(messages_record, 30));
  return llama_and({"--records", folder + "/a.jsonl," + folder + "/b.jsonl", "--data-weights",
                    "0.7,0.3", "--loss-mean", "labels", "--seq-len", "96"});
}

Arguments vision_and_records(const std::string& folder) {
  write_file(folder + "/r.jsonl", records(image_record, 40));
  return joined(vision_model(folder),
                {"--records", folder + "/r.jsonl", "--loss-mean", "labels", "--seq-len", "64"});
}

const Kind kKinds[] = {
    {"TokenFile",
     [](const std::string&) { return joined(golden_inputs("tiny-llama"), {"--seq-len", "32"}); }},
    {"Text",
     [](const std::string& folder) {
       write_file(folder + "/t.txt", records(text_record, 400));
       return llama_and({"--text", folder + "/t.txt"});
     }},
    {"TextRecords",
     [](const std::string& folder) {
       return llama_and_records(folder, records(text_record, 120), "32");
     }},
    {"PromptsAndResponses",
     [](const std::string& folder) {
       return llama_and_records(folder, records(pair_record, 120), "32");
     }},
    {"Messages",
     [](const std::string& folder) {
       return llama_and_records(folder, records(messages_record, 120), "96");
     }},
    {"RecordsPackedIntoWindows",  // many in each
     [](const std::string& folder) {
       return llama_and_records(folder, records(pair_record, 600), "128");
     }},
    {"Mixture", llama_and_mixture},
    {"RecordsWithImages", vision_and_records},
};

class Resume : public ::testing::TestWithParam<Kind> {
 protected:
  Training sound(int ranks, const Arguments& more) const {
    const Arguments all = {
        "--steps",   std::to_string(kSteps), "--global-batch", "6",
        "--shuffle", "--lr-schedule",        "cosine",         "--product-engine",
        "mkl"};
    Training training = train(ranks, joined(joined(run_, all), more));
    EXPECT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
    return training;
  }
  // The losses of the steps after the stop.
  std::vector<double> losses_after_stop(int ranks, int resumed_ranks) const {
    const std::string saved = empty_directory();
    sound(ranks, {"--stop-step", std::to_string(kStop), "--save-dir", saved});
    return losses(sound(resumed_ranks, {"--resume", saved}), kSteps - kStop);
  }
  // The losses of the last `count` steps.
  static std::vector<double> losses(const Training& training, size_t count) {
    std::vector<double> losses;
    for (const Json& step : training.steps) {
      losses.push_back(step.at("loss"));
    }
    EXPECT_GE(losses.size(), count);
    return {losses.end() - static_cast<std::ptrdiff_t>(std::min(count, losses.size())),
            losses.end()};
  }

  const Arguments run_ = GetParam().run(empty_directory());
};

TEST_P(Resume, MakesTheStepsOfARunThatWasNotStopped) {
  for (const int ranks : {1, 2}) {
    const std::vector<double> whole = losses(sound(ranks, {}), kSteps - kStop);
    EXPECT_EQ(losses_after_stop(ranks, ranks), whole) << ranks << " ranks";
  }
}

TEST_P(Resume, GoesOnWithAnotherNumberOfRanks) {
  const std::vector<double> whole = losses(sound(2, {}), kSteps - kStop);
  EXPECT_THAT(losses_after_stop(2, 3), ::testing::Pointwise(::testing::DoubleNear(1e-4), whole));
}

INSTANTIATE_TEST_SUITE_P(Kinds, Resume, ::testing::ValuesIn(kKinds),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace fsdp2::test
