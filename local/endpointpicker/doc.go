// Package endpointpicker is the listener of a zone for proxies of the Gateway API inference extension: Envoy asks it over the
// external processing protocol (ext_proc) to which worker a request goes, and sends the request there itself.
//
// It speaks version 1.0.0 of the endpoint picker protocol and decides nothing. A Chooser queues requests, chooses workers and keeps the
// in-flight ledger; package local passes the one that its own HTTP listener uses. A stream is one request of a proxy. Its
// messages drive an exchange:
//
//	request headers   OpenRequest; the body modes of the proxy decide when the endpoint is chosen
//	request body      AddBody for each part, then Choose, which waits in the queue
//	response headers  RecordHead
//	response body     RecordAnswer for each part
//	the end           End, exactly once, for any order of messages
//
// A message that the protocol does not allow at its place ends the stream with an error and the request with it.
package endpointpicker
