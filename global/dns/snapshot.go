package dns

import (
	"net/netip"

	"github.com/miekg/dns"
)

// Snapshot is an immutable snapshot from which a server answers. Several goroutines read it at once.
type Snapshot interface {
	// Zone is the zone's own data. It is shared: do not modify it.
	Zone() *ZoneData
	// LookupService returns the number of a service, or of a region's child name of one, by its fully qualified name
	// in lower case. Octets that are no plain letters, digits or hyphens are escaped as in a zone file. It must not
	// keep name.
	LookupService(name []byte) (id int, ok bool)
	// ServiceOf maps a number from LookupService to its service: itself, or the parent of a child name.
	ServiceOf(id int) int
	// HasName reports whether a service or child name exists at or below the name, fully qualified and in lower case.
	HasName(name string) bool
	// AnswerService returns the addresses for a client of a service.
	AnswerService(id int, client netip.Addr) ServiceAnswer
	// ExplainAnswer explains that answer as "key=value" texts.
	ExplainAnswer(id int, client netip.Addr) []string
	// DescribeClient returns what is known of a client's address as "key=value" texts.
	DescribeClient(client netip.Addr) []string
	// DescribeState returns the age of the snapshot as "key=value" texts.
	DescribeState() []string
}

// CompiledSnapshot is a Snapshot that can give the answers of some names as tables.
type CompiledSnapshot interface {
	Snapshot
	// CompiledNames returns the names whose answers AnswerService looks up in a table: see CompiledName.
	CompiledNames() []CompiledName
}

// CompiledName is a name with the table of its answers. For an IPv4 client to which the table assigns a value from 1 to
// len(Records), AnswerService answers with that one of Records, with TTL, with the scope of the table, and without any error
// or note.
type CompiledName struct {
	Name     string // of a service, fully qualified and in lower case
	Service  int
	Networks NetworkTable
	TTL      uint32
	Records  []*PreparedRecords
}

// NetworkTable maps client networks to values; geo.ScopeMap is one. Tables are compared by identity.
type NetworkTable interface {
	// EncodeIPv4 is described there.
	EncodeIPv4(limit int) (first, nodes, runs []byte)
}

// ZoneData is the zone's own data.
type ZoneData struct {
	// Name is the apex, fully qualified and in lower case.
	Name string
	// Contact is the responsible mailbox as a name ("hostmaster.api.example.").
	Contact string
	// Serial is the SOA's: equal on every node with the same spec, so never derived from a clock.
	Serial uint32
	// TTL is that of SOA, NS and glue, in seconds.
	TTL uint32
	// NegativeTTL is how long a resolver may cache a negative answer, in seconds.
	NegativeTTL uint32
	// NS are the authoritative names; the first is the SOA's primary.
	NS []NameServer
	// Signer signs the answers to queries with DO. Nil: the zone is not signed.
	Signer *Signer
	// CAA are the authorities that may issue certificates for names in the zone. Empty: any.
	CAA []CAA
}

// Timers of the SOA. They are for secondaries, which do not exist; checking tools expect them within the bounds of
// RFC 1912.
const (
	soaRefresh = 14_400
	soaRetry   = 3600
	soaExpire  = 1_209_600
)

// newSOA returns the zone's SOA as a record of the library.
func (z *ZoneData) newSOA(owner string, ttl uint32) *dns.SOA {
	primary := z.Name
	if len(z.NS) > 0 {
		primary = z.NS[0].Name
	}
	return &dns.SOA{
		Hdr: dns.RR_Header{Name: owner, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: ttl},
		Ns:  primary, Mbox: z.Contact, Serial: z.Serial,
		Refresh: soaRefresh, Retry: soaRetry, Expire: soaExpire, Minttl: z.NegativeTTL,
	}
}

// CAA is one property of RFC 8659.
type CAA struct {
	Flags      uint8
	Tag, Value string
}

// NameServer is one authoritative name, fully qualified and in lower case, with its addresses.
type NameServer struct {
	Name  string
	Addrs []netip.Addr
}

// ServiceAnswer is the steering result of one client for one service.
type ServiceAnswer struct {
	// Addrs are IPv4 and IPv6 addresses in the order of the answer. They are shared: do not modify them.
	Addrs []netip.Addr
	// Records are the same addresses, prepared; nil sends every such query to the slow path.
	Records *PreparedRecords
	// TTL in seconds.
	TTL uint32
	// FullTTL is the TTL of the answer at other times, when TTL is shortened: signatures contain it, so that they
	// hold for both. 0: TTL is not shortened.
	FullTTL uint32
	// Kinds are the types that the name may have, for any client: a denial of another type lists them. Those of
	// Records count in any case.
	Kinds RecordKinds
	// Scope is how many bits of the client's address the answer depends on, as RFC 7871 counts them.
	Scope uint8
	// Stale is set if the answer's plan is no longer confirmed.
	Stale bool
	// ForcedByDrain is set if a drain changed the answer: without it the client would be sent elsewhere.
	ForcedByDrain bool
	// OK is false if there is no region to steer to: the server then answers that the name has no address, never that
	// it does not exist.
	OK bool
}

// extendedError returns the Extended DNS Error of the answer.
func (a *ServiceAnswer) extendedError() uint16 {
	switch {
	case a.Stale:
		return edeStale
	case a.ForcedByDrain:
		return edeForged
	}
	return noEDE
}

// remainingKinds returns the kinds that remain when the queried type is absent.
func (a *ServiceAnswer) remainingKinds(qtype uint16) RecordKinds {
	return (a.Kinds | a.Records.Kinds()) &^ kindOfType(qtype)
}
