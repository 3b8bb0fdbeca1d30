package capacity

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/capacity/capacitypb"
)

// Use is what one tenant asks of a gateway and has used there, by which the leader splits the tenant's limits. The entry
// with an empty Tenant stands for all that found no room.
type Use struct {
	Tenant string
	// RequestsMilli and TokensMilli are what was asked for lately, refused or not, in thousandths a minute.
	RequestsMilli, TokensMilli int64
	// Running requests; Wanted are those and the ones that were lately refused for too many at a time.
	Running, Wanted int64
	// Day numbers the tenant's day (see tenant.DayOf). DayTokens and DayMicros are what was used in it: tokens, and
	// millionths of a dollar.
	Day, DayTokens, DayMicros int64
	// CapTokens and CapMicros are what is leased to the gateway of that day's budget; 0: nothing is leased.
	CapTokens, CapMicros int64

	unknown string // see Summary
}

// Holding says which leases a gateway spends by, so that its leader knows when they are in force and when they lapse. The
// zero Holding has none.
type Holding struct {
	// Term and Number are those of the newest grant that arrived.
	Term, Number uint64
	// Boot and Mark number this statement for the grant that answers it: Mark counts milliseconds since Boot.
	Boot, Mark uint64
	// AgeMillis is how long ago the statement was made that the newest grant answers.
	AgeMillis int64
}

func (h Holding) check() error { return checkAmount(h.AgeMillis) }

func compareUse(a, b Use) int { return strings.Compare(a.Tenant, b.Tenant) }

// mergeUse adds up; of two days the later counts, since what was used in the other is over.
func mergeUse(a, b Use) Use {
	out := Use{
		Tenant: a.Tenant, RequestsMilli: add(a.RequestsMilli, b.RequestsMilli), TokensMilli: add(a.TokensMilli, b.TokensMilli),
		Running: add(a.Running, b.Running), Wanted: add(a.Wanted, b.Wanted), Day: max(a.Day, b.Day),
	}
	for _, x := range []*Use{&a, &b} {
		if x.Day == out.Day {
			out.DayTokens, out.DayMicros = add(out.DayTokens, x.DayTokens), add(out.DayMicros, x.DayMicros)
			out.CapTokens, out.CapMicros = add(out.CapTokens, x.CapTokens), add(out.CapMicros, x.CapMicros)
		}
	}
	return out
}

func (u *Use) amounts() [9]*int64 {
	return [...]*int64{&u.RequestsMilli, &u.TokensMilli, &u.Running, &u.Wanted, &u.Day, &u.DayTokens, &u.DayMicros, &u.CapTokens, &u.CapMicros}
}

// tidy brings amounts into range; it is false for an entry that cannot be mended.
func (u *Use) tidy() bool {
	for _, n := range u.amounts() {
		*n = clamp(*n)
	}
	return checkName("", u.Tenant, true) == nil
}

func checkUses(us []Use) error {
	if len(us) > MaxUses {
		return fmt.Errorf("%d uses: over the limit of %d", len(us), MaxUses)
	}
	for i := range us {
		if i > 0 && us[i-1].Tenant >= us[i].Tenant {
			return errors.New("uses are not in ascending order of tenant")
		}
		err := checkName("tenant", us[i].Tenant, true)
		for _, n := range us[i].amounts() {
			err = cmp.Or(err, checkAmount(*n))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func diffUses(base, next []Use) (changed []Use, removed []string) {
	return diffByName(base, next, compareUse, tenantOf)
}

func (d *Delta) keptUses(held []Use) []Use { return keptByName(held, d.RemovedUses, tenantOf) }

func tenantOf(x *Use) string { return x.Tenant }

func (d *Delta) checkUses() error {
	if len(d.RemovedUses) > MaxUses || !slices.IsSorted(d.RemovedUses) {
		return errors.New("removed uses are too many or not in order")
	}
	return checkUses(d.Uses)
}

func usesToPB(us []Use) []*capacitypb.Use {
	var out []*capacitypb.Use
	for i := range us {
		u := &us[i]
		p := &capacitypb.Use{
			Tenant: u.Tenant, RequestsMilli: uint64(u.RequestsMilli), TokensMilli: uint64(u.TokensMilli),
			Running: uint64(u.Running), Wanted: uint64(u.Wanted),
			Day: uint64(u.Day), DayTokens: uint64(u.DayTokens), DayMicros: uint64(u.DayMicros),
			CapTokens: uint64(u.CapTokens), CapMicros: uint64(u.CapMicros),
		}
		setUnknown(p, u.unknown)
		out = append(out, p)
	}
	return out
}

func usesFromPB(ps []*capacitypb.Use) []Use {
	var out []Use
	for _, p := range ps {
		out = append(out, Use{
			Tenant: p.Tenant, RequestsMilli: amount(p.RequestsMilli), TokensMilli: amount(p.TokensMilli),
			Running: amount(p.Running), Wanted: amount(p.Wanted),
			Day: amount(p.Day), DayTokens: amount(p.DayTokens), DayMicros: amount(p.DayMicros),
			CapTokens: amount(p.CapTokens), CapMicros: amount(p.CapMicros), unknown: getUnknown(p),
		})
	}
	return out
}

func holdingToPB(h Holding) *capacitypb.Holding {
	if h == (Holding{}) {
		return nil
	}
	return &capacitypb.Holding{Term: h.Term, Number: h.Number, Boot: h.Boot, Mark: h.Mark, AgeMillis: uint64(h.AgeMillis)}
}

func holdingFromPB(p *capacitypb.Holding) Holding {
	return Holding{Term: p.GetTerm(), Number: p.GetNumber(), Boot: p.GetBoot(), Mark: p.GetMark(), AgeMillis: amount(p.GetAgeMillis())}
}
