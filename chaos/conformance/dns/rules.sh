# The rules that reference testers check one by one, asked with dig and kdig. Sourced by run.sh.
ask="dig +nocmd @$ns1 +tries=2 +time=2 +norec +nocookie"

# Header and opcodes.
want 'header: authoritative answer'             "$ask $service A +noedns" -- 'status: NOERROR' 'flags: qr aa;' 'ANSWER: 1' ! 'OPT PSEUDOSECTION'
want 'header: RD is copied and RA stays clear'  "dig @$ns1 $service A +rec +noedns" -- 'flags: qr aa rd;'
want 'header: CD is copied'                     "$ask $service A +cdflag +noedns" -- 'flags: qr aa cd;'
want 'header: AD in a query sets nothing unsigned' "$ask $service A +adflag +noedns" -- 'flags: qr aa;'
want 'header: Z is ignored and stays clear'     "$ask $service A +zflag +noedns" -- 'status: NOERROR' 'flags: qr aa;' ! 'MBZ'
want 'header: AA, RA and TC of a query are ignored' "$ask $service A +aaflag +raflag +tcflag +noedns" -- 'status: NOERROR' 'flags: qr aa;'
for code in 3 6 15; do
  want "opcode $code: NOTIMP, no question, no flags" "$ask +opcode=$code +noedns +header-only $zone" -- 'status: NOTIMP' 'flags: qr; QUERY: 0, ANSWER: 0, AUTHORITY: 0, ADDITIONAL: 0'
  want "opcode $code: RD, CD and AD are not copied"  "dig @$ns1 +rec +cdflag +adflag +opcode=$code +noedns +header-only $zone" -- 'status: NOTIMP' 'flags: qr;'
done
want 'opcode NOTIFY: no answer'                 "$ask +opcode=notify +noedns $zone SOA" -- 'status: (NOTIMP|NOTAUTH)' 'ANSWER: 0' ! 'flags: qr aa'
want 'opcode UPDATE: no answer'                 "$ask +opcode=update +noedns $zone SOA" -- 'status: (NOTIMP|REFUSED)' 'ANSWER: 0'
want 'class CH: node and version, as configured' "$ask id.server CH TXT; $ask version.bind CH TXT" -- '"g1"' '"spillway '
want 'class ANY: refused'                       "$ask -c ANY -t A -q $service" -- 'status: REFUSED' 'ANSWER: 0'
want 'class HS: refused'                        "$ask -c HS $service A" -- 'status: REFUSED'
want 'out of zone: refused, not authoritative'  "$ask other.test A" -- 'status: REFUSED' 'flags: qr;' 'ANSWER: 0, AUTHORITY: 0' 'EDNS: version: 0'

# EDNS.
want 'edns: OPT in, OPT out, 1232'              "$ask $service A" -- 'EDNS: version: 0, flags:; udp: 1232' 'status: NOERROR'
want 'edns: version 1 is BADVERS without answer' "$ask +edns=1 +noednsneg $zone SOA" -- 'status: BADVERS' 'EDNS: version: 0' 'ANSWER: 0' ! 'IN[[:space:]]SOA[[:space:]]ns1'
want 'edns: version 1 with an unknown option'   "$ask +edns=1 +noednsneg +ednsopt=100 $zone SOA" -- 'status: BADVERS' ! 'OPT=100'
want 'edns: unknown option is not echoed'       "$ask +ednsopt=100:abcd $zone SOA" -- 'status: NOERROR' ! 'OPT=100'
want 'edns: unknown flags are cleared'          "$ask +ednsflags=0x40 $zone SOA" -- 'status: NOERROR' 'EDNS: version: 0, flags:;' ! 'MBZ'
want 'edns: DO is copied'                       "$ask +dnssec $zone SOA" -- 'EDNS: version: 0, flags: do;'
want 'edns: DO and CD together'                 "$ask +dnssec +cdflag $zone SOA" -- 'flags: qr aa cd' 'flags: do;'
want 'edns: OPT with REFUSED'                   "$ask other.test A +dnssec" -- 'REFUSED' 'flags: do;'
want 'edns: OPT with NXDOMAIN'                  "$ask nothing.$zone A" -- 'NXDOMAIN' 'EDNS: version: 0'
want 'edns: a payload of 512 is kept to'        "$ask +bufsize=512 +ignore +dnssec $zone DNSKEY | grep 'MSG SIZE' | awk '{print (\$NF <= 512 ? \"fits\" : \"too large\")}'" -- '^fits'
want 'edns: list of options at once'            "$ask +nsid +expire +subnet=192.0.2.0/24 +cookie $zone SOA" -- 'status: NOERROR' 'NSID:' 'CLIENT-SUBNET: 192.0.2.0/24/0' 'COOKIE: .*good' ! 'EXPIRE'
want 'edns: NSID'                               "$ask +nsid $zone SOA" -- 'NSID: 67 31'
want 'edns: over TCP'                           "$ask +tcp $service A" -- 'status: NOERROR' 'EDNS: version: 0' '\(TCP\)'
want 'cookie: given, and good the second time'  "$ask +cookie $service A" -- 'COOKIE: [0-9a-f]{48} \(good\)'
want 'cookie: of a bad length is FORMERR'       "$ask +ednsopt=10:01020304050607 $service A" -- 'status: FORMERR'

