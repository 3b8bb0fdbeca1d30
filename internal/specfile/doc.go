// Package specfile reads the spec of a node without a global tier from a file, and again whenever the file changes.
//
// The file is never written, and an invalid spec does not replace a valid one.
package specfile
