// The flags of `fsdp2 train`: those of the reference program, and what is said about wrong ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "cli/arguments.h"
#include "cli/train/option_checks.h"
#include "cli/train/options.h"
#include "tests/cli/process.h"

namespace fsdp2::cli {
namespace {

using ::testing::HasSubstr;

// The flags that this program has no use for: LibTorch's engine choices of the Python program, and
// its cross-check without FSDP.
const std::set<std::string> kLeftOut = {"--attn", "--optimizer-impl", "--matmul-precision",
                                        "--plain"};

struct PythonFlag {
  std::string default_value;
  std::set<std::string> choices;
};

// A value of either program in one form: 3e-3 and 0.003, False and false, "sgd" and sgd are the
// same.
std::string canonical(const std::string& value) {
  if (value == "True" || value == "False") {
    return value == "True" ? "true" : "false";
  }
  if (!value.empty() && value.front() == '"') {
    return value.substr(1, value.size() - 2);
  }
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  return end == value.c_str() ? value : std::to_string(number);
}

std::set<std::string> texts_in(const std::string& list) {
  std::set<std::string> texts;
  const std::regex quoted("\"([^\"]*)\"");
  for (std::sregex_iterator i(list.begin(), list.end(), quoted), end; i != end; ++i) {
    texts.insert((*i)[1]);
  }
  return texts;
}

// The fields of the reference program's TrainConfig, each of which is a flag of its.
std::map<std::string, PythonFlag> python_flags() {
  const std::string source = test::read_file("bench/python/train_fsdp2.py");
  const size_t begin = source.find("class TrainConfig:");
  const std::string fields = source.substr(begin, source.find("def parse_config") - begin);
  const std::regex field(
      "    (\\w+): (?:str|int|float|bool) = (?:option\\(\\s*(\"[^\"]*\"|[\\w.-]+),\\s*\"[^\"]*\""
      "(?:,\\s*(\\[[^\\]]*\\]|list\\(DTYPES\\)))?|field\\()");
  std::map<std::string, PythonFlag> flags;
  for (std::sregex_iterator i(fields.begin(), fields.end(), field), end; i != end; ++i) {
    std::string name = "--" + (*i)[1].str();
    std::replace(name.begin(), name.end(), '_', '-');
    PythonFlag& flag = flags[name];
    flag.default_value = (*i)[2];
    const std::string choices = (*i)[3];
    flag.choices = texts_in(choices);
    if (choices.find("DTYPES") != std::string::npos) {
      flag.choices.insert({"fp32", "bf16", "fp16"});
    }
  }
  return flags;
}

TEST(TrainFlags, AreThoseOfTheReferenceProgram) {
  TrainOptions options;
  std::map<std::string, Flag> ours;
  for (const Flag& flag : train_flags(&options)) {
    ours.emplace(flag.name, flag);
  }
  const auto theirs = python_flags();
  EXPECT_GE(theirs.size(), 35U) << "the reference program's fields were not understood";
  for (const auto& [name, python] : theirs) {
    if (kLeftOut.count(name) > 0) {
      EXPECT_EQ(ours.count(name), 0U) << name;
      continue;
    }
    ASSERT_EQ(ours.count(name), 1U) << name;
    const Flag& flag = ours.at(name);
    EXPECT_EQ(canonical(flag.value_text()), canonical(python.default_value)) << name;
    const std::set<std::string> choices(flag.choices.begin(), flag.choices.end());
    EXPECT_EQ(choices, python.choices) << name;
  }
}

TEST(TrainFlags, AreThereOnceWithHelp) {
  TrainOptions options;
  std::set<std::string> names;
  for (const Flag& flag : train_flags(&options)) {
    EXPECT_TRUE(names.insert(flag.name).second) << flag.name;
    EXPECT_FALSE(flag.help.empty()) << flag.name;
  }
}

TEST(TrainFlags, ExplainThemselvesByANounOrAVerb) {
  const std::set<std::string> others = {"As", "By",   "For",   "How",   "In",    "Instead", "Of",
                                        "To", "What", "Where", "Which", "Whose", "With"};
  TrainOptions options;
  for (const Flag& flag : train_flags(&options)) {
    EXPECT_EQ(others.count(flag.help.substr(0, flag.help.find(' '))), 0U) << flag.name;
  }
}

TEST(TrainFlags, TakeEveryNameOfATorchFileForTheFullWeights) {
  for (const std::string name : {"x.pth", "x.pt", "x.bin", "x.safetensors"}) {
    TrainOptions options;
    const Request request =
        parse_train_options({"--model", "m", "--tokens", "t", "--full-state-dict", name}, &options);
    EXPECT_EQ(request, Request::kTrain) << name;
    EXPECT_EQ(options.full_state_dict, name);
  }
}

TEST(TrainFlags, AreReadIntoOptions) {
  TrainOptions options;
  const Request request =
      parse_train_options({"--config", "c.json", "--text=t.txt", "--steps", "7", "--lr", "1e-2",
                           "--shuffle", "--steps", "9", "--reshard_after_forward", "false"},
                          &options);
  EXPECT_EQ(request, Request::kTrain);
  EXPECT_EQ(options.config, "c.json");
  EXPECT_EQ(options.text, "t.txt");
  EXPECT_EQ(options.steps, 9);
  EXPECT_EQ(options.lr, 1e-2);
  EXPECT_TRUE(options.shuffle);
  EXPECT_EQ(options.reshard_after_forward, "false");
}

TEST(TrainFlags, ThatRanksMustShareAreCompared) {
  TrainOptions options;
  options.steps = 12;
  options.lr = 0.1;
  const std::string text = shared_options(options);
  EXPECT_THAT(text, HasSubstr("--steps=12\n"));
  EXPECT_THAT(text, HasSubstr("--lr=0.1\n"));
  EXPECT_THAT(text, HasSubstr("--shuffle=false\n"));
  for (const char* own : {"--quiet", "--metrics", "--threads", "--product-engine"}) {
    EXPECT_EQ(text.find(own), std::string::npos) << own;
  }
}

struct Mistake {
  std::vector<std::string> arguments;
  std::string message;
};

std::string message_of(std::vector<std::string> arguments) {
  TrainOptions options;
  try {
    parse_train_options(std::move(arguments), &options);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(TrainMistakes, AreNamed) {
  const std::vector<Mistake> mistakes = {
      {{"--stepz", "3"}, "unknown flag --stepz; did you mean --steps?"},
      {{"--batch", "3"}, "unknown flag --batch; did you mean --global-batch?"},
      {{"--zzzzzzzz"}, "unknown flag --zzzzzzzz (see --help)"},
      {{"stray"}, "unexpected argument 'stray' (see --help)"},
      {{"--steps", "many"}, "--steps many: expected a number"},
      {{"--steps"}, "--steps needs a value"},
      {{"--steps", "0"}, "--steps 0 is below 1"},
      {{"--optimizer", "adam"}, "--optimizer"},
      {{"--config", "x"}, "--model and --config exclude each other"},
      {{"--text", "x"}, "--tokens and --text exclude each other"},
      {{"--beta1", "1"}, "--beta1 must lie in [0, 1)"},
      {{"--lr", "-1"}, "--lr must be a number of at least 0"},
      {{"--timeout-s", "0"}, "--timeout-s must be more than 0"},
      {{"--save-every", "2"}, "--save-every needs --save-dir"},
      {{"--keep-last", "2", "--save-dir", "x"}, "--keep-last needs --save-every"},
      {{"--full-state-dict", "x.gguf"}, "--full-state-dict x.gguf: expected FILE.pth"},
      {{"--prompt", "1 2"}, "--prompt needs --sample"},
      {{"--device", "cuda"}, "--device cuda is not supported yet"},
      {{"--reshard-after-forward", "1"},
       "--reshard-after-forward 1: expected default, true, false"},
      {{"--reshard-after-forward", "maybe"},
       "--reshard-after-forward maybe: expected default, true, false"},
      {{"--strategy", "no_shard", "--fsdp-size", "2"},
       "--strategy no_shard and --fsdp-size 2 contradict each other"},
      {{"--strategy", "hybrid_shard"}, "--strategy hybrid_shard needs --fsdp-size"},
      {{"--strategy", "shard_grad_op", "--reshard-after-forward", "true"},
       "--strategy shard_grad_op and --reshard-after-forward true contradict each other"},
  };
  for (const Mistake& mistake : mistakes) {
    std::vector<std::string> arguments = {"--model", "m", "--tokens", "t"};
    arguments.insert(arguments.end(), mistake.arguments.begin(), mistake.arguments.end());
    const std::string message = message_of(arguments);
    EXPECT_THAT(message, HasSubstr(mistake.message)) << mistake.arguments.front();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
  EXPECT_THAT(message_of({"--tokens", "t"}), HasSubstr("--model (a directory) or --config"));
  EXPECT_THAT(message_of({"--model", "m"}), HasSubstr("--tokens or --text"));
}

TEST(TrainMistakes, ThatDependOnTheWorldAreNamed) {
  TrainOptions options;
  options.grad_accum = 2;
  EXPECT_NO_THROW(check_options_for_world(options, 4));
  try {
    check_options_for_world(options, 3);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "--global-batch 8 is not a multiple of ranks x --grad-accum = 3 x 2");
  }
}

}  // namespace
}  // namespace fsdp2::cli
