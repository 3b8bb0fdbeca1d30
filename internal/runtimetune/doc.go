// Package runtimetune adjusts GOGC to the live heap and the allocation rate of the process. An operator's own
// GOGC takes precedence. TuneGC is the control loop. It never triggers a collection, except to return memory to
// the system after a busy period.
package runtimetune
