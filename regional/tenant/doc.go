// Package tenant enforces the limits of tenants at one gateway: requests and tokens per minute, concurrent requests,
// tokens and money per day, and the retries of all tenants together.
//
// Tokens and money are reserved when a request enters and settled when it ends, because its cost is known only then.
// Running requests count, so that concurrent requests cannot together exceed a limit that one alone would. Usage
// beyond the estimate overdraws the bucket and is refilled before the next request is admitted.
//
// Limits that are shared with other gateways are spent from Leases: the leader's grants, or this gateway's static
// share without them. Package global/quota, the granting side, documents the guarantees.
//
// The package does no authentication and does not read requests.
package tenant
