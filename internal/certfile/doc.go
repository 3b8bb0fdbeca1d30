// Package certfile reads certificates and authorities from files, reads them again when the files change, and reports
// when they expire.
//
// A file that cannot be read or parsed never replaces content that is in use.
package certfile
