#!/usr/bin/env bash
# run.sh SPILLWAY: two global nodes behind a root and a parent of their own, in a network namespace of their own, and
# what DNS's testers say of them. It prints one line for each check and fails when one does. No privileges are needed
# where the system lets users have namespaces; a tool that is missing skips its checks, and says so.
# KEEP=1 leaves logs and the tools' whole output in $DIR.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$(readlink -f "${1:?the spillway binary}")

if [ -z "${INSIDE:-}" ]; then
  unshare --map-root-user --net true 2>/dev/null || { echo "SKIP everything: this system lets nobody have a network namespace (unshare --map-root-user --net)"; exit 0; }
  INSIDE=1 exec unshare --map-root-user --net --pid --fork --kill-child "$0" "$bin"
fi

DIR=${DIR:-$(mktemp -d)}
zone=api.example service=chat.$zone
ns1=192.0.2.53 ns2=198.51.100.53 ns1v6=2001:db8::53 ns2v6=2001:db8:1::53 parent=192.0.2.1
passed=0 failed=0 skipped=0
trap 'kill $(jobs -p) 2>/dev/null; wait 2>/dev/null; [ -n "${KEEP:-}" ] || rm -rf "$DIR"' EXIT

pass() { passed=$((passed + 1)); printf 'PASS  %s\n' "$1"; }
fail() { failed=$((failed + 1)); printf 'FAIL  %s\n' "$1"; printf '%s\n' "$2" | head -"${LINES_OF_FAILURE:-12}" | sed 's/^/        /'; }
skip() { skipped=$((skipped + 1)); printf 'SKIP  %s: %s\n' "$1" "$2"; }
have() { command -v "$1" >/dev/null; }

# want NAME COMMAND -- PATTERN...: every extended pattern is somewhere in what the command prints; after a "!" none may be.
want() {
  local name=$1 command=$2 out; shift 3
  out=$(eval "$command" 2>&1)
  while [ $# -gt 0 ]; do
    if [ "$1" = '!' ]; then
      shift
      if grep -Eqi -- "$1" <<<"$out"; then fail "$name (must not have: $1)" "$command"$'\n'"$out"; return; fi
    elif ! grep -Eqi -- "$1" <<<"$out"; then
      fail "$name (no: $1)" "$command"$'\n'"$out"; return
    fi
    shift
  done
  pass "$name"
}

. "$here/fleet.sh"
. "$here/rules.sh"
. "$here/testers.sh"
. "$here/signed.sh"
echo "passed $passed, failed $failed, skipped $skipped"
[ "$failed" = 0 ]
