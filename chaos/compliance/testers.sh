# Whole testers, each judged by what it prints. Sourced by run.sh.

if ! have zonemaster-cli; then
  skip 'zonemaster' 'it is missing (Debian: zonemaster-cli)'
elif ! have knotd; then
  skip 'zonemaster' 'the root and parent that it starts from need knotd (Debian: knot)'
else
  # Address tests mind that all addresses here are documentation's; they say nothing of the server.
  for t in Basic Connectivity Consistency DNSSEC Delegation Nameserver Syntax Zone; do
    zonemaster-cli --hints "$DIR/hints" --level INFO --show-testcase --no-progress --test "$t" $zone >"$DIR/zonemaster-$t" 2>&1
    cases=$(grep -Eo '[A-Z]+[0-9]{2} ' "$DIR/zonemaster-$t" | sort -u | wc -l)
    bad=$(grep -E ' (WARNING|ERROR|CRITICAL) ' "$DIR/zonemaster-$t")
    if [ "$t" = Connectivity ] && [ "$cases" = 0 ] && [ -z "$bad" ]; then
      pass 'zonemaster Connectivity: it has nothing to say against it'
    elif [ -n "$bad" ]; then
      fail "zonemaster $t" "$bad"
    elif [ "$cases" = 0 ]; then
      fail "zonemaster $t: it checked nothing" "$(cat "$DIR/zonemaster-$t")"
    else
      pass "zonemaster $t: $cases test cases, no warning"
    fi
  done
fi

if have dnsviz; then
  dnsviz probe -A -a . -x "$zone+:ns1.$zone=$ns1,ns1.$zone=[$ns1v6],ns2.$zone=$ns2,ns2.$zone=[$ns2v6]" $zone >"$DIR/dnsviz.json" 2>"$DIR/dnsviz.err"
  dnsviz grok -l warning -r "$DIR/dnsviz.json" >"$DIR/dnsviz.grok" 2>>"$DIR/dnsviz.err"
  dnsviz print -r "$DIR/dnsviz.json" >"$DIR/dnsviz.txt" 2>>"$DIR/dnsviz.err"
  want 'dnsviz: no error and no warning'        "cat $DIR/dnsviz.txt $DIR/dnsviz.grok $DIR/dnsviz.err" -- "$zone" ! '"errors"|"warnings"|^E:|^W:|\[!|\[\?|Traceback'
else
  skip 'dnsviz' 'it is missing (Debian: dnsviz)'
fi

# ISC's EDNS compliance tester, where somebody has built it: https://gitlab.isc.org/isc-projects/DNS-Compliance-Testing
if have "${GENREPORT:-genreport}"; then
  for f in '-f -c -n' '-t -a'; do
    out=$(echo "$zone ns1.$zone $ns1" | timeout 120 "${GENREPORT:-genreport}" $f 2>&1)
    bad=$(tr ' ' '\n' <<<"$out" | grep '=' | grep -v '=ok')
    if [ -n "$bad" ] || ! grep -q ok <<<"$out"; then fail "genreport $f" "$out"; else pass "genreport $f: $(tr ' ' '\n' <<<"$out" | grep -c '=ok') fields ok"; fi
  done
else
  skip 'genreport' 'it is not packaged; build it and set GENREPORT=/path/to/genreport'
fi

if have drill; then
  want 'drill: an ordinary answer'              "drill @$ns1 $service A" -- 'rcode: NOERROR' "$service\."
else
  skip 'drill' 'it is missing (Debian: ldnsutils)'
fi
