package dns

import (
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// classifyReply returns the answer's class for the rate limiter.
func (x *queryExchange) classifyReply() limitClass {
	if x.nameAbsent { // compact denial carries the code NOERROR
		return classAbsent
	}
	service := x.serviceID
	if service >= 0 {
		service = x.snapshot.ServiceOf(service)
	}
	return classifyAnswer(x.reply.Rcode, service)
}

// answerZoneKeys answers with DNSKEY, CDS or CDNSKEY.
func (x *queryExchange) answerZoneKeys() {
	s := x.zone.Signer
	if s == nil || x.lowerName != x.zone.Name {
		return
	}
	for _, d := range s.rdata[x.q.qtype] {
		x.reply.Answer = append(x.reply.Answer, newRawRR(x.q.name, x.q.qtype, s.keyTTL, d))
	}
}

// answerNSEC answers with the NSEC record of a name that exists.
func (x *queryExchange) answerNSEC() {
	if name := wireName(x.lowerName); x.zone.Signer != nil && name != nil {
		x.reply.Answer = append(x.reply.Answer, newRawRR(x.q.name, dns.TypeNSEC, x.negativeTTL(), nsecData(name, x.presentTypes())))
	}
}

// negativeTTL is how long a negative answer and its proof may be cached (RFC 9077).
func (x *queryExchange) negativeTTL() uint32 { return min(x.zone.TTL, x.zone.NegativeTTL) }

// signReply adds signatures and denial records to the answer, if requested and the zone is signed.
func (x *queryExchange) signReply(now time.Time) {
	if x.zone == nil || x.zone.Signer == nil || !x.q.queryOPT.dnssecOK || !x.reply.Authoritative {
		return
	}
	x.answerOPT.signed, x.hasSignatures = true, true
	if err := x.signSections(now); err != nil {
		x.reply.Rcode, x.reply.Answer, x.reply.Ns, x.reply.Extra = dns.RcodeServerFailure, nil, nil, nil
		x.reply.Authoritative, x.answerOPT.ede = false, edeBusy
	}
}

func (x *queryExchange) signSections(now time.Time) (err error) {
	if x.q.qtype == dns.TypeRRSIG && !x.nameAbsent { // one signature is enough (RFC 8482, 4.1): that of the NSEC, which every name has
		x.answerNSEC()
		rrs, err := x.signSection(x.reply.Answer, cacheSet, now)
		if err == nil {
			x.reply.Answer, x.reply.Ns = rrs[1:], nil
		}
		return err
	}
	if len(x.reply.Answer) == 0 {
		if err := x.addDenial(); err != nil {
			return err
		}
	} else {
		x.trimToPortion()
	}
	m, kept := x.reply, cacheSet
	if x.q.qtype == dns.TypeTXT {
		kept = cacheNone
	}
	if m.Answer, err = x.signSection(m.Answer, kept, now); err != nil {
		return err
	}
	kept = cacheSet
	if x.nameAbsent {
		kept = cacheAbsent
	}
	if m.Ns, err = x.signSection(m.Ns, kept, now); err != nil {
		return err
	}
	m.Extra, err = x.signSection(m.Extra, cacheSet, now)
	return err
}

// addDenial adds the record that denies the name or the type. A name that does not exist is denied like an absent
// type, with code 0 unless the resolver announces support (RFC 9824, 3.1 and 5.1).
func (x *queryExchange) addDenial() error {
	name := wireName(x.lowerName)
	if name == nil {
		return errSigningRate
	}
	if x.nameAbsent && !x.q.queryOPT.compactOK {
		x.reply.Rcode = dns.RcodeSuccess
	}
	x.reply.Ns = append(x.reply.Ns, newRawRR(x.q.name, dns.TypeNSEC, x.negativeTTL(), nsecData(name, x.presentTypes())))
	return nil
}

// presentTypes returns the types at the name, without the queried one if it is absent.
func (x *queryExchange) presentTypes() typeList {
	if x.nameAbsent {
		return absentList
	}
	var types []uint16
	id, steered := x.snapshot.LookupService([]byte(x.lowerName))
	if steered {
		if x.steered.Records == nil && x.steered.Kinds == 0 {
			x.steered = x.snapshot.AnswerService(id, x.clientAddr())
		}
		types = x.steered.remainingKinds(x.q.qtype).appendTypes(types)
	}
	for _, ns := range x.zone.NS {
		if ns.Name == x.lowerName {
			types = addressTypes(ns)
		}
	}
	if x.isDebugName() {
		types = append(types, dns.TypeTXT)
	}
	if x.lowerName == x.zone.Name {
		types = append(types, dns.TypeSOA, dns.TypeNS)
		for t := range x.zone.Signer.rdata {
			types = append(types, t)
		}
		if len(x.zone.CAA) > 0 {
			types = append(types, dns.TypeCAA)
		}
	}
	types = slices.DeleteFunc(types, func(t uint16) bool { return t == x.q.qtype })
	return newTypeList(types...)
}

func addressTypes(ns NameServer) (types []uint16) {
	for _, a := range ns.Addrs {
		t := dns.TypeAAAA
		if a.Unmap().Is4() {
			t = dns.TypeA
		}
		if !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	return types
}

// trimToPortion removes addresses like dropAddresses, but keeps recurring fixed portions, so that few sets need
// signatures.
func (x *queryExchange) trimToPortion() {
	size, all := recordLenA, x.reply.Answer
	switch x.q.qtype {
	case dns.TypeA:
	case dns.TypeAAAA:
		size = recordLenAAAA
	default:
		return
	}
	opt := len(x.answerOPT.appendTo(nil, &x.q.queryOPT))
	fixed := headerLen + len(wireName(x.q.name)) + 4 + opt
	first, keep := choosePortion(len(all), size, int(x.q.id), x.sizeGoal()-fixed, x.sizeLimit()-fixed-x.zone.Signer.rrsigLen())
	some := make([]dns.RR, keep)
	for i := range some {
		some[i] = all[(first+i)%len(all)]
	}
	x.reply.Answer = some
	x.firstAddr, x.keepAddrs = first, keep
}

// choosePortion selects which of n records of a size are answered: as many as fit the goal, which excludes the
// signature, and the available room; at least one. If some are left out, the number is a power of two.
func choosePortion(n, size, id, goal, room int) (first, keep int) {
	keep = max(1, min(goal, room)/size)
	if keep >= n {
		return 0, n
	}
	for keep&(keep-1) != 0 {
		keep &= keep - 1
	}
	return id % ((n + keep - 1) / keep) * keep, keep
}

// signSection adds the signatures of its record sets to a section. The records of a set are adjacent.
func (x *queryExchange) signSection(section []dns.RR, kept cachePolicy, now time.Time) ([]dns.RR, error) {
	var out []dns.RR
	for i := 0; i < len(section); {
		h := section[i].Header()
		end := i + 1
		for end < len(section) && section[end].Header().Rrtype == h.Rrtype && section[end].Header().Name == h.Name {
			end++
		}
		sigs, err := x.signSet(section[i:end], kept, now)
		if err != nil {
			return nil, err
		}
		out = append(append(out, section[i:end]...), sigs...)
		i = end
	}
	return out, nil
}

// signSet returns the signatures of one set. Key sets are signed by all keys, so that the key in the parent's DS
// validates the others; other sets are signed by the first key.
func (x *queryExchange) signSet(rrs []dns.RR, kept cachePolicy, now time.Time) ([]dns.RR, error) {
	s, h := x.zone.Signer, rrs[0].Header()
	t, data, err := x.makeAnswerSet(rrs)
	if err != nil {
		return nil, err
	}
	if t.rtype == dns.TypeSOA {
		kept = cacheSet
	}
	keys := 1
	if _, ours := s.rdata[t.rtype]; ours {
		keys = len(s.keys)
	}
	var out []dns.RR
	for key := range keys {
		sig, err := s.signatureFor(kept, key, t, data, now)
		if err != nil {
			return nil, err
		}
		out = append(out, newRawRR(h.Name, dns.TypeRRSIG, h.Ttl, sig))
	}
	return out, nil
}

// makeAnswerSet returns the cache key of a signature of the records, and their data.
func (x *queryExchange) makeAnswerSet(rrs []dns.RR) (*answerSet, [][]byte, error) {
	h := rrs[0].Header()
	t := &answerSet{owner: []byte(strings.ToLower(h.Name)), rtype: h.Rrtype, ttl: h.Ttl}
	data := make([][]byte, len(rrs))
	for i, rr := range rrs {
		d, err := packData(rr)
		if err != nil {
			return nil, nil, err
		}
		data[i] = d
	}
	kind := kindOfType(t.rtype)
	switch {
	case t.rtype == dns.TypeSOA: // it is sent with two TTLs
		t.ttl, t.digest = x.zone.TTL, computeDigest(data...)
	case t.rtype == dns.TypeNSEC:
		t.digest = computeDigest(data[0][len(nextName(wireName(string(t.owner)))):]) // as computed for a typeList
	case kind != 0 && x.steered.OK && x.steered.Records != nil && h.Name == x.q.name: // as the fast path finds it
		t.digest, t.firstAddr, t.keepAddrs = x.steered.Records.digestFor(t.rtype), uint16(x.firstAddr), uint16(x.keepAddrs)
		t.ttl = max(t.ttl, x.steered.FullTTL)
	default:
		t.digest = computeDigest(data...)
	}
	return t, data, nil
}

// packData returns a record's data in wire format.
func packData(rr dns.RR) ([]byte, error) {
	b := make([]byte, dns.Len(rr)+maxName)
	n, err := dns.PackRR(rr, b, 0, nil, false)
	if err != nil {
		return nil, err
	}
	return b[len(wireName(rr.Header().Name))+10 : n], nil
}
