package dns

import "net/netip"

// View is one immutable snapshot that a server answers from. It is read by several goroutines at once.
type View interface {
	// Zone is the zone's own data. It is shared: do not modify it.
	Zone() *Zone
	// Lookup finds the number of a service, or of a region's child name of one, by its fully qualified name in lower
	// case. Octets that are no plain letters, digits or hyphens come escaped as in a zone file. It must not keep name.
	Lookup(name []byte) (id int, ok bool)
	// ServiceOf is the number of the service that a number from Lookup belongs to: itself, or the one that its name is below.
	ServiceOf(id int) int
	// Exists reports whether a service or child name stands at or below the name, fully qualified and in lower case.
	Exists(name string) bool
	// Answer says where a client is sent for a service.
	Answer(id int, client netip.Addr) Answer
	// Why explains that answer as "key=value" texts.
	Why(id int, client netip.Addr) []string
	// Whoami says what is known of a client's address as "key=value" texts.
	Whoami(client netip.Addr) []string
	// State says how new the snapshot is as "key=value" texts.
	State() []string
}

// Zone is what a zone says of itself.
type Zone struct {
	// Name is the apex, fully qualified and in lower case.
	Name string
	// Contact is the responsible mailbox as a name ("hostmaster.api.example.").
	Contact string
	// Serial is the SOA's: the same on every node that holds the same spec, so never a clock's.
	Serial uint32
	// TTL is that of SOA, NS and glue, in seconds.
	TTL uint32
	// Negative is how long a resolver may remember that something does not exist, in seconds.
	Negative uint32
	// NS are the authoritative names; the first is the SOA's primary.
	NS []NameServer
	// Signer signs the zone for those who ask for signatures. Nil: it is not signed.
	Signer *Signer
	// CAA are the authorities that may issue certificates for names in the zone. Empty: any.
	CAA []CAA
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

// Answer is where one client is sent for one service.
type Answer struct {
	// Addrs are IPv4 and IPv6 addresses in the order of the answer. They are shared: do not modify them.
	Addrs []netip.Addr
	// Ready are the same addresses made ready; nil sends every such query the slow way.
	Ready *Records
	// TTL in seconds.
	TTL uint32
	// Full is the TTL that the answer has at other times, when TTL is shortened: signatures state it, so that they hold
	// for both. 0: TTL is not shortened.
	Full uint32
	// Kinds are the types that the name may be answered with, whoever asks: a denial of another type leaves them standing.
	// Those of Ready count in any case.
	Kinds Kinds
	// Scope is how many bits of the client's address the answer depends on, as RFC 7871 counts them.
	Scope uint8
	// Stale tells that the answer comes from a plan that nobody confirms any more.
	Stale bool
	// Forced tells that an operator's hand decided it: without a drain the client would be sent elsewhere.
	Forced bool
	// OK is false when there is nowhere to send anybody: the server then says that the name has no address, never
	// that it does not exist.
	OK bool
}

// ede is the Extended DNS Error that goes with the answer.
func (a *Answer) ede() uint16 {
	switch {
	case a.Stale:
		return edeStale
	case a.Forced:
		return edeForged
	}
	return noEDE
}
