package uplink

import (
	"errors"
	"fmt"
	"math"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/uplink/uplinkpb"
)

// MaxLeases is how many tenants a QuotaGrant may list.
const MaxLeases = 1024

// QuotaGrant is the complete list of what the leader lets one gateway use for tenants: it replaces every earlier
// grant. A tenant that is not listed has its static share.
type QuotaGrant struct {
	// Term and Number order grants: those of a later term, and within it of a greater number, are newer. The same
	// number again has the same content and extends its validity.
	Term, Number uint64
	// Boot and Mark are those of the summary (see capacity.HeldLeases) that the grant answers. Its validity counts
	// from the time of that summary, by the child's own clock.
	Boot, Mark uint64
	// Hold lists nothing: a tenant's lease keeps its value below its static share, and falls to the share from above.
	Hold   bool
	Leases []QuotaLease
}

// QuotaLease is what a gateway may use for one tenant of a limit in the spec. Amounts without a limit in the spec
// have no meaning.
type QuotaLease struct {
	Tenant string
	// RequestsMilli and TokensMilli are thousandths a minute.
	RequestsMilli, TokensMilli int64
	// Concurrency is the number of concurrent requests.
	Concurrency int64
	// DayTokens and DayMicros (millionths of a dollar) may be used here during the whole day numbered Day.
	Day, DayTokens, DayMicros int64
}

func (l *QuotaLease) listAmounts() [6]int64 {
	return [...]int64{l.RequestsMilli, l.TokensMilli, l.Concurrency, l.Day, l.DayTokens, l.DayMicros}
}

func (g *QuotaGrant) checkGrant() error {
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
		for _, n := range l.listAmounts() {
			if n < 0 || n > capacity.MaxAmount {
				return fmt.Errorf("a lease's amount %d is outside 0..2^53", n)
			}
		}
	}
	return nil
}

func grantToPB(g *QuotaGrant) *uplinkpb.Grant {
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

func grantFromPB(p *uplinkpb.Grant) *QuotaGrant {
	if p == nil {
		return nil
	}
	g := &QuotaGrant{Term: p.Term, Number: p.Number, Boot: p.Boot, Mark: p.Mark, Hold: p.Hold}
	for _, l := range p.Leases {
		g.Leases = append(g.Leases, QuotaLease{
			Tenant: l.Tenant, RequestsMilli: toLeaseAmount(l.RequestsMilli), TokensMilli: toLeaseAmount(l.TokensMilli),
			Concurrency: toLeaseAmount(l.Concurrency), Day: toLeaseAmount(l.Day), DayTokens: toLeaseAmount(l.DayTokens), DayMicros: toLeaseAmount(l.DayMicros),
		})
	}
	return g
}

// toLeaseAmount maps amounts that do not fit an int64 to a value that the check refuses.
func toLeaseAmount(n uint64) int64 {
	if n > math.MaxInt64 {
		return -1
	}
	return int64(n)
}
