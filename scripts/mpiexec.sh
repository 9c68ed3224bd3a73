#!/bin/sh
# Runs an MPI launcher so that it also works as root, in a container, and with more ranks than cores:
#   scripts/mpiexec.sh mpiexec -n 4 PROGRAM [ARGUMENT...]
# The variables are Open MPI's (4.x, then 5.x); other implementations ignore them.
set -eu
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none
exec "$@"
