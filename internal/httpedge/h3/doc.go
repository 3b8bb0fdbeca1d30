// Package h3 is an HTTP/3 listener (RFC 9114) for clients, on the same port number as the TCP listener. Server
// accepts sessions; Config holds its limits: connections, requests per connection, head size, idle time and
// stream resets. Shutdown is graceful.
//
// 0-RTT is never accepted, because early data can be replayed and requests are billed. Authorization is the job
// of the handler.
package h3
