#!/bin/bash
# Installs what building and testing need and this machine lacks (Debian 12 and 13, Ubuntu 22.04 and 24.04).
#   scripts/setup.sh          compiler, Meson, both MPIs, doctest, zlib
#   scripts/setup.sh --bench  also what scripts/bench.sh needs: SimGrid, gnuplot, iproute2
#   scripts/setup.sh --lint   also what .ci/run checks with: clang, clang-format, clang-tidy, doxygen, ...
# Without root (or sudo that asks for no password) or without apt it prints what is missing, and fails.
set -euo pipefail

packages=(meson ninja-build g++ libopenmpi-dev openmpi-bin mpich libmpich-dev doctest-dev zlib1g-dev
  pkg-config cmake make)
if grep -qs '^VERSION_ID="22.04"' /etc/os-release; then
  packages+=(g++-12) # g++ is version 11 there
fi
case ${1:-} in
  "") ;;
  --bench)
    packages+=(libsimgrid-dev gnuplot-nox iproute2 python3)
    ;;
  --lint)
    packages+=(clang-16 libclang-rt-16-dev clang-format-16 clang-tidy-16 doxygen codespell shellcheck)
    ;;
  *)
    echo "usage: scripts/setup.sh [--bench | --lint]" >&2
    exit 2
    ;;
esac

# pkg-config became a name that pkgconf provides: what counts is that something installed provides it.
installed=$(dpkg-query -W -f='${db:Status-Status} ${Package} ${Provides}\n' 2>/dev/null |
  sed -n 's/^installed //p' | tr ',' ' ' | tr -s ' ' '\n' | sort -u) || installed=
missing=()
for package in "${packages[@]}"; do
  grep -qxF -- "$package" <<<"$installed" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if ! command -v apt-get >/dev/null; then
  refusal="there is no apt here"
elif [ "$(id -u)" -ne 0 ] && ! { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }; then
  refusal="this needs root"
else
  refusal=
  [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
fi
if [ -n "$refusal" ]; then
  {
    echo "Cannot install what is missing: $refusal. Needed (by Debian's names):"
    printf '  %s\n' "${missing[@]}"
  } >&2
  exit 1
fi

echo "Installing: ${missing[*]}"
"${as_root[@]}" apt-get -q update
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "${missing[@]}"
