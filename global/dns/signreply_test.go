package dns

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"pgregory.net/rapid"
)

func newTestKey(t testing.TB, fill byte) *SigningKey {
	t.Helper()
	k, err := NewSigningKey(bytes.Repeat([]byte{fill}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// signWith signs a zone with keys.
func (w *fakeSnapshot) signWith(t testing.TB, wish CDSAction, keys ...*SigningKey) *fakeSnapshot {
	t.Helper()
	s, err := NewSigner(SignerConfig{Zone: w.zone.Name, Keys: keys, KeyTTL: 3600, Lifetime: 72 * time.Hour, CDS: wish, Cache: NewSignatureCache()})
	if err != nil {
		t.Fatal(err)
	}
	w.zone.Signer = s
	return w
}

func newSignedSnapshot(t testing.TB) *fakeSnapshot {
	w := newHTTPSSnapshot()
	w.zone.CAA = []CAA{{Tag: "issue", Value: "letsencrypt.org"}}
	return w.signWith(t, CDSPublish, newTestKey(t, 1))
}

// validator trusts one DS, like a resolver.
type validator struct {
	ds   *dns.DS
	keys []*dns.DNSKEY
	now  time.Time
}

// newValidator fetches the keys and validates them by the DS.
func newValidator(t testing.TB, p *pathPair, ds string) *validator {
	t.Helper()
	rr, err := dns.NewRR("api.example. 3600 IN DS " + ds)
	if err != nil {
		t.Fatal(err)
	}
	v := &validator{ds: rr.(*dns.DS), now: time.Now()}
	m := p.askSigned(t, plainQuery("api.example.", dns.TypeDNSKEY))
	for _, rr := range m.Answer {
		if k, ok := rr.(*dns.DNSKEY); ok {
			v.keys = append(v.keys, k)
		}
	}
	trusted := slices.IndexFunc(v.keys, func(k *dns.DNSKEY) bool {
		d := k.ToDS(dns.SHA256)
		return d.Digest == strings.ToLower(v.ds.Digest) && d.KeyTag == v.ds.KeyTag
	})
	if trusted < 0 {
		t.Fatalf("none of the keys is that of the DS: %v", m)
	}
	all := v.keys
	v.keys = all[trusted : trusted+1]
	v.checkSection(t, m.Answer)
	v.keys = all
	return v
}

// checkSection checks that each record set in the section has a valid signature.
func (v *validator) checkSection(t testing.TB, section []dns.RR) {
	t.Helper()
	sets := map[string][]dns.RR{}
	var sigs []*dns.RRSIG
	for _, rr := range section {
		if s, ok := rr.(*dns.RRSIG); ok {
			sigs = append(sigs, s)
			continue
		}
		h := rr.Header()
		if h.Rrtype == dns.TypeOPT {
			continue
		}
		key := strings.ToLower(h.Name) + dns.TypeToString[h.Rrtype]
		sets[key] = append(sets[key], rr)
	}
	for name, set := range sets {
		proved := false
		for _, s := range sigs {
			if strings.ToLower(s.Hdr.Name)+dns.TypeToString[s.TypeCovered] != name {
				continue
			}
			if s.Hdr.Ttl != set[0].Header().Ttl || s.OrigTtl < s.Hdr.Ttl || s.Algorithm != dns.ECDSAP256SHA256 || s.SignerName != "api.example." {
				t.Errorf("the signature of %s does not go with it: %v", name, s)
			}
			if !s.ValidityPeriod(v.now) || !s.ValidityPeriod(v.now.Add(48*time.Hour)) || !s.ValidityPeriod(v.now.Add(-30*time.Minute)) {
				t.Errorf("the signature of %s is not valid around now: %v", name, s)
			}
			for _, k := range v.keys {
				proved = proved || k.KeyTag() == s.KeyTag && s.Verify(k, set) == nil
			}
		}
		if !proved {
			t.Errorf("nothing proves %s: %v\n%v", name, set, sigs)
		}
	}
}

// findNSEC returns the one NSEC record of an answer.
func findNSEC(m *dns.Msg) *dns.NSEC {
	for _, rr := range append(slices.Clone(m.Ns), m.Answer...) {
		if n, ok := rr.(*dns.NSEC); ok {
			return n
		}
	}
	return nil
}

// askSigned queries over UDP with DO, and also over the fast path if it answers.
func (p *pathPair) askSigned(t testing.TB, q []byte) *dns.Msg {
	t.Helper()
	msg := appendOPT(q, 1232, bitDO, nil)
	return p.exchangeBoth(t, msg, UDP)
}

func (p *pathPair) exchangeBoth(t testing.TB, msg []byte, by Transport) *dns.Msg {
	t.Helper()
	out, _, ok := p.slow.handleMessage(make([]byte, 0, 2*maxUDPSize), msg, defaultAddr, by)
	if !ok {
		t.Fatalf("no answer to %x", msg)
	}
	m := unpackMessage(t, out)
	if by == UDP {
		p.checkAgree(t, msg, defaultAddr)
	}
	return m
}

// TestEveryAnswerValidates queries all existing names and types and absent ones, and validates every answer from the
// DS down.
func TestEveryAnswerValidates(t *testing.T) {
	w := newSignedSnapshot(t)
	p := newPathPair(w)
	v := newValidator(t, p, newTestKey(t, 1).DS("api.example."))
	for _, c := range []struct {
		name  string
		qtype uint16
		types string // of the NSEC if the answer is a denial
	}{
		{"chat.api.example.", dns.TypeA, ""},
		{"ChAt.ApI.eXaMpLe.", dns.TypeA, ""},
		{"chat.api.example.", dns.TypeAAAA, "A SVCB HTTPS"},
		{"CHAT.api.example.", dns.TypeAAAA, "A SVCB HTTPS"},
		{"chat.api.example.", dns.TypeHTTPS, ""},
		{"chat.api.example.", dns.TypeSVCB, ""},
		{"chat.api.example.", dns.TypeTXT, "A SVCB HTTPS"},
		{"chat.api.example.", dns.TypeMX, "A SVCB HTTPS"},
		{"chat.api.example.", dns.TypeDNSKEY, "A SVCB HTTPS"},
		{"eu.chat.api.example.", dns.TypeA, ""},
		{"wide.api.example.", dns.TypeA, ""},
		{"wide.api.example.", dns.TypeAAAA, ""},
		{"six.deep.api.example.", dns.TypeAAAA, ""},
		{"six.deep.api.example.", dns.TypeA, "AAAA SVCB HTTPS"},
		{"idle.api.example.", dns.TypeA, " "},
		{"deep.api.example.", dns.TypeA, " "},
		{"api.example.", dns.TypeSOA, ""},
		{"api.example.", dns.TypeNS, ""},
		{"api.example.", dns.TypeCAA, ""},
		{"api.example.", dns.TypeDNSKEY, ""},
		{"api.example.", dns.TypeCDS, ""},
		{"api.example.", dns.TypeCDNSKEY, ""},
		{"api.example.", dns.TypeA, "NS SOA DNSKEY CDS CDNSKEY CAA"},
		{"api.example.", dns.TypeDS, "NS SOA DNSKEY CDS CDNSKEY CAA"},
		{"ns1.dns.api.example.", dns.TypeA, ""},
		{"ns1.dns.api.example.", dns.TypeAAAA, ""},
		{"ns1.dns.api.example.", dns.TypeTXT, "A AAAA"},
		{"_why.chat.api.example.", dns.TypeTXT, ""},
		{"_why.chat.api.example.", dns.TypeA, "TXT"},
		{"_whoami.api.example.", dns.TypeTXT, ""},
		{"chat.api.example.", dns.TypeANY, ""},
		{"nope.api.example.", dns.TypeA, "NXNAME"},
		{"NOPE.a.b.api.example.", dns.TypeTXT, "NXNAME"},
		{"*.api.example.", dns.TypeA, "NXNAME"},
		{`\000.chat.api.example.`, dns.TypeA, "NXNAME"},
		{`a\.b\"\007.api.example.`, dns.TypeNSEC, "NXNAME"},
		{"nope.api.example.", dns.TypeRRSIG, "NXNAME"},
	} {
		t.Run(c.name+" "+dns.TypeToString[c.qtype], func(t *testing.T) {
			q := new(dns.Msg).SetQuestion(c.name, c.qtype)
			raw, err := q.Pack()
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time the signatures are cached
				m := p.exchangeBoth(t, appendOPT(raw, 1232, bitDO, nil), UDP)
				if m.Truncated {
					m = p.exchangeBoth(t, appendOPT(raw, 1232, bitDO, nil), TCP)
				}
				v.checkSection(t, m.Answer)
				v.checkSection(t, m.Ns)
				v.checkSection(t, m.Extra)
				v.checkDenial(t, m, c.types)
			}
		})
	}
}

// checkDenial compares the NSEC of an answer with the expected types; without types, it checks that there is no NSEC.
func (v *validator) checkDenial(t *testing.T, m *dns.Msg, types string) {
	t.Helper()
	n := findNSEC(m)
	if types == "" {
		if n != nil || len(m.Answer) < 2 || m.Rcode != dns.RcodeSuccess {
			t.Fatalf("not an answer: %v", m)
		}
		return
	}
	if n == nil || len(m.Answer) > 0 || len(m.Ns) != 4 || m.Rcode != dns.RcodeSuccess {
		t.Fatalf("not a denial: %v", m)
	}
	want := []uint16{dns.TypeRRSIG, dns.TypeNSEC}
	for _, name := range strings.Fields(types) {
		want = append(want, dns.StringToType[name])
	}
	slices.Sort(want)
	if !slices.Equal(n.TypeBitMap, want) {
		t.Errorf("the denial has the types %v, want %v", n.TypeBitMap, want)
	}
	name := m.Question[0].Name
	if n.Hdr.Name != name || n.NextDomain != `\000.`+strings.ToLower(name) || n.Hdr.Ttl != 30 {
		t.Errorf("the denial of %s is %v", name, n)
	}
}

func TestDNSSECTypesCanBeQueried(t *testing.T) {
	p := newPathPair(newSignedSnapshot(t))
	v := newValidator(t, p, newTestKey(t, 1).DS("api.example."))
	m := p.askSigned(t, plainQuery("chat.api.example.", dns.TypeNSEC))
	v.checkSection(t, m.Answer)
	if n := findNSEC(m); len(m.Answer) != 2 || n == nil || !slices.Contains(n.TypeBitMap, dns.TypeA) {
		t.Errorf("NSEC is answered %v", m)
	}
	m = p.askSigned(t, plainQuery("chat.api.example.", dns.TypeRRSIG))
	if len(m.Answer) != 1 || len(m.Ns) != 0 || m.Answer[0].(*dns.RRSIG).TypeCovered != dns.TypeNSEC {
		t.Errorf("RRSIG is answered %v", m)
	}
	m = p.askSigned(t, plainQuery("chat.api.example.", dns.TypeNXNAME))
	if m.Rcode != dns.RcodeFormatError || m.Authoritative || !strings.Contains(m.IsEdns0().String(), "EDE: 30") {
		t.Errorf("NXNAME is answered %v", m)
	}
}

// TestAnswersWithoutDOAreUnsigned checks that without DO the answers are those of an unsigned zone, NXDOMAIN
// included.
func TestAnswersWithoutDOAreUnsigned(t *testing.T) {
	plain, signed := newPathPair(newHTTPSSnapshot()), newPathPair(newHTTPSSnapshot().signWith(t, CDSPublish, newTestKey(t, 1)))
	for _, name := range []string{"chat.api.example.", "nope.api.example.", "api.example.", "deep.api.example."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeNS, dns.TypeTXT, dns.TypeANY} {
			for _, q := range [][]byte{plainQuery(name, qtype), appendOPT(plainQuery(name, qtype), 1232, 0x4000, nil)} {
				a, b := plain.exchangeBoth(t, q, UDP), signed.exchangeBoth(t, q, UDP)
				if a.String() != b.String() {
					t.Errorf("%s %d: %v and %v", name, qtype, a, b)
				}
			}
		}
	}
	if m := signed.exchangeBoth(t, plainQuery("api.example.", dns.TypeDNSKEY), UDP); len(m.Answer) != 1 {
		t.Errorf("the keys are not answered without DO: %v", m)
	}
}

// TestCompactDenialFlag checks the rules of RFC 9824, 5.1 for the flag.
func TestCompactDenialFlag(t *testing.T) {
	p := newPathPair(newSignedSnapshot(t))
	v := newValidator(t, p, newTestKey(t, 1).DS("api.example."))
	const co = 0x4000
	m := p.exchangeBoth(t, appendOPT(plainQuery("nope.api.example.", dns.TypeA), 1232, bitDO|co, nil), UDP)
	if m.Rcode != dns.RcodeNameError || m.IsEdns0().Hdr.Ttl&co == 0 || !m.IsEdns0().Do() {
		t.Errorf("NXDOMAIN is not restored: %v", m)
	}
	v.checkSection(t, m.Ns)
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		m = p.exchangeBoth(t, appendOPT(plainQuery("chat.api.example.", qtype), 1232, bitDO|co, nil), UDP)
		if m.Rcode != dns.RcodeSuccess || m.IsEdns0().Hdr.Ttl&co == 0 {
			t.Errorf("the flag is not returned: %v", m)
		}
	}
	if m = p.askSigned(t, plainQuery("nope.api.example.", dns.TypeA)); m.Rcode != dns.RcodeSuccess || m.IsEdns0().Hdr.Ttl&co != 0 {
		t.Errorf("the flag is set for a client that did not set it: %v", m)
	}
}

