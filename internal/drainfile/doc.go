// Package drainfile keeps the drains of a node that has no global tier above it, in memory and in a file.
//
// It decides nothing about requests, and it never reports a drain that it could not write.
package drainfile
