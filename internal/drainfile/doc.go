// Package drainfile stores the drains of a node without a global tier, in memory and in a file.
//
// A drain that cannot be written to the file is refused. What a drain means for requests is decided elsewhere.
package drainfile
