package capacity

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/capacity/capacitypb"
)

// TenantUsage is the demand and usage of one tenant at a gateway, by which the leader divides the tenant's limits. The
// entry with an empty Tenant is the sum of all tenants without an entry.
type TenantUsage struct {
	Tenant string
	// RequestsMilli and TokensMilli are the recent demand, including refused requests, in thousandths per minute.
	RequestsMilli, TokensMilli int64
	// Running requests; Wanted also counts those recently refused for too many at a time.
	Running, WantedConcurrency int64
	// Day is the number of the tenant's budget day (see spec.Budget.DayNumber). DayTokens and DayMicros are the usage
	// of that day: tokens, and millionths of a dollar.
	Day, DayTokens, DayMicros int64
	// LeasedTokens and LeasedMicros are the parts of that day's budget that are leased to the gateway; 0: none.
	LeasedTokens, LeasedMicros int64

	unknown string // see Summary
}

// HeldLeases are the leases in force at a gateway, from which its leader knows when grants take effect and lapse. The
// zero HeldLeases has none.
type HeldLeases struct {
	// Term and Number are those of the newest grant received.
	Term, Number uint64
	// Boot and Mark identify this summary for the grant that answers it: Mark is milliseconds since Boot.
	Boot, Mark uint64
	// AgeMillis is the age of the summary that the newest grant answers, in milliseconds.
	AgeMillis int64
}

func (h HeldLeases) checkAge() error { return checkAmount(h.AgeMillis) }

func compareUsage(a, b TenantUsage) int { return strings.Compare(a.Tenant, b.Tenant) }

// mergeUsage sums two usages. Of two days it keeps the later one, because usage of an earlier day no longer counts.
func mergeUsage(a, b TenantUsage) TenantUsage {
	out := TenantUsage{
		Tenant: a.Tenant, RequestsMilli: addAmounts(a.RequestsMilli, b.RequestsMilli), TokensMilli: addAmounts(a.TokensMilli, b.TokensMilli),
		Running: addAmounts(a.Running, b.Running), WantedConcurrency: addAmounts(a.WantedConcurrency, b.WantedConcurrency), Day: max(a.Day, b.Day),
	}
	for _, x := range []*TenantUsage{&a, &b} {
		if x.Day == out.Day {
			out.DayTokens, out.DayMicros = addAmounts(out.DayTokens, x.DayTokens), addAmounts(out.DayMicros, x.DayMicros)
			out.LeasedTokens, out.LeasedMicros = addAmounts(out.LeasedTokens, x.LeasedTokens), addAmounts(out.LeasedMicros, x.LeasedMicros)
		}
	}
	return out
}

func (u *TenantUsage) amountFields() [9]*int64 {
	return [...]*int64{&u.RequestsMilli, &u.TokensMilli, &u.Running, &u.WantedConcurrency, &u.Day, &u.DayTokens, &u.DayMicros, &u.LeasedTokens, &u.LeasedMicros}
}

// normalizeFields limits amounts to their range. It returns false for an entry that cannot be corrected.
func (u *TenantUsage) normalizeFields() bool {
	for _, n := range u.amountFields() {
		*n = clampToRange(*n)
	}
	return checkName("", u.Tenant, true) == nil
}

func checkUsages(us []TenantUsage) error {
	if len(us) > MaxTenantUsages {
		return fmt.Errorf("%d uses: over the limit of %d", len(us), MaxTenantUsages)
	}
	for i := range us {
		if i > 0 && us[i-1].Tenant >= us[i].Tenant {
			return errors.New("uses are not in ascending order of tenant")
		}
		err := checkName("tenant", us[i].Tenant, true)
		for _, n := range us[i].amountFields() {
			err = cmp.Or(err, checkAmount(*n))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func diffUsages(base, next []TenantUsage) (changed []TenantUsage, removed []string) {
	return diffByName(base, next, compareUsage, tenantOf)
}

func (d *SummaryDelta) remainingUsages(held []TenantUsage) []TenantUsage {
	return withoutNames(held, d.RemovedUsages, tenantOf)
}

func tenantOf(x *TenantUsage) string { return x.Tenant }

func (d *SummaryDelta) checkUsages() error {
	if len(d.RemovedUsages) > MaxTenantUsages || !slices.IsSorted(d.RemovedUsages) {
		return errors.New("removed uses are too many or not in order")
	}
	return checkUsages(d.TenantUsages)
}

func usagesToPB(us []TenantUsage) []*capacitypb.Use {
	var out []*capacitypb.Use
	for i := range us {
		u := &us[i]
		p := &capacitypb.Use{
			Tenant: u.Tenant, RequestsMilli: uint64(u.RequestsMilli), TokensMilli: uint64(u.TokensMilli),
			Running: uint64(u.Running), Wanted: uint64(u.WantedConcurrency),
			Day: uint64(u.Day), DayTokens: uint64(u.DayTokens), DayMicros: uint64(u.DayMicros),
			CapTokens: uint64(u.LeasedTokens), CapMicros: uint64(u.LeasedMicros),
		}
		setUnknown(p, u.unknown)
		out = append(out, p)
	}
	return out
}

func usagesFromPB(ps []*capacitypb.Use) []TenantUsage {
	var out []TenantUsage
	for _, p := range ps {
		out = append(out, TenantUsage{
			Tenant: p.Tenant, RequestsMilli: toAmount(p.RequestsMilli), TokensMilli: toAmount(p.TokensMilli),
			Running: toAmount(p.Running), WantedConcurrency: toAmount(p.Wanted),
			Day: toAmount(p.Day), DayTokens: toAmount(p.DayTokens), DayMicros: toAmount(p.DayMicros),
			LeasedTokens: toAmount(p.CapTokens), LeasedMicros: toAmount(p.CapMicros), unknown: getUnknown(p),
		})
	}
	return out
}

func heldLeasesToPB(h HeldLeases) *capacitypb.Holding {
	if h == (HeldLeases{}) {
		return nil
	}
	return &capacitypb.Holding{Term: h.Term, Number: h.Number, Boot: h.Boot, Mark: h.Mark, AgeMillis: uint64(h.AgeMillis)}
}

func heldLeasesFromPB(p *capacitypb.Holding) HeldLeases {
	return HeldLeases{Term: p.GetTerm(), Number: p.GetNumber(), Boot: p.GetBoot(), Mark: p.GetMark(), AgeMillis: toAmount(p.GetAgeMillis())}
}