// TestNodesMakeTheSameSignatures checks that a signature depends only on the keys and the hour.
func TestNodesMakeTheSameSignatures(t *testing.T) {
	a, b := newPathPair(newSignedSnapshot(t)), newPathPair(newSignedSnapshot(t))
	for _, name := range []string{"chat.api.example.", "nope.api.example.", "api.example."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeDNSKEY} {
			if x, y := a.askSigned(t, plainQuery(name, qtype)), b.askSigned(t, plainQuery(name, qtype)); x.String() != y.String() {
				t.Errorf("two nodes answer\n%v\n%v", x, y)
			}
		}
	}
}

// TestShortenedTTLKeepsTheSignature checks that an answer with a TTL shortened by a drain keeps its usual signature.
func TestShortenedTTLKeepsTheSignature(t *testing.T) {
	w := newSignedSnapshot(t)
	p := newPathPair(w)
	v := newValidator(t, p, newTestKey(t, 1).DS("api.example."))
	p.askSigned(t, plainQuery("chat.api.example.", dns.TypeA))
	made := w.zone.Signer.cache.Made()
	w.shortTTL = 5
	m := p.askSigned(t, plainQuery("chat.api.example.", dns.TypeA))
	v.checkSection(t, m.Answer)
	if m.Answer[0].Header().Ttl != 5 || w.zone.Signer.cache.Made() != made || m.Answer[1].(*dns.RRSIG).OrigTtl != 20 {
		t.Errorf("a shortened answer is signed again: %v", m)
	}
	if !p.checkAgree(t, appendOPT(plainQuery("chat.api.example.", dns.TypeA), 1232, bitDO, nil), defaultAddr) {
		t.Error("the fast path declines a shortened answer")
	}
}

