// Rows of MLPs, for tests of what is sharded with what.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/fsdp/fully_shard.h"
#include "core/nn/module.h"
#include "tests/support/checklist_models.h"

namespace fsdp2::checklist {

template <class Make>
std::shared_ptr<Sequence> row_of(size_t count, const Make& make) {
  std::vector<ModulePtr> items;
  while (items.size() < count) {
    items.push_back(make());
  }
  return seed(std::make_shared<Sequence>(items));
}

inline std::shared_ptr<Sequence> mlps(size_t count) {
  return row_of(count, [] { return std::make_shared<Mlp>(8); });
}

// Two MLP(d) that have their first Linear in common.
inline std::shared_ptr<Sequence> mlps_with_shared_linear(int64_t width, int64_t multiple) {
  const auto first = std::make_shared<Mlp>(width, multiple);
  const auto second = std::make_shared<Mlp>(width, multiple);
  second->in_proj = second->replace_module("in_proj", first->in_proj);
  return seed(std::make_shared<Sequence>(std::vector<ModulePtr>{first, second}));
}

inline void expect_plain(const nn::Module& module) {
  for (const auto& parameter : module.named_parameters()) {
    EXPECT_FALSE(fsdp::ShardedParam::manages(parameter.value())) << parameter.key();
    EXPECT_FALSE(nn::has_no_memory(parameter.value())) << parameter.key();
  }
}

}  // namespace fsdp2::checklist
