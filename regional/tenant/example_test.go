package tenant_test

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/regional/tenant"
)

// A tenant may have two requests in flight.
func ExampleLimiter() {
	now := time.Unix(1_800_000_000, 0)
	l := tenant.NewLimiter(tenant.NewLeases(true, now))
	quota := spec.Quota{spec.ResourceConcurrency: 2}
	terms := tenant.Terms{Whole: quota, Static: quota, Budget: &spec.Budget{}}

	first, _, ok := l.AdmitRequest("acme", terms, tenant.RequestCost{Tokens: 500}, now)
	fmt.Println("first:", ok)
	_, _, ok = l.AdmitRequest("acme", terms, tenant.RequestCost{Tokens: 500}, now)
	fmt.Println("second:", ok)
	_, denial, ok := l.AdmitRequest("acme", terms, tenant.RequestCost{Tokens: 500}, now)
	fmt.Println("third:", ok, denial.Code, denial.Retry)
	l.SettleRequest(first, tenant.RequestCost{Tokens: 420}, now)
	_, _, ok = l.AdmitRequest("acme", terms, tenant.RequestCost{Tokens: 500}, now)
	fmt.Println("after the first has ended:", ok)
	// Output:
	// first: true
	// second: true
	// third: false concurrency 1s
	// after the first has ended: true
}
