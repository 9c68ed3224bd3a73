#!/bin/bash
# Installs what is missing, builds, and trains a small network on real digits with 4 MPI ranks:
# with a dense allreduce, with Ok-Topk at a density of 1 %, and with the same layer by layer.
#   scripts/demo.sh [OPTION...]   options go to the program: scripts/demo.sh --help
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

scripts/setup.sh
build="build-release"
# Warnings that a newer compiler invents must not stop who only wants to see it run.
configure "$build" --buildtype=release -Dwerror=false \
  -Dmpi=enabled -Dexamples=enabled -Dtests=disabled -Dbenchmarks=disabled -Ddocs=disabled
meson compile -C "$build" 04_train_mnist

# The build chose the MPI, so it knows the launcher that belongs to it.
launcher=$(cat "$build/examples/mpi_launcher")
if [ $# -eq 0 ]; then
  set -- --compare
fi
exec scripts/mpiexec.sh "$launcher" -n 4 "$build/examples/04_train_mnist" "$@"
