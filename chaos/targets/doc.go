// Command targets reads what `go test -bench` prints and shows it against the local tier's targets, with the spread of
// repeated runs. It measures nothing itself and never fails for a target that was missed: machines differ.
package main
