#!/bin/bash
# Runs an MPI program (Open MPI) with each rank behind a network link of its own, of limited rate: a network namespace a rank, joined
# by a bridge, both directions of each link shaped by `tc tbf`.
#   scripts/shaped.sh RANKS RATE PROGRAM [ARGUMENT...]      RATE as tc writes it: 1gbit, 10gbit, ...
# Needs root, and a kernel that has namespaces, bridges and tbf; says so where it cannot. Uses 10.213.0.0/24, the bridge topsum0 and
# namespaces topsum0, topsum1, ..., and removes them at the end. Data go over TCP between those addresses alone.
set -euo pipefail

if [ $# -lt 3 ]; then
  sed -n '2,6s/^# //p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
ranks=$1 rate=$2 program=$3
shift 3

cannot() {
  echo "scripts/shaped.sh cannot run here: $1" >&2
  exit 77
}
[ "$(id -u)" -eq 0 ] || cannot "network namespaces need root"
for tool in ip tc; do
  command -v "$tool" >/dev/null || cannot "there is no $tool (Debian's package iproute2)"
done
command -v mpiexec.openmpi >/dev/null || cannot "there is no mpiexec.openmpi"

agent=$(mktemp)
clear_up() {
  set +e
  rm -f "$agent"
  for ((r = 0; r < ranks; r++)); do ip netns delete "topsum$r" 2>/dev/null; done
  ip link delete topsum0 2>/dev/null
}
trap clear_up EXIT

ip link add topsum0 type bridge 2>/dev/null || cannot "no bridge can be made (or topsum0 is there already)"
ip address add 10.213.0.1/24 dev topsum0
ip link set topsum0 up
shape() { "$@" root tbf rate "$rate" burst 256kb latency 50ms || cannot "the kernel has no tbf"; }
hosts=
for ((r = 0; r < ranks; r++)); do
  ip netns add "topsum$r" || cannot "no network namespace can be made"
  ip link add "topsum0v$r" type veth peer name eth0 netns "topsum$r"
  ip link set "topsum0v$r" master topsum0 up
  ip -n "topsum$r" link set lo up
  ip -n "topsum$r" address add "10.213.0.$((r + 2))/24" dev eth0
  ip -n "topsum$r" link set eth0 up
  shape tc qdisc add dev "topsum0v$r"                       # towards the rank
  shape ip netns exec "topsum$r" tc qdisc add dev eth0      # from it
  hosts+="${hosts:+,}10.213.0.$((r + 2)):1"
done

# What Open MPI calls instead of ssh: agent ADDRESS COMMAND...; its name is the host's too, else all ranks seem to share a node.
cat >"$agent" <<'END'
#!/bin/bash
rank=$((${1##*.} - 2))
shift
exec ip netns exec "topsum$rank" unshare --uts bash -c 'hostname "$0"; exec bash -c "$1"' "topsum$rank" "$*"
END
chmod +x "$agent"

OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpiexec.openmpi -n "$ranks" --host "$hosts" \
  --mca plm_rsh_agent "$agent" --mca oob_tcp_if_include 10.213.0.0/24 --mca btl tcp,self --mca pml ob1 \
  --mca btl_tcp_if_include 10.213.0.0/24 --mca mpi_yield_when_idle 1 --bind-to none "$program" "$@"
