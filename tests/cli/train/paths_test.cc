// Paths among the flags of the commands: none is written that the run reads, and none is refused
// without its flag's name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <exception>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "cli/infer/options.h"
#include "cli/train/flags/options.h"
#include "core/config/key_table.h"
#include "tests/cli/process.h"

namespace fsdp2::cli {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

template <typename Parse>
std::string refusal(const Parse& parse) {
  try {
    parse();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

std::string training_refusal(const Texts& arguments) {
  return refusal([&] {
    config::Plan plan;
    parse_train_options(arguments, &plan);
  });
}

// A directory with files of these names, each with something in it.
std::string folder_with(const Texts& names) {
  const std::string folder = test::empty_directory();
  for (const std::string& name : names) {
    fs::create_directories(fs::path(folder + "/" + name).parent_path());
    test::write_file(folder + "/" + name, "something");
  }
  return folder;
}

class ReadFiles : public ::testing::Test {
 protected:
  // The refusal of a run that writes `flag`'s output to this place.
  std::string writing(const std::string& flag, const std::string& name) const {
    Texts arguments = arguments_;
    arguments.insert(arguments.end(), {flag, path(name)});
    return training_refusal(arguments);
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void expect_kept(const std::string& flag, const std::string& name) const {
    EXPECT_EQ(writing(flag, name), flag + " " + path(name) + " is the file to read");
  }

  const std::string folder_ =
      folder_with({"t", "e", "m/config.json", "m/model-1.safetensors", "m/tokenizer.json",
                   "m/metrics.json", "k/tokenizer_config.json", "r.pth"});
  Texts arguments_ = {"--model", path("m"),     "--text",  path("t"),  "--eval-data",
                      path("e"), "--tokenizer", path("k"), "--resume", path("r.pth")};
};

TEST_F(ReadFiles, AreNotWrittenOverByMetrics) {
  fs::create_symlink("t", path("link"));
  for (const char* flag : {"--metrics", "--metrics-csv"}) {
    for (const char* name : {"t", "m/../t", "link", "e", "m/config.json", "m/model-1.safetensors",
                             "m/tokenizer.json", "k/tokenizer_config.json", "r.pth"}) {
      expect_kept(flag, name);
    }
    for (const char* name : {"new", "m/metrics.json", "m/new.json", "k/config.json"}) {
      EXPECT_EQ(writing(flag, name), "");
    }
  }
  test::write_file(path("k/tokenizer.json"), "something");
  arguments_.insert(arguments_.end(), {"--tokenizer", path("k/tokenizer.json")});
  for (const char* name : {"k/tokenizer.json", "k/tokenizer_config.json"}) {
    expect_kept("--metrics", name);
  }
}

TEST_F(ReadFiles, AreNotWrittenOverByFullWeightsUnlessTheyAreTheWeights) {
  fs::create_symlink("t", path("t.pth"));
  fs::create_symlink("../t", path("m/t.safetensors"));
  expect_kept("--full-state-dict", "t.pth");
  expect_kept("--full-state-dict", "m/t.safetensors");
  EXPECT_EQ(writing("--full-state-dict", "r.pth"), "");
  EXPECT_EQ(writing("--full-state-dict", "m/model-1.safetensors"), "");
}

TEST_F(ReadFiles, OfAProgramAreNotWrittenOver) {
  fs::copy(path("t"), path("p.pt"));
  arguments_ = {"--model", path("p.pt"), "--text", path("t")};
  expect_kept("--metrics", "p.pt");
  expect_kept("--full-state-dict", "p.pt");
}

TEST_F(ReadFiles, AreAConfigAndAConfiguration) {
  fs::copy(path("t"), path("c.json"));
  test::write_file(path("run.yaml"),
                   "model_config: " + path("c.json") + "\ntext: " + path("t") + "\n");
  for (const Texts& file :
       {Texts{path("run.yaml")}, Texts{"--fsdp2-config-path", path("run.yaml")}}) {
    arguments_ = file;
    expect_kept("--metrics", "run.yaml");
    expect_kept("--metrics-csv", "c.json");
    EXPECT_EQ(writing("--metrics", "new"), "");
  }
  test::write_file(path("run.yaml"), "metrics: " + path("c.json") + "\n");
  EXPECT_EQ(
      training_refusal({"--model-config", path("c.json"), "--text", path("t"), path("run.yaml")}),
      "--metrics " + path("c.json") + " is the file to read (--metrics is " + path("run.yaml") +
          ":1 metrics)");
}

// The refusal of a run that writes to these places.
std::string writing_to(const Texts& outputs) {
  Texts arguments = {"--model", "m", "--text", "t"};
  arguments.insert(arguments.end(), outputs.begin(), outputs.end());
  return training_refusal(arguments);
}

TEST(Places, AreTheSameThroughLinks) {
  const std::string folder = folder_with({"run/file"});
  fs::create_symlink("run", folder + "/link");
  fs::create_symlink("new", folder + "/dangling");
  const auto at = [&](const std::string& name) { return folder + "/" + name; };
  EXPECT_EQ(writing_to({"--metrics", at("new"), "--metrics-csv", at("dangling")}),
            "--metrics and --metrics-csv " + at("dangling") + " are the same place");
  EXPECT_EQ(writing_to({"--save-dir", at("run"), "--save-pretrained", at("link/")}),
            "--save-dir and --save-pretrained " + at("link/") + " are the same place");
  EXPECT_EQ(writing_to({"--save-dir", at("run"), "--metrics", at("link/m.jsonl")}),
            "--metrics " + at("link/m.jsonl") + " lies in --save-dir " + at("run") +
                ", which the checkpoint replaces");
  EXPECT_EQ(writing_to({"--metrics", at("run/a"), "--metrics-csv", at("link/../run/b")}), "");
  EXPECT_EQ(writing_to({"--metrics", "/dev/stdout", "--metrics-csv", "/dev/stderr"}), "");
}

constexpr char kEmpty[] = ": expected a path, found an empty text";

TEST(EmptyPaths, AreRefusedByTheFlagsOfTraining) {
  const Texts flags = {"--model",       "--model-config",     "--tokens",    "--text",
                       "--records",     "--tokenizer",        "--eval-data", "--metrics",
                       "--metrics-csv", "--tensorboard",      "--trace",     "--save-pretrained",
                       "--save-dir",    "--full-state-dict",  "--save-best", "--resume",
                       "FILE",          "--fsdp2-config-path"};
  for (const std::string& flag : flags) {
    const Texts empty = flag == "FILE" ? Texts{""} : Texts{flag, ""};
    EXPECT_EQ(writing_to(empty), flag + kEmpty);
  }
  EXPECT_EQ(writing_to({"--save-dir=", "--quiet"}), std::string("--save-dir") + kEmpty);
  EXPECT_EQ(writing_to({"--sample", "1", "--prompt", ""}), "");
}

TEST(EmptyPaths, AreRefusedByOtherCommands) {
  GenerateOptions generate;
  for (const std::string flag : {"--checkpoint", "--prompts", "--records", "--model"}) {
    EXPECT_EQ(refusal([&] { parse_generate_options({flag, ""}, &generate); }), flag + kEmpty);
  }
  ScoreOptions score;
  EXPECT_EQ(refusal([&] { parse_score_options({""}, &score); }), std::string("FILE") + kEmpty);
}

constexpr char kMalformed[] = "x\xffy";

TEST(Utf8, IsAskedForByFlagsOfTrainingThatTheLibraryReads) {
  TrainOptions options;
  int count = 0;
  for (const config::Key& key : config::train_keys(&options)) {
    if (std::get_if<std::string*>(&key.value) == nullptr || !key.choices.empty()) {
      continue;
    }
    const std::string message = training_refusal({key.flag(), kMalformed});
    const std::string expected = key.flag() + ": expected UTF-8, found byte 0xff at 1";
    EXPECT_EQ(message == expected, key.same_on_all_ranks) << key.name << ": " << message;
    ++count;
  }
  EXPECT_GT(count, 20);
  EXPECT_EQ(training_refusal({"--fsdp2-config-path", kMalformed}),
            "--fsdp2-config-path: expected UTF-8, found byte 0xff at 1");
}

TEST(Utf8, IsNotAskedForByOutputsThatTheToolWritesItself) {
  for (const char* flag : {"--metrics", "--metrics-csv", "--tensorboard"}) {
    EXPECT_EQ(training_refusal({"--model", "m", "--text", "t", flag, kMalformed}), "");
  }
}

TEST(Utf8, IsAskedForByOtherCommands) {
  const std::string text = ": expected UTF-8, found byte 0xff at 1";
  GenerateOptions generate;
  EXPECT_EQ(refusal([&] { parse_generate_options({"--checkpoint", kMalformed}, &generate); }),
            "--checkpoint" + text);
  ScoreOptions score;
  EXPECT_EQ(refusal([&] { parse_score_options({kMalformed}, &score); }), "FILE" + text);
}

}  // namespace
}  // namespace fsdp2::cli
