// Package machine says what a process of this machine has used, for the benches: processor time, memory, and how long it
// waited for a processor because others had them. On other systems than Linux it knows nothing, and says so.
package machine