// TestKeyRollKeepsBothKeysInTheSet checks that either key validates the set, and that the first signs answers.
func TestKeyRollKeepsBothKeysInTheSet(t *testing.T) {
	old, next := newTestKey(t, 1), newTestKey(t, 2)
	for _, keys := range [][]*SigningKey{{old, next}, {next, old}} {
		p := newPathPair(newHTTPSSnapshot().signWith(t, CDSPublish, keys...))
		for _, trusted := range keys {
			v := newValidator(t, p, trusted.DS("api.example."))
			m := p.askSigned(t, plainQuery("api.example.", dns.TypeCDS))
			v.keys = slices.DeleteFunc(v.keys, func(k *dns.DNSKEY) bool { return k.KeyTag() != trusted.Tag() })
			v.checkSection(t, m.Answer)
		}
		v := newValidator(t, p, keys[1].DS("api.example."))
		m := p.askSigned(t, plainQuery("chat.api.example.", dns.TypeA))
		v.checkSection(t, m.Answer)
		if sig := m.Answer[1].(*dns.RRSIG); len(m.Answer) != 2 || sig.KeyTag != keys[0].Tag() {
			t.Errorf("the answer is signed by %d, want %d alone", sig.KeyTag, keys[0].Tag())
		}
	}
	if m := newPathPair(newHTTPSSnapshot().signWith(t, CDSDelete, old)).askSigned(t, plainQuery("api.example.", dns.TypeCDS)); m.Answer[0].(*dns.CDS).String() != "api.example.\t3600\tIN\tCDS\t0 0 0 00" {
		t.Errorf("the parent is asked to remove the DS by %v", m.Answer[0])
	}
	if m := newPathPair(newHTTPSSnapshot().signWith(t, CDSNone, old)).askSigned(t, plainQuery("api.example.", dns.TypeCDS)); len(m.Answer) != 0 || slices.Contains(findNSEC(m).TypeBitMap, dns.TypeCDS) {
		t.Errorf("the answer has CDS or CDNSKEY: %v", m)
	}
}

