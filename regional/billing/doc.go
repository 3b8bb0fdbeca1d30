// Package billing records the usage of tenants for billing: one line of JSON per request, in append-only files.
//
// A record has a number: the writer's boot and a count in it, so that readers detect duplicate and missing records.
// Requests never wait for the disk: they hand over their record, and one goroutine writes batches and syncs them once
// a second. When the disk is full or fails, up to Backlog records wait in memory; beyond that they are lost and
// counted, and their numbers are missing in the files. A killed process loses what was not synced: at most a second
// of records. It may leave a torn last line; readers skip and report it.
//
// A batch that was written in part is truncated before it is written again; if truncation fails too, the whole batch
// goes to a new file, and readers skip the duplicates.
//
// The package does not compute usage, and gets no prompts or keys.
package billing
