package uplink

import (
	"errors"
	"fmt"
	"math"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/uplink/uplinkpb"
)

// MaxLeases is how many tenants a Grant may list.
const MaxLeases = 1024

// Grant is what the leader lets one gateway spend for tenants, the whole list: it takes the place of every grant before
// it. A tenant that is not listed has its static share.
type Grant struct {
	// Term and Number order grants: those of a later term, and in it of a greater number, are newer. The same number again
	// says the same and makes it last longer.
	Term, Number uint64
	// Boot and Mark are those of the statement (see capacity.Holding) that the grant answers: it is in force for so long
	// from when that statement was made, by the child's own clock.
	Boot, Mark uint64
	// Hold lists nothing: a tenant's lease stays where it is below its static share, and falls to it where it is above.
	Hold   bool
	Leases []Lease
}

// Lease is what a gateway may spend for one tenant of what a limit of the spec allows. Amounts of what the spec does not
// limit mean nothing.
type Lease struct {
	Tenant string
	// RequestsMilli and TokensMilli are thousandths a minute.
	RequestsMilli, TokensMilli int64
	// Concurrency is requests at a time.
	Concurrency int64
	// DayTokens and DayMicros (millionths of a dollar) are what may be spent here in all of the day numbered Day.
	Day, DayTokens, DayMicros int64
}

func (l *Lease) amounts() [6]int64 {
	return [...]int64{l.RequestsMilli, l.TokensMilli, l.Concurrency, l.Day, l.DayTokens, l.DayMicros}
}

func (g *Grant) check() error {
	if g == nil {
		return nil
	}
	if len(g.Leases) > MaxLeases || g.Hold && len(g.Leases) > 0 {
		return fmt.Errorf("a grant of %d leases: at most %d, and none with hold", len(g.Leases), MaxLeases)
	}
	for i := range g.Leases {
		l := &g.Leases[i]
		if l.Tenant == "" || len(l.Tenant) > capacity.MaxName || i > 0 && g.Leases[i-1].Tenant >= l.Tenant {
			return errors.New("a grant's tenants have no name, too long a one, or are not in order")
		}
		for _, n := range l.amounts() {
			if n < 0 || n > capacity.MaxAmount {
				return fmt.Errorf("a lease's amount %d is outside 0..2^53", n)
			}
		}
	}
	return nil
}

func grantToPB(g *Grant) *uplinkpb.Grant {
	if g == nil {
		return nil
	}
	p := &uplinkpb.Grant{Term: g.Term, Number: g.Number, Boot: g.Boot, Mark: g.Mark, Hold: g.Hold}
	for i := range g.Leases {
		l := &g.Leases[i]
		p.Leases = append(p.Leases, &uplinkpb.Lease{
			Tenant: l.Tenant, RequestsMilli: uint64(l.RequestsMilli), TokensMilli: uint64(l.TokensMilli), Concurrency: uint64(l.Concurrency),
			Day: uint64(l.Day), DayTokens: uint64(l.DayTokens), DayMicros: uint64(l.DayMicros),
		})
	}
	return p
}

func grantFromPB(p *uplinkpb.Grant) *Grant {
	if p == nil {
		return nil
	}
	g := &Grant{Term: p.Term, Number: p.Number, Boot: p.Boot, Mark: p.Mark, Hold: p.Hold}
	for _, l := range p.Leases {
		g.Leases = append(g.Leases, Lease{
			Tenant: l.Tenant, RequestsMilli: leaseAmount(l.RequestsMilli), TokensMilli: leaseAmount(l.TokensMilli),
			Concurrency: leaseAmount(l.Concurrency), Day: leaseAmount(l.Day), DayTokens: leaseAmount(l.DayTokens), DayMicros: leaseAmount(l.DayMicros),
		})
	}
	return g
}

// leaseAmount turns what does not fit an int64 into what check refuses.
func leaseAmount(n uint64) int64 {
	if n > math.MaxInt64 {
		return -1
	}
	return int64(n)
}