// TestSignedAnswersFitTheSizeLimit checks the limits: an answer that does not fit is truncated, or its addresses are
// sent in portions that are separate sets.
func TestSignedAnswersFitTheSizeLimit(t *testing.T) {
	w := newSignedSnapshot(t)
	p := newPathPair(w)
	v := newValidator(t, p, newTestKey(t, 1).DS("api.example."))
	sets := map[string]bool{}
	for id := range 400 {
		for _, size := range []uint16{512, 700, 1232} {
			q := appendOPT(modifyCopy(plainQuery("wide.api.example.", dns.TypeAAAA), func(b []byte) { b[0], b[1] = byte(id>>8), byte(id) }), size, bitDO, nil)
			out, _, _ := p.slow.handleMessage(make([]byte, 0, 2*maxUDPSize), q, defaultAddr, UDP)
			if len(out) > int(size) || len(out) > maxAmplification*len(q)+w.zone.Signer.rrsigLen()+recordLenAAAA {
				t.Fatalf("%d bytes to one that takes %d and asked with %d", len(out), size, len(q))
			}
			m := unpackMessage(t, out)
			if m.Truncated || len(m.Answer) < 2 {
				t.Fatalf("nothing left: %v", m)
			}
			if set := fmt.Sprint(m.Answer[:len(m.Answer)-1]); !sets[set] {
				sets[set] = true
				v.checkSection(t, m.Answer)
			}
			p.checkAgree(t, q, defaultAddr)
		}
	}
	if len(sets) > 4*w.addrCount {
		t.Errorf("%d sets of %d addresses had to be signed", len(sets), w.addrCount)
	}
	w.addrCount = 3
	m := p.exchangeBoth(t, appendOPT(plainQuery("api.example.", dns.TypeDNSKEY), 512, bitDO, nil), UDP)
	if v.checkSection(t, m.Answer); m.Truncated || len(m.Answer) != 2 {
		t.Errorf("the keys do not fit 512 bytes: %v", m)
	}
	w.zone.CAA = slices.Repeat([]CAA{{Tag: "issue", Value: strings.Repeat("x", 200)}}, 2)
	if m = p.exchangeBoth(t, appendOPT(plainQuery("api.example.", dns.TypeCAA), 512, bitDO, nil), UDP); !m.Truncated || len(m.Answer) != 0 {
		t.Errorf("a signature was left out: %v", m)
	}
}

