// A module on its way to being trained: how much of it is sharded, and whether its parameters have
// values.
//
//   kPlain ─make_unit, make_units→ kUnitsMade ─shard→ kSharded      kPlain ─shard→ kSharded
//   any of them ─a change that fails half-way→ kSpoiled        it can only be destroyed
//
// make_unit, make_units and shard agree with the other ranks of the mesh twice: on what is asked
// for, which changes nothing, and on the change itself. An error in the first leaves the session as
// it was, on all ranks. An error in the second spoils it, except on a rank that failed by itself
// before it changed anything.
//
// One thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/mesh.h"
#include "core/fsdp/unit.h"
#include "core/nn/module.h"
#include "core/nn/parameter_source.h"
#include "core/train/shard_options.h"

namespace fsdp2::train {

class Session;

// What one rank is asked for.
struct ShardRequest {
  std::shared_ptr<Session> session;
  ShardOptions options;
  std::vector<std::string> paths;  // make_unit: dotted, of the modules in the group
  std::string text;  // "key=value" lines that must be equal on all ranks, beside the session's own
};

class Session {
 public:
  enum class State { kPlain, kUnitsMade, kSharded, kSpoiled };

  // source: where the parameters' values come from; null if they are there.
  Session(std::shared_ptr<nn::Module> module, std::shared_ptr<nn::ParameterSource> source);

  State state() const { return state_; }
  // Whether nothing is sharded, and no parameter has values yet.
  bool is_untouched() const { return state_ == State::kPlain && source_ != nullptr; }
  // kWrongState if it is spoiled.
  void check_usable() const;

  // Gives the parameters memory and values unless they have them, or sharding has seen to it.
  // kWrongState if only modules in it are sharded.
  void materialize();

  // These are collective over the mesh. Ranks along its sequence dim, if it has one, share the
  // sequences that a model is given once it is sharded, and parameters are cut over that dim, too
  // (sequence_dim.h). `what` names the call in messages. `read` says what
  // this rank is asked for, or throws, and then the other ranks are told. It names the session,
  // too, since a caller may get even that wrong.
  using Read = std::function<ShardRequest()>;
  // Makes one unit of some modules in the session's.
  static void make_unit(const std::shared_ptr<Mesh>& given, const std::string& what,
                        const Read& read);
  // Makes a unit of each module that the wrap options select, over this mesh and by this policy.
  static void make_units(const std::shared_ptr<Mesh>& given, const std::string& what,
                         const Read& read);
  // Shards the whole module, and reads the values unless they are deferred. The root unit.
  static std::shared_ptr<fsdp::Unit> shard(const std::shared_ptr<Mesh>& given,
                                           const std::string& what, const Read& read);

  // kWrongState unless the module is sharded and its values were deferred.
  void check_awaits_values() const;
  // Both are collective. REQUIRES: check_awaits_values. Error of the first, for all ranks:
  // kInvalidArgument if they would read different values.
  void agree_on_values() const;
  void load_values();

 private:
  struct Agreed;
  static Agreed agree_on(const std::shared_ptr<Mesh>& mesh, const std::string& what,
                         const Read& read);
  static void add_units(const Agreed& agreed, const std::shared_ptr<Mesh>& mesh,
                        const std::string& what, const std::function<void()>& make);
  void check_may_be_sharded(const Mesh& mesh) const;
  void check_units_are_within(const Mesh& mesh) const;
  std::string text() const;
  std::string values_text(fsdp::LoadFrom from) const;
  void change_on_all_ranks(Team& team, const std::string& what,
                           const std::function<void()>& change);

  const std::shared_ptr<nn::Module> module_;
  std::shared_ptr<nn::ParameterSource> source_;  // null once the values are there
  State state_ = State::kPlain;
  std::shared_ptr<Mesh> mesh_;        // of kUnitsMade and kSharded
  std::shared_ptr<fsdp::Unit> root_;  // of kSharded
  fsdp::LoadFrom load_from_ = fsdp::LoadFrom::kEveryRank;
};

}  // namespace fsdp2::train
