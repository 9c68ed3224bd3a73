# Shared by the scripts here; meant to be sourced. Leaves the shell in the root of the source tree.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Ubuntu 22.04's g++ is version 11; scripts/setup.sh installs 12 beside it.
if [ -z "${CXX:-}" ] && command -v g++-12 >/dev/null && [ "$(g++ -dumpversion | cut -d. -f1)" -lt 12 ]; then
  export CXX=g++-12
fi

# configure FOLDER [MESON_ARGUMENT...]: makes a build folder, or brings one that is there up to date.
# What Meson says is shown when it fails.
configure() {
  local folder=$1 again=() said
  shift
  if [ -f "$folder/build.ninja" ]; then
    again=(--reconfigure) # each time: new headers are found by looking
  fi
  if ! said=$(meson setup "${again[@]}" "$folder" "$@" 2>&1); then
    printf '%s\n' "$said" >&2
    return 1
  fi
}
