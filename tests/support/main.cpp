// SPDX-License-Identifier: BSL-1.0
// doctest, compiled once for all test programs.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
