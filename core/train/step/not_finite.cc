#include "core/train/step/not_finite.h"

#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

namespace fsdp2::train {

namespace {

// Something bad: the index of a micro batch or a parameter, and who has it.
struct Place {
  int64_t index;
  int64_t rank;
  bool is_nan;
};

// A number that is larger the earlier a place comes (by index, then by rank): the largest over all
// ranks is the first place of all. Exact in a double: 2^53 is beyond any number of parameters and
// ranks.
double to_number(const std::optional<Place>& place, int64_t ranks) {
  return place ? -static_cast<double>(2 * (place->index * ranks + place->rank) +
                                      (place->is_nan ? 1 : 0))
               : -std::numeric_limits<double>::infinity();
}

std::optional<Place> to_place(double number, int64_t ranks) {
  if (std::isinf(number)) {
    return std::nullopt;
  }
  const auto code = static_cast<int64_t>(-number);
  return Place{code / 2 / ranks, code / 2 % ranks, code % 2 == 1};
}

std::optional<Place> first_bad_loss(const std::vector<double>& losses, int64_t rank) {
  const auto bad =
      std::find_if(losses.begin(), losses.end(), [](double loss) { return !std::isfinite(loss); });
  return bad == losses.end() ? std::nullopt
                             : std::optional<Place>({bad - losses.begin(), rank, std::isnan(*bad)});
}

std::string kind_of(const Place& place) { return place.is_nan ? "NaN" : "infinite"; }

std::string text_of(const std::optional<Place>& loss, const std::optional<Place>& gradient,
                    fsdp::Unit& root, bool is_exact) {
  const auto rank_in_job = [&](int64_t rank) {
    return root.mesh().team().rank_in_job(static_cast<int>(rank));
  };
  std::string text;
  if (loss) {
    text = fmt::format("the loss of rank {} is {} (its micro batch {})", rank_in_job(loss->rank),
                       kind_of(*loss), loss->index);
  }
  if (gradient) {
    const auto* param = root.parameters()[static_cast<size_t>(gradient->index)];
    text += fmt::format("{}the gradient of {}{} is {} on rank {}", loss ? ", " : "", param->name(),
                        is_exact ? "" : " or of another parameter of its unit", kind_of(*gradient),
                        rank_in_job(gradient->rank));
  }
  return text.empty() ? "the gradient norm is infinite, though no gradient is" : text;
}

}  // namespace

std::string describe_not_finite(fsdp::Unit& root, const std::vector<double>& losses,
                                const std::optional<BadGradient>& gradient, bool is_exact) {
  Team& team = root.mesh().team();
  std::optional<Place> place;
  if (gradient) {
    place = Place{static_cast<int64_t>(gradient->parameter), team.rank(), gradient->has_nan};
  }
  const int64_t ranks = team.size();
  const at::Tensor first =
      at::tensor({to_number(first_bad_loss(losses, team.rank()), ranks), to_number(place, ranks)},
                 at::device(at::kCPU).dtype(at::kDouble));
  team.control().all_reduce(first, ReduceOp::kMax).wait();
  const double* numbers = first.const_data_ptr<double>();
  return text_of(to_place(numbers[0], ranks), to_place(numbers[1], ranks), root, is_exact);
}

}  // namespace fsdp2::train