// TestFastPathAnswersFromTheSignatureCache checks that after the first query the fast path answers.
func TestFastPathAnswersFromTheSignatureCache(t *testing.T) {
	p := newPathPair(newSignedSnapshot(t))
	for _, name := range []string{"chat.api.example.", "ChAt.aPi.ExAmPlE.", "eu.chat.api.example.", "six.deep.api.example.", "wide.api.example."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeSVCB} {
			q := plainQuery(name, qtype)
			for what, msg := range map[string][]byte{
				"plain": appendOPT(q, 1232, bitDO, nil), "compact": appendOPT(q, 1232, bitDO|0x4000, nil), "subnet": appendOPT(q, 4096, bitDO, encodeSubnet(1, 24, 0, 81, 2, 69)),
				"cookie": appendOPT(q, 1232, bitDO, encodeOption(10, make([]byte, 8)...)), "small": appendOPT(q, 700, bitDO, nil),
			} {
				p.checkAgree(t, msg, defaultAddr)
				p.exchangeBoth(t, msg, UDP)
				wide := name == "wide.api.example." && (qtype == dns.TypeHTTPS || qtype == dns.TypeSVCB)
				if !p.checkAgree(t, msg, defaultAddr) && !wide {
					t.Errorf("%s %s %s is declined", name, dns.TypeToString[qtype], what)
				}
			}
		}
	}
}

