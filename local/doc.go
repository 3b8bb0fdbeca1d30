// Package local is tier 3, one instance of a zone's local tier: it takes requests from the region's gateways, keeps
// them in a bounded queue until a worker has room, forwards each to the worker that is predicted to be soonest, relays
// the stream, and reports the zone's capacity upwards.
//
// The deciding is done by the pure packages below it (pick, queue, health); this package holds the lock around them,
// the listeners, the scrapes and the streams. It never authenticates an end user (the gateway did), never retries after
// the first byte, and never forgets a promise when its gateways are away: it works on from the last directive.
package local
