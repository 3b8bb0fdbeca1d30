#!/bin/sh
# Runs after the files of the package are in place, on installation and on upgrade.
# Debian: $1 is "configure" and $2 the version that was configured before, if any. RPM: $1 is the number of installed versions.
set -e
case "$1" in abort-*) exit 0 ;; esac

if ! getent passwd spillway >/dev/null; then
  if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers spillway.conf
  else
    useradd --system --user-group --home-dir /var/lib/spillway --no-create-home --shell /usr/sbin/nologin \
      --comment "Spillway load balancer" spillway
  fi
fi
[ -e /var/lib/spillway ] || install -d -m 0750 -o spillway -g spillway /var/lib/spillway

[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload || true
/usr/lib/systemd/systemd-sysctl 90-spillway.conf || true # a container may not set them; the node then logs a warning
# A restart ends streams, and the tiers are upgraded in an order (upgrade-policy.md). So the package restarts nothing.
running=$(systemctl list-units --plain --no-legend --state=active 'spillway@*.service' | cut -d ' ' -f 1)
if [ -n "$running" ]; then
  echo "spillway: these services still run the earlier version. Restart them one at a time, in the order of"
  echo "/usr/share/doc/spillway/docs/upgrade-policy.md:"
  for unit in $running; do echo "  systemctl restart $unit"; done
fi
