// The flags of `fsdp2 train` beside those of the reference program, which is in Python.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "core/config/key_table.h"
#include "tests/cli/process.h"

namespace fsdp2::cli {
namespace {

using config::Key;
using config::train_keys;
using config::TrainOptions;

// The flags that this program has no use for: LibTorch's engine choices of the Python program, and
// its cross-check without FSDP.
const std::set<std::string> kLeftOut = {"--attn", "--compile", "--fsdp1", "--optimizer-impl",
                                        "--plain"};
// Values that are ours alone.
const std::map<std::string, std::set<std::string>> kOwnChoices = {
    {"--accum-sync", {"vocabulary"}},
    {"--optimizer", {"muon"}},
    {"--param-dtype", {"auto"}},
    {"--matmul-precision", {"high-always", "medium-always"}}};

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
  const std::string source = test::read_file("bench/python/train_options.py");
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
  std::map<std::string, Key> ours;
  for (const Key& key : train_keys(&options)) {
    ours.emplace(key.flag(), key);
  }
  const auto theirs = python_flags();
  EXPECT_GE(theirs.size(), 35U) << "the reference program's fields were not understood";
  for (const auto& [name, python] : theirs) {
    if (kLeftOut.count(name) > 0) {
      EXPECT_EQ(ours.count(name), 0U) << name;
      continue;
    }
    ASSERT_EQ(ours.count(name), 1U) << name;
    const Key& key = ours.at(name);
    EXPECT_EQ(canonical(key.value_text()), canonical(python.default_value)) << name;
    std::set<std::string> choices(key.choices.begin(), key.choices.end());
    const auto own = kOwnChoices.find(name);
    if (own != kOwnChoices.end()) {
      for (const std::string& choice : own->second) {
        EXPECT_EQ(choices.erase(choice), 1U) << choice;
      }
    }
    EXPECT_EQ(choices, python.choices) << name;
  }
}

}  // namespace
}  // namespace fsdp2::cli
