// Prints what LibTorch says of its own build, for the SBOM: the versions of MKL and oneDNN in it.
#include <ATen/Version.h>

#include <iostream>

int main() {
  std::cout << at::show_config();
  return 0;
}
