// What is in a model, by name, for options that name parts of it by patterns.
#pragma once

#include <string>
#include <vector>

#include "client/library.h"
#include "core/config/sharding.h"

namespace fsdp2::client {

class ModuleNames {
 public:
  // The module is not sharded yet.
  explicit ModuleNames(fsdp2_module module);

  bool has_ties() const { return has_ties_; }

  // `sharding` with the paths that its patterns match in place of the patterns. A name without a
  // pattern stays, whether or not it is there. Throws config::ConfigError, the same on all ranks.
  config::Sharding expand(config::Sharding sharding) const;

  // The modules that match. A name without a pattern stays, whether or not it is there. Throws
  // config::ConfigError, which names `flag`.
  std::vector<std::string> modules_in(const std::string& flag,
                                      const std::vector<std::string>& patterns) const;

  // The parameters that match a pattern themselves, or lie below a module that does. Throws
  // config::ConfigError, which names `flag`.
  std::vector<std::string> parameters_in(const std::string& flag,
                                         const std::vector<std::string>& patterns) const;

 private:
  std::vector<std::string> parameters_;  // all names of each
  std::vector<std::string> modules_;     // those that have parameters in them
  bool has_ties_ = false;
};

}  // namespace fsdp2::client
