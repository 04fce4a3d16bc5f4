// docs/configuration.md has every key of the table, with its type, default and meaning, and what
// the files of other tools call it. FSDP2_UPDATE_PAGE=<path> writes the page anew.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "core/config/dialects/dialects.h"
#include "core/config/key_table.h"

namespace fsdp2::config {
namespace {

constexpr char kConfigurationPage[] = "docs/configuration.md";
constexpr char kKeysBegin[] = "<!-- keys -->\n";
constexpr char kKeysEnd[] = "<!-- end -->";

std::string in_code(const std::string& text) { return "`" + text + "`"; }

std::string in_cell(const std::string& text) {
  std::string escaped;
  for (const char letter : text) {
    escaped += letter == '|' ? std::string("\\|") : std::string(1, letter);
  }
  return escaped;
}

std::string type_of(const Key& key) {
  if (!key.choices.empty()) {
    std::string text;
    for (const std::string& choice : key.choices) {
      text += (text.empty() ? "" : ", ") + in_code(choice);
    }
    return text;
  }
  struct Name {
    Form form;
    std::string operator()(const std::string* /*value*/) const {
      return form == Form::kList     ? "names"
             : form == Form::kWord   ? "word"
             : form == Form::kObject ? "fields"
                                     : "text";
    }
    std::string operator()(const int64_t* /*value*/) const { return "whole number"; }
    std::string operator()(const uint64_t* /*value*/) const { return "whole number"; }
    std::string operator()(const double* /*value*/) const { return "number"; }
    std::string operator()(const bool* /*value*/) const { return "true or false"; }
  };
  return std::visit(Name{key.form}, key.value);
}

// By key: what sets it in the files of one tool.
using Names = std::map<std::string, std::vector<std::string>>;

void add_names(const std::vector<Row>& rows, Names* names) {
  for (const Row& row : rows) {
    if (row.fate == Row::Fate::kSets && row.text.rfind("not ", 0) != 0) {
      (*names)[row.text.substr(0, row.text.find_first_of(",; ("))].push_back(row.path);
    }
  }
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }

// "ROLL `lr`", with the last parts of paths, each once.
std::string names_in(const char* tool, const Names& names, const std::string& key) {
  std::string text;
  std::vector<std::string> known;
  const auto found = names.find(key);
  for (const std::string& path :
       found == names.end() ? std::vector<std::string>() : found->second) {
    const std::string name = last_part(path);
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      known.push_back(name);
      text += (text.empty() ? std::string(tool) + " " : ", ") + in_code(name);
    }
  }
  return text;
}

class OtherNames {
 public:
  OtherNames() {
    add_names(roll_rows(), &roll_);
    add_names(roll_role_rows(), &roll_);
    add_names(mm_rows(), &mm_);
    add_names(mm_legacy_rows(), &mm_);
  }
  std::string of(const std::string& key) const {
    const std::string roll = names_in("ROLL", roll_, key);
    const std::string mm = names_in("MindSpeed", mm_, key);
    return roll + (roll.empty() || mm.empty() ? "" : "; ") + mm;
  }

 private:
  Names roll_, mm_;
};

std::string key_row(const Key& key, const OtherNames& others) {
  const std::string value = key.value_text();
  return "| " + in_code(key.flag()) + " | " + type_of(key) + " | " +
         (value.empty() ? "" : in_code(value)) + " | " + in_cell(key.help) + " | " +
         others.of(key.name) + " |\n";
}

// A table for each group, in the order in which the groups begin.
std::string key_tables() {
  TrainOptions options;
  const OtherNames others;
  std::vector<std::string> order;
  std::map<std::string, std::string> rows;
  for (const Key& key : train_keys(&options)) {
    if (rows.count(key.group) == 0) {
      order.push_back(key.group);
    }
    rows[key.group] += key_row(key, others);
  }
  std::string text;
  for (const std::string& group : order) {
    text += "\n## " + group +
            "\n| flag | value | default | meaning | elsewhere |\n|---|---|---|---|---|\n" +
            rows[group];
  }
  return text + "\n";
}

TEST(ConfigurationPage, HasEveryKey) {
  const char* update = std::getenv("FSDP2_UPDATE_PAGE");
  std::stringstream read;
  read << std::ifstream(update == nullptr ? kConfigurationPage : update).rdbuf();
  const std::string page = read.str();
  const size_t mark = page.find(kKeysBegin);
  const size_t end = page.find(kKeysEnd);
  ASSERT_NE(mark, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  const std::string wanted =
      page.substr(0, mark + std::string(kKeysBegin).size()) + key_tables() + page.substr(end);
  if (update != nullptr) {
    std::ofstream(update) << wanted;
  }
  EXPECT_TRUE(update != nullptr || wanted == page)
      << "FSDP2_UPDATE_PAGE=$PWD/" << kConfigurationPage
      << " bazel-bin/tests/core/config/config_test --gtest_filter=ConfigurationPage.* brings it up "
         "to date";
}

}  // namespace
}  // namespace fsdp2::config
