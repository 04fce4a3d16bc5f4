// `fsdp2 train --records` of models that see images.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/ckpt/safetensors/safetensors_file.h"
#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

constexpr int64_t kPatchNumel = 3 * 2 * 4 * 4;

// Pixels that differ from image to image.
void write_image(const std::string& path, int64_t rows, int64_t columns, int64_t seed) {
  const at::Tensor grid = at::tensor({int64_t{1}, rows, columns}).view({1, 3});
  const at::Tensor numbers = at::arange(rows * columns * kPatchNumel, at::kFloat);
  const at::Tensor pixels =
      (numbers * (0.37 + 0.11 * static_cast<double>(seed))).sin().view({-1, kPatchNumel});
  ckpt::SafetensorsWriter writer(path, {{"image_grid_thw", at::kLong, {1, 3}},
                                        {"pixel_values", at::kFloat, pixels.sizes().vec()}});
  writer.append("image_grid_thw", grid);
  writer.append("pixel_values", pixels);
  writer.finish();
}

at::Tensor read_tensor(const std::string& path, const std::string& name) {
  const ckpt::SafetensorsFile file(path);
  const ckpt::SafetensorsEntry& entry = *file.find(name);
  at::Tensor values = at::empty(entry.shape, entry.dtype);
  file.read(entry, 0, entry.bytes, values.mutable_data_ptr());
  return values;
}

class Vision : public ::testing::TestWithParam<std::string> {
 protected:
  Vision() : folder_(empty_directory()) {
    for (int64_t i = 0; i < kImages; ++i) {
      write_image(image(i), 4 + 2 * (i % 2), 4 + 2 * (i % 3), i);
    }
    Json config = Json::parse(
        read_file(repository_file("tests/parity/vision_language/" + GetParam() + "/config.json")));
    for (const auto& [key, token] :
         {std::pair("vision_start_token_id", 256), std::pair("image_token_id", 257),
          std::pair("vision_end_token_id", 258), std::pair("video_token_id", 259)}) {
      config[key] = token;
    }
    config["vocab_size"] = config["text_config"]["vocab_size"] = 272;
    write_file(folder_ + "/config.json", config.dump());
    write_file(folder_ + "/r.jsonl", records());
  }

