// Package reqguard enforces the framing rules of HTTP requests on connections.
//
// net/http tolerates what other implementations interpret differently: a Content-Length together with a
// Transfer-Encoding, a duplicate length, a line that ends in a bare LF or is folded. Two implementations that
// differ can be made to take the body of one request for another request (request smuggling). Each of these
// closes the connection with a response that names the violated rule.
//
// RequestHead holds the rules and parses lines only. GuardedListener and GuardedConn check what a server reads
// from a connection, without copying it. For HTTP/2, ResetLimiter bounds stream resets, because rapidly opened
// and reset streams (CVE-2023-44487) cost the server more than the client, and each head has a timeout. The
// package never inspects what a request asks for or what a body contains.
package reqguard
