#!/bin/sh
# Prints the version as MAJOR.MINOR.PATCH. It is written in one place only: include/topsum/version.hpp.
set -eu
sed -n 's/^#define TOPSUM_VERSION_[A-Z]* \([0-9]*\)$/\1/p' "$(dirname "$0")/../include/topsum/version.hpp" | paste -sd. -
