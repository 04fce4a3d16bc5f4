// Finds the units of a tree when its root is first used: names, ties, the agreed order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/fsdp/unit.h"
#include "core/nn/module.h"

namespace fsdp2::fsdp {

class UnitTree {
 public:
  struct Found {
    std::string name;  // dotted path from the module that was searched
    std::shared_ptr<Unit> unit;
  };

  // Units at and below the module, parents before children, in registration order, each once.
  static std::vector<Found> units_below(const nn::Module& module);

  // Makes `root` the root of all units at and below its module. Collective; see Unit::tree.
  static void make(Unit& root);

 private:
  static void name_parameters(Unit& root, const std::vector<Found>& found);
  static void give_slice_comms(Unit& root, const std::vector<Found>& found);
  static void connect_meshes(const std::vector<Found>& found);
};

}  // namespace fsdp2::fsdp
