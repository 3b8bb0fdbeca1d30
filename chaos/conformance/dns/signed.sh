# The same zone signed: what testers of DNSSEC say. Sourced by run.sh.
if ! have ldns-key2ds || ! have zonemaster-cli || ! have knotd; then
  skip 'signed zone' 'its testers need ldns-key2ds, zonemaster-cli and knotd (Debian: ldnsutils zonemaster-cli knot)'
  return
fi
"$bin" dnssec enable --server "unix://$DIR/g1.sock" --reason compliance >"$DIR/enable" 2>&1
for ns in $ns1 $ns2; do
  for _ in $(seq 100); do
    [ -n "$(dig +short @$ns $zone DNSKEY)" ] && break
    sleep 0.2
  done
done
dig +noall +answer @$ns1 $zone DNSKEY >"$DIR/key"
ds=$(ldns-key2ds -n -2 "$DIR/key" 2>>"$DIR/enable")
kill "$above"; wait "$above" 2>/dev/null
above "$ds"
for _ in $(seq 50); do [ -n "$(dig +short @$parent $zone DS)" ] && break; sleep 0.2; done

sask="dig +nocmd @$ns1 +tries=2 +time=2 +norec +nocookie +dnssec"
want 'signed: DNSKEY with its signature'        "$sask $zone DNSKEY" -- 'DNSKEY[[:space:]]+257 3 13' 'RRSIG[[:space:]]+DNSKEY 13'
want 'signed: answers are'                      "$sask $service A" -- 'RRSIG[[:space:]]+A 13' 'flags: do'
want 'signed: no DO, no RRSIG'                  "dig +nocmd @$ns1 +norec $service A" -- 'NOERROR' ! 'RRSIG'
want 'signed: both nodes sign with one key'     "for n in $ns1 $ns2; do dig +short @\$n $zone DNSKEY; done | sort -u | wc -l" -- '^1$'
want 'signed: absence is proven'                "$sask nothing.$zone A" -- 'NSEC' 'RRSIG[[:space:]]+NSEC 13' 'RRSIG[[:space:]]+SOA 13'
if have delv; then
  grep -v '^;' "$DIR/key" | awk '{printf "trust-anchors { \"%s\" static-key %s %s %s \"", $1, $5, $6, $7; for (i = 8; i <= NF; i++) printf "%s", $i; print "\"; };"}' >"$DIR/anchor"
  for what in "$service A" "$service AAAA" "$service HTTPS" "$zone SOA" "$zone NS" "$zone CAA"; do
    want "delv: $what validates"                "delv @$ns1 -a $DIR/anchor +root=$zone $what" -- 'fully validated'
  done
  want 'delv: an absent type validates'         "delv @$ns1 -a $DIR/anchor +root=$zone $service MX" -- 'negative response, fully validated'
  want 'delv: an absent name validates'         "delv @$ns1 -a $DIR/anchor +root=$zone nothing.$zone A" -- 'negative response, fully validated'
fi
for t in DNSSEC Consistency Nameserver Delegation; do
  zonemaster "$t" ' of the signed zone'
done
if have dnsviz; then
  dnsviz probe -A -a . -x "$zone+:ns1.$zone=$ns1,ns1.$zone=[$ns1v6],ns2.$zone=$ns2,ns2.$zone=[$ns2v6]" $zone $service >"$DIR/dnsviz2.json" 2>"$DIR/dnsviz2.err"
  grep -v '^;' "$DIR/key" >"$DIR/anchor.zone"
  dnsviz print -t "$DIR/anchor.zone" -r "$DIR/dnsviz2.json" >"$DIR/dnsviz2.txt" 2>>"$DIR/dnsviz2.err"
  want 'dnsviz: the signed zone is secure'      "cat $DIR/dnsviz2.txt $DIR/dnsviz2.err" -- "^$zone \[\.\]" "^$service" "RRSIG: $zone.13.* \[\.\]" ! "$complaints"
fi