// TestSigningOfAbsentNamesIsBounded checks that a flood of names that do not exist costs a bounded part of a
// processor, and evicts no signature of existing names.
func TestSigningOfAbsentNamesIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock stands still
		w := newSignedSnapshot(t)
		p := newPathPair(w)
		p.askSigned(t, plainQuery("chat.api.example.", dns.TypeA))
		kept, now := w.zone.Signer.cache, time.Now()
		for range 2 * uncachedSignsPerSecond {
			kept.allowUncached(now)
		}
		if kept.Refused() == 0 {
			t.Fatal("nothing is ever refused")
		}
		m := p.askSigned(t, plainQuery("more.api.example.", dns.TypeA))
		if m.Rcode != dns.RcodeServerFailure || !strings.Contains(m.IsEdns0().String(), "EDE: 14") || len(m.Ns) != 0 {
			t.Errorf("one name too many is answered %v", m)
		}
		if m = p.askSigned(t, plainQuery("chat.api.example.", dns.TypeAAAA)); m.Rcode != dns.RcodeSuccess || len(m.Ns) != 4 {
			t.Errorf("a name that exists is answered %v", m)
		}
		if !kept.allowUncached(now.Add(3 * time.Second)) {
			t.Error("it never ends")
		}
		if !kept.allowUncached(now.Add(-time.Hour)) {
			t.Error("a clock that goes back stops it")
		}
	})
}

// TestSignaturesAreRenewedInTime advances the clock through a week.
func TestSignaturesAreRenewedInTime(t *testing.T) {
	s := newSignedSnapshot(t).zone.Signer
	set := &answerSet{owner: []byte("chat.api.example."), rtype: dns.TypeA, ttl: 20}
	begin, last := time.Now().Truncate(time.Minute), ""
	changes := 0
	for now := begin; now.Before(begin.Add(7 * 24 * time.Hour)); now = now.Add(10 * time.Minute) {
		sig, err := s.signatureFor(cacheSet, 0, set, [][]byte{{1, 2, 3, 4}}, now)
		if err != nil {
			t.Fatal(err)
		}
		if string(sig) != last {
			last = string(sig)
			changes++
		}
		m := &dns.RRSIG{}
		m.Expiration, m.Inception = readUint32(sig[8:]), readUint32(sig[12:])
		if !m.ValidityPeriod(now) || !m.ValidityPeriod(now.Add(53*time.Hour)) || !m.ValidityPeriod(now.Add(-59*time.Minute)) {
			t.Fatalf("at %s the signature is valid from %d to %d", now, m.Inception, m.Expiration)
		}
	}
	if changes < 9 || changes > 11 || s.cache.Made() != uint64(changes) {
		t.Errorf("%d signatures in a week, %d made; want one every 18 hours", changes, s.cache.Made())
	}
}

func readUint32(b []byte) uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// TestNextNameIsAdjacent checks that the next name sorts after, and that no name fits between, for names of any
// length.
func TestNextNameIsAdjacent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var name []byte
		for len(name) < maxName-65 && rapid.IntRange(0, 9).Draw(t, "more") > 0 {
			name = appendLabel(t, name, rapid.IntRange(1, 63).Draw(t, "label"))
		}
		for rest := maxName - 1 - len(name); rest > 1 && rapid.Bool().Draw(t, "fill"); rest = maxName - 1 - len(name) {
			name = appendLabel(t, name, min(rest-1, 63))
		}
		name = append(name, 0)
		next := nextName(name)
		if len(next) > maxName {
			t.Fatalf("%x is too long", next)
		}
		if len(name) > 1 && compareCanonical(name, next) >= 0 && bytes.IndexFunc(name[1:], func(r rune) bool { return r != 0xff }) >= 0 && name[1] != 0xff {
			t.Fatalf("%x is not behind %x", next, name)
		}
	})
}

func appendLabel(t *rapid.T, b []byte, n int) []byte {
	b = append(b, byte(n))
	for range n {
		b = append(b, rapid.SampledFrom([]byte("\x00@-09[_az\xfe\xff")).Draw(t, "octet"))
	}
	return b
}

// compareCanonical compares names in wire format in the order of RFC 4034, 6.1.
func compareCanonical(a, b []byte) int {
	x, y := splitLabels(a), splitLabels(b)
	for i := 0; i < len(x) && i < len(y); i++ {
		if c := bytes.Compare(x[len(x)-1-i], y[len(y)-1-i]); c != 0 {
			return c
		}
	}
	return len(x) - len(y)
}

