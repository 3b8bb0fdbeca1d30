#!/bin/bash
# Official clients, unmodified, against a fleet on loopback: `make clients`, or run.sh BINARY. What is not installed is
# skipped, and said so. Packages come from their registries into bin/clients and are not part of Spillway.
set -u
here=$(cd "$(dirname "$0")" && pwd)
spillway=$(realpath "${1:?the spillway binary}")
work=$(realpath -m "${2:-bin/clients}")
mkdir -p "$work"
fleet=$(mktemp -d)
"$spillway" demo --dir "$fleet" --traffic 0 > "$fleet/demo.out" 2>&1 &
demo=$!
trap 'kill -INT $demo 2>/dev/null; wait $demo 2>/dev/null; rm -rf "$fleet"' EXIT
for _ in $(seq 120); do
  grep -q 'all .* workers ready' "$fleet/demo.out" && break
  kill -0 $demo 2>/dev/null || { cat "$fleet/demo.out"; exit 1; }
  sleep 1
done
address() { grep -m1 -o "$1" "$fleet/demo.out"; }
export FLEET_DNS=$(sed -n 's/^ *dig @\([0-9.]*\) -p \([0-9]*\).*/\1:\2/p' "$fleet/demo.out" | head -1)
export GATEWAY_URL=$(address 'http://127[0-9.]*:[0-9]*/v1/chat' | head -1 | sed 's#/v1/chat##')
export GLOBAL_URL="http://${FLEET_DNS%:*}:${GATEWAY_URL##*:}"
export FLEET_KEY=$(cat "$fleet/keys/acme.key")
# Tenants that meet their limit at once, whose day's budget is spent by one request, and that may use one model; and a model
# that no worker has.
hash_of() { printf %s "$1" | "$spillway" config key --stdin | grep -o 'sha256:[0-9a-f]*'; }
new_key() { "$spillway" config key | grep -o 'spw_[A-Za-z0-9_-]*\|sk-[A-Za-z0-9_-]*' | head -1; }
export FLEET_LIMITED_KEY=$(new_key) FLEET_SPENT_KEY=$(new_key) FLEET_NARROW_KEY=$(new_key)
sed -e "s|^tenants:|tenants:\n  - {name: limited, keys: [\"$(hash_of "$FLEET_LIMITED_KEY")\"], limits: {requests_per_minute: 20}}|" \
  -e "s|^tenants:|tenants:\n  - {name: spent, keys: [\"$(hash_of "$FLEET_SPENT_KEY")\"], budget: {tokens_per_day: 30, day_offset: $((($(date -u +%-H) + 12) % 24 - 12))h}}|" \
  -e "s|^tenants:|tenants:\n  - {name: narrow, keys: [\"$(hash_of "$FLEET_NARROW_KEY")\"], models: [qwen2.5-7b]}|" \
  -e 's|^models:|models:\n  - {name: unserved-model}|' "$fleet/spec.yaml" > "$fleet/clients.yaml"
"$spillway" apply -f "$fleet/clients.yaml" > "$fleet/apply.out" 2>&1 || { cat "$fleet/apply.out"; exit 1; }
for _ in $(seq 50); do
  curl -s -m 5 "$GATEWAY_URL/v1/models" -H "Authorization: Bearer $FLEET_LIMITED_KEY" | grep -q unserved-model && break
  sleep 0.2
done

failed=0
part() {
  echo "== $1"; shift
  "$@" || failed=1
}
if command -v curl > /dev/null; then part "curl $(curl --version | awk 'NR==1{print $2}')" bash "$here/curl.sh"; else echo "skip curl: it is not installed"; fi
if command -v node > /dev/null && command -v npm > /dev/null; then
  cp "$here"/*.mjs "$here/package.json" "$work"
  if (cd "$work" && npm install --no-audit --no-fund --loglevel=error > npm.out 2>&1); then
    version() { node -p "require('$work/node_modules/$1/package.json').version" 2> /dev/null; }
    part "npm openai $(version openai)" node "$work/openai.mjs"
    part "npm @anthropic-ai/sdk $(version @anthropic-ai/sdk)" node "$work/anthropic.mjs"
  else
    echo "skip npm packages: they cannot be fetched: $(tail -1 "$work/npm.out")"
  fi
else
  echo "skip npm packages: node and npm are not installed (Debian: apt-get install nodejs npm)"
fi
if command -v go > /dev/null && (cd "$here/gosdk" && GOFLAGS=-mod=mod go build -o "$work/gosdk" . > "$work/go.out" 2>&1); then
  part "$(cd "$here/gosdk" && go list -m github.com/openai/openai-go)" "$work/gosdk"
else
  echo "skip openai-go: go is not installed, or the module cannot be fetched"
fi
# openai-go from version 3 refuses redirects to another origin: the fleet's default passes its requests on, and
# redirect_proxy: never must give the error that chaos/conformance/clients/README.md names.
if command -v go > /dev/null && (cd "$here/gosdk3" && GOFLAGS=-mod=mod go build -o "$work/gosdk3" . > "$work/go3.out" 2>&1); then
  part "$(cd "$here/gosdk3" && go list -m github.com/openai/openai-go/v3)" "$work/gosdk3"
  sed 's|^    ttl: |    redirect_proxy: never\n    ttl: |' "$fleet/clients.yaml" > "$fleet/never.yaml"
  if "$spillway" apply -f "$fleet/never.yaml" > "$fleet/apply.out" 2>&1; then
    for _ in $(seq 50); do
      status=$(curl -s -m 5 -o /dev/null -w '%{http_code}' -A 'OpenAI/Go 3.0.0' "$GLOBAL_URL/v1/models" -H "Authorization: Bearer $FLEET_KEY")
      [ "$status" = 307 ] && break
      sleep 0.2
    done
    part "openai-go v3, redirect_proxy: never" "$work/gosdk3" never
  else
    cat "$fleet/apply.out"; failed=1
  fi
else
  echo "skip openai-go v3: go is not installed, or the module cannot be fetched"
fi
exit $failed
