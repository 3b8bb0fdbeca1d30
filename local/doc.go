// Package local is tier 3: one instance of a zone's local tier. It accepts requests from the region's gateways, queues
// them until a worker has room, and forwards each to the worker with the earliest predicted first token. It relays the
// stream and reports the zone's capacity to the gateways.
//
// Package sched decides, with the pure packages below it (pick, queue, health, modelload, autoscale, sharding). This package
// holds the lock around it (zoneScheduler), the listeners, the scrapes and the streams. Its main types are Agent
// (lifecycle), Config, zoneRequest (a sched.Request with its HTTP exchange), zoneWorker (a sched.Worker with its engine) and
// responseObserver (the I/O of one attempt). The simulator runs package sched without this one.
//
// Invariants: it never authenticates end users, because the gateway did. It never restarts an answer after its first
// byte; an interrupted stream is continued instead (resume.go). It keeps serving from the last directive while all
// gateways are unreachable.
//
// A request passes handler.go, route.go (aliases, pools, fallback of a standalone zone), admit.go and zonescheduler.go (the
// queue), forward.go, hedge.go and resume.go, and meter.go and outcome.go (what is learned from an answer).
package local
