// Package tenant decides what a tenant may still use in this region: requests and tokens a minute, requests at a time,
// and how many second tries all tenants together may cost.
//
// Tokens are reserved when a request enters and settled when it ends, because what it will cost is only known then. It
// never authenticates anybody and never looks at a request's content.
package tenant