  static constexpr int64_t kImages = 7;
  std::string image(int64_t i) const { return folder_ + "/" + std::to_string(i) + ".safetensors"; }
  // Frames are the goldens' PNGs, and processors made for them serve the model.
  void copy_frames() const {
    const std::string golden = repository_file("tests/core/images/golden");
    for (int i = 0; i < 5; ++i) {
      const std::string name = "/frame-" + std::to_string(i) + ".png";
      fs::copy_file(golden + name, folder_ + name);
    }
    Json processor = Json::parse(read_file(golden + "/qwen2_5/video_preprocessor_config.json"));
    processor["size"] = {{"shortest_edge", 64}, {"longest_edge", 512}};
    processor.erase("min_pixels");
    processor.erase("max_pixels");
    write_file(folder_ + "/video_preprocessor_config.json", processor.dump());
  }
  bool frames_are_apart() const { return GetParam() == "tiny-qwen3-vl"; }
  // A video has `frames` frames of 4 x 4 patches.
  void write_video(const std::string& name, int64_t frames, int64_t seed) const {
    const at::Tensor grid = at::tensor({frames, int64_t{4}, int64_t{4}}).view({1, 3});
    const at::Tensor pixels = (at::arange(frames * 16 * kPatchNumel, at::kFloat) *
                               (0.21 + 0.13 * static_cast<double>(seed)))
                                  .sin()
                                  .view({-1, kPatchNumel});
    const std::string times_name = frames_are_apart() ? "timestamps" : "second_per_grid_ts";
    const at::Tensor times = frames_are_apart() ? at::arange(frames, at::kDouble) * 1.5
                                                : at::full({1}, 1.5, at::kDouble);
    ckpt::SafetensorsWriter writer(folder_ + "/" + name,
                                   {{"video_grid_thw", at::kLong, {1, 3}},
                                    {"pixel_values_videos", at::kFloat, pixels.sizes().vec()},
                                    {times_name, at::kDouble, times.sizes().vec()}});
    writer.append("video_grid_thw", grid);
    writer.append("pixel_values_videos", pixels);
    writer.append(times_name, times);
    writer.finish();
  }
  // Some with a video of either kind, some with an image, some with both, some without any.
  std::string records_with_videos() const {
    copy_frames();
    std::string lines;
    for (int i = 0; i < 24; ++i) {
      const std::string number = std::to_string(i * i * 37);
      const std::string tensors = "v" + std::to_string(i % 5) + ".safetensors";
      write_video(tensors, 1 + i % 5 % 2, i % 5);
      std::string frames = R"({"frames": [)";
      for (int frame = 0; frame < 2 + i % 3; ++frame) {
        frames += (frame == 0 ? "\"frame-" : ", \"frame-") + std::to_string(frame) + ".png\"";
      }
      frames += R"(], "fps": 4})";
      const std::string image = std::to_string(i % kImages) + ".safetensors";
      lines += R"({"prompt": ")" + number + R"(", "response": "text"})" + "\n";
      lines += R"({"videos": [")" + tensors + R"("], "messages": [{"role": "user", "content": )" +
               R"("<video>)" + number + R"("}, {"role": "assistant", "content": "one"}]})" + "\n";
      lines += R"({"videos": [)" + frames + R"(], "prompt": "<video>)" + number +
               R"(", "response": "two"})" + "\n";
      if (i % 2 == 0) {
        lines += R"({"images": [")" + image + R"("], "videos": [")" + tensors +
                 R"("], "prompt": "<image>a<video>", "response": ")" + number + "\"}\n";
      }
    }
    return lines;
  }
  // Some with an image, some with two, some without any.
  static std::string records() {
    std::string lines;
    for (int i = 0; i < 30; ++i) {
      const std::string number = std::to_string(i * i * 37);
      const std::string first = std::to_string(i % kImages) + ".safetensors";
      const std::string second = std::to_string((i + 3) % kImages) + ".safetensors";
      lines += R"({"prompt": ")" + number + R"(", "response": "text"})" + "\n";
      lines += R"({"images": [")" + first + R"("], "messages": [{"role": "user", "content": )" +
               R"("<image>)" + number + R"("}, {"role": "assistant", "content": "one"}]})" + "\n";
      if (i % 2 == 0) {
        lines += R"({"images": [")" + first + R"(", ")" + second + R"("], "prompt": "<image>a)" +
                 R"(<image>", "response": ")" + number + "\"}\n";
      }
    }
    return lines;
  }
  std::string tower() const { return GetParam() == "tiny-qwen3-vl" ? "model.visual" : "visual"; }
  Arguments arguments(const Arguments& more) const {
    return joined({"--model-config", folder_ + "/config.json", "--records", folder_ + "/r.jsonl",
                   "--seed", "3", "--loss-mean", "labels", "--product-engine", "mkl"},
                  more);
  }
  Training sound(int ranks, const Arguments& more) const {
    Training training = train(ranks, arguments(more));
    EXPECT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
    return training;
  }
  // One line that has an error, within moments, and no step.
  void expect_error(const std::string& lines, const std::string& text,
                    const Arguments& more = {}) const {
    write_file(folder_ + "/r.jsonl", lines);
    const Training training =
        train(2, arguments(joined({"--seq-len", "96", "--global-batch", "2"}, more)));
    EXPECT_NE(training.outcome.exit_code, 0) << text;
    EXPECT_FALSE(training.outcome.timed_out) << text;
    EXPECT_TRUE(training.steps.empty()) << text;
    EXPECT_THAT(training.outcome.err, HasSubstr(text));
  }

  const std::string folder_;
};

INSTANTIATE_TEST_SUITE_P(Models, Vision, ::testing::Values("tiny-qwen2.5-vl", "tiny-qwen3-vl"),
                         [](const auto& info) {
                           return std::string(info.param == "tiny-qwen3-vl" ? "Qwen3" : "Qwen2_5");
                         });

