// docs/yaml.md has the tables of all dialects. FSDP2_UPDATE_PAGE=<path> writes the page anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/config/dialects/dialects.h"

namespace fsdp2::config {
namespace {

constexpr char kPage[] = "docs/yaml.md";
constexpr char kEnd[] = "<!-- end -->";

std::string quoted(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "`" : ", `") + word + "`";
  }
  return text;
}

std::string meaning(const Row& row) {
  switch (row.fate) {
    case Row::Fate::kSets:
      return row.text.empty() ? "checked" : "`" + row.text + "`";
    case Row::Fate::kIgnored:
      return "ignored: " + row.text;
    case Row::Fate::kNotProvided:
      return "not provided: " + row.text +
             (row.harmless.empty() ? "" : "; accepted: " + quoted(row.harmless));
  }
  return "";
}

std::string table_of(const std::vector<Row>& rows) {
  std::string text = "| key | sets |\n|---|---|\n";
  std::vector<std::string> alike;  // keys one after the other that mean the same
  for (size_t i = 0; i < rows.size(); ++i) {
    alike.push_back(rows[i].path);
    if (i + 1 == rows.size() || meaning(rows[i + 1]) != meaning(rows[i])) {
      text += "| " + quoted(alike) + " | " + meaning(rows[i]) + " |\n";
      alike.clear();
    }
  }
  return text;
}

// The keys of ours, by group, with their defaults.
std::string plain_table() {
  TrainOptions options;
  std::string text = "| key | default |\n|---|---|\n";
  for (const Key& key : train_keys(&options)) {
    const std::string value = key.value_text();
    text += "| `" + key.name + "` | " + (value.empty() ? "" : "`" + value + "`") + " |\n";
  }
  return text;
}

// `page` with `table` between the marks of `name`.
std::string with_table(const std::string& page, const std::string& name, const std::string& table) {
  const std::string mark = "<!-- " + name + " -->\n";
  const size_t begin = page.find(mark);
  EXPECT_NE(begin, std::string::npos) << name;
  const size_t end = page.find(kEnd, begin);
  return page.substr(0, begin + mark.size()) + table + page.substr(end);
}

TEST(YamlPage, HasTheTablesOfAllDialects) {
  const char* update = std::getenv("FSDP2_UPDATE_PAGE");
  std::stringstream read;
  read << std::ifstream(update == nullptr ? kPage : update).rdbuf();
  std::string wanted = read.str();
  wanted = with_table(wanted, "plain", plain_table());
  wanted = with_table(wanted, "roll", table_of(roll_rows()));
  wanted = with_table(wanted, "roll role", table_of(roll_role_rows()));
  wanted = with_table(wanted, "mm", table_of(mm_rows()));
  wanted = with_table(wanted, "mm-legacy", table_of(mm_legacy_rows()));
  wanted = with_table(wanted, "simple", table_of(simple_rows()));
  if (update != nullptr) {
    std::ofstream(update) << wanted;
  }
  EXPECT_TRUE(update != nullptr || wanted == read.str())
      << "FSDP2_UPDATE_PAGE=$PWD/" << kPage
      << " bazel-bin/tests/core/config/config_test --gtest_filter=YamlPage.* brings it up to date";
}

}  // namespace
}  // namespace fsdp2::config
