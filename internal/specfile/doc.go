// Package specfile reads the spec of a node that has no global tier above it from a file, again whenever the file changes.
//
// It decides nothing about the spec's content, never writes the file, and never replaces a good spec by a bad one.
package specfile
