#include "core/train/session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/comm/agreement.h"
#include "core/comm/sequence_dim.h"
#include "core/fsdp/fully_shard.h"
#include "core/fsdp/sequence_group.h"
#include "core/fsdp/tree.h"
#include "core/nn/buffers.h"
#include "core/nn/computation.h"
#include "core/train/module_path.h"

namespace fsdp2::train {

// What all ranks have looked at together.
struct Session::Agreed {
  ShardRequest request;
  ResolvedShardOptions options;
  NamedModules modules;  // at the request's paths
};

namespace {

std::string computation_text(const nn::Module& root) {
  std::string text;
  for (const auto& named : root.named_modules()) {
    if (const auto* computes = dynamic_cast<const nn::Computation*>(named.value().get())) {
      const std::string place = named.key().empty() ? "" : named.key() + ": ";
      for (const auto& [key, value] : computes->computation_lines()) {
        text += fmt::format("{}{}={}\n", place, key, value);
      }
    }
  }
  return text;
}

// Whether there are others that could differ.
bool has_peers(const Team& team) { return team.size() > 1 && !team.is_fake(); }

// Tells once that no part of the module has become a unit, unless that was asked for: all of it is
// then gathered at once, which is seldom meant.
void warn_of_one_unit(const nn::Module& root, const ShardOptions& options, const Mesh& mesh) {
  if (options.wrap_kinds || !has_peers(mesh.team()) || mesh.team().rank() != 0 ||
      mesh.size(mesh.ndim() - 1) == 1 || fsdp::Tree::units_below(root).size() > 1) {
    return;
  }
  int parts = 0;
  std::set<std::string> kinds;
  for (const auto& named : root.named_modules("", /*include_self=*/false)) {
    const auto* part = dynamic_cast<const nn::Module*>(named.value().get());
    if (part != nullptr && !part->parameters().empty()) {
      ++parts;
      kinds.insert(part->kind());
    }
  }
  if (parts > 1) {
    const std::string lower =
        options.wrap_min_numel > 0
            ? fmt::format(", lower options.wrap_min_numel ({})", options.wrap_min_numel)
            : "";
    log(LogLevel::kWarning, "fsdp",
        "{} is one unit, gathered as a whole: no module in it is a unit of its own; name classes "
        "in options.wrap_kinds (there are {}){}, or set options.wrap to FSDP2_WRAP_NONE if that is "
        "meant",
        root.kind(), fmt::join(kinds, ", "), lower);
  }
}

// The first name of a tied parameter that the weights have gives its values. What cannot be read
// here is no reason to fail: the values have been.
void warn_of_untied(const std::vector<std::string>& names, const nn::ParameterSource& source) {
  std::vector<std::string> there;
  std::copy_if(names.begin(), names.end(), std::back_inserter(there),
               [&](const std::string& name) { return source.contains(name); });
  try {
    for (size_t i = 1; i < there.size(); ++i) {
      if (source.mark_of(there[i]) != source.mark_of(there[0])) {
        log(LogLevel::kWarning, "checkpoint",
            "{} among the weights is not used, since the model ties it to {}, which has other "
            "values or another dtype; see whether config.json is that of these weights",
            there[i], there[0]);
      }
    }
  } catch (const Error& error) {
    log(LogLevel::kWarning, "checkpoint", "a tie was not compared: {}", error.message());
  }
}

void warn_of_unused(const nn::Module& module, const nn::ParameterSource& source) {
  std::vector<std::string> names;
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(module)) {
    names.insert(names.end(), parameter.names.begin(), parameter.names.end());
    warn_of_untied(parameter.names, source);
  }
  const std::vector<std::string> unused = source.unused(names);
  if (!unused.empty()) {
    constexpr size_t kNamesInMessage = 8;
    log(LogLevel::kWarning, "checkpoint",
        "tensors among the weights are not used, since the model has no such parameter ({}): {}; "
        "see whether config.json is that of these weights",
        unused.size(), list_some(unused, kNamesInMessage));
  }
}

}  // namespace

Session::Session(std::shared_ptr<nn::Module> module, std::shared_ptr<nn::ParameterSource> source)
    : module_(std::move(module)), source_(std::move(source)) {}

void Session::check_usable() const {
  FSDP2_CHECK(
      state_ != State::kSpoiled, Code::kWrongState,
      "module: sharding it or reading its parameters has failed half-way: destroy it and make "
      "another");
}

