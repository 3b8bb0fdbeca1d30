#!/usr/bin/env bash
# Runs the README's stand-alone zone in the image's root filesystem, as the image's user, without a container engine.
# usage: check.sh ROOT, where ROOT is what `make image-root` wrote. Needs root for chroot.
set -euo pipefail
root=$(realpath "${1:?usage: check.sh ROOT}")
if [ "$(id -u)" != 0 ]; then echo "skipped: chroot needs root"; exit 0; fi
work=$(mktemp -d); pid=
cleanup() { [ -z "$pid" ] || { kill "$pid" && wait "$pid"; } 2>/dev/null || true; rm -rf "$work"; }
trap cleanup EXIT
cp -a "$root" "$work/root"
mkdir -p "$work/root/etc/spillway"
cat > "$work/root/etc/spillway/local.yaml" <<YAML
{role: local, name: l1, region: here, zone: a, http: {listen: "127.0.0.1:18480", plain: true},
 workers: [{name: w1, url: "http://127.0.0.1:18481"}]}
YAML
chmod -R go+rX "$work"
in_image() { exec env -i XDG_RUNTIME_DIR=/run "$(command -v chroot)" --userspec=65532:65532 "$work/root" /spillway "$@"; }
(in_image version)
in_image local -c /etc/spillway/local.yaml > "$work/log" 2>&1 &
pid=$!
for _ in $(seq 100); do
  if out=$(in_image status 2>&1) && grep -q w1 <<< "$(in_image status --workers)"; then
    test -s "$work/root/etc/ssl/certs/ca-certificates.crt"
    echo "$out"; echo "the zone runs in the image as uid 65532 and its admin socket answers"; exit 0
  fi
  kill -0 "$pid" 2>/dev/null || break
  sleep 0.1
done
echo "the zone does not run in the image:"; cat "$work/log"; exit 1
