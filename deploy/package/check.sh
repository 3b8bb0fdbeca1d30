#!/usr/bin/env bash
# Installs the deb and the rpm in Debian roots that systemd-nspawn boots, and checks what administrators do: install, run two
# roles, upgrade with data kept, remove, reinstall, purge. The rpm is installed by Debian's rpm, which needs no Fedora root; its
# dependencies are therefore not resolved (--nodeps).
# usage: check.sh DIR [deb|rpm]   DIR keeps the Debian root for the next run. Needs root, systemd-container and debootstrap.
set -euo pipefail
cd "$(dirname "$0")/../.."
dir=${1:?usage: check.sh DIR}; mkdir -p "$dir"; dir=$(realpath "$dir")
if [ "$(id -u)" != 0 ]; then echo "skipped: a Debian root needs root"; exit 0; fi
for tool in debootstrap systemd-nspawn nsenter; do
  command -v $tool > /dev/null || { echo "$tool is missing: apt-get install debootstrap systemd-container util-linux"; exit 1; }
done

old=v0.1.0-test new=v0.1.1-test
arch=$(${GO:-go} env GOARCH)
for v in $old $new; do
  ${GO:-go} run ./deploy/release -out "$dir/$v" -version $v -targets "linux/$arch" -kinds package > /dev/null
done
if [ ! -e "$dir/base/done" ]; then
  rm -rf "$dir/base"
  debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,rpm,man-db,bash-completion,iproute2,procps bookworm "$dir/base" \
    http://deb.debian.org/debian > "$dir/debootstrap.log"
  touch "$dir/base/done"
fi

leader= server=()
inside() { nsenter -t "$leader" -m -u -i -n -p -- env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "${server[@]}" "$@"; }
stop_root() { [ -z "$leader" ] || { inside systemctl poweroff > /dev/null 2>&1 || true; wait "$nspawn" || true; leader=; }; }
trap stop_root EXIT
start_root() {
  rm -rf "$dir/root"; cp -a "$dir/base" "$dir/root"
  systemd-nspawn -q --register=no --keep-unit --private-network --bind-ro="$dir:/packages" -D "$dir/root" -b > "$dir/boot.log" 2>&1 &
  nspawn=$!
  for _ in $(seq 300); do
    leader=$(pgrep -P $nspawn | head -1 || true)
    [ -n "$leader" ] && inside systemctl is-active -q multi-user.target 2> /dev/null && return
    kill -0 $nspawn 2> /dev/null || break
    sleep 0.2
  done
  echo "the Debian root does not boot:"; tail "$dir/boot.log"; exit 1
}
step() { echo "  $kind: $*"; }
fail() { echo "FAIL $kind: $*"; inside journalctl -q --no-pager -n 30 -u 'spillway@*' || true; exit 1; }
holds() { local what=$1; shift; inside "$@" > /dev/null 2>&1 || fail "$what: $*"; step "$what"; }
lacks() { local what=$1; shift; ! inside "$@" > /dev/null 2>&1 || fail "$what: $*"; step "$what"; }
prints() { # WHAT PATTERN COMMAND...: retried for 20 seconds, because a node that has just started elects a leader first
  local what=$1 pattern=$2 out; shift 2
  for _ in $(seq 100); do
    if out=$(inside "$@" 2>&1) && grep -qE "$pattern" <<< "$out"; then step "$what"; return; fi
    sleep 0.2
  done
  fail "$what: $* prints no $pattern: $out"
}

install_deb() { inside sh -c "dpkg -i /packages/$1/spillway_*.deb"; }
remove_deb() { inside dpkg -r spillway; }
verify_deb() { inside dpkg -V spillway; }
install_rpm() { inside sh -c "rpm -U --nodeps /packages/$1/spillway-*.rpm"; }
remove_rpm() { inside rpm -e spillway; }
verify_rpm() { inside sh -c 'rpm -V --nodeps spillway'; }

write_configs() {
  inside sh -ec '
    spillway certs dev --dir /etc/spillway/certs global/g1 > /dev/null
    spillway config init spec > /etc/spillway/spec.yaml
    c=/run/credentials/spillway@global.service/certs_
    cat > /etc/spillway/global.yaml <<YAML
role: global
name: g1
dir: /var/lib/spillway/g1
tls: {cert: ${c}g1.pem, key: ${c}g1.key, ca: ${c}ca.pem}
raft: {listen: "127.0.0.1:7400", peers: {g1: "127.0.0.1:7400"}}
dns: {listen: ["127.0.0.1:53"]}
uplink: {listen: "127.0.0.1:7401"}
geo: {demo: true}
spec: /etc/spillway/spec.yaml
YAML
    cat > /etc/spillway/local.yaml <<YAML
role: local
name: l1
region: here
zone: a
dir: /var/lib/spillway/l1
http: {listen: "127.0.0.1:8080", plain: true}
workers: [{name: w1, url: "http://127.0.0.1:8000"}]
YAML'
}

