// YAML files as trees with lines, and files that are made to do harm.
#include "core/config/document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/config/config_error.h"

namespace fsdp2::config {
namespace {

using ::testing::HasSubstr;
using Kind = Node::Kind;

std::string parse_error(const std::string& text) {
  try {
    read_yaml(text, "f.yaml");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Document, KnowsTheLineOfEverything) {
  const Node root = read_yaml("a: 1\nb:\n  c: [x,\n      2]\n", "f.yaml");
  ASSERT_EQ(root.kind, Kind::kMap);
  EXPECT_EQ(root.find("a")->origin, "f.yaml:1");
  const Node* list = root.find("b")->find("c");
  EXPECT_EQ(list->origin, "f.yaml:3");
  EXPECT_EQ(list->items.at(1).origin, "f.yaml:4");
  EXPECT_EQ(root.find("c"), nullptr);
}

TEST(Document, ScalarsHaveTheTypesOfYaml12) {
  const auto kind = [](const std::string& text) {
    return read_yaml("a: " + text, "f").find("a")->kind;
  };
  for (const char* text : {"", "~", "null"}) {
    EXPECT_EQ(kind(text), Kind::kNull) << text;
  }
  for (const char* text : {"true", "False"}) {
    EXPECT_EQ(kind(text), Kind::kBool) << text;
  }
  for (const char* text : {"0", "-3", "+4", "010"}) {
    EXPECT_EQ(kind(text), Kind::kWhole) << text;
  }
  for (const char* text : {"1.5", "1e-6", "1.0e-6", ".5", "2."}) {
    EXPECT_EQ(kind(text), Kind::kNumber) << text;
  }
  for (const char* text : {"yes", "on", "'1'", "\"true\"", "1_000", "0x10", ".inf", "!!str 5"}) {
    EXPECT_EQ(kind(text), Kind::kText) << text;
  }
}

TEST(Document, MergedMappingsFillWhatAMappingLeavesOpen) {
  const Node root = read_yaml(
      "base: &base {a: 1, b: 1, c: 1}\nmore: &more {c: 2, d: 2}\n"
      "one:\n  b: 3\n  <<: *base\n"
      "two:\n  <<: [*more, *base]\n  a: 4\n",
      "f.yaml");
  const auto text_of = [&](const char* map, const char* key) {
    return root.find(map)->find(key)->text;
  };
  EXPECT_EQ(root.find("one")->entries.size(), 3U);
  EXPECT_EQ(text_of("one", "a") + text_of("one", "b") + text_of("one", "c"), "131");
  EXPECT_EQ(root.find("one")->find("a")->origin, "f.yaml:1");
  EXPECT_EQ(text_of("two", "a") + text_of("two", "b") + text_of("two", "c") + text_of("two", "d"),
            "4122");
  EXPECT_EQ(root.find("two")->entries.size(), 4U);
}

TEST(Document, MergedMappingsMayHaveMergedOthers) {
  const Node root = read_yaml("a: &a {x: 1}\nb: &b {<<: *a, y: 2}\nc: {<<: *b}\n", "f");
  EXPECT_EQ(root.find("c")->find("x")->text + root.find("c")->find("y")->text, "12");
  std::string bomb = "a0: &a0 {k: 1, l: 2}\n";
  for (int i = 1; i < 40; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " {<<: [" + last + "," + last +
            "], k" + std::to_string(i) + ": 1}\n";
  }
  EXPECT_THAT(parse_error(bomb), HasSubstr("more than 65536 values"));
  EXPECT_THAT(parse_error("a: &a {b: 1, <<: *a}\n"), HasSubstr("contains it"));
}

TEST(Document, AliasesAreCopies) {
  const Node root = read_yaml("a: &x {k: [1, 2]}\nb: *x\n", "f");
  EXPECT_EQ(root.find("b")->find("k")->items.size(), 2U);
}

TEST(Document, EmptyTextIsNull) {
  EXPECT_EQ(read_yaml("", "f").kind, Kind::kNull);
  EXPECT_EQ(read_yaml("# nothing\n", "f").kind, Kind::kNull);
}

TEST(Document, WhatIsWrongIsSaidWithItsLine) {
  EXPECT_EQ(parse_error("a: 1\nb: 2\na: 3\n"), "f.yaml:3: a is given twice; first at f.yaml:1");
  EXPECT_THAT(parse_error("x: {k: 1}\ny: {k: 1,\n k: 2}\n"),
              HasSubstr("f.yaml:3: k is given twice; first at f.yaml:2"));
  EXPECT_THAT(parse_error("a: 1\n b: 2\n"), HasSubstr("f.yaml:2: "));
  EXPECT_THAT(parse_error("a: [1, 2\n"), HasSubstr("f.yaml:2: "));
  EXPECT_THAT(parse_error("a: *b\n"), HasSubstr("f.yaml:1: "));
  EXPECT_THAT(parse_error("a: &x\n  b: *x\n"), HasSubstr("f.yaml:2: this alias stands for"));
  EXPECT_THAT(parse_error("? [1]\n: 2\n"), HasSubstr("f.yaml:1: expected a key, got a list"));
  EXPECT_THAT(parse_error("~: 2\n"), HasSubstr("f.yaml:1: expected a key, got nothing"));
  EXPECT_THAT(parse_error("a: 1\n<<: [{b: 2}, 3]\n"),
              HasSubstr("f.yaml:2: <<: expected a mapping or a list of mappings, got the whole"));
  EXPECT_THAT(parse_error("<<: {a: 1}\n<<: {b: 2}\n"), HasSubstr("f.yaml:2: << is given twice"));
  EXPECT_THAT(parse_error("<<: ~\n"), HasSubstr("got nothing"));
  EXPECT_THAT(parse_error("a: !!binary x\n"), HasSubstr("f.yaml:1: the tag tag:yaml.org"));
  EXPECT_THAT(parse_error("a: 1\n---\nb: 2\n"), HasSubstr("f.yaml:3: a second document"));
  EXPECT_THAT(parse_error("a: \xff\n"), HasSubstr("f.yaml: is not UTF-8"));
  EXPECT_THAT(parse_error(std::string("a: \0b\n", 6)), HasSubstr("f.yaml: has a zero byte"));
}

TEST(Document, MadeToDoHarmIsRefused) {
  std::string bomb = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 20; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int k = 0; k < 8; ++k) {
      bomb += ", " + before;
    }
    bomb += "]\n";
  }
  EXPECT_THAT(parse_error(bomb), HasSubstr("more than 65536 values"));
  EXPECT_THAT(parse_error("a: " + std::string(100, '[')), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(parse_error("a: " + std::string(500000, '[')), HasSubstr("f.yaml:1: "));
  std::string copies = "a: &a " + std::string(100000, 'x') + "\nb: [*a";
  std::string anchors = "a: ";
  for (int i = 0; i < 60; ++i) {
    copies += ", *a";
    anchors += "&a" + std::to_string(i) + " [";
  }
  EXPECT_THAT(parse_error(copies + "]\n"), HasSubstr("more than 65536 values"));
  for (int i = 0; i < 5000; ++i) {
    anchors += "1,";
  }
  EXPECT_THAT(parse_error(anchors + std::string(60, ']') + "\n"),
              HasSubstr("f.yaml:1: anchors within anchors stand for more than 65536 values"));
  std::string steps = "a:";
  for (int i = 1; i < 3000; ++i) {
    steps += "\n" + std::string(static_cast<size_t>(i), ' ') + "-";
    if (steps.size() > 900000) {
      break;
    }
  }
  EXPECT_THAT(parse_error(steps), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(parse_error(std::string(2 << 20, 'a')), HasSubstr("is larger than"));
}

TEST(Document, AssignmentsReplaceAndAdd) {
  Node root = read_yaml("a: {b: 1}\n", "f");
  set_in(&root, "a.b=[x, y]");
  set_in(&root, "c.d=true");
  set_in(&root, "e=");
  EXPECT_EQ(root.find("a")->find("b")->items.at(1).text, "y");
  EXPECT_EQ(root.find("a")->find("b")->items.at(1).origin, "--set a.b=[x, y]");
  EXPECT_EQ(root.find("c")->find("d")->kind, Kind::kBool);
  EXPECT_EQ(root.find("e")->kind, Kind::kNull);
  std::string deep = "a";
  for (int i = 0; i < 100000; ++i) {
    deep += ".a";
  }
  for (const std::string& wrong : {std::string("a"), std::string("=1"), std::string("a..b=1"),
                                   std::string("a.=1"), std::string("a.b.c=1"), deep + "=1"}) {
    EXPECT_THROW(set_in(&root, wrong), ConfigError) << wrong;
  }
}

}  // namespace
}  // namespace fsdp2::config
