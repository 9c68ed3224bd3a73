#!/bin/bash
# Checks the sources without running them; ends with the line `N passed, N failed, N skipped`.
#   scripts/lint.sh [JOB...]   all jobs, or those named, e.g. scripts/lint.sh format spelling
# scripts/setup.sh --lint installs the tools.
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

files() { # files [PATTERN...]: those under version control, and new ones that could be
  git ls-files --cached --others --exclude-standard -- "$@" | while read -r file; do
    [ ! -f "$file" ] || echo "$file"
  done
}

none_of() { # none_of REGEX [PATTERN...]: no line of these files matches
  local regex=$1
  shift
  # The first sign in brackets keeps an expression from finding itself.
  ! files "$@" | xargs -d '\n' grep -nIE -- "$regex"
}

job_format() {
  files '*.hpp' '*.cuh' '*.cpp' '*.cu' | xargs -d '\n' clang-format-16 --dry-run -Werror
}

# The bugs and names that clang-tidy finds, in all headers and in what users read first.
job_tidy() {
  [ -f build/compile_commands.json ] || configure build
  {
    find build/tests/headers -name '*all.cpp'
    files 'examples/*.cpp'
  } | xargs -d '\n' -P "$(nproc)" -n 1 \
    clang-tidy-16 -p build --quiet --extra-arg=-Wno-unknown-warning-option 2>&1 | # the build may be g++'s
    grep -vE '^[0-9]+ warnings? generated|^Suppressed [0-9]+ warnings|^Use -header-filter'
  return "${PIPESTATUS[1]}"
}

# clang-tidy 16 knows no case for concepts, and cannot see how wide a macro's prefix should be.
job_names() {
  none_of '^[[:space:]]*[c]oncept [a-z0-9_]*[A-Z]' '*.hpp' '*.cuh' '*.cpp' &&
    ! files 'include/*' | xargs -d '\n' grep -nE '^# *define ' | grep -vE 'define (TOPSUM|OMPI_SKIP|MPICH_SKIP)_'
}

job_spelling() {
  files ':!*.gz' | xargs -d '\n' codespell --ignore-words-list=coo
}

job_shell() {
  files '*.sh' .ci/run | xargs -d '\n' shellcheck -x
}

# One version everywhere.
job_version() {
  local version
  version=$(scripts/version.sh)
  [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] &&
    grep -m 1 '^## ' CHANGELOG.md | grep -F "## $version " &&
    grep -Fx "version: $version" CITATION.cff
}

# Paths of one machine help nobody on another.
job_paths() {
  none_of '(^|[^[:alnum:]_.}])[/](home|root|work|Users|mnt)/' ':!*.gz'
}

# What is left to do belongs in the tracker, and what a merge left behind nowhere.
job_marks() {
  none_of '\<([T]ODO|[F]IXME|[X]XX)\>|^(<{7}|>{7}) ' ':!*.gz'
}

# A test that no list names never runs.
job_listed() {
  local file folder status=0
  while read -r file; do
    folder=$(dirname "$file")
    while [ ! -f "$folder/meson.build" ]; do
      folder=$(dirname "$folder")
    done
    if ! grep -qF "${file#"$folder"/}" "$folder/meson.build"; then
      echo "$folder/meson.build does not name $file"
      status=1
    fi
  done < <(files 'tests/*.cpp' ':!tests/consumer')
  return "$status"
}

# Every public type, concept and function has a comment of its own. Members that their type's comment explains,
# deduction guides and specialisations may do without.
job_documented() {
  local folder said
  folder=$(mktemp -d)
  [ -f build/docs/Doxyfile ] || configure build
  said=$(sed 's/^WARN_IF_UNDOCUMENTED.*/WARN_IF_UNDOCUMENTED = YES/; s/^WARN_AS_ERROR.*/WARN_AS_ERROR = NO/
    s|^OUTPUT_DIRECTORY.*|OUTPUT_DIRECTORY = '"$folder"'|' build/docs/Doxyfile | doxygen - 2>&1 |
    grep -E '(Compound .*|of namespace topsum(::[a-z_]+)*) is not documented' | grep -vE ' -> |Compound [^ ]*<|::(state|workspace) is') || true
  rm -rf "$folder"
  printf '%s\n' "$said"
  [ -z "$said" ]
}

# The headers that bring in a library are the ones whose name says so.
job_includes() {
  local status=0 header owner
  for owner in mpi.h:include/topsum/transport/detail/mpi_calls.hpp nccl.h:include/topsum/transport/detail/nccl_calls.hpp \
    cuda_fp16.h:include/topsum/core/cuda_values.hpp cuda_bf16.h:include/topsum/core/cuda_values.hpp; do
    while read -r header; do
      if [ "$header" != "${owner#*:}" ]; then
        echo "$header includes <${owner%%:*}>, which only ${owner#*:} may"
        status=1
      fi
    done < <(files 'include/*' | xargs -d '\n' grep -lF "#include <${owner%%:*}>")
  done
  return "$status"
}

jobs=("$@")
if [ ${#jobs[@]} -eq 0 ]; then
  jobs=(format tidy names spelling shell version paths marks listed documented includes)
fi
passed=0
failed=0
for job in "${jobs[@]}"; do
  if output=$("job_$job" 2>&1); then
    echo "passed $job"
    passed=$((passed + 1))
  else
    echo "FAILED $job"
    printf '%s\n' "$output" | sed 's/^/  /'
    failed=$((failed + 1))
  fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
