// Package lease splits what tenants may use over the gateways that serve them, by what is asked for at each.
//
// Where a limit of the spec is shared (scope "global": by all regions that may serve the tenant; scope "region": by the
// gateways of one region) every gateway has a static share of it, and the shares add up to the limit. While nothing is in
// contention that is all there is: nobody is told anything. Once a tenant asks for more at a gateway than half its static
// share, the leader lists the tenant and leases other parts: each gateway gets what is asked for there, or its part of the
// limit in proportion to what is asked for, and never less than a floor (3 % of the limit over all gateways), so that a
// first request needs no round trip. A burst has its lease within a second or two: one statement up, one list down to
// those who give, one statement back, one list down to those who take.
//
// # What holds
//
// The leases in force, summed over all gateways, never exceed the limit: not while they change, not when a gateway, the
// leader or all of them are cut off or die, as long as statements and grants that arrive at all arrive within two seconds.
// Without that bound on delays a gateway that rises to its static share may meet leases not yet taken back: the sum is then
// over the limit by at most that share, for as long as the excess delay. What is spent may exceed what is leased by: one
// minute's worth of a lease after its gateway was idle or has restarted (the bucket that everybody's limit has); one request
// for a floor that is smaller than one request; what streams use beyond their estimates, which is owed and paid back; streams
// that run on when the lease of concurrency is lowered under them, which are counted until they end; and the moment in which
// gateways of one region read a new spec before those of another.
//
// How it is kept:
//   - A list is numbered by the leader's term and a count, and is whole. A gateway says in each statement which number it
//     goes by, and the leader offers the next only when the last is acknowledged. What the leader takes from one it gives
//     to others only after the acknowledgement.
//   - A grant answers one statement, and is in force for spec.LeaseFor from when the gateway made that statement, by the
//     gateway's clock alone. So it lapses at the gateway before the leader, who counts from when it sent, believes so. No
//     two clocks are compared.
//   - A gateway whose lease has lapsed falls to its static share at once, and rises to it only spec.LeaseGap later. The
//     leader counts a gateway that has not acknowledged for three seconds as one that may soon hold its static share,
//     and takes the difference back from the others, who obey or lapse in time.
//   - Day budgets are caps on what was used in the day, not rates: a cap is not lost when a lease lapses and does not rise
//     either, so that what is leased of a budget adds up for the whole day. A gateway keeps its cap on disk with its use,
//     and that it was told to hold. The leader takes one that holds for having what it tells, where that is less than its static share.
//
// # Why leases are not in Raft
//
// What a log would be for is that a new leader knows what the old one granted. It can find out: a new leader is silent
// for two seconds, until its predecessor has noticed, and then sends every gateway the word "hold": no more than your static
// share, or less if you had less. Once all have acknowledged that, each is known to have at most its static share, and
// static shares add up. If a gateway is not there, that is so when what the old leader gave it has surely lapsed, 14 s
// after the election; until then the others hold. So a change of leaders costs a second or two of static shares, a quarter of
// a minute while a gateway is down, and no lease costs a write. Spec and terms, which all of this rests on, are in Raft.
//
// Caps of budgets do not lapse, so gateways tell theirs in their statements, which every node hears. What a new leader cannot
// find out is a cap raised in the last moment before the change, at a gateway that is cut off at the same time: it takes
// the last cap that it heard of, and a budget can be exceeded by that one step.
//
// It decides who may spend what; it never talks to anybody, and never decides about a request.
package lease
