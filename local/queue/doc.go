// Package queue decides who waits, who enters and who is refused while no worker has room: one Queue for each model.
//
// # Order
//
// A class (interactive, standard, batch) is served by weight, and the weight grows with the age of its oldest request up to
// the class's target, so that no class starves. Inside a class tenants are served by virtual token counter (VTC, OSDI'24):
// each tenant's counter holds what it has cost so far, in seconds of GPU time for its uncached prompt tokens and twice its
// output tokens, and the tenant with the least goes next. What a request costs is estimated when it enters and settled when
// it ends. A tenant that comes back after it had nothing waiting is lifted to the least counter of those who wait, or, when
// nobody waits, to that of the tenant that left last: idleness earns no credit. Two tenants who both always wait differ by at
// most 2 max(largest prompt, all running output), and nobody's flood moves anybody else's turn. An endless parade of new
// tenants cannot hold an old one back either: a fair-share clock runs along, and nobody is let in far behind it. Inside a
// tenant the earliest due time goes first, and those who can no longer meet theirs after all who can: under more load than
// can be served as many as possible are in time, and not everybody is late (punctual.go).
//
// A request that finds no room may be overtaken a few times and is then waited for. One that is held back because long
// requests have their share of every worker lets everybody pass, its own tenant's shorter requests included: it waits
// for its share and not for room.
//
// # Guests
//
// A fair order is not enough: what is in an engine cannot be overtaken, and a work-conserving server that does not preempt
// owes a newcomer nothing before what runs has run (VTC's bound is all running output). So the queue also says who is beyond
// his part: a tenant with more than its equal part of the GPU time that runs, and of what waits, is a guest (Guest) as long
// as anybody else of its class or a more urgent one waits, runs or was let in during the last 10 s. In the same way a class
// stands back while a more urgent one is there (Yields): it leaves engines free enough to take that in. Guests are let in
// only where others would not notice (local/pick/guest.go), and who is held back for that leaves its turn to the others at
// once (Beyond). Somebody is always no guest, nobody is held back below his part, and a tenant alone is never one: what it
// costs is the throughput that a flood has from very large steps, and only while it is not alone.
//
// # Refusal
//
// The queue is bounded by count and bytes, in all, by class and by tenant. Over the bound the newest of the least urgent
// class goes first; among equals, the newest of a tenant that holds more than the newcomer. As the queue saturates, new
// batch requests are refused with a growing probability before anything is full. A request whose own deadline cannot be
// met at the measured drain rate is refused at once. Where it is one of those that are refused rather than late (Firm: batch
// requests that say when they are of use), the tenant's longest goes in its place, so that as many as possible are in time (firm.go).
//
// # What it never does
//
// It never chooses a worker: a request is bound to one only when one has room, and the caller says whether there is. It
// never reads a clock, starts no goroutine and holds no lock: one writer owns a Queue.
package queue
