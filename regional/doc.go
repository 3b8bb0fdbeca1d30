// Package regional implements the gateway of a region. A Gateway serves the OpenAI-style API to clients, forwards
// requests to the region's zones and to peer regions, and links the global tier above with the local tiers below.
//
// A Gateway authenticates clients, derives what a request needs, applies limits, decides when a second attempt is
// allowed, and continues a stream elsewhere when its zone or region is lost (internal/resume splices the two
// parts). Package routing selects the zone or peer; package tenant holds the limits of tenants; package billing
// writes usage records.
//
// Invariants: no request waits for the global tier, because the last directive stays in force and is also
// persisted to disk. A gateway never chooses a worker, never queues, and never logs a prompt or a key.
package regional
