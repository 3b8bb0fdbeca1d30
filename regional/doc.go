// Package regional is the gateway of a region: the OpenAI-style front door, the relay to the region's zones and to peer
// regions, and the link between the global tier above and the local tiers below.
//
// It decides who may enter, what a request asks for, when a second try is allowed, and that a stream goes on elsewhere
// when its zone or region is lost (package resume joins the two); which zone or peer serves it is decided in package
// zone and what a tenant may use in package tenant. Nothing on a request's path waits for the global tier: the last
// directive is kept, on disk too. It never chooses a worker, never queues, and never logs a prompt or a key.
package regional
