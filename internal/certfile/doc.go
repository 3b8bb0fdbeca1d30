// Package certfile holds certificates and authorities that are read from files, re-reads them when the files change, and
// reports when they expire.
//
// It never trusts a certificate that the files do not, and a file that cannot be read never replaces one that could.
package certfile
