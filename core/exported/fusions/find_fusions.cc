#include "core/exported/fusions/find_fusions.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "core/exported/fusions/dataflow.h"
#include "core/exported/fusions/patterns.h"

namespace fsdp2::exported {

namespace {

bool is_sorted_in(const std::vector<int32_t>& nodes, int32_t node) {
  return std::binary_search(nodes.begin(), nodes.end(), node);
}

class FusionFinder {
 public:
  FusionFinder(const Program& program, const std::vector<Operation>& operations,
               const std::vector<bool>& is_written,
               const std::function<bool(const std::vector<int32_t>&)>& may_join)
      : operations_(operations),
        is_written_(is_written),
        may_join_(may_join),
        flow_(program, operations),
        is_taken_(operations.size(), false) {}

  std::vector<Fusion> find() {
    std::vector<Fusion> found;
    for (const Operation& last : operations_) {
      if (auto fusion = find_at(last)) {
        for (const int32_t node : fusion->nodes) {
          is_taken_[static_cast<size_t>(node)] = true;
        }
        found.push_back(std::move(*fusion));
      }
    }
    return found;
  }

 private:
  std::optional<Fusion> find_at(const Operation& last) const {
    for (const Pattern& pattern : patterns_) {
      if (is_operator(last, pattern.last) && flow_.maker(result_of(last)) == &last) {
        auto fusion = pattern.match(flow_, last);
        if (fusion && may_be(*fusion, last)) {
          return fusion;
        }
      }
    }
    return std::nullopt;
  }

  // kNoValue where nobody reads it.
  static ValueId result_of(const Operation& operation) {
    const std::vector<Output>& outputs = operation.node->outputs;
    return outputs.empty() || outputs[0].values.empty() ? kNoValue : outputs[0].values[0];
  }

  bool may_be(const Fusion& fusion, const Operation& last) const {
    const std::vector<int32_t>& nodes = fusion.nodes;
    return nodes.back() == flow_.node_of(last) && is_unwritten(fusion.inputs) &&
           is_unwritten(fusion.relied_on) && are_made_before(fusion.inputs, nodes) &&
           std::all_of(nodes.begin(), nodes.end(),
                       [&](int32_t node) { return may_take(node, nodes); }) &&
           may_join_(nodes);
  }

  // By other nodes than these.
  bool are_made_before(const std::vector<ValueId>& inputs,
                       const std::vector<int32_t>& nodes) const {
    return std::none_of(inputs.begin(), inputs.end(), [&](ValueId input) {
      const Operation* maker = flow_.maker(input);
      return maker != nullptr && is_sorted_in(nodes, flow_.node_of(*maker));
    });
  }

  bool may_take(int32_t node, const std::vector<int32_t>& nodes) const {
    const Node& last = *flow_.operation(nodes.back()).node;
    const Node& own = *flow_.operation(node).node;
    return !is_taken_[static_cast<size_t>(node)] && own.mode == last.mode &&
           std::all_of(own.outputs.begin(), own.outputs.end(), [&](const Output& output) {
             return is_unwritten(output.values) &&
                    (node == nodes.back() || is_read_in(nodes, output.values));
           });
  }

  bool is_read_in(const std::vector<int32_t>& nodes, const std::vector<ValueId>& values) const {
    return std::all_of(values.begin(), values.end(), [&](ValueId value) {
      const std::vector<int32_t>& readers = flow_.readers(value);
      return !flow_.is_result(value) &&
             std::all_of(readers.begin(), readers.end(),
                         [&](int32_t reader) { return is_sorted_in(nodes, reader); });
    });
  }

  bool is_unwritten(const std::vector<ValueId>& values) const {
    return std::none_of(values.begin(), values.end(), [&](ValueId value) {
      return value == kNoValue || is_written_[static_cast<size_t>(value)];
    });
  }

  const std::vector<Operation>& operations_;
  const std::vector<bool>& is_written_;
  const std::function<bool(const std::vector<int32_t>&)>& may_join_;
  const Dataflow flow_;
  // Where two have the same last node, the first that matches is taken.
  const std::array<Pattern, 4> patterns_ = {{{"mul.Tensor", match_rms_norm},
                                             {"mul.Tensor", match_gate},
                                             {"add.Tensor", rotary_matches()},
                                             {"linear.default", match_linear}}};
  std::vector<bool> is_taken_;  // by node
};

}  // namespace

std::vector<Fusion> find_fusions(const Program& program, const std::vector<Operation>& operations,
                                 const std::vector<bool>& is_written,
                                 const std::function<bool(const std::vector<int32_t>&)>& may_join) {
  return FusionFinder(program, operations, is_written, may_join).find();
}

}  // namespace fsdp2::exported
