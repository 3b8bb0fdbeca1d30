#!/usr/bin/env bash
# Builds the container image, runs both Compose files with podman and checks them: requests, DNS, a killed worker, a killed Raft
# leader, a region cut off from the backbone, a zone cut off from its gateway. Pulls no image.
# usage: check.sh [IMAGE]   IMAGE is used as it is; without it, one is built from the source tree.
# Needs root and, from Debian: podman runc aardvark-dns docker-compose (1.29, it talks to podman) curl bind9-dnsutils.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ "$(id -u)" != 0 ]; then echo "skipped: networks of containers need root"; exit 0; fi
for tool in podman runc docker-compose curl dig; do
  command -v $tool > /dev/null || { echo "$tool is missing: apt-get install podman runc aardvark-dns docker-compose curl bind9-dnsutils"; exit 1; }
done
work=$(mktemp -d); project=
# runc also runs on machines with cgroup v1. The limits fit a machine whose own limits are low.
cat > "$work/containers.conf" <<CONF
[containers]
default_ulimits = ["nofile=8192:8192", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
CONF
export CONTAINERS_CONF=$work/containers.conf DOCKER_HOST=unix://$work/podman.sock
# Without systemd as init, podman logs for each container that it cannot set a timer for health checks.
podman system service --time=0 "$DOCKER_HOST" > "$work/service.log" 2>&1 &
service=$!
# Repeated once: podman 4.3 fails to start a container that ends at once, as the one that makes certificates does, when it reads
# the cgroup of the process too late ("read /proc/PID/cgroup: no such process").
compose() {
  local again
  for again in yes no; do
    docker-compose -f "deploy/compose/$project/compose.yaml" "$@" > "$work/compose.log" 2>&1 && return
    [ $again = yes ] && grep -q '/cgroup: no such process' "$work/compose.log" || break
  done
  cat "$work/compose.log"; exit 1
}
cleanup() {
  [ -z "$project" ] || docker-compose -f "deploy/compose/$project/compose.yaml" down -v -t 2 > /dev/null 2>&1 || true
  kill $service; wait $service 2> /dev/null || true; rm -rf "$work"
}
trap cleanup EXIT

if [ -n "${1:-}" ]; then
  export SPILLWAY_IMAGE=$1
else
  ${GO:-go} run ./deploy/release -out "$work/release" -targets "linux/$(${GO:-go} env GOARCH)" -kinds image > /dev/null
  SPILLWAY_IMAGE=$(podman load -q -i "$work"/release/*-image.tar | sed -n 's/^Loaded image: //p'); export SPILLWAY_IMAGE
fi

step() { echo "  $project: $*"; }
fail() {
  echo "FAIL $project: $*"; podman ps -a --format '{{.Names}} {{.Status}}' --filter "name=${project}_"
  podman exec "${project}_${node:-g1}_1" /spillway status || true
  exit 1
}
# holds WHAT SECONDS COMMAND...: the command succeeds within the time.
holds() {
  local what=$1 end=$((SECONDS + $2)); shift 2
  until "$@" > "$work/out" 2>&1; do
    [ $SECONDS -lt $end ] || { cat "$work/out"; fail "$what: $*"; }
    sleep 0.2
  done
  step "$what"
}
spillway() { local c=$1; shift; podman exec -i "${project}_${c}_1" /spillway "$@"; }
prints() { local pattern=$1 out; shift; out=$("$@" 2>&1) && grep -qE "$pattern" <<< "$out" || { echo "$out"; return 1; }; } # a pipe would close early
key=
answers() { # URL: a chat request gets a complete answer
  curl -sf -m 10 "$1/v1/chat/completions" -H "Authorization: Bearer $key" -H 'Content-Type: application/json' \
    -d '{"model": "llama-8b", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}' | grep -q '"finish_reason"'
}
answers_all() { local i; for i in $(seq "$1"); do answers "$2" || return 1; done; }
resolves() { [ "$(dig "@$1" +short +time=2 +tries=1 chat.api.example "+subnet=$2/24")" = "$3" ]; }

project=one-machine node=spillway
prints '^spillway .*linux/' podman run --rm --network none "$SPILLWAY_IMAGE" version || fail "the image does not run"
[ "$(podman image inspect --format '{{.User}}' "$SPILLWAY_IMAGE")" = 65532:65532 ] || fail "the image's user"
step "the image runs as uid 65532"
compose up -d
holds "a request is answered" 60 answers http://127.0.0.1:8080
holds "both workers are ready" 30 prints ' 2/2 ' spillway spillway status
holds "the health check succeeds" 30 spillway spillway status
podman kill --signal KILL one-machine_worker-1_1 > /dev/null
holds "requests are answered after a worker was killed" 10 answers_all 20 http://127.0.0.1:8080
podman start one-machine_worker-1_1 > /dev/null 2>&1
holds "the worker is used again" 30 prints ' 2/2 ' spillway spillway status
compose down -v -t 5

project=three-regions node=g1
compose up -d
holds "three voters agree" 60 prints '3 can write' spillway g1 members
holds "every region has two ready workers" 60 sh -c "podman exec three-regions_g1_1 /spillway status | awk '\$1 == \"a\" && / 2\\/2 /' | grep -c . | grep -qx 3"
# The repository has no key: a new one is added to the spec.
spillway g1 config key > "$work/key"
key=$(sed -n 's/^key: *//p' "$work/key")
{ cat deploy/compose/three-regions/config/spec.yaml; echo "tenants: [{name: me, keys: [\"$(sed -n 's/^hash: *//p' "$work/key")\"]}]"; } > "$work/spec.yaml"
spillway g1 apply -f - < "$work/spec.yaml" > "$work/out" 2>&1 || { cat "$work/out"; fail "applying the spec"; }
for ip in 11 12 13; do holds "gateway 172.30.0.$ip answers a request with the new key" 20 answers http://172.30.0.$ip:8080; done
holds "DNS sends a client in Frankfurt to fra" 20 resolves 172.30.0.2 198.51.100.0 172.30.0.12

leader=$(spillway g1 members 2> /dev/null | awk '$3 == "yes" && $4 == "yes" {print $1}')
other=g1; [ "$leader" != g1 ] || other=g2
podman kill --signal KILL "three-regions_${leader}_1" > /dev/null; node=$other
holds "a new leader is elected after the leader was killed" 30 prints "leader g" spillway $other status
holds "changes are made without the killed node" 30 spillway $other drain region nrt --reason check
holds "DNS leaves out the drained region" 20 resolves "172.30.0.$((${other#g} + 1))" 203.0.113.0 172.30.0.11
spillway $other undrain region nrt > /dev/null 2>&1 || fail "undraining"
podman start "three-regions_${leader}_1" > /dev/null 2>&1
holds "the killed node is a voter again" 60 prints '3 can write' spillway $other members

podman network disconnect three-regions_backbone three-regions_gw-fra_1
holds "a region that is cut off becomes unreachable" 30 prints '^fra +unreachable' spillway $other status
holds "DNS sends its clients elsewhere" 30 resolves 172.30.0.3 198.51.100.0 172.30.0.11
holds "the other regions answer" 10 answers_all 10 http://172.30.0.11:8080
podman network connect --ip 172.30.0.12 three-regions_backbone three-regions_gw-fra_1
holds "the region reports again" 60 prints '^fra +reporting' spillway $other status
holds "DNS sends its clients back" 60 resolves 172.30.0.2 198.51.100.0 172.30.0.12
holds "its gateway answers again" 30 answers http://172.30.0.12:8080

podman network disconnect three-regions_nrt three-regions_local-nrt_1
holds "a gateway without its zone has peers answer" 30 answers_all 5 http://172.30.0.13:8080
podman network connect --ip 172.30.3.3 three-regions_nrt three-regions_local-nrt_1
holds "the zone serves again" 60 sh -c "podman exec three-regions_g1_1 /spillway status | awk '\$1 == \"a\" && / 2\\/2 /' | grep -c . | grep -qx 3"

compose stop -t 10
compose start
holds "the spec survives a stop of all containers" 60 prints 'name: me' spillway g1 get spec
holds "a request is answered after a stop of all containers" 60 answers http://172.30.0.12:8080
compose down -v -t 5
project=
echo "both Compose files: run, killed, cut off, repaired"
