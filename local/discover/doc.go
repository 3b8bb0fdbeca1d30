// Package discover says which workers there are: from configuration, and from a file that is watched, so that an
// operator or a script adds a worker by writing a line.
//
// It never talks to a worker and never judges one. A file that cannot be read or holds a mistake changes nothing: the
// last good list stays in force, and the mistake is logged with its line and a hint.
package discover