TEST_P(Vision, TrainsTheSameOnAnyNumberOfRanks) {
  const Arguments run = {"--steps", "6",    "--seq-len", "96",        "--global-batch",
                         "6",       "--lr", "0.01",      "--shuffle", "--read-ahead",
                         "2"};
  for (const bool is_frozen : {false, true}) {
    const Arguments own = is_frozen ? joined(run, {"--freeze", tower()}) : run;
    const Training one = sound(1, own);
    ASSERT_EQ(one.steps.size(), 6U);
    for (const int ranks : {2, 3}) {
      expect_same_steps(sound(ranks, own).steps, as_lists(one.steps), {2e-5, 2e-4});
    }
  }
}

// Nor do records that are packed into a window see each other's images.
TEST_P(Vision, OfAWindowSeesItsOwnImagesAlone) {
  const auto loss = [&](const Arguments& more) {
    const Training training = sound(1, joined({"--steps", "1"}, more));
    return std::pair(training.steps.at(0).at("loss").get<double>(),
                     training.steps.at(0).at("grad_norm").get<double>());
  };
  write_file(
      folder_ + "/r.jsonl",
      "{\"images\": [\"0.safetensors\"], \"prompt\": \"a<image>b\", \"response\": \"cd\"}\n"
      "{\"images\": [\"4.safetensors\"], \"prompt\": \"e<image>\", \"response\": \"fgh\"}\n");
  const auto together = loss({"--seq-len", "40", "--global-batch", "1"});
  const auto apart = loss({"--seq-len", "20", "--global-batch", "2"});
  EXPECT_NEAR(together.first, apart.first, 1e-5 * together.first);
  EXPECT_NEAR(together.second, apart.second, 1e-4 * together.second);
  write_image(image(4), 4 + 2 * (4 % 2), 4 + 2 * (4 % 3), 99);
  EXPECT_GT(std::abs(loss({"--seq-len", "40", "--global-batch", "1"}).first - together.first),
            1e-6);
}

TEST_P(Vision, ResumesWhereItStopped) {
  const Arguments run = {"--steps", "7",  "--seq-len", "96",       "--global-batch", "6",
                         "--seed",  "11", "--shuffle", "--freeze", tower()};
  const Training whole = sound(2, run);
  ASSERT_EQ(whole.steps.size(), 7U);
  const std::string saved = folder_ + "/saved";
  sound(2, joined(run, {"--stop-step", "4", "--save-dir", saved}));
  for (const int ranks : {2, 3}) {
    const Training rest = sound(ranks, joined(run, {"--resume", saved}));
    ASSERT_EQ(rest.steps.size(), 3U);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(rest.steps[i].at("loss").get<double>(),
                  whole.steps[i + 4].at("loss").get<double>(), ranks == 2 ? 0 : 2e-5);
    }
  }
}

TEST_P(Vision, TowerThatIsFrozenStaysAsItWas) {
  const auto trained = [&](const std::string& name, const Arguments& more) {
    const std::string out = folder_ + "/" + name;
    sound(2, joined({"--seq-len", "96", "--global-batch", "4", "--lr", "0.01", "--save-pretrained",
                     out},
                    more));
    return read_tensor(out + "/model.safetensors", tower() + ".patch_embed.proj.weight");
  };
  const at::Tensor short_run = trained("a", {"--steps", "1", "--freeze", tower()});
  const at::Tensor long_run = trained("b", {"--steps", "4", "--freeze", tower()});
  const at::Tensor free_run = trained("c", {"--steps", "4"});
  EXPECT_TRUE(at::equal(short_run, long_run));
  EXPECT_FALSE(at::equal(long_run, free_run));
}

// In as many forwards as ranks and rows make, with the same loss.
TEST_P(Vision, IsEvaluatedOnRecordsWithImages) {
  const auto losses = [&](int ranks, const std::string& batch) {
    const Training training = sound(
        ranks, {"--steps", "1", "--seq-len", "96", "--global-batch", batch, "--lr", "0",
                "--eval-data", folder_ + "/r.jsonl", "--eval-size", batch == "2" ? "3" : "1"});
    return event_of(training, "evaluation").value("loss", 0.0);
  };
  const double expected = losses(1, "6");
  EXPECT_NEAR(losses(2, "6"), expected, 1e-5 * expected);
  EXPECT_NEAR(losses(2, "2"), expected, 1e-5 * expected);
}