check_package() {
  kind=$1 server=()
  start_root
  inside ip link set lo up
  install_$kind $old > "$dir/$kind-install.log" 2>&1 || { cat "$dir/$kind-install.log"; fail "installing"; }
  holds "installed files are intact" true; verify_$kind || fail "files differ from the package"
  lacks "every user can read the documents" sh -c 'find /usr/share/doc/spillway -type d ! -perm -755 -o -type f ! -perm -644 | grep .'
  prints "the binary has its version" "^spillway $old " spillway version
  prints "the package made the user" '^spillway:.*:/var/lib/spillway:/usr/sbin/nologin$' getent passwd spillway
  prints "state belongs to the user" '^750 spillway spillway$' stat -c '%a %U %G' /var/lib/spillway
  prints "certificates belong to root alone" '^700 root root$' stat -c '%a %U %G' /etc/spillway/certs
  holds "the unit is valid" systemd-analyze verify spillway@local.service
  lacks "nothing was started" sh -c 'systemctl list-units --plain --no-legend "spillway@*" | grep .'
  holds "every manual page is there" sh -c 'test $(ls /usr/share/man/man1/spillway*.1.gz | wc -l) -gt 50 && man -P cat spillway-drain | grep -q -- --reason'
  prints "bash completes verbs" '^undrain' bash -c '. /usr/share/bash-completion/bash_completion; . /usr/share/bash-completion/completions/spillway; spillway __complete und'
  write_configs
  holds "two roles run with one state folder" systemctl enable --now spillway@global spillway@local
  prints "they run as the user" '^spillway spillway$' sh -c 'echo $(ps -o user= -C spillway 2>/dev/null || stat -c %U /proc/$(systemctl show -p MainPID --value spillway@global) /proc/$(systemctl show -p MainPID --value spillway@local))'
  prints "root's commands find the services of both roles" 'local here/a/l1' sh -c 'spillway status 2>&1; true'
  server=(SPILLWAY_SERVER=unix:///var/lib/spillway/g1/admin.sock)
  prints "the global node answers root" '^g1 \(global\)  spec v1' spillway status
  prints "DNS answers on port 53" ' 127.0.0.1:53 ' ss -uln
  inside sh -c 'spillway config init spec | sed "s/^services:/services:\n  - {name: added.api.example., ttl: 7s}/" > /root/spec.yaml; spillway drain region fra --force --reason "kept over the upgrade" > /dev/null; spillway apply -f /root/spec.yaml' > "$dir/$kind-apply.log" 2>&1 || { cat "$dir/$kind-apply.log"; fail "applying a spec"; }

  inside sh -c 'systemctl show -p MainPID spillway@global spillway@local' > "$dir/pids"
  install_$kind $new > "$dir/$kind-upgrade.log" 2>&1 || { cat "$dir/$kind-upgrade.log"; fail "upgrading"; }
  grep -q 'systemctl restart spillway@global.service' "$dir/$kind-upgrade.log" || { cat "$dir/$kind-upgrade.log"; fail "the upgrade names no service to restart"; }
  step "the upgrade names the services to restart"
  inside sh -c 'systemctl show -p MainPID spillway@global spillway@local' | cmp -s - "$dir/pids" || fail "the upgrade restarted a service"
  step "the upgrade restarts nothing"
  prints "the binary has the new version" "^spillway $new " spillway version
  inside systemctl restart spillway@global spillway@local || fail "restarting"
  prints "the spec is kept" 'added\.api\.example' spillway get spec
  prints "the drain is kept" 'kept over the upgrade' spillway get drains
  prints "the services run the new version" "version=$new" journalctl -q --no-pager -u spillway@global

  remove_$kind > /dev/null 2>&1 || fail "removing"
  lacks "the removal stopped the services" pgrep -x spillway
  lacks "no unit is enabled" sh -c 'ls /etc/systemd/system/*/spillway@* 2>/dev/null | grep .'
  lacks "no file of the package is left" sh -c 'find /usr -name "*spillway*" | grep .'
  holds "config, certificates and state are kept" test -e /etc/spillway/global.yaml -a -e /etc/spillway/certs/ca.key -a -d /var/lib/spillway/g1
  install_$kind $new > /dev/null 2>&1 || fail "installing again"
  inside systemctl start spillway@global || fail "starting after a removal"
  prints "the spec survives a removal" 'added\.api\.example' spillway get spec
  install_older_$kind > /dev/null 2>&1 || fail "going back"
  inside systemctl restart spillway@global || fail "restarting the earlier version"
  prints "the earlier version reads the state" 'added\.api\.example' spillway get spec

  if [ $kind = deb ]; then
    inside dpkg -P spillway > /dev/null 2>&1 || fail "purging"
    lacks "a purge leaves no config, state or process" sh -c 'ls -d /etc/spillway /var/lib/spillway 2>/dev/null | grep . || pgrep -x spillway'
  else
    remove_rpm > /dev/null 2>&1 || fail "removing"
    lacks "a removal leaves no file of the package" sh -c 'find /usr -name "*spillway*" | grep .'
  fi
  stop_root
}
install_older_deb() { install_deb $old; }
install_older_rpm() { inside sh -c "rpm -U --oldpackage --nodeps /packages/$old/spillway-*.rpm"; }

for kind in ${2:-deb rpm}; do check_package $kind; done
echo "${2:-deb rpm}: installed, upgraded, removed"