void Session::materialize() {
  FSDP2_CHECK(
      state_ != State::kUnitsMade, Code::kWrongState,
      "module: modules in it are sharded as units: expected fsdp2_shard_create, which makes "
      "the rest the root, before the first forward");
  if (source_ == nullptr || state_ == State::kSharded) {
    return;
  }
  const State before = std::exchange(state_, State::kSpoiled);
  nn::materialize(*module_, *source_);
  warn_of_unused(*module_, *source_);
  state_ = before;
  source_ = nullptr;
}

void Session::check_may_be_sharded(const Mesh& mesh) const {
  check_usable();
  FSDP2_CHECK(state_ != State::kSharded, Code::kWrongState,
              "module: expected one that is not sharded yet, found one that is; make units of the "
              "modules in it before it");
  FSDP2_CHECK(mesh_ == nullptr || &mesh_->world() == &mesh.world(), Code::kInvalidArgument,
              "mesh: expected one of the same job as {}, which modules of this one are sharded "
              "over, found {}",
              mesh_ ? mesh_->to_string() : "", mesh.to_string());
}

// What ranks must have alike of the module as it is now.
std::string Session::text() const {
  std::string text = fmt::format("model={}\n", module_->kind());
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(*module_)) {
    text += fmt::format("{}={} {}{}\n", parameter.names.front(),
                        c10::toString(parameter.tensor.scalar_type()),
                        fmt::join(parameter.tensor.sizes(), "x"),
                        parameter.tensor.requires_grad() ? "" : " frozen");
  }
  for (const nn::NamedBuffer& buffer : nn::persistent_buffers(*module_)) {
    text +=
        fmt::format("buffer {}={} {}\n", buffer.name, c10::toString(buffer.tensor.scalar_type()),
                    fmt::join(buffer.tensor.sizes(), "x"));
  }
  return text;
}

// What tells the values that are to be read from others.
std::string Session::values_text(fsdp::LoadFrom from) const {
  std::string text;
  if (source_ == nullptr || from == fsdp::LoadFrom::kRankZero) {
    return text;
  }
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(*module_)) {
    const std::string& name = nn::name_in(*source_, parameter.names);
    if (source_->contains(name)) {
      text += fmt::format("values of {}={}\n", name, source_->mark_of(name));
    }
  }
  return text;
}

// Changes nothing.
Session::Agreed Session::agree_on(const std::shared_ptr<Mesh>& mesh, const std::string& what,
                                  const Read& read) {
  Agreed agreed;
  agree(mesh->team(), what, [&] {
    agreed.request = read();
    const Session& session = *agreed.request.session;
    session.check_may_be_sharded(*mesh);
    agreed.options = resolve(agreed.request.options, *session.module_, *mesh);
    std::string text = session.text() + agreed.request.text + agreed.options.text;
    if (const std::vector<std::string>& paths = agreed.request.paths; !paths.empty()) {
      agreed.modules = find_outermost_modules(session.module_, paths, "names");
      text = fmt::format("modules={}\n", fmt::join(paths, ",")) + text;
    }
    return text;
  });
  return agreed;
}

// Leaves the session spoiled for the caller to say what it has become; after an error too, unless
// this rank has failed with nothing changed.
void Session::change_on_all_ranks(Team& team, const std::string& what,
                                  const std::function<void()>& change) {
  const auto count_units = [&] { return fsdp::Tree::units_below(*module_).size(); };
  const size_t units_before = count_units();
  const State before = std::exchange(state_, State::kSpoiled);
  agree(team, what, [&] {
    try {
      change();
    } catch (...) {
      state_ = count_units() == units_before ? before : State::kSpoiled;
      throw;
    }
    return std::string();
  });
}

void Session::add_units(const Agreed& agreed, const std::shared_ptr<Mesh>& mesh,
                        const std::string& what, const std::function<void()>& make) {
  Session& session = *agreed.request.session;
  session.change_on_all_ranks(mesh->team(), what, make);
  session.mesh_ = mesh;
  session.state_ = State::kUnitsMade;
}