TEST_P(Vision, WhoseImagesAreWrongIsOneError) {
  const std::string file = folder_ + "/r.jsonl: line 1: ";
  const auto of = [](const std::string& image) {
    return R"({"images": [")" + image + R"("], "text": "<image>a"})";
  };
  expect_error(of("none.safetensors"), file + folder_ + "/none.safetensors: cannot open");
  write_file(folder_ + "/junk.safetensors", "no such thing");
  expect_error(of("junk.safetensors"), file + folder_ + "/junk.safetensors: ");
  expect_error(R"({"images": ["0.safetensors"], "text": "<image><image>a"})",
               file + "has 2 places for images, and its files have 1");
  expect_error(of("0.safetensors"), "a window of sequence length 5 takes 6", {"--seq-len", "5"});
  expect_error(of("0.safetensors"), "r.jsonl has images, whose activations cannot be planned",
               {"--reshard-budget-gb", "1"});
  expect_error(of("none.safetensors"),
               "has no records but bad ones: line 1: ", {"--skip-bad-records"});
}

TEST_P(Vision, AnswersRecordsAlikeOnAnyNumberOfRanks) {
  write_file(folder_ + "/r.jsonl",
             R"({"images": ["0.safetensors"], "prompt": "a<image>b", "response": "left out"})"
             "\n\n"
             R"({"messages": [{"role": "user", "content": [{"type": "image", "image": )"
             R"("1.safetensors"}, {"type": "text", "text": "c"}]}, )"
             R"({"role": "assistant", "content": "left out"}]})"
             "\n"
             R"({"text": "no image"})"
             "\n"
             R"({"images": ["2.safetensors", "3.safetensors"], "prompt": "<image><image>d"})"
             "\n");
  const auto answers = [&](int ranks, const Arguments& more) {
    const Arguments command =
        joined({fsdp2_program(), "generate", "--model-config", folder_ + "/config.json",
                "--records", folder_ + "/r.jsonl", "--max-new-tokens", "5", "--json"},
               more);
    const Outcome outcome =
        run(ranks == 1 ? command : launched(ranks, command), with_variable("OMP_NUM_THREADS", "1"));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return lines_of(outcome.out);
  };
  const std::vector<std::string> alone = answers(1, {});
  ASSERT_EQ(alone.size(), 4U);
  EXPECT_THAT(Json::parse(alone[1]).at("prompt").get<std::string>(),
              AllOf(HasSubstr("c<|im_end|>\n<|im_start|>assistant\n"), Not(HasSubstr("left out"))));
  EXPECT_EQ(answers(2, {}), alone);
  EXPECT_EQ(answers(2, {"--batch-size", "1"}), alone);
  EXPECT_NE(answers(1, {"--seed", "1"}), alone);
}

