#!/bin/bash
# Runs the benchmarks and renders docs/performance.md from what they print.
#   scripts/bench.sh [PART...]   all parts, or those named: select codec allreduce shaped scale training render
# TOPSUM_SCALE_RANKS="4 16" and TOPSUM_SCALE_N=1048576 make `scale` smaller: 256 ranks take most of its time.
# Parts keep their lines in build-perf/results, so that one can be run anew and all rendered. The machine should be quiet; all parts
# take about an hour on 2 cores. `shaped` needs root, `scale` Debian's package libsimgrid-dev, `render` gnuplot: installed here if
# that can be done.
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(select codec allreduce shaped scale training render)

scripts/setup.sh --bench
build="build-perf"
results=$build/results
configure "$build" -Dbenchmarks=enabled -Dmpi=enabled -Dexamples=enabled -Dtests=disabled -Ddocs=disabled
mkdir -p "$results"
launcher=(scripts/mpiexec.sh mpiexec.openmpi)

# record NAME COMMAND...: keeps the lines that are JSON, after one that says where, when and by what.
record() {
  local name=$1 line
  shift
  echo "== $*" >&2
  line=$(python3 scripts/render_performance.py --head "$*")
  {
    echo "$line"
    "$@" | grep '^{'
  } >"$results/$name.jsonl.new"
  mv "$results/$name.jsonl.new" "$results/$name.jsonl"
}

part_select() {
  meson compile -C "$build" select
  record select "$build/bench/select" --json
}
part_codec() {
  meson compile -C "$build" codec
  record codec "$build/bench/codec" --json
}
part_allreduce() {
  meson compile -C "$build" allreduce
  local ranks
  for ranks in 2 4; do
    record "allreduce-$ranks" "${launcher[@]}" -n "$ranks" "$build/bench/allreduce" --json
  done
}
part_shaped() {
  meson compile -C "$build" allreduce
  local ranks
  for ranks in 2 4 8; do
    record "shaped-$ranks" scripts/shaped.sh "$ranks" 1gbit "$build/bench/allreduce" --period 4 --rounds 3 --link 1e9 --json
  done
}

# simulate NAME PLATFORM RANKS ARGUMENT...: twice, the second time with a computation that takes no time: what is left is
# communication.
simulate() {
  local name=$1 platform=$2 ranks=$3 mode
  shift 3
  for mode in yes no; do
    record "scale-$name-$platform-$ranks-$mode" smpirun -np "$ranks" -platform "bench/platforms/$platform.xml" \
      -hostfile "$build/scale_hosts" --log=root.thres:error --cfg=smpi/coll-selector:ompi --cfg=smpi/host-speed:1Gf \
      "--cfg=smpi/simulate-computation:$mode" \
      "$build/scale_simulated" "$@"
  done
}
part_scale() {
  meson compile -C "$build" scale
  smpicxx -std=c++20 -O3 -Iinclude bench/scale.cpp -o "$build/scale_simulated"
  seq -f 'node%.0f' 0 255 >"$build/scale_hosts"
  local platform ranks n density told
  # What `automatic` is told of the links; gamma as its probe finds it on the machine this was written on.
  local -A rates=([25gbit]="--alpha 5e-6 --beta 3.2e-10 --gamma 4e-9" [10gbit]="--alpha 20e-6 --beta 8e-10 --gamma 4e-9")
  for platform in 25gbit 10gbit; do
    read -ra told <<<"${rates[$platform]}"
    for ranks in ${TOPSUM_SCALE_RANKS:-4 16 64 256}; do
      for n in ${TOPSUM_SCALE_N:-1048576 4194304}; do
        [ "$platform-$n" = 10gbit-4194304 ] && continue # the slower network for the smaller gradient alone
        for density in 0.01 0.001; do
          simulate "weak-$n-$density" "$platform" "$ranks" --n "$n" --density "$density" --room 12 --steps 2 \
            "${told[@]}"
        done
      done
    done
  done
  for ranks in 2 4 8 16; do
    simulate strong-16777216 25gbit "$ranks" --n 16777216 --room 12 --steps 2
  done
  # The simulator against the real thing: as many ranks as there are cores, on links that are shaped; and the same simulated.
  record scale-check-real scripts/shaped.sh 4 1gbit "$build/bench/scale"
  record scale-check-simulated smpirun -np 4 -platform bench/platforms/1gbit.xml -hostfile "$build/scale_hosts" \
    --log=root.thres:error --cfg=smpi/coll-selector:ompi --cfg=smpi/host-speed:1Gf "$build/scale_simulated"
}
part_training() {
  meson compile -C "$build" 04_train_mnist
  local exchange density
  python3 scripts/render_performance.py --head "04_train_mnist --epochs 30, 4 ranks" >"$results/training.jsonl"
  for exchange in dense gather_all interleaved_quota ok_topk; do
    for density in 0.01 0.001; do
      [ "$exchange" = dense ] && [ "$density" != 0.01 ] && continue
      "${launcher[@]}" -n 4 "$build/examples/04_train_mnist" --exchange "$exchange" --density "$density" |
        python3 scripts/render_performance.py --training "$exchange" "$density" >>"$results/training.jsonl"
    done
  done
}
part_render() { python3 scripts/render_performance.py "$results"; }

for part in "${parts[@]}"; do
  case $part in
    select) part_select ;;
    codec) part_codec ;;
    allreduce) part_allreduce ;;
    shaped) part_shaped ;;
    scale) part_scale ;;
    training) part_training ;;
    render) part_render ;;
    *) echo "there is no part '$part'" >&2 && exit 2 ;;
  esac
done
