// Package usage keeps the record of what tenants used, for billing: one line of JSON for each request, in files that are only
// ever appended to.
//
// A record has a number: the writer's boot and a count in it, so that whoever reads files can tell a record that stands
// twice, and one that is missing. Requests never wait for the disk: they hand their record over, and one goroutine writes
// batches and syncs them once a second. When the disk is full or fails, records wait in memory, as many as Backlog; beyond
// that they are lost and counted, and their numbers are missing in the files. What a killed process had not synced is lost:
// a second's worth at the most. A torn last line is what a kill leaves behind; readers pass it over and say so.
//
// A batch that was written in part is cut off again before it is tried anew; where even that fails, the batch goes
// into a new file as a whole, and readers leave out what then stands twice.
//
// It never decides what a request used, and never sees a prompt or a key.
package usage
