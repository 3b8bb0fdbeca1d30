// Package tenant decides what a tenant may still use at this gateway: requests and tokens a minute, requests at a time, tokens
// and money in a day, and how many second tries all tenants together may cost.
//
// Tokens and money are reserved when a request enters and settled when it ends, because what it will cost is only known then:
// requests under way are counted, so that many at a time cannot pass where one could not. What a request uses beyond its
// estimate is owed, and paid back before the next is let in.
//
// Limits that are shared with other gateways are spent by Leases: the leader's word, or this gateway's static share without
// it. What that promises stands in package global/lease, the other end.
//
// It never authenticates anybody and never looks at a request's content.
package tenant