# Client Subnet (RFC 7871).
want 'subnet: echoed with a scope'              "$ask +subnet=203.0.113.0/24 $service A" -- 'CLIENT-SUBNET: 203.0.113.0/24/[0-9]+' 'status: NOERROR'
want 'subnet: absent from the answer if from the query' "$ask $service A" -- 'NOERROR' ! 'CLIENT-SUBNET'
want 'subnet: source 0 gives scope 0'           "$ask +subnet=0.0.0.0/0 $service A" -- 'CLIENT-SUBNET: 0.0.0.0/0/0'
want 'subnet: untailored answers have scope 0'  "$ask +subnet=203.0.113.0/24 $zone SOA" -- 'CLIENT-SUBNET: 203.0.113.0/24/0'
want 'subnet: absent names have scope 0'        "$ask +subnet=203.0.113.0/24 nothing.$zone A" -- 'NXDOMAIN' 'CLIENT-SUBNET: 203.0.113.0/24/0'
want 'subnet: IPv6'                             "$ask +subnet=2001:db8::/48 $service A" -- 'CLIENT-SUBNET: 2001:db8::/48/[0-9]+'
want 'subnet: bits past the source are FORMERR' "$ask +ednsopt=8:00011400cb0071 $service A" -- 'status: FORMERR'
want 'subnet: an octet too many is FORMERR'     "$ask +ednsopt=8:00011800cb007100 $service A" -- 'status: FORMERR'
want 'subnet: an octet too few is FORMERR'      "$ask +ednsopt=8:00011800cb00 $service A" -- 'status: FORMERR'
want 'subnet: a scope in the query is FORMERR'  "$ask +ednsopt=8:00011818cb0071 $service A" -- 'status: FORMERR'
want 'subnet: an unknown family is FORMERR'     "$ask +ednsopt=8:00031800cb0071 $service A" -- 'status: FORMERR'
want 'subnet: a source beyond the family is FORMERR' "$ask +ednsopt=8:00012100cb0071010f $service A" -- 'status: FORMERR'

