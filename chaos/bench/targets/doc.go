// Command targets reads the output of `go test -bench` and compares it with the local tier's targets, with the spread
// of repeated runs. It measures nothing itself and never fails for a missed target, because machines differ.
package main
