#!/bin/bash
# Installs what is missing, builds, runs the tests, ends with the line `N passed, N failed, N skipped`.
#   scripts/test.sh [--build FOLDER] [--suites A,B,...] [MESON_SETUP_ARGUMENT...]
# Examples: scripts/test.sh --suites unit,law
#           CXX=clang++-16 scripts/test.sh --build build-asan -Db_sanitize=address,undefined -Db_lundef=false
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

build=build
suites=()
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=$2 && shift 2 ;;
    --suites) IFS=, read -ra suites <<<"$2" && shift 2 ;;
    --help) sed -n '2,5s/^# //p' "${BASH_SOURCE[0]}" && exit 0 ;;
    *) break ;;
  esac
done

scripts/setup.sh
configure "$build" "$@"
# All of it: that everything compiles without warnings is part of the test, except where suites were chosen.
test_arguments=(--no-rebuild --print-errorlogs)
if [ ${#suites[@]} -gt 0 ]; then
  test_arguments=(--print-errorlogs "${suites[@]/#/--suite=}")
else
  meson compile -C "$build" || { echo "0 passed, 1 failed, 0 skipped" && exit 1; }
fi

rm -f "$build/meson-logs/testlog.json"
status=0
meson test -C "$build" "${test_arguments[@]}" || status=$?
[ -f "$build/meson-logs/testlog.json" ] || { echo "0 passed, 1 failed, 0 skipped" && exit 1; }
python3 scripts/tally.py "$build" || status=1
exit "$status"
