// Package accesslog writes one line for each request at the edge, as JSON or as key=value text.
//
// A request never waits for the disk: it hands over its Record, and one goroutine writes lines in batches. At most
// maxWaiting records wait; further ones are dropped and counted. A record has no prompt, no key, no token and no query
// string. Failures are always written; of served requests a share may be (Config.Sample), chosen by a hash of the
// request id, so that the lines of one request are written by all gateways or by none.
package accesslog
