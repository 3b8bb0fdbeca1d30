// Package credential holds what workers require of their callers: keys, further headers, authorities and client
// certificates, read from files and again when those change.
//
// It never prints or logs a value and sends nothing itself. Refresh reads files and belongs to a background goroutine; Value
// is a load of a pointer, for the path of requests.
package credential
