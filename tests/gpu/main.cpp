// SPDX-License-Identifier: BSL-1.0
// doctest's main, where there is a device: elsewhere the suite is skipped with a sentence.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cuda_runtime_api.h>

#include <cstdio>

int main(int argc, char** argv) {
  int devices = 0;
  cudaError_t const code = cudaGetDeviceCount(&devices);
  if (code != cudaSuccess || devices == 0) {
    std::printf("skipped: no CUDA device here (%s)\n", cudaGetErrorString(code));
    return 77;
  }
  return doctest::Context{argc, argv}.run();
}
