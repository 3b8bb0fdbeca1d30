package dns

import (
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// class is what the answer counts as to the limiter.
func (x *exchange) class() class {
	if x.absent { // a denial in compact form is no error by its code
		return classAbsent
	}
	service := x.service
	if service >= 0 {
		service = x.view.ServiceOf(service)
	}
	return classOf(x.reply.Rcode, service)
}

// keys answers with one of the sets that are about the zone's keys.
func (x *exchange) keys() {
	s := x.zone.Signer
	if s == nil || x.lower != x.zone.Name {
		return
	}
	for _, d := range s.rdata[x.q.qtype] {
		x.reply.Answer = append(x.reply.Answer, rawRR(x.q.name, x.q.qtype, s.keyTTL, d))
	}
}

// denial answers with the NSEC record of a name that exists.
func (x *exchange) denial() {
	if name := wireName(x.lower); x.zone.Signer != nil && name != nil {
		x.reply.Answer = append(x.reply.Answer, rawRR(x.q.name, dns.TypeNSEC, x.negativeTTL(), nsec(name, x.list())))
	}
}

// negativeTTL is how long an absence may be remembered, and its proof with it (RFC 9077).
func (x *exchange) negativeTTL() uint32 { return min(x.zone.TTL, x.zone.Negative) }

// prove adds to the answer what proves it, where that is asked for and the zone is signed.
func (x *exchange) prove(now time.Time) {
	if x.zone == nil || x.zone.Signer == nil || !x.q.options.do || !x.reply.Authoritative {
		return
	}
	x.remarks.signed, x.proved = true, true
	if err := x.signAll(now); err != nil {
		x.reply.Rcode, x.reply.Answer, x.reply.Ns, x.reply.Extra = dns.RcodeServerFailure, nil, nil, nil
		x.reply.Authoritative, x.remarks.ede = false, edeBusy
	}
}

func (x *exchange) signAll(now time.Time) (err error) {
	if x.q.qtype == dns.TypeRRSIG && !x.absent { // one of them will do (RFC 8482, 4.1): that of what every name has
		x.denial()
		rrs, err := x.signed(x.reply.Answer, keepSet, now)
		if err == nil {
			x.reply.Answer, x.reply.Ns = rrs[1:], nil
		}
		return err
	}
	if len(x.reply.Answer) == 0 {
		if err := x.deny(); err != nil {
			return err
		}
	} else {
		x.portion()
	}
	m, kept := x.reply, keepSet
	if x.q.qtype == dns.TypeTXT {
		kept = keepNot
	}
	if m.Answer, err = x.signed(m.Answer, kept, now); err != nil {
		return err
	}
	kept = keepSet
	if x.absent {
		kept = keepAbsent
	}
	if m.Ns, err = x.signed(m.Ns, kept, now); err != nil {
		return err
	}
	m.Extra, err = x.signed(m.Extra, keepSet, now)
	return err
}

// deny adds the record that denies the name or the type. A name that does not exist is denied as if it were only the
// type, with code 0 unless the resolver knows better (RFC 9824, 3.1 and 5.1).
func (x *exchange) deny() error {
	name := wireName(x.lower)
	if name == nil {
		return errTooMany
	}
	if x.absent && !x.q.options.co {
		x.reply.Rcode = dns.RcodeSuccess
	}
	x.reply.Ns = append(x.reply.Ns, rawRR(x.q.name, dns.TypeNSEC, x.negativeTTL(), nsec(name, x.list())))
	return nil
}

// list is what types there are at the name, without the one that was asked for and is not there.
func (x *exchange) list() typeList {
	if x.absent {
		return absentList
	}
	var types []uint16
	id, steered := x.view.Lookup([]byte(x.lower))
	if steered {
		if x.given.Ready == nil && x.given.Kinds == 0 {
			x.given = x.view.Answer(id, x.client())
		}
		types = x.given.denied(x.q.qtype).types(types)
	}
	for _, ns := range x.zone.NS {
		if ns.Name == x.lower {
			types = addressTypes(ns)
		}
	}
	if x.explains() {
		types = append(types, dns.TypeTXT)
	}
	if x.lower == x.zone.Name {
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

// portion leaves out addresses as thin does, but whole portions that return, so that there are few sets to sign.
func (x *exchange) portion() {
	size, all := sizeA, x.reply.Answer
	switch x.q.qtype {
	case dns.TypeA:
	case dns.TypeAAAA:
		size = sizeAAAA
	default:
		return
	}
	opt := len(x.remarks.append(nil, &x.q.options))
	fixed := headerLen + len(wireName(x.q.name)) + 4 + opt
	first, keep := portion(len(all), size, int(x.q.id), x.goal()-fixed, x.limit()-fixed-x.zone.Signer.sizeRRSIG())
	some := make([]dns.RR, keep)
	for i := range some {
		some[i] = all[(first+i)%len(all)]
	}
	x.reply.Answer = some
	x.first, x.keep = first, keep
}

// portion says which of n records of a size are answered: as many as fit the goal, which counts without their signature,
// and the room that there is beside it; one at the least. Where some are left out, their number is a power of two.
func portion(n, size, id, goal, room int) (first, keep int) {
	keep = max(1, min(goal, room)/size)
	if keep >= n {
		return 0, n
	}
	for keep&(keep-1) != 0 {
		keep &= keep - 1
	}
	return id % ((n + keep - 1) / keep) * keep, keep
}

// signed adds to a section the signatures of the sets in it. The records of a set stand together.
func (x *exchange) signed(section []dns.RR, kept keeping, now time.Time) ([]dns.RR, error) {
	var out []dns.RR
	for i := 0; i < len(section); {
		h := section[i].Header()
		end := i + 1
		for end < len(section) && section[end].Header().Rrtype == h.Rrtype && section[end].Header().Name == h.Name {
			end++
		}
		sigs, err := x.signatures(section[i:end], kept, now)
		if err != nil {
			return nil, err
		}
		out = append(append(out, section[i:end]...), sigs...)
		i = end
	}
	return out, nil
}

// signatures are those of one set: by all keys where it is about the keys, so that whichever of them the parent shows
// proves the others, and by the first key else.
func (x *exchange) signatures(rrs []dns.RR, kept keeping, now time.Time) ([]dns.RR, error) {
	s, h := x.zone.Signer, rrs[0].Header()
	t, data, err := x.answerSet(rrs)
	if err != nil {
		return nil, err
	}
	if t.rtype == dns.TypeSOA {
		kept = keepSet
	}
	keys := 1
	if _, ours := s.rdata[t.rtype]; ours {
		keys = len(s.keys)
	}
	var out []dns.RR
	for key := range keys {
		sig, err := s.signature(kept, key, t, data, now)
		if err != nil {
			return nil, err
		}
		out = append(out, rawRR(h.Name, dns.TypeRRSIG, h.Ttl, sig))
	}
	return out, nil
}

// answerSet is what a signature of the records is found by, with their data.
func (x *exchange) answerSet(rrs []dns.RR) (*answerSet, [][]byte, error) {
	h := rrs[0].Header()
	t := &answerSet{owner: []byte(strings.ToLower(h.Name)), rtype: h.Rrtype, ttl: h.Ttl}
	data := make([][]byte, len(rrs))
	for i, rr := range rrs {
		d, err := dataOf(rr)
		if err != nil {
			return nil, nil, err
		}
		data[i] = d
	}
	kind := kindOf(t.rtype)
	switch {
	case t.rtype == dns.TypeSOA: // it is sent with two TTLs
		t.ttl, t.digest = x.zone.TTL, digestOf(data...)
	case t.rtype == dns.TypeNSEC:
		t.digest = digestOf(data[0][len(successor(wireName(string(t.owner)))):]) // as newTypeList has it
	case kind != 0 && x.given.OK && x.given.Ready != nil && h.Name == x.q.name: // as the fast path finds it
		t.digest, t.first, t.keep = x.given.Ready.digest(t.rtype), uint16(x.first), uint16(x.keep)
		t.ttl = max(t.ttl, x.given.Full)
	default:
		t.digest = digestOf(data...)
	}
	return t, data, nil
}

// dataOf is a record's data in wire format.
func dataOf(rr dns.RR) ([]byte, error) {
	b := make([]byte, dns.Len(rr)+maxName)
	n, err := dns.PackRR(rr, b, 0, nil, false)
	if err != nil {
		return nil, err
	}
	return b[len(wireName(rr.Header().Name))+10 : n], nil
}
