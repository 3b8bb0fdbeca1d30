// Package local is tier 3, one instance of a zone's local tier: it takes requests from the region's gateways, keeps
// them in a bounded queue until a worker has room, forwards each to the worker that is predicted to be soonest, relays
// the stream, and reports the zone's capacity upwards.
//
// The deciding is done by the pure packages below it (pick, queue, health, batch, warm, scale); this package holds the
// lock around them, the listeners, the scrapes and the streams. It never authenticates an end user (the gateway did),
// never begins an answer again after its first byte (it goes on with it: resume.go), and never forgets a promise when
// its gateways are away: it works on from the last directive.
//
// Where to look: a request passes handler.go, route.go (aliases, pools, fallback, where the zone stands alone),
// admit.go, wait.go and pump.go (the queue), forward.go, hedge.go and resume.go (a stream whose worker is lost goes on
// elsewhere), meter.go (what its answer says) and account.go (what is learned of it). Workers come through door.go and
// registry.go and are watched by patrol.go, care.go, warm.go and deepprobe.go; siblings.go and division.go share them
// with the zone's other instances; what they have cached is kvevents.go's. Models that are not loaded are warmth.go's
// and warden.go's; autoscaling is scaling.go's. floor.go is the state that all of it shares, under one lock.
package local