void Session::make_unit(const std::shared_ptr<Mesh>& given, const std::string& what,
                        const Read& read) {
  const std::shared_ptr<Mesh> mesh = parameter_mesh(given);
  const Agreed agreed = agree_on(mesh, what, read);
  add_units(agreed, mesh, what, [&] {
    const fsdp::UnitRequest unit{agreed.modules.names, agreed.modules.modules, {}};
    in_context(fmt::format("names '{}'", fmt::join(agreed.request.paths, "', '")), [&] {
      FSDP2_CHECK(fsdp::make_unit(unit, mesh, agreed.options.policy) != nullptr, Code::kWrongState,
                  "no parameters are left to shard: a module above is sharded already (shard "
                  "children before their parents), or there are none");
    });
  });
}

void Session::make_units(const std::shared_ptr<Mesh>& given, const std::string& what,
                         const Read& read) {
  const std::shared_ptr<Mesh> mesh = parameter_mesh(given);
  const Agreed agreed = agree_on(mesh, what, read);
  add_units(agreed, mesh, what, [&] {
    const int made = fsdp::wrap_modules(agreed.request.session->module_, mesh,
                                        agreed.options.policy, agreed.options.wrap);
    FSDP2_CHECK(
        made > 0, Code::kWrongState,
        "no unit was made: the options select no module, or modules above or inside of "
        "them have taken their parameters already (make units of children before their parents)");
  });
}

// The units made so far are shards of the whole, so their ranks must all be ranks of its mesh.
void Session::check_units_are_within(const Mesh& mesh) const {
  const std::vector<int>& all = mesh.team().members();
  for (const fsdp::Tree::Found& found : fsdp::Tree::units_below(*module_)) {
    const std::vector<int>& some = found.unit->mesh().team().members();
    FSDP2_CHECK(std::includes(all.begin(), all.end(), some.begin(), some.end()),
                Code::kInvalidArgument,
                "mesh: module '{}' is sharded over the ranks {}, not all of which are in {}: "
                "expected a mesh of at least these",
                found.name, fmt::join(some, ", "), mesh.to_string());
  }
}

std::shared_ptr<fsdp::Unit> Session::shard(const std::shared_ptr<Mesh>& given,
                                           const std::string& what, const Read& read) {
  const std::shared_ptr<Mesh> mesh = parameter_mesh(given);
  const int64_t sequence_size = sequence_ranks(*given);
  const Agreed agreed = agree_on(mesh, what, [&] {
    ShardRequest request = read();
    request.session->check_may_be_sharded(*mesh);
    request.session->check_units_are_within(*mesh);
    if (has_peers(mesh->team())) {
      request.text += computation_text(*request.session->module_);
      if (!request.options.defer_values) {
        request.text += request.session->values_text(request.options.load_from);
      }
    }
    if (sequence_size > 1) {
      in_context("mesh",
                 [&] { nn::check_sequence_ranks(*request.session->module_, sequence_size); });
    }
    return request;
  });
  Session& session = *agreed.request.session;
  std::shared_ptr<fsdp::Unit> root;
  // Its hook comes before the root's, which moves inputs to the device.
  const auto sequences =
      sequence_size > 1 ? fsdp::SequenceGroup::share(*session.module_, given) : nullptr;
  try {
    session.change_on_all_ranks(mesh->team(), what, [&] {
      root = fsdp::fully_shard_wrapped(session.module_, mesh, agreed.options.policy,
                                       agreed.options.wrap);
    });
  } catch (...) {
    fsdp::SequenceGroup::unshare(*session.module_, sequences);
    throw;
  }
  root->tree();
  session.root_ = root;
  session.load_from_ = agreed.request.options.load_from;
  if (session.source_ != nullptr && !agreed.request.options.defer_values) {
    session.load_values();
  }
  session.mesh_ = mesh;
  session.state_ = State::kSharded;
  log(LogLevel::kInfo, "fsdp", "sharded {} over {}", session.module_->kind(), given->to_string());
  warn_of_one_unit(*session.module_, agreed.request.options, *mesh);
  return root;
}

void Session::check_awaits_values() const {
  FSDP2_CHECK(source_ != nullptr && root_ != nullptr, Code::kWrongState,
              "shard: expected one without values (defer_values), found one that has them");
}

void Session::agree_on_values() const {
  if (has_peers(mesh_->team())) {
    agree(mesh_->team(), "shard", [&] { return values_text(load_from_); });
  }
}

void Session::load_values() {
  fsdp::load_parameters(*root_, *source_, load_from_);
  if (root_->mesh().team().rank() == 0) {  // all ranks read the same files
    warn_of_unused(*module_, *source_);
  }
  source_ = nullptr;
}

}  // namespace fsdp2::train
