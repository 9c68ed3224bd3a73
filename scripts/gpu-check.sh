#!/usr/bin/env bash
# What needs a GPU, in one go: builds and runs the gpu suite with the real CUDA and NCCL, once more under compute-sanitizer where that
# is installed, and prints a short table last. Needs a device, CUDA's toolkit with NCCL, g++ 12 or later, Meson and doctest; no MPI.
#   scripts/gpu-check.sh [LOG]     everything that is said goes to LOG (build-gpu/check.log)
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

build="build-gpu"
log=${1:-$build/check.log}
mkdir -p "$build" "$(dirname "$log")"
if ! command -v nvidia-smi >/dev/null || ! nvidia-smi --query-gpu=name,driver_version --format=csv,noheader >"$build/card" 2>&1; then
  echo "gpu-check: no NVIDIA device answers here; nothing was run" >&2
  exit 77
fi

table=()
failed=0
# row NAME COMMAND...: runs it, keeps what it says, and its end and seconds for the table.
row() {
  local name=$1 begin=$SECONDS end=0
  shift
  echo "== $name: $*" >>"$log"
  "$@" >>"$log" 2>&1 || end=$?
  [ "$end" -eq 0 ] || failed=1
  table+=("$(printf '%-44s %-10s %4d s' "$name" "$([ "$end" -eq 0 ] && echo passed || echo "failed ($end)")" $((SECONDS - begin)))")
}

: >"$log"
rm -rf "$build/tree"
row "configure" meson setup "$build/tree" -Dcuda=enabled -Dtests=enabled -Dmpi=disabled -Dexamples=disabled -Ddocs=disabled
row "build" meson compile -C "$build/tree" test_gpu
suite=$build/tree/tests/gpu/test_gpu
row "gpu suite" "$suite"
for tool in memcheck racecheck; do
  if command -v compute-sanitizer >/dev/null; then
    row "gpu suite under $tool" compute-sanitizer --tool "$tool" --error-exitcode 1 "$suite"
  fi
done

echo "$(cat "$build/card"), $(date -u +%F), log in $log"
printf '%s\n' "${table[@]}"
exit "$failed"
