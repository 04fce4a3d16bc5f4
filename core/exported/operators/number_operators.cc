#include "core/exported/operators/number_operators.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "core/base/error.h"
#include "core/operators/wrapped_number.h"

namespace fsdp2::exported {

namespace {

using c10::IValue;
using operators::as_real;
using Inputs = c10::ArrayRef<IValue>;

bool is_whole(const IValue& value) { return value.isInt() || value.isBool(); }
int64_t whole(const IValue& value) {
  FSDP2_CHECK(is_whole(value), Code::kInvalidArgument, "expected a whole number, found {}",
              value.toDouble());
  return value.isBool() ? static_cast<int64_t>(value.toBool()) : value.toInt();
}
bool truth(const IValue& value) {
  return value.isDouble() ? value.toDouble() != 0 : whole(value) != 0;
}

[[noreturn]] void refuse_overflow() {
  fail(Code::kInvalidArgument, "a number of the program does not fit into 64 bits");
}
void check_divisor(bool is_zero) {
  FSDP2_CHECK(!is_zero, Code::kInvalidArgument, "a division by 0");
}

// Whole if both inputs are.
template <int64_t (*on_whole)(int64_t, int64_t), double (*on_real)(double, double)>
IValue arithmetic(Inputs inputs) {
  if (is_whole(inputs[0]) && is_whole(inputs[1])) {
    return on_whole(whole(inputs[0]), whole(inputs[1]));
  }
  return on_real(as_real(inputs[0]), as_real(inputs[1]));
}

int64_t add(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? (refuse_overflow(), 0) : sum;
}
int64_t subtract(int64_t a, int64_t b) {
  int64_t difference = 0;
  return __builtin_sub_overflow(a, b, &difference) ? (refuse_overflow(), 0) : difference;
}
int64_t multiply(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? (refuse_overflow(), 0) : product;
}
// Towards minus infinity, as Python divides.
int64_t floor_divide(int64_t a, int64_t b) {
  check_divisor(b == 0);
  if (b == -1) {
    return subtract(0, a);
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}
int64_t modulo(int64_t a, int64_t b) {
  check_divisor(b == 0);
  if (b == -1) {
    return 0;
  }
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
int64_t power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  FSDP2_CHECK(exponent >= 0, Code::kInvalidArgument, "a whole number to the power of {}", exponent);
  for (; exponent > 0; exponent /= 2) {
    result = exponent % 2 != 0 ? multiply(result, base) : result;
    base = exponent > 1 ? multiply(base, base) : base;
  }
  return result;
}
int64_t shift_left(int64_t a, int64_t b) {
  FSDP2_CHECK(b >= 0 && b < 63, Code::kInvalidArgument, "a shift by {}", b);
  return multiply(a, int64_t{1} << b);
}
int64_t shift_right(int64_t a, int64_t b) {
  FSDP2_CHECK(b >= 0, Code::kInvalidArgument, "a shift by {}", b);
  return a >> std::min<int64_t>(b, 63);
}
int64_t smaller(int64_t a, int64_t b) { return std::min(a, b); }
int64_t larger(int64_t a, int64_t b) { return std::max(a, b); }

double add_real(double a, double b) { return a + b; }
double subtract_real(double a, double b) { return a - b; }
double multiply_real(double a, double b) { return a * b; }
double floor_divide_real(double a, double b) {
  check_divisor(b == 0);
  return std::floor(a / b);
}
double modulo_real(double a, double b) {
  check_divisor(b == 0);
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
double power_real(double a, double b) { return std::pow(a, b); }
double smaller_real(double a, double b) { return std::min(a, b); }
double larger_real(double a, double b) { return std::max(a, b); }

template <template <typename> class Compare>
IValue compare(Inputs inputs) {
  if (is_whole(inputs[0]) && is_whole(inputs[1])) {
    return Compare<int64_t>()(whole(inputs[0]), whole(inputs[1]));
  }
  return Compare<double>()(as_real(inputs[0]), as_real(inputs[1]));
}

template <int64_t (*function)(int64_t, int64_t)>
IValue on_whole_numbers(Inputs inputs) {
  return function(whole(inputs[0]), whole(inputs[1]));
}

IValue divide(Inputs inputs) {
  check_divisor(as_real(inputs[1]) == 0);
  return as_real(inputs[0]) / as_real(inputs[1]);
}
IValue negate(Inputs inputs) {
  if (inputs[0].isDouble()) {
    return -inputs[0].toDouble();
  }
  return subtract(0, whole(inputs[0]));
}
IValue same(Inputs inputs) { return inputs[0].isBool() ? IValue(whole(inputs[0])) : inputs[0]; }
IValue both(Inputs inputs) {
  if (inputs[0].isBool() && inputs[1].isBool()) {
    return inputs[0].toBool() && inputs[1].toBool();
  }
  return whole(inputs[0]) & whole(inputs[1]);
}
IValue either(Inputs inputs) {
  if (inputs[0].isBool() && inputs[1].isBool()) {
    return inputs[0].toBool() || inputs[1].toBool();
  }
  return whole(inputs[0]) | whole(inputs[1]);
}
IValue negation(Inputs inputs) { return !truth(inputs[0]); }
IValue choose(Inputs inputs) { return truth(inputs[0]) ? inputs[1] : inputs[2]; }
IValue to_whole(Inputs inputs) {
  if (is_whole(inputs[0])) {
    return whole(inputs[0]);
  }
  const double value = std::trunc(inputs[0].toDouble());
  constexpr double kLimit = 9223372036854775808.0;
  if (!(value >= -kLimit && value < kLimit)) {
    refuse_overflow();
  }
  return static_cast<int64_t>(value);
}
IValue to_real(Inputs inputs) { return as_real(inputs[0]); }
IValue square_root(Inputs inputs) { return std::sqrt(as_real(inputs[0])); }

constexpr std::array<NumberOperator, 27> kOperators = {
    {{"_operator.add", 2, arithmetic<add, add_real>},
     {"_operator.sub", 2, arithmetic<subtract, subtract_real>},
     {"_operator.mul", 2, arithmetic<multiply, multiply_real>},
     {"_operator.floordiv", 2, arithmetic<floor_divide, floor_divide_real>},
     {"_operator.mod", 2, arithmetic<modulo, modulo_real>},
     {"_operator.pow", 2, arithmetic<power, power_real>},
     {"_operator.truediv", 2, divide},
     {"_operator.neg", 1, negate},
     {"_operator.pos", 1, same},
     {"_operator.eq", 2, compare<std::equal_to>},
     {"_operator.ne", 2, compare<std::not_equal_to>},
     {"_operator.lt", 2, compare<std::less>},
     {"_operator.le", 2, compare<std::less_equal>},
     {"_operator.gt", 2, compare<std::greater>},
     {"_operator.ge", 2, compare<std::greater_equal>},
     {"_operator.and_", 2, both},
     {"_operator.or_", 2, either},
     {"_operator.lshift", 2, on_whole_numbers<shift_left>},
     {"_operator.rshift", 2, on_whole_numbers<shift_right>},
     {"math.trunc", 1, to_whole},
     {"torch.sym_min", 2, arithmetic<smaller, smaller_real>},
     {"torch.sym_max", 2, arithmetic<larger, larger_real>},
     {"torch.sym_not", 1, negation},
     {"torch.sym_int", 1, to_whole},
     {"torch.sym_float", 1, to_real},
     {"torch.sym_ite", 3, choose},
     {"torch.sym_sqrt", 1, square_root}}};

}  // namespace

const NumberOperator* find_number_operator(const std::string& target) {
  const auto* found =
      std::find_if(kOperators.begin(), kOperators.end(),
                   [&](const NumberOperator& each) { return target == each.target; });
  return found == kOperators.end() ? nullptr : found;
}

}  // namespace fsdp2::exported
