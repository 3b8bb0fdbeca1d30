#!/bin/sh
# Runs before the files are removed. Debian: $1 is "remove", or "upgrade". RPM: $1 is the number of versions that remain.
set -e
case "$1" in remove | 0) ;; *) exit 0 ;; esac
[ -d /run/systemd/system ] || exit 0
systemctl stop 'spillway@*.service' || true
# The instances are the links that systemctl enable made.
for link in /etc/systemd/system/*.wants/spillway@*.service; do
  [ -L "$link" ] && systemctl disable --quiet "${link##*/}" || true
done
