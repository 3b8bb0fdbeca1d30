// Package queue decides the order in which requests wait for a worker with room, and which requests are refused.
// There is one Queue per model.
//
// # Order
//
// Classes (interactive, standard, batch) are served by weight. A class's weight grows with the age of its oldest
// request, up to the class's target, so that no class starves. Within a class, tenants are served by virtual token
// counter (VTC, OSDI'24): each tenant's counter holds its cost so far, in seconds of GPU time for its uncached prompt
// tokens plus twice its output tokens, and the tenant with the lowest counter goes next. The cost of a request is
// estimated when it enters and settled when it ends. When a tenant returns after it had nothing waiting, its counter
// is lifted to the lowest counter of the waiting tenants or, if none waits, to that of the tenant that left last:
// idle time earns no credit. The counters of two tenants that both always wait differ by at most 2 max(largest
// prompt, all running output), and the load of one tenant does not move another's turn. A continuous stream of new
// tenants cannot starve an old one: a fair-share clock advances with the service given, and no tenant enters far
// behind it. Within a tenant the earliest due time goes first, and requests that can no longer meet theirs go after
// all that can. Under overload as many requests as possible are then in time, instead of all being late.
//
// A request that finds no room may be overtaken a few times; then the others wait for it. A request that is held back
// because long requests have used up their share of every worker lets all others pass, including shorter requests of
// its own tenant: it waits for that share, not for room.
//
// # Tenants over their fair share
//
// A fair order is not enough: requests in an engine cannot be overtaken, and a work-conserving server without
// preemption gives a new tenant no guarantee before the running requests end (VTC's bound is all running output). The
// queue therefore reports which tenants are over their fair share (JudgeShare): a tenant with more than its equal
// part of the running GPU time, and of the waiting work, while another tenant of its class or of a more urgent one
// waits, runs or arrived within the last 10 s. In the same way a class yields to more urgent ones that are present
// (ShareVerdict.YieldsToUrgent), and so leaves engines with room for them. Requests of a tenant over its share are placed only
// where they do not slow others (local/pick/overshare.go), and a request that is held back for this passes its turn
// on (OverFairShare). At least one tenant is always within its share, none is held back below its share, and a tenant
// alone is never over it. The price is the throughput that a flood would gain from very large engine steps, paid only
// while other tenants are present.
//
// # Refusal
//
// The queue is bounded by count and bytes, in total, per class and per tenant. When a bound is reached, the newest
// item of the least urgent class is evicted first; within one class, the newest item of a tenant that holds more than
// the new item's tenant. As the queue saturates, new batch requests are refused with growing probability before
// anything is full. A request whose deadline cannot be met at the measured drain rate is refused at once. If such a
// request is to be refused rather than late (ShedWhenLate: batch requests with a deadline), the largest request of
// its tenant is evicted instead, so that as many as possible are in time.
//
// # What the package leaves to its caller
//
// The queue never chooses a worker: a request is bound to one only when one has room, and the caller decides that. It
// reads no clock, starts no goroutine and holds no lock: one goroutine owns a Queue.
package queue