TEST_P(Vision, RecordThatCannotBeAnsweredIsOneErrorWithItsLine) {
  const auto refusal = [&](const std::string& line) {
    write_file(folder_ + "/r.jsonl", R"({"text": "a"})"
                                     "\n" +
                                         line + "\n");
    const Outcome outcome =
        run(launched(2, {fsdp2_program(), "generate", "--model-config", folder_ + "/config.json",
                         "--records", folder_ + "/r.jsonl"}),
            with_variable("OMP_NUM_THREADS", "1"));
    EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
    EXPECT_FALSE(outcome.timed_out);
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  const std::string place = folder_ + "/r.jsonl: line 2: ";
  EXPECT_THAT(refusal(R"({"images": ["none.safetensors"], "prompt": "<image>"})"),
              HasSubstr(place + folder_ + "/none.safetensors: cannot open"));
  EXPECT_THAT(
      refusal(R"({"messages": [{"role": "assistant", "content": "a"}]})"),
      HasSubstr(place +
                "\"messages\": expected the last message to answer to be the user's, found none"));
  EXPECT_THAT(refusal(R"({"images": ["0.safetensors"], "prompt": "a"})"),
              HasSubstr(place + "has 0 places for images, and its files have 1"));
}

// In the middle of a run, on one rank, whichever it is.
TEST_P(Vision, WhoseImagesAreGoneIsOneErrorOnAllRanks) {
  Process process(launched(2, joined({fsdp2_program(), "train"},
                                     arguments({"--steps", "100000", "--seq-len", "96",
                                                "--global-batch", "2", "--shuffle"}))),
                  {});
  ASSERT_TRUE(process.wait_for_output("\"event\":\"step\"", 2));
  fs::remove(image(2));
  const Outcome outcome = process.wait();
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_THAT(outcome.err, HasSubstr("2.safetensors: cannot open"));
}

TEST_P(Vision, TrainsOnVideosTheSameOnAnyNumberOfRanks) {
  write_file(folder_ + "/r.jsonl", records_with_videos());
  const Arguments run = {"--steps", "5",    "--seq-len", "128",       "--global-batch",
                         "6",       "--lr", "0.002",     "--shuffle", "--read-ahead",
                         "2"};
  const Training one = sound(1, run);
  ASSERT_EQ(one.steps.size(), 5U);
  for (const int ranks : {2, 3}) {
    expect_same_steps(sound(ranks, run).steps, as_lists(one.steps), {2e-5, 2e-4});
  }
  const std::string saved = folder_ + "/saved";
  sound(2, joined(run, {"--stop-step", "3", "--save-dir", saved}));
  const Training rest = sound(2, joined(run, {"--resume", saved}));
  ASSERT_EQ(rest.steps.size(), 2U);
  const Training whole = sound(2, run);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(rest.steps[i].at("loss"), whole.steps[i + 3].at("loss"));
  }
}

// What is seen counts: other pixels make another loss.
TEST_P(Vision, LearnsFromWhatVideosShow) {
  write_file(
      folder_ + "/r.jsonl",
      "{\"videos\": [\"v.safetensors\"], \"prompt\": \"a<video>b\", \"response\": \"cd\"}\n");
  const auto loss = [&] {
    return sound(1, {"--steps", "1", "--seq-len", "96", "--global-batch", "1"})
        .steps.at(0)
        .at("loss")
        .get<double>();
  };
  write_video("v.safetensors", 3, 1);
  const double first = loss();
  EXPECT_EQ(loss(), first);
  write_video("v.safetensors", 3, 2);
  EXPECT_GT(std::abs(loss() - first), 1e-6);
}

TEST_P(Vision, WhoseVideosAreWrongIsOneError) {
  copy_frames();
  const std::string file = folder_ + "/r.jsonl: line 1: ";
  const auto of = [](const std::string& video) {
    return R"({"videos": [)" + video + R"(], "text": "<video>a"})";
  };
  const auto with = [&](const std::string& frame) {
    return of(R"({"frames": ["frame-0.png", ")" + frame + R"("], "fps": 2})");
  };
  expect_error(of("\"none.safetensors\""), file + folder_ + "/none.safetensors: cannot open");
  expect_error(with("none.png"), file + folder_ + "/none.png: cannot open");
  write_file(folder_ + "/junk.png", "no such thing");
  expect_error(with("junk.png"), file + folder_ + "/junk.png: expected a JPEG, a PNG");
  fs::copy_file(repository_file("tests/core/images/golden/rgb.png"), folder_ + "/other.png");
  expect_error(with("other.png"), file + folder_ + "/other.png: has 61 x 37 pixels, and the first");
  expect_error(R"({"videos": ["v.safetensors"], "text": "<video><video>a"})",
               file + folder_ + "/v.safetensors: cannot open");
  write_video("v.safetensors", 2, 0);
  expect_error(R"({"videos": ["v.safetensors"], "text": "<video><video>a"})",
               file + "has 2 places for videos, and 1 videos");
}

// Images that a model of text alone would pass over.
TEST_P(Vision, IsAskedForByRecordsWithImages) {
  write_file(folder_ + "/config.json",
             read_file(golden_inputs("tiny-llama").at(1) + "/config.json"));
  expect_error(records(), "line 2: has \"images\", and nothing says what model sees them");
}

}  // namespace
}  // namespace fsdp2::test