# Names and data.
want 'name: case is kept as asked'              "$ask ChAt.aPi.ExAmPlE A" -- 'ChAt\.aPi\.ExAmPlE\.[[:space:]]+[0-9]+[[:space:]]+IN[[:space:]]+A'
want 'name: NXDOMAIN has the SOA'               "$ask nothing.$zone A +noedns" -- 'NXDOMAIN' 'flags: qr aa' 'AUTHORITY: 1' "^$zone\..*SOA"
want 'name: NODATA has the SOA'                 "$ask $service MX" -- 'NOERROR' 'ANSWER: 0, AUTHORITY: 1' 'flags: qr aa'
want 'name: an empty non-terminal exists'       "$ask tree.$zone A; $ask tree.$zone TXT" -- 'NOERROR' 'ANSWER: 0, AUTHORITY: 1' ! 'NXDOMAIN'
want 'name: unknown types are NODATA'           "$ask $service TYPE1234" -- 'NOERROR' 'ANSWER: 0, AUTHORITY: 1'
for t in A AAAA NS CNAME SOA PTR HINFO MX TXT RP AFSDB SRV NAPTR DNAME DS SSHFP RRSIG NSEC DNSKEY NSEC3 NSEC3PARAM TLSA SMIMEA CDS CDNSKEY OPENPGPKEY CSYNC SVCB HTTPS SPF URI CAA TYPE65280; do
  out=$(eval "$ask $zone $t" 2>&1); grep -q 'status: NOERROR' <<<"$out" || { fail "type $t at the apex is NOERROR" "$out"; bad_type=1; }
done
[ -n "${bad_type:-}" ] || pass 'types: 33 of them at the apex are NOERROR'
want 'type ANY: one HINFO (RFC 8482)'           "$ask $service ANY +notcp" -- 'ANSWER: 1' 'HINFO[[:space:]]+"RFC8482"'
want 'type AXFR: refused, and at once'          "timeout 2 $ask $zone AXFR" -- 'Transfer failed'
for t in TYPE41 TYPE250 TYPE249 TYPE253 TYPE254; do
  want "type $t is not data"                    "$ask $zone $t" -- 'status: (NOTIMP|REFUSED|FORMERR)'
done
want 'data: A, AAAA and HTTPS go to one region' "$ask +subnet=203.0.113.0/24 $service A +short; $ask +subnet=203.0.113.0/24 $service AAAA +short; $ask +subnet=203.0.113.0/24 $service HTTPS +short" -- '^(192.0.2.101|198.51.100.102)' '^2001:db8::10[12]' 'alpn="h2"'
want 'data: NS with glue at the apex'           "$ask $zone NS +tcp" -- 'ANSWER: 2' 'ADDITIONAL: 5' "ns1\.$zone\..*192.0.2.53"
want 'data: CAA'                                "$ask $zone CAA" -- '0 issue "ca.example"'
want 'data: both nodes have one serial'         "for n in $ns1 $ns2 $ns1v6 $ns2v6; do dig +short @\$n $zone SOA; done | sort -u | wc -l" -- '^1$'
want 'tcp: several questions on a connection'   "$ask +tcp +keepopen $zone SOA $zone NS $service A" -- 'SOA' 'NS' '\(TCP\)' ! 'communications error'
want 'dig +trace from the root of this tree'    "dig @$parent +tries=2 +time=2 +norec example NS; dig @$parent +norec $service A" -- "$zone\..*NS.*ns1\.$zone" "ns2\.$zone\..*198.51.100.53"

# kdig: what dig has no words for.
if have kdig; then
  kask="kdig @$ns1 +retry=1 +time=2 +norec"
  want 'kdig: DNS over TLS with padding'        "$kask +tls +padding $service A" -- 'status: NOERROR' 'TLS session' 'PADDING'
  want 'kdig: cookie'                           "$kask +cookie $service A" -- 'COOKIE: [0-9A-Fa-f]{48}'
  want 'kdig: NSID and subnet'                  "$kask +nsid +subnet=203.0.113.0/24 $service A" -- 'NSID' 'CLIENT-SUBNET: 203.0.113.0/24'
  want 'kdig: keepalive over TCP'               "$kask +tcp +ednsopt=11 $service A" -- 'status: NOERROR' 'KEEPALIVE|Unknown option|Option \(?11|EDNS-TCP'
  want 'kdig: IXFR is refused'                  "$kask +notcp -t IXFR=1 $zone" -- 'REFUSED'
  want 'kdig: IPv6'                             "kdig @$ns1v6 +norec $service AAAA" -- 'status: NOERROR' 'IN[[:space:]]+AAAA'
else
  skip 'kdig' 'it is missing (Debian: knot-dnsutils)'
fi
