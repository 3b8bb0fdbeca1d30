// Package notify sends notifications of a fleet's events to webhooks.
//
// A notification never blocks what causes it: AddEvent puts it into a bounded queue of each endpoint, and one goroutine for each
// endpoint sends, with retries. What finds no room, and what no retry delivers, is counted.
//
// Each delivery is a POST with the event as JSON and the header
//
//	Spillway-Signature: t=UNIX_SECONDS,v1=HEX
//
// where HEX is HMAC-SHA256 of "UNIX_SECONDS.BODY" under the endpoint's secret. The time lets a receiver refuse an old delivery that
// is sent again. The id of an event is the same in all its deliveries.
package notify
