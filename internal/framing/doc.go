// Package framing holds the rules for where one request ends and the next one begins, and keeps connections to them.
//
// net/http forgives what others read otherwise: a Content-Length beside a Transfer-Encoding, a length that stands twice,
// a line that ends in a bare LF or is folded. Two readers who differ on that can be made to take the inside of one request
// for another (request smuggling). Here each of those is the end of its connection, with an answer that says which rule
// was broken.
//
// Head holds the rules and reads lines only; Conn watches what a server reads of a connection, without copying it. Of
// HTTP/2 it counts what a client takes back: streams that are opened and reset in haste (CVE-2023-44487) cost us more than
// them. And it gives each head its time. It never judges what a request asks for, nor what a body holds.
package framing
