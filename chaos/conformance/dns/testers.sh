# Whole testers, each judged by what it prints. Sourced by run.sh.

# zonemaster MODULE SUFFIX: it warns of nothing.
zonemaster() {
  local out="$DIR/zonemaster-$1$2" cases bad
  zonemaster-cli --hints "$DIR/hints" --level INFO --show-testcase --no-progress --test "$1" $zone >"$out" 2>&1
  cases=$(grep -Eo '[A-Z]+[0-9]{2} ' "$out" | sort -u | wc -l)
  bad=$(grep -E ' (WARNING|ERROR|CRITICAL) ' "$out")
  if [ -n "$bad" ]; then
    fail "zonemaster $1$2" "$bad"
  elif ! grep -q 'Zonemaster engine' "$out"; then
    fail "zonemaster $1$2: it did not run" "$(cat "$out")"
  elif [ "$cases" = 0 ] && [ "$1" != Connectivity ]; then # which speaks up only about what is wrong
    fail "zonemaster $1$2: it checked nothing" "$(cat "$out")"
  else
    pass "zonemaster $1$2: $cases test cases reported, no warning"
  fi
}

if ! have zonemaster-cli; then
  skip 'zonemaster' 'it is missing (Debian: zonemaster-cli)'
elif ! have knotd; then
  skip 'zonemaster' 'the root and parent that it starts from need knotd (Debian: knot)'
else
  # Address tests mind that all addresses here are documentation's; they say nothing of the server.
  for t in Basic Connectivity Consistency DNSSEC Delegation Nameserver Syntax Zone; do
    zonemaster "$t" ''
  done
fi

# What dnsviz marks as wrong or doubtful.
complaints='\[!|\[\?|(^|[^A-Za-z])[EW]:|Traceback'
if have dnsviz; then
  dnsviz probe -A -a . -x "$zone+:ns1.$zone=$ns1,ns1.$zone=[$ns1v6],ns2.$zone=$ns2,ns2.$zone=[$ns2v6]" $zone >"$DIR/dnsviz.json" 2>"$DIR/dnsviz.err"
  dnsviz print -r "$DIR/dnsviz.json" >"$DIR/dnsviz.txt" 2>>"$DIR/dnsviz.err"
  want 'dnsviz: no error and no warning'        "cat $DIR/dnsviz.txt $DIR/dnsviz.err" -- "^$zone " 'SOA: ns1' ! "$complaints"
else
  skip 'dnsviz' 'it is missing (Debian: dnsviz)'
fi

# ISC's EDNS compliance tester, where somebody has built it: https://gitlab.isc.org/isc-projects/DNS-Compliance-Testing
if have "${GENREPORT:-genreport}"; then
  for f in '-f -c -n' '-t -a'; do
    out=$(echo "$zone ns1.$zone $ns1" | timeout 120 "${GENREPORT:-genreport}" $f 2>&1)
    bad=$(tr ' ' '\n' <<<"$out" | grep '=' | grep -v '=ok')
    if [ -n "$bad" ] || ! grep -q ok <<<"$out"; then fail "genreport $f" "$out"; else pass "genreport $f: $(grep -q 'all ok' <<<"$out" && echo all ok || echo "$(tr ' ' '\n' <<<"$out" | grep -c '=ok') fields ok")"; fi
  done
else
  skip 'genreport' 'it is not packaged; build it and set GENREPORT=/path/to/genreport'
fi

if have drill; then
  want 'drill: an ordinary answer'              "drill @$ns1 $service A" -- 'rcode: NOERROR' "$service\."
else
  skip 'drill' 'it is missing (Debian: ldnsutils)'
fi
