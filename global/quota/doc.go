// Package quota divides the limits of tenants among the gateways that serve them, by the demand at each.
//
// If a limit of the spec is shared (scope "global": by all regions that may serve the tenant; scope "region": by the
// gateways of one region), every gateway has a static share of it, and the shares add up to the limit. Without
// contention the static shares apply and no leases are sent. Once a tenant demands more at a gateway than half of its
// static share there, the leader lists the tenant and leases other amounts: each gateway gets its demand, or its part
// of the limit in proportion to demand, and never less than a floor (3 % of the limit over all gateways), so that a
// first request needs no round trip. A burst has its lease within a second or two: one summary up, one list down to
// the gateways that give, one summary back, one list down to the gateways that receive. Allocator computes the leases
// of one leader's term.
//
// # Invariants
//
// The leases in force, summed over all gateways, never exceed the limit: not while they change, and not when a
// gateway, the leader or all of them are cut off or die, as long as messages that arrive at all arrive within two
// seconds. Without that bound, a gateway that rises to its static share may meet leases that are not yet reclaimed:
// the sum is then over the limit by at most that share, for as long as the excess delay.
//
// Actual use may exceed the leases by:
//   - one minute's worth of a lease after its gateway was idle or has restarted (the bucket that every limit has);
//   - one request, for a floor that is smaller than one request;
//   - what streams use beyond their estimates, which is deducted later;
//   - streams that continue when the lease of concurrency is lowered; they count until they end;
//   - the moment in which gateways of one region read a new spec before those of another.
//
// How the invariant is kept:
//   - A list is numbered by the leader's term and a count, and is always complete. A gateway reports in each summary
//     the number of the list in force, and the leader offers the next one only when the last is acknowledged. What
//     the leader takes from one gateway it gives to others only after the acknowledgement.
//   - A grant answers one summary, and is in force for spec.LeaseDuration from when the gateway made that summary, by
//     the gateway's clock. So it expires at the gateway before it expires at the leader, which counts from when it
//     sent the grant. No two clocks are compared.
//   - A gateway whose lease has expired falls to its static share at once, and rises to it only
//     spec.LeaseTakeoverDelay later. The leader treats a gateway without acknowledgement for three seconds as one
//     that may soon use its static share, and reclaims the difference from the others, which acknowledge or expire in
//     time.
//   - Day budgets are caps on the use of the day, not rates. A cap does not end when a lease expires and does not
//     rise either, so that the leases of a budget add up for the whole day. A gateway keeps its cap, its use and a
//     received hold on disk. The leader assumes for a holding gateway the cap that it reports, if that is less than
//     its static share.
//
// # Why leases are not in Raft
//
// A log would let a new leader know what the old one granted. It can find out without one. A new leader sends nothing
// for two seconds, until its predecessor has noticed, and then sends every gateway a hold: at most its static share,
// or less if it had less. Once all have acknowledged the hold, each has at most its static share, and static shares
// add up. If a gateway does not answer, the same holds when every grant of the old leader has expired, 14 s after the
// election; until then the other gateways hold. So a change of leaders costs a second or two of static shares, a
// quarter of a minute while a gateway is down, and no lease costs a write. Spec and terms, on which all of this
// depends, are in Raft.
//
// Caps of budgets do not expire, so gateways report theirs in their summaries, which every node receives. A new
// leader cannot know a cap that was raised in the last moment before the change at a gateway that is cut off at the
// same time: it uses the last reported cap, and a budget can be exceeded by that one step.
//
// The package does no I/O and never decides about a single request.
package quota