func splitLabels(b []byte) (labels [][]byte) {
	for b[0] != 0 {
		labels = append(labels, b[1:1+b[0]])
		b = b[1+b[0]:]
	}
	return labels
}

// TestLongNamesAreDenied queries names that leave no room for the usual next name.
func TestLongNamesAreDenied(t *testing.T) {
	p := newPathPair(newSignedSnapshot(t))
	v := newValidator(t, p, newTestKey(t, 1).DS("api.example."))
	for n := 230; n <= maxName-len(wireName("api.example.")); n++ {
		name := ""
		for rest := n; rest > 1; {
			l := min(63, rest-1)
			if rest-1-l == 1 {
				l--
			}
			name += strings.Repeat("x", l) + "."
			rest -= l + 1
		}
		m := p.exchangeBoth(t, appendOPT(plainQuery(name+"api.example.", dns.TypeA), 1232, bitDO, nil), UDP)
		v.checkSection(t, m.Ns)
		if d := findNSEC(m); d == nil || !strings.EqualFold(d.Hdr.Name, name+"api.example.") || d.NextDomain == d.Hdr.Name {
			t.Fatalf("a name of %d octets is answered %v", n+13, m)
		}
	}
}

func TestKeysHideTheirSecret(t *testing.T) {
	k := newTestKey(t, 'S')
	for _, text := range []string{fmt.Sprint(k), fmt.Sprintf("%v %+v %#v %s", k, k, k, k), k.DNSKEY(), k.DS("api.example.")} {
		if strings.Contains(text, "SSSS") || strings.Contains(text, "83 83") || strings.Contains(text, "5353") {
			t.Errorf("printed as %s", text)
		}
	}
	for _, bad := range [][]byte{nil, make([]byte, 32), bytes.Repeat([]byte{0xff}, 32), make([]byte, 31)} {
		if _, err := NewSigningKey(bad); err == nil {
			t.Errorf("%x is accepted as a key", bad)
		}
	}
}

// TestFastPathSignedAnswersAllocateNothing checks answers and denials.
func TestFastPathSignedAnswersAllocateNothing(t *testing.T) {
	w := newStaticSnapshot()
	w.fakeSnapshot = newSignedSnapshot(t)
	p := newPathPair(nil)
	p.slow.snapshot = func() Snapshot { return w }
	buf, now := make([]byte, maxUDPSize), time.Now()
	for what, msg := range map[string][]byte{
		"answer": appendOPT(plainQuery("chat.api.example.", dns.TypeA), 1232, bitDO, nil),
		"denial": appendOPT(plainQuery("chat.api.example.", dns.TypeAAAA), 1232, bitDO, nil),
	} {
		p.slow.handleMessage(make([]byte, 0, 2*maxUDPSize), msg, defaultAddr, UDP)
		if n := testing.AllocsPerRun(1000, func() {
			if _, _, ok := p.fast.answerQuery(buf, msg, defaultAddr, now); !ok {
				t.Fatal("declined")
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
}

func BenchmarkSignedAnswers(b *testing.B) {
	w := newStaticSnapshot()
	w.fakeSnapshot = newSignedSnapshot(b)
	p := newPathPair(nil)
	p.slow.snapshot = func() Snapshot { return w }
	buf, now := make([]byte, maxUDPSize), time.Now()
	for _, c := range []struct {
		what string
		msg  []byte
	}{
		{"unsigned", appendOPT(plainQuery("chat.api.example.", dns.TypeA), 1232, 0, nil)},
		{"answer", appendOPT(plainQuery("chat.api.example.", dns.TypeA), 1232, bitDO, nil)},
		{"denial", appendOPT(plainQuery("chat.api.example.", dns.TypeAAAA), 1232, bitDO, nil)},
	} {
		p.slow.handleMessage(make([]byte, 0, 2*maxUDPSize), c.msg, defaultAddr, UDP)
		b.Run(c.what, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, ok := p.fast.answerQuery(buf, c.msg, defaultAddr, now); !ok {
					b.Fatal("declined")
				}
			}
		})
	}
	b.Run("signing", func(b *testing.B) {
		set := &answerSet{owner: []byte("chat.api.example."), rtype: dns.TypeA, ttl: 20}
		for b.Loop() {
			if _, err := w.zone.Signer.makeSignature(0, set, [][]byte{{1, 2, 3, 4}}, now.Unix()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
