#!/bin/sh
# Runs after the files are removed. A removal keeps the configuration, certificates and state. Debian's purge removes them. With
# RPM an administrator removes them: rm -r /etc/spillway /var/lib/spillway. The user stays: its number may own other files.
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
if [ "$1" = purge ]; then rm -rf /etc/spillway /var/lib/spillway; fi
