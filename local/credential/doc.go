// Package credential holds what workers require from their callers: keys, further headers, authorities and client
// certificates, read from files and re-read when those change.
//
// It never prints or logs a value and sends nothing itself. RefreshFiles reads files and belongs to a background
// goroutine; Value loads a pointer, for the request path.
package credential
