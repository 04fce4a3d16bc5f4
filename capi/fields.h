// One list of fields for each options struct of the C ABI. The checks of single values come from
// it, and the "key=value" lines by which ranks compare what they were given; a struct with a field
// that its list lacks does not compile.
//
//   template <>
//   inline constexpr auto kFields<fsdp2_load_options> = std::tuple(
//       Field("partial", &fsdp2_load_options::partial, Flag()),
//       Field("from_rank0", &fsdp2_load_options::from_rank0, Flag()),
//       Field("reserved", &fsdp2_load_options::reserved, Reserved()));
//
//   const fsdp2_load_options options = read_options(given, kLoadDefaults);
//   agree(world, call.function(), [&] { return text_of(options); });
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>

#include "capi/argument.h"
#include "capi/dtype.h"
#include "capi/sized_struct.h"

namespace fsdp2::capi {

// ---- rules: what a value may be, and whether all ranks must have the same

struct Flag {
  static constexpr bool kAlike = true;
  void check(int32_t value, const char* name) const { read_flag(value, name); }
};

struct Range {
  static constexpr bool kAlike = true;
  int64_t low;
  int64_t high;
  void check(int64_t value, const char* name) const { check_integer(value, low, high, name); }
};

struct NumberRange {
  static constexpr bool kAlike = true;
  double low;
  double high;
  void check(double value, const char* name) const { check_number(value, low, high, name); }
};

struct FloatDtypeOrKeep {
  static constexpr bool kAlike = true;
  void check(int32_t value, const char* name) const { read_float_dtype_or_keep(value, name); }
};

// A number that stands for something: Read throws for one that does not, naming the option.
template <auto Read>
struct ReadBy {
  static constexpr bool kAlike = true;
  template <typename Value>
  void check(Value value, const char* /*name*/) const {
    Read(value);
  }
};

// As Rule, for what each rank has for itself.
template <typename Rule>
struct PerRank : Rule {
  static constexpr bool kAlike = false;
  constexpr explicit PerRank(Rule rule) : Rule(rule) {}
};

// Any value will do, but the same on all ranks.
struct Anything {
  static constexpr bool kAlike = true;
  template <typename Value>
  void check(Value /*value*/, const char* /*name*/) const {}
};

// Looked at by the call itself: texts, lists, functions, and what depends on other fields.
struct Elsewhere {
  static constexpr bool kAlike = false;
  template <typename Value>
  void check(Value /*value*/, const char* /*name*/) const {}
};

struct Reserved {
  static constexpr bool kAlike = false;
  void check(int32_t value, const char* name) const {
    FSDP2_CHECK(value == 0, Code::kInvalidArgument, "{}: expected 0, found {}", name, value);
  }
};

// ---- lists

template <typename Struct, typename Type, typename Rule>
struct Field {
  using Value = Type;
  static constexpr bool kAlike = Rule::kAlike;

  constexpr Field(const char* name_in, Type Struct::* member_in, Rule rule_in)
      : name(name_in), member(member_in), rule(rule_in) {}

  const char* name;
  Type Struct::* member;
  Rule rule;
};

// A tuple of Fields, in the order in which ranks compare them: all fields but struct_size.
template <typename Struct>
inline constexpr int kFields = 0;

// The bytes of struct_size and the listed fields. The structs have no padding, so that nothing is
// missing if these are all.
template <typename Struct>
constexpr size_t listed_bytes() {
  return std::apply(
      [](const auto&... field) {
        return sizeof(uint32_t) +
               (sizeof(typename std::decay_t<decltype(field)>::Value) + ... + size_t{0});
      },
      kFields<Struct>);
}

// `name` is the argument's.
template <typename Struct>
void check_fields(const Struct& options, const char* name = "options") {
  static_assert(listed_bytes<Struct>() == sizeof(Struct), "a field is not in the struct's list");
  std::apply(
      [&](const auto&... field) {
        (field.rule.check(options.*field.member, fmt::format("{}.{}", name, field.name).c_str()),
         ...);
      },
      kFields<Struct>);
}

// One line for each field that all ranks must have alike, so that a difference is told by name.
template <typename Struct>
std::string text_of(const Struct& options) {
  static_assert(listed_bytes<Struct>() == sizeof(Struct), "a field is not in the struct's list");
  std::string text;
  const auto add = [&](const auto& field) {
    if constexpr (std::decay_t<decltype(field)>::kAlike) {
      text += fmt::format("{}={}\n", field.name, options.*field.member);
    }
  };
  std::apply([&](const auto&... field) { (add(field), ...); }, kFields<Struct>);
  return text;
}

// The caller's options, each value checked by itself.
template <typename Struct>
Struct read_options(const Struct* given, const Struct& defaults) {
  const Struct options = read_struct(given, defaults, "options");
  check_fields(options);
  return options;
}

}  // namespace fsdp2::capi
