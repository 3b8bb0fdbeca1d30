# The nodes, and above them a root and a parent, all on this namespace's loopback. Sourced by run.sh.
ip link set lo up
for a in $ns1 $ns2 $parent 127.1.0.1 127.1.0.2; do ip addr add "$a/32" dev lo 2>/dev/null; done
for a in $ns1v6 $ns2v6; do ip -6 addr add "$a/128" dev lo; done

node() { # node NAME IPV4 IPV6 OWN
  cat >"$DIR/$1.yaml" <<EOF
role: global
name: $1
dir: $DIR/$1
tls: {cert: $DIR/certs/$1.pem, key: $DIR/certs/$1.key, ca: $DIR/certs/ca.pem}
raft:
  listen: $4:7000
  heartbeat: 3s # two nodes on a machine that may be busy
  peers: {g1: "127.1.0.1:7000", g2: "127.1.0.2:7000"}
dns: {listen: ["$2:53", "[$3]:53"], identity: $1, show_version: true, tls: {listen: ["$2:853"]}}
uplink: {listen: "$4:7100"}
admin: {socket: $DIR/$1.sock}
geo: {demo: true}
spec: $here/spec.yaml
EOF
  "$bin" global -c "$DIR/$1.yaml" >"$DIR/$1.log" 2>&1 &
}

"$bin" certs dev --dir "$DIR/certs" global/g1 global/g2 operator/me >"$DIR/certs.log" || { cat "$DIR/certs.log"; exit 1; }
node g1 $ns1 $ns1v6 127.1.0.1
node g2 $ns2 $ns2v6 127.1.0.2

above() { # above DS: the root and example., which delegate; one server holds both
  mkdir -p "$DIR/knot"
  cat >"$DIR/root.zone" <<EOF
. 3600 SOA ns.root-servers.test. hostmaster.root-servers.test. 1 7200 1800 1209600 900
. 3600 NS ns.root-servers.test.
ns.root-servers.test. 3600 A $parent
example. 3600 NS ns1.example.
ns1.example. 3600 A $parent
EOF
  cat >"$DIR/example.zone" <<EOF
example. 3600 SOA ns1.example. hostmaster.example. 1 7200 1800 1209600 900
example. 3600 NS ns1.example.
ns1.example. 3600 A $parent
$zone. 3600 NS ns1.$zone.
$zone. 3600 NS ns2.$zone.
${1:-}
ns1.$zone. 3600 A $ns1
ns1.$zone. 3600 AAAA $ns1v6
ns2.$zone. 3600 A $ns2
ns2.$zone. 3600 AAAA $ns2v6
EOF
  cat >"$DIR/knot.conf" <<EOF
server:
    rundir: "$DIR/knot"
    listen: $parent@53
    automatic-acl: off
database:
    storage: "$DIR/knot"
log:
  - target: stderr
    any: warning
zone:
  - domain: .
    file: "$DIR/root.zone"
    zonefile-sync: -1
  - domain: example.
    file: "$DIR/example.zone"
    zonefile-sync: -1
EOF
  printf '. 3600000 NS ns.root-servers.test.\nns.root-servers.test. 3600000 A %s\n' $parent >"$DIR/hints"
  knotd -c "$DIR/knot.conf" >"$DIR/knot.log" 2>&1 &
  above=$!
}
have knotd && above

have dig || { echo "SKIP everything: dig is missing (Debian: bind9-dnsutils)"; exit 0; }
for ns in $ns1 $ns2; do
  for _ in $(seq 150); do
    [ -n "$(dig +short +tries=1 +time=1 @$ns $service A)" ] && continue 2
    sleep 0.2
  done
  echo "the node at $ns does not answer:"; tail "$DIR"/g*.log; exit 1
done
for _ in $(seq 150); do # until both answer from what they agreed on
  [ "$(dig +short +tries=1 +time=1 @$ns1 $zone SOA)" = "$(dig +short +tries=1 +time=1 @$ns2 $zone SOA)" ] &&
    dig +short @$ns2 _view.$zone TXT | grep -q '"confirmed=yes"' && break
  sleep 0.2
done
