// LibTorch by itself: the gradient of the sum of squares.
#include <torch/torch.h>

#include <iostream>

int main() {
  const torch::Tensor x = torch::arange(4, torch::requires_grad().dtype(torch::kFloat));
  x.square().sum().backward();
  std::cout << x.grad() << std::endl;
  return torch::equal(x.grad(), 2 * x.detach()) ? 0 : 1;
}
