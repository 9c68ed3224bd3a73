#!/bin/bash
# Builds and runs a small project that uses topsum the way its users do.
#   check.sh meson|pkgconfig|cmake SOURCE_ROOT [CMAKE_ARGUMENT...]
# All happens in a temporary folder: nothing may depend on this tree. Exit code 77 means skipped.
set -euo pipefail

kind=$1
source_root=$2
shift 2

need() {
  command -v "$1" >/dev/null || { echo "skipped: $1 is not installed"; exit 77; }
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp -R "$source_root/tests/consumer/$kind" "$folder/consumer"
cp "$source_root"/tests/consumer/*.cpp "$folder/consumer/"
cd "$folder/consumer"

install_topsum() {
  meson setup "$folder/build" "$source_root" --prefix "$folder/prefix" \
    -Dtests=disabled -Dexamples=disabled -Dbenchmarks=disabled -Ddocs=disabled -Dmpi=disabled
  meson install -C "$folder/build"
}

case $kind in
  meson)
    # What a user's subprojects/ would hold: a copy of the sources, without build folders.
    mkdir -p subprojects/topsum
    tar -C "$source_root" --exclude='./build*' --exclude=./.git --exclude=./examples/data -cf - . |
      tar -C subprojects/topsum -xf -
    meson setup build
    meson compile -C build
    build/program
    ;;
  pkgconfig)
    need pkg-config
    need make
    install_topsum
    PKG_CONFIG_PATH="$folder/prefix/share/pkgconfig" make program
    ./program
    ;;
  cmake)
    need cmake
    install_topsum
    # Moved after installation: the package must find itself wherever it is.
    mv "$folder/prefix" "$folder/moved"
    cmake -S . -B build -DCMAKE_PREFIX_PATH="$folder/moved" "$@"
    cmake --build build
    ./build/program
    if [ -x build/program_mpi ]; then
      "$source_root/scripts/mpiexec.sh" mpiexec -n 2 ./build/program_mpi
    fi
    ;;
  *)
    echo "unknown kind of consumer: $kind" >&2
    exit 2
    ;;
esac
